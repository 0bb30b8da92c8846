package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conndrain/conndrain/conntrack"
)

// targetFlags are the flags that say whose sessions are meant and how they are
// read.
type targetFlags struct {
	target   conntrack.Target
	snapshot conntrack.SnapshotMode
	output   format
}

// add defines the flags with their defaults.
func (f *targetFlags) add(cmd *cobra.Command) {
	f.target.Protocols = []conntrack.Protocol{conntrack.TCP, conntrack.UDP}
	f.output = formatText
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(&listValue[netip.Addr]{values: &f.target.Addresses, parse: parseAddress, kind: "IP,..."}, "address",
		"addresses of the server whose sessions are meant; needed")
	fs.Var(&listValue[uint16]{values: &f.target.Ports, parse: parsePort, kind: "N,..."}, "port",
		"the server's ports that count, in either direction (default every port)")
	fs.Var(oneValue[conntrack.Direction]{&f.target.Direction, conntrack.ParseDirection, "WORD"}, "direction",
		"inbound: the address is the server; outbound: it is the client; both")
	fs.Var(&listValue[conntrack.Protocol]{values: &f.target.Protocols, parse: conntrack.ParseProtocol, kind: "WORD,..."}, "protocol",
		"tcp, udp, sctp")
	// The help names the default; not to ask for any lets the sockets of this
	// machine decide alone where they must, which know TCP only.
	f.target.Protocols = nil
	durationVar(fs, &f.target.IdleAfter, "idle-after", 0,
		"a session without a packet for this long is idle and does not block (default off)")
	completeWords(cmd, "direction", "inbound", "outbound", "both")
	completeList(cmd, "protocol", "tcp", "udp", "sctp")
	for _, free := range []string{"address", "port", "idle-after"} {
		completeWords(cmd, free)
	}
}

// addLast defines the flags that belong at the end of the help.
func (f *targetFlags) addLast(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(oneValue[conntrack.SnapshotMode]{&f.snapshot, conntrack.ParseSnapshotMode, "WORD"}, "snapshot",
		"filter: the kernel searches its table (fast, but one CPU is busy with it); stream: read the table in pieces; auto")
	fs.Var(oneValue[format]{&f.output, parseFormat, "WORD"}, "output", "text or json")
	completeWords(cmd, "snapshot", "auto", "filter", "stream")
	completeWords(cmd, "output", "text", "json")
}

// validate returns a usage error for what each flag alone cannot know.
func (f *targetFlags) validate() error {
	if len(f.target.Addresses) == 0 {
		return usagef("--address is missing: name the IP address whose sessions are meant (only wait --until requests can do without)")
	}
	if err := f.target.Validate(); err != nil {
		return usageError{err}
	}
	for _, a := range f.target.Addresses {
		if a.Unmap().IsLoopback() {
			return usagef("--address %s is loopback: a machine's connections to itself are no sessions; name the address that clients use", a)
		}
	}
	if f.snapshot == conntrack.Filter && !slices.ContainsFunc(f.target.Addresses, isIPv4) {
		return usagef("--snapshot filter is for IPv4: the kernel cannot search its table for an IPv6 address; use auto or stream")
	}
	return nil
}

func isIPv4(a netip.Addr) bool { return a.Unmap().Is4() }

// subject names the target's addresses in a sentence.
func (f *targetFlags) subject() string {
	words := make([]string, len(f.target.Addresses))
	for i, a := range f.target.Addresses {
		words[i] = a.String()
	}
	return strings.Join(words, ", ")
}

func durationVar(fs *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	fs.Var((*durationValue)(d), name, usage)
}

// completeWords completes a flag with one of the words and never with a file.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// completeList completes the last word of a list with those not in it yet.
func completeList(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		done := ""
		if i := strings.LastIndexByte(typed, ','); i >= 0 {
			done = typed[:i+1]
		}
		var offered []cobra.Completion
		for _, w := range words {
			if !strings.Contains(","+done, ","+w+",") {
				offered = append(offered, done+w)
			}
		}
		return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}))
}

// must stops at a mistake in this program itself.
func must(err error) {
	if err != nil {
		panic(fmt.Errorf("define flags: %w", err))
	}
}
