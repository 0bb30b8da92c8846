package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listValue is a flag that holds several values: separated by commas, given
// several times, or both. The first one given replaces the default.
type listValue[T any] struct {
	values *[]T
	parse  func(string) (T, error)
	kind   string
	given  bool
}

func (l *listValue[T]) Set(s string) error {
	if !l.given {
		l.given = true
		*l.values = nil
	}
	for part := range strings.SplitSeq(s, ",") {
		v, err := l.parse(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*l.values = append(*l.values, v)
	}
	return nil
}

func (l *listValue[T]) String() string {
	words := make([]string, len(*l.values))
	for i, v := range *l.values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ",")
}

func (l *listValue[T]) Type() string { return l.kind }

// oneValue is a flag that holds one value of a type with a parser of its own.
type oneValue[T fmt.Stringer] struct {
	value *T
	parse func(string) (T, error)
	kind  string
}

func (o oneValue[T]) Set(s string) error {
	v, err := o.parse(s)
	if err != nil {
		return err
	}
	*o.value = v
	return nil
}

func (o oneValue[T]) String() string { return (*o.value).String() }
func (o oneValue[T]) Type() string   { return o.kind }

// parseAddress reads an IP address and guesses what else was meant.
func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil {
		return a, nil
	}
	if s == "" {
		return netip.Addr{}, errors.New("an address is empty: name the pod's own IP address")
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return netip.Addr{}, fmt.Errorf("%q is a range: name single addresses, such as %s", s, p.Addr())
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return netip.Addr{}, fmt.Errorf("%q has a port in it: use --address %s --port %d", s, p.Addr(), p.Port())
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.Addr{}, fmt.Errorf("%q has brackets: use %s", s, a)
	}
	return netip.Addr{}, fmt.Errorf("%q is no IP address: names are not looked up, name the address itself", s)
}

// parsePort reads a port number.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if errors.Is(err, strconv.ErrRange) || err == nil && n == 0 {
		return 0, fmt.Errorf("port %s is out of range: use 1 to 65535", s)
	}
	if _, negative := strconv.Atoi(s); err != nil && negative == nil {
		return 0, fmt.Errorf("port %s is out of range: use 1 to 65535", s)
	}
	if err != nil {
		return 0, fmt.Errorf("port %q is no number: use numbers, such as 80,8080", s)
	}
	return uint16(n), nil
}

// durationValue is a flag that holds a length of time.
type durationValue time.Duration

func (d *durationValue) Set(s string) error {
	v, err := parseDuration(s)
	if err != nil {
		return err
	}
	*d = durationValue(v)
	return nil
}

// String is empty for none, which the help then does not call a default.
func (d *durationValue) String() string {
	if *d == 0 {
		return ""
	}
	return plain(time.Duration(*d))
}

// plain is a length of time as people write it: 60s and not 1m0s.
func plain(d time.Duration) string {
	if d < 2*time.Minute && d%time.Second == 0 {
		return strconv.Itoa(int(d/time.Second)) + "s"
	}
	s := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if rest, ok := strings.CutSuffix(s, zero); ok && strings.ContainsAny(rest[len(rest)-1:], "mh") {
			s = rest
		}
	}
	return s
}

func (d *durationValue) Type() string { return "TIME" }

// parseDuration reads a length of time that is not negative.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no length of time: use a number with a unit, such as 30s or 5m", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%s is negative: use a length of time that is not, such as 30s", s)
	}
	return d, nil
}

// format is how a command writes its data.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
)

var formats = []format{formatText, formatJSON}

func (f format) String() string { return string(f) }

func parseFormat(s string) (format, error) {
	if f := format(s); slices.Contains(formats, f) {
		return f, nil
	}
	return "", fmt.Errorf("unknown format %q: use text or json", s)
}
