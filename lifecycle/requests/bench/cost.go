//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

// cost is what one look takes: in the median, and of CPU time on the average, which
// a busy machine does not change.
type cost struct {
	Sockets        int     `json:"sockets"`
	LookMillis     float64 `json:"lookMillis"`
	JudgeMillis    float64 `json:"judgeMillis"`
	LookCPUMillis  float64 `json:"lookCPUMillis"`
	JudgeCPUMillis float64 `json:"judgeCPUMillis"`
}

const (
	someSockets, manySockets = 1000, 10000
	costPort                 = 8080
	// costLooks is how many looks each figure is of.
	costLooks = 50
)

// measureCosts measures a look at few sockets and at many.
func measureCosts(ctx context.Context) (costs []cost, err error) {
	ns, err := netlab.New()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	other, err := netlab.New()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	if err := netlab.Connect(other, "bench", onlyLink(1), ns, "bench", onlyLink(2)); err != nil {
		return nil, err
	}
	l, err := ns.Listen(ctx, "tcp", fmt.Sprintf("0.0.0.0:%d", costPort))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for _, sockets := range []int{someSockets, manySockets} {
		c, err := costOf(ctx, ns, other, l, sockets)
		if err != nil {
			return nil, fmt.Errorf("%d sockets: %w", sockets, err)
		}
		costs = append(costs, c)
	}
	return costs, nil
}

// dialEnv says to a child how many clients it is: no process may have as many files
// as both ends of all connections.
const dialEnv = "CONNDRAIN_BENCH_CLIENTS"

// dial is the child. Each of its connections sends a byte and gets one; it ends with
// its standard input.
func dial() error {
	sockets, err := strconv.Atoi(os.Getenv(dialEnv))
	if err != nil {
		return err
	}
	for range sockets {
		c, err := net.Dial("tcp", netip.AddrPortFrom(linkAddress(0, 2), costPort).String())
		if err != nil {
			return err
		}
		defer c.Close() //nolint:revive // all are to stay until the end
		if err := say(c, c); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// say sends a byte and receives one.
func say(to io.Writer, from io.Reader) error {
	b := []byte{1}
	if _, err := to.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(from, b)
	return err
}

// costOf connects so many clients and looks at the server's sockets.
func costOf(ctx context.Context, ns, other *netlab.Namespace, l net.Listener, sockets int) (c cost, err error) {
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	child := exec.CommandContext(ctx, self)
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", dialEnv, sockets))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return c, err
	}
	if err := other.Do(child.Start); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, in.Close(), child.Wait()) }()
	for range sockets {
		s, err := l.Accept()
		if err != nil {
			return c, err
		}
		defer s.Close() //nolint:revive // all are to stay until the end
		if err := say(s, s); err != nil {
			return c, err
		}
	}
	return looksOf(ctx, ns, sockets)
}

func looksOf(ctx context.Context, ns *netlab.Namespace, sockets int) (cost, error) {
	classifier := requests.New()
	var looks, judges []time.Duration
	var lookCPU, judgeCPU time.Duration
	err := ns.Do(func() error {
		for range costLooks {
			start, cpu := time.Now(), threadCPU()
			l, err := sockdiag.TakeTraffic(ctx)
			if err != nil {
				return fmt.Errorf("look: %w", err)
			}
			looked, between := time.Now(), threadCPU()
			r := &running{}
			classifier.Look(l.At, figuresOf(l, map[uint16]*running{costPort: r})[r])
			looks, judges = append(looks, looked.Sub(start)), append(judges, time.Since(looked))
			lookCPU, judgeCPU = lookCPU+between-cpu, judgeCPU+threadCPU()-between
		}
		return nil
	})
	if err != nil {
		return cost{}, err
	}
	slices.Sort(looks)
	slices.Sort(judges)
	return cost{
		Sockets: sockets, LookMillis: millis(looks[costLooks/2]), JudgeMillis: millis(judges[costLooks/2]),
		LookCPUMillis: millis(lookCPU / costLooks), JudgeCPUMillis: millis(judgeCPU / costLooks),
	}, nil
}

// threadCPU is the CPU time that the calling thread has used.
func threadCPU() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r report) writeCosts(w io.Writer) error {
	if len(r.Costs) == 0 {
		return nil
	}
	rows := [][]string{{"a look at", "takes", "of CPU", "to judge it", "of CPU"}}
	for _, c := range r.Costs {
		row := []string{fmt.Sprintf("%d sockets", c.Sockets)}
		for _, m := range []float64{c.LookMillis, c.LookCPUMillis, c.JudgeMillis, c.JudgeCPUMillis} {
			row = append(row, fmt.Sprintf("%.1f ms", m))
		}
		rows = append(rows, row)
	}
	return table(w, rows...)
}
