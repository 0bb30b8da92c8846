//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	tmconntrack "github.com/ti-mo/conntrack"
)

// childEnv makes the bench one of the small programs that it measures with.
const (
	childEnv   = "CONNDRAIN_BENCH_CHILD"
	childDump  = "dump"
	childProbe = "probe"
)

func child(name string) int {
	var err error
	switch name {
	case childDump:
		err = dumpAll()
	case childProbe:
		err = probe()
	default:
		err = errors.New("no such child")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// dumpAll prints the flows whose server is the address in the first argument,
// one a line.
func dumpAll() error {
	address, err := netip.ParseAddr(os.Args[1])
	if err != nil {
		return err
	}
	c, err := tmconntrack.Dial(nil)
	if err != nil {
		return err
	}
	flows, err := c.Dump(nil)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	var out []byte
	for _, f := range flows {
		if r := f.TupleReply; r.IP.SourceAddress == address {
			out = fmt.Appendf(out, "%s:%d %s:%d\n", r.IP.DestinationAddress, r.Proto.DestinationPort, r.IP.SourceAddress, r.Proto.SourcePort)
		}
	}
	_, err = os.Stdout.Write(out)
	return errors.Join(err, c.Close())
}
