//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// holds shows for how long a walk of the table keeps a CPU from handling
// packets. On each CPU a probe of real-time priority sends a packet over a veth
// pair, twice each millisecond. It outruns everything but what the kernel does with bottom
// halves off, and so does its packet: the latest of them tells the longest hold.
func (b *bench) holds(ctx context.Context, n *netlab.Namespace, size int) error {
	line, err := newLine()
	if err != nil {
		return err
	}
	defer func() { _ = line.Close() }()
	var quiet, stream, filter sample
	for range b.rounds {
		walk := func(mode string) func() error {
			return func() error {
				c := b.bySessions(mode)
				_, err := runIn(ctx, n, c.env, c.args...)
				return err
			}
		}
		for _, m := range []struct {
			to     *sample
			during func() error
		}{
			{&quiet, func() error { return pause(ctx, 3*time.Second) }},
			{&stream, walk("auto")},
			{&filter, walk("filter")},
		} {
			latest, err := line.latest(ctx, m.during)
			if err != nil {
				return err
			}
			*m.to = append(*m.to, latest)
		}
		b.say("latest packet: %s without a walk, %s streamed, %s filtered",
			span(quiet[len(quiet)-1]), span(stream[len(stream)-1]), span(filter[len(filter)-1]))
	}
	const required = 10 * time.Millisecond
	longer := max(0, stream.median()-quiet.median())
	b.add(row{
		what:     fmt.Sprintf("latest packet of another flow, %s, auto", kilo(size)),
		ours:     stream.String(),
		against:  "no walk; --snapshot filter",
		theirs:   span(quiet.median()) + "; " + span(filter.median()),
		required: "+ <= " + span(required),
		reached:  "+ " + span(longer),
		verdict:  judge(longer <= required),
	})
	return nil
}

// line is a veth pair between two namespaces, with a UDP socket at each end for
// every CPU.
type line struct {
	near, far *netlab.Namespace
	cpus      []int
	ends      []*os.File // near, far, near, far
}

func newLine() (l *line, err error) {
	l = &line{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.near, err = netlab.New(); err != nil {
		return l, err
	}
	if l.far, err = netlab.New(); err != nil {
		return l, err
	}
	near, far := netip.MustParsePrefix("10.250.0.1/24"), netip.MustParsePrefix("10.250.0.2/24")
	if err := netlab.Connect(l.near, "far", []netip.Prefix{near}, l.far, "near", []netip.Prefix{far}); err != nil {
		return l, err
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return l, err
	}
	for cpu := 0; len(l.cpus) < set.Count(); cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		l.cpus = append(l.cpus, cpu)
		port := uint16(9000 + cpu)
		if err := l.end(l.far, netip.AddrPortFrom(far.Addr(), port), netip.AddrPort{}); err != nil {
			return l, err
		}
		if err := l.end(l.near, netip.AddrPortFrom(near.Addr(), port), netip.AddrPortFrom(far.Addr(), port)); err != nil {
			return l, err
		}
	}
	return l, nil
}

// end adds a socket. One with a peer sends to it.
func (l *line) end(n *netlab.Namespace, local, peer netip.AddrPort) error {
	return n.Do(func() error {
		var to *net.UDPAddr
		if peer.IsValid() {
			to = net.UDPAddrFromAddrPort(peer)
		}
		var c *net.UDPConn
		var err error
		if to == nil {
			c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(local))
		} else {
			c, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(local), to)
		}
		if err != nil {
			return err
		}
		f, err := c.File()
		if err == nil {
			l.ends = append(l.ends, f)
		}
		return errors.Join(err, c.Close())
	})
}

// Close lets go of both namespaces.
func (l *line) Close() error {
	var errs []error
	for _, f := range l.ends {
		errs = append(errs, f.Close())
	}
	for _, n := range []*netlab.Namespace{l.near, l.far} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// latest returns how late the latest packet of any CPU was while f ran.
func (l *line) latest(ctx context.Context, f func() error) (time.Duration, error) {
	var args []string
	for _, cpu := range l.cpus {
		args = append(args, strconv.Itoa(cpu))
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	// No signal may end a system call of the probes early.
	cmd.Env = append(os.Environ(), childEnv+"="+childProbe, "GODEBUG=asyncpreemptoff=1")
	cmd.ExtraFiles = l.ends
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var word string
	_, err = fmt.Fscanln(stdout, &word) // it is ready
	if err == nil {
		err = f()
	}
	_ = stdin.Close()
	var ns int64
	if _, scanned := fmt.Fscanln(stdout, &ns); err == nil {
		err = scanned
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("probe on CPUs %s: %w", strings.Join(args, ", "), err)
	}
	return time.Duration(ns), nil
}
