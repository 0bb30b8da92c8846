//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// wire is a link between two namespaces that delays and loses packets: a TUN device
// in each, and this process between them. Packets never overtake each other.
type wire struct {
	// delay is that of one direction, jitter what is added to it at the most.
	delay, jitter time.Duration
	// loss is the share of packets that do not arrive.
	loss float64
	ends [2]*os.File
}

// packet is one on its way.
type packet struct {
	due   time.Time
	bytes []byte
}

const (
	maxPacket = 1500 // a device's usual maximum
	// onTheWire is how many packets are on their way at the most. More are lost.
	onTheWire = 4096
)

// lay makes the two devices, named alike.
func (w *wire) lay(name string, a *netlab.Namespace, aAddr netip.Prefix, b *netlab.Namespace, bAddr netip.Prefix) error {
	for i, end := range []struct {
		n    *netlab.Namespace
		addr netip.Prefix
	}{{a, aAddr}, {b, bAddr}} {
		err := end.n.Do(func() (err error) {
			w.ends[i], err = tunnel(name)
			return err
		})
		if err != nil {
			return fmt.Errorf("make TUN device %s: %w", name, err)
		}
		if err := end.n.Address(name, end.addr); err != nil {
			return err
		}
	}
	return nil
}

// tunnel makes a TUN device in the calling thread's namespace and sets it up.
func tunnel(name string) (*os.File, error) {
	const device = "/dev/net/tun"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s (modprobe tun, or leave the slow links out with --links direct): %w", device, err)
	}
	if err := attach(fd, name); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), device), nil
}

// attach makes the device of an open file, and sets it up.
func attach(fd int, name string) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
	return errors.Join(err, unix.Close(s))
}

// carry carries packets both ways until ctx ends. The same seed loses the same
// places of the sequence.
func (w *wire) carry(ctx context.Context, seed uint64) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() {
		for _, f := range w.ends {
			_ = f.SetDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	for i := range w.ends {
		way := make(chan packet, onTheWire)
		luck := rand.New(rand.NewPCG(seed, uint64(i)))
		g.Go(func() error { return w.take(ctx, w.ends[i], way, luck) })
		g.Go(func() error { return w.give(ctx, w.ends[1-i], way) })
	}
	err := g.Wait()
	for _, f := range w.ends {
		err = errors.Join(err, f.Close())
	}
	return err
}

// take takes what a device sends.
func (w *wire) take(ctx context.Context, from *os.File, way chan<- packet, luck *rand.Rand) error {
	defer close(way)
	buffer := make([]byte, maxPacket)
	var due time.Time
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return overWith(ctx, err)
		}
		if luck.Float64() < w.loss {
			continue
		}
		at := time.Now().Add(w.delay)
		if w.jitter > 0 {
			at = at.Add(time.Duration(luck.Int64N(int64(w.jitter))))
		}
		if at.After(due) {
			due = at
		}
		select {
		case way <- packet{due, append([]byte(nil), buffer[:n]...)}:
		default: // as a full queue does
		}
	}
}

// give gives a device what it receives, when its time has come.
func (w *wire) give(ctx context.Context, to *os.File, way <-chan packet) error {
	for p := range way {
		if wait := time.Until(p.due); wait > 0 {
			rest(ctx, wait)
		}
		if _, err := to.Write(p.bytes); err != nil {
			return overWith(ctx, err)
		}
	}
	return nil
}

// overWith is the error, or nil where it comes of ctx's end.
func overWith(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// rest waits, but not beyond ctx.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
