package conntrack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const sysctlDir = "/proc/sys/net/netfilter/nf_conntrack_"

// lockThread binds the goroutine to its thread for good: the thread ends with it,
// so that no other goroutine ever runs in the wrong namespace.
func lockThread() { runtime.LockOSThread() }

func (k *netlinkKernel) size() (tableSize, error) {
	var s tableSize
	err := inNamespace(k.netns, func() error {
		var err, err2 error
		s.count, err = readSetting("count")
		s.buckets, err2 = readSetting("buckets")
		return errors.Join(err, err2)
	})
	return s, err
}

func (k *netlinkKernel) limits() (limits, error) {
	var l limits
	err := inNamespace(k.netns, func() error {
		var errs []error
		for name, d := range map[string]*time.Duration{
			"tcp_timeout_established":    &l.tcpEstablished,
			"tcp_timeout_unacknowledged": &l.tcpUnacknowledged,
			"tcp_timeout_max_retrans":    &l.tcpMaxRetrans,
			"tcp_timeout_syn_sent":       &l.tcpSynSent,
			"tcp_timeout_close":          &l.tcpClose,
			"tcp_timeout_time_wait":      &l.tcpTimeWait,
			"udp_timeout":                &l.udp,
			"udp_timeout_stream":         &l.udpStream,
			"sctp_timeout_established":   &l.sctpEstablished,
		} {
			seconds, err := readSetting(name)
			if errors.Is(err, os.ErrNotExist) && strings.HasPrefix(name, "sctp") {
				continue // a kernel without SCTP tracking
			}
			errs = append(errs, err)
			*d = time.Duration(seconds) * time.Second
		}
		var err error
		l.events, err = readSetting("events")
		if errors.Is(err, os.ErrNotExist) {
			err = nil // a kernel without events: the reader does without
		}
		return errors.Join(append(errs, err)...)
	})
	return l, err
}

// readSetting reads one number of the calling thread's network namespace.
func readSetting(name string) (int, error) {
	b, err := os.ReadFile(sysctlDir + name)
	if errors.Is(err, os.ErrNotExist) {
		if _, statErr := os.Stat(sysctlDir + "count"); statErr != nil {
			return 0, fmt.Errorf("read nf_conntrack_%s: %w", name, ErrUnsupported)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read nf_conntrack_%s: %w", name, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read nf_conntrack_%s: %w", name, err)
	}
	return n, nil
}
