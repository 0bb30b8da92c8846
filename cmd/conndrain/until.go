package main

import (
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// untilFlags say what a session is waited for.
type untilFlags struct {
	until            lifecycle.Until
	quiet, busyAfter time.Duration
	// given says whether a flag was, whatever its value.
	given func(name string) bool
}

func (f *untilFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.given = fs.Changed
	fs.Var(oneValue[lifecycle.Until]{&f.until, parseUntil, "WORD"}, "until",
		"sessions: no session is left; requests, requests-strict: no HTTP/1.x request is in flight, seen from inside the server's network namespace")
	durationVar(fs, &f.quiet, "quiet", lifecycle.DefaultQuiet, "with --until requests: a connection of which nobody can tell holds until it is silent for this long; 0s for ever")
	durationVar(fs, &f.busyAfter, "busy-after", lifecycle.DefaultBusyAfter, "with --until requests: the moment with the fewest requests will do after this long without one that has none; 0s never")
	completeWords(cmd, "until", "sessions", "requests", "requests-strict")
	completeWords(cmd, "quiet")
	completeWords(cmd, "busy-after")
}

func parseUntil(word string) (lifecycle.Until, error) {
	for _, u := range []lifecycle.Until{lifecycle.UntilSessions, lifecycle.UntilRequests, lifecycle.UntilRequestsStrict} {
		if word == u.String() {
			return u, nil
		}
	}
	return lifecycle.UntilSessions, usagef("unknown word %q: use sessions, requests or requests-strict", word)
}

// validateUntil refuses what cannot be where requests are waited for, and fills in
// whose: the server of this network namespace, whatever its addresses are.
func (f *waitFlags) validateUntil() error {
	if !f.until.OfRequests() {
		for _, name := range []string{"quiet", "busy-after"} {
			if f.given(name) {
				return usagef("--%s means nothing without --until requests or requests-strict: add one of them, or leave it out", name)
			}
		}
		return nil
	}
	t := &f.target
	switch {
	case t.Direction != conntrack.Inbound:
		return usagef("--until %s is for a server: leave out --direction", f.until)
	case slices.ContainsFunc(t.Protocols, func(p conntrack.Protocol) bool { return p != conntrack.TCP }):
		return usagef("--until %s knows TCP alone: leave out --protocol, or wait for the others by --until sessions", f.until)
	case t.IdleAfter > 0 || t.LostAfter > 0:
		return usagef("--until %s has no use for --idle-after and --lost-after: --quiet says how long a silence is long enough", f.until)
	}
	t.Protocols = []conntrack.Protocol{conntrack.TCP}
	own, others := split(t.Addresses)
	if len(others) > 0 {
		return usagef("%s is no address of this network namespace: --until %s looks at the server's own sockets, run it where the server runs", others[0], f.until)
	}
	if len(own) == 0 {
		f.everywhere = true
		t.Addresses = here()
	}
	if len(t.Addresses) == 0 {
		return usagef("this network namespace has no address but loopback: run it where the server runs")
	}
	return nil
}

// subject names whose requests or sessions are waited for in a sentence.
func (f *waitFlags) subject() string {
	if f.everywhere {
		return "this machine"
	}
	return f.targetFlags.subject()
}

// here are the addresses of this network namespace that clients elsewhere can use.
func here() []netip.Addr {
	var all []netip.Addr
	for _, a := range interfaceAddresses() {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			all = append(all, a)
		}
	}
	return all
}

// judge makes what decides between two requests.
func (f *waitFlags) judge() *judge {
	j := &judge{
		rule:       requests.ByWide,
		permission: requests.Permission{Quiet: f.quiet, BusyAfter: f.busyAfter},
		gone:       make(chan moment, 1),
		changes:    make(chan struct{}, 1),
	}
	if f.until == lifecycle.UntilRequestsStrict {
		j.rule = requests.ByStrict
	}
	j.eyes = looks.NewEyes(looks.Looker{Scope: f.scope()}, false)
	return j
}

// scope says which sockets of this network namespace are the server's.
func (f *waitFlags) scope() sockdiag.Scope {
	s := sockdiag.Scope{Ports: f.target.Ports}
	if f.everywhere {
		return s
	}
	for _, a := range f.target.Addresses {
		s.Addresses = append(s.Addresses, a.Unmap().WithZone(""))
	}
	return s
}
