package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AnnotationPrefix begins the name of every annotation that is read.
const AnnotationPrefix = "conndrain.io/"

// The annotations of a pod.
const (
	// UntilAnnotation is what a pod is held for: sessions, requests, requests-strict or
	// withdrawn; of single ports, port=word.
	UntilAnnotation = AnnotationPrefix + "until"
	// IdleAfterAnnotation makes a session idle after so long without a packet.
	IdleAfterAnnotation = AnnotationPrefix + "idle-after"
	// SettleAnnotation is the quiet time.
	SettleAnnotation = AnnotationPrefix + "settle"
	// MinDelayAnnotation is the least time from the withdrawal to the release.
	MinDelayAnnotation = AnnotationPrefix + "min-delay"
	// ReserveAnnotation is the part of the grace period kept for the application.
	ReserveAnnotation = AnnotationPrefix + "reserve"
	// PortsAnnotation is what counts as served, by number or by a container port's
	// name.
	PortsAnnotation = AnnotationPrefix + "ports"
	// QuietAnnotation is after how long a silence a connection holds no more of which
	// nobody can tell whether a request is in flight.
	QuietAnnotation = AnnotationPrefix + "quiet"
	// BusyAfterAnnotation is after how long a moment with few requests will do where one
	// with none does not come; 0 is never.
	BusyAfterAnnotation = AnnotationPrefix + "busy-after"
	// NotifyAnnotation is how the application is told that the drain has begun.
	NotifyAnnotation = AnnotationPrefix + "notify"
	// NotifyAfterAnnotation is how long nothing new has to have come before it is told.
	NotifyAfterAnnotation = AnnotationPrefix + "notify-after"
)

const (
	// longest is the longest duration that an annotation may have.
	longest = 24 * time.Hour
	// shortestIdle is the shortest time without a packet that means something: what
	// sends more often than that would otherwise be idle between two packets.
	shortestIdle = time.Second
	// maxPorts bounds what one annotation may name.
	maxPorts = 64
	// maxShown is how much of a malformed value is shown, in runes.
	maxShown = 40
)

// Settings are what a pod's annotations ask for. The zero Settings ask for nothing.
type Settings struct {
	Until     Untils
	IdleAfter time.Duration
	// These are nil where the pod does not say.
	Settle, MinDelay, Reserve, Quiet, BusyAfter, NotifyAfter *time.Duration
	// Notify is nil where nobody is told.
	Notify *Notify
	// Ports are sorted and unique; none means that the pod does not say.
	Ports []uint16
}

// Malformed is an annotation that means nothing, so that its default is taken.
type Malformed struct {
	Annotation, Value string
	// Why says what is wrong and what is allowed.
	Why string
	// Unknown says that it is the name that means nothing, whatever the value.
	Unknown bool
}

// String is for a person.
func (m Malformed) String() string {
	if m.Unknown {
		return shorten(m.Annotation) + " " + m.Why
	}
	return fmt.Sprintf("%s: %s %s", shorten(m.Annotation), strconv.Quote(shorten(m.Value)), m.Why)
}

func shorten(s string) string {
	n := 0
	for i := range s {
		if n == maxShown {
			return s[:i] + "..."
		}
		n++
	}
	return s
}

// ParseAnnotations returns what a pod's annotations ask for, and what is malformed
// among them, in the order of their names. Annotations of others are ignored. The
// ports are the container ports by name.
func ParseAnnotations(all map[string]string, ports map[string][]uint16) (Settings, []Malformed) {
	p := parser{named: ports}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, AnnotationPrefix) {
			p.parse(name, strings.TrimSpace(all[name]))
		}
	}
	return p.settings, p.malformed
}

// parser reads the annotations of one pod.
type parser struct {
	named     map[string][]uint16
	settings  Settings
	malformed []Malformed
}

func (p *parser) parse(name, value string) {
	var why string
	unknown := false
	s := &p.settings
	switch name {
	case UntilAnnotation:
		s.Until, why = p.untils(value)
	case IdleAfterAnnotation:
		var d time.Duration
		if d, why = parseDuration(value); why == "" && d > 0 && d < shortestIdle {
			why = "is too short: use " + shortestIdle.String() + " or more, or 0s for never"
		} else if why == "" {
			s.IdleAfter = d
		}
	case SettleAnnotation:
		s.Settle, why = parseOptional(value)
	case MinDelayAnnotation:
		s.MinDelay, why = parseOptional(value)
	case ReserveAnnotation:
		s.Reserve, why = parseOptional(value)
	case QuietAnnotation:
		s.Quiet, why = parseOptional(value)
	case BusyAfterAnnotation:
		s.BusyAfter, why = parseOptional(value)
	case NotifyAnnotation:
		s.Notify, why = p.notify(value)
	case NotifyAfterAnnotation:
		s.NotifyAfter, why = parseOptional(value)
	case PortsAnnotation:
		s.Ports, why = p.ports(value)
	default:
		unknown = true
		why = "is not known here and is ignored: use until, quiet, busy-after, notify, notify-after, idle-after, settle, min-delay, reserve or ports"
	}
	if why != "" {
		p.malformed = append(p.malformed, Malformed{name, value, why, unknown})
	}
}

func parseOptional(value string) (*time.Duration, string) {
	d, why := parseDuration(value)
	if why != "" {
		return nil, why
	}
	return &d, ""
}

func parseDuration(value string) (time.Duration, string) {
	const allowed = ": use one like 5s or 1m30s, up to 24h"
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return 0, "is not a duration" + allowed
	case d < 0:
		return 0, "is negative" + allowed
	case d > longest:
		return 0, "is too long" + allowed
	}
	return d, ""
}

// ports reads a list. One wrong entry makes all of it malformed: what is left would
// be something that nobody asked for.
func (p *parser) ports(value string) ([]uint16, string) {
	var numbers []uint16
	entries := strings.Split(value, ",")
	if len(entries) > maxPorts {
		return nil, fmt.Sprintf("names too many ports: use up to %d", maxPorts)
	}
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			return nil, "has an empty entry: use numbers from 1 to 65535 or names of container ports, separated by commas"
		}
		of := p.port(entry)
		if len(of) == 0 {
			return nil, "has an entry that is " + noPort + strconv.Quote(shorten(entry))
		}
		numbers = append(numbers, of...)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), ""
}

// noPort begins what is said of an entry that port returns nothing for.
const noPort = "neither a number from 1 to 65535 nor the name of one of the pod's container ports: "

// port returns the number, or those with the name.
func (p *parser) port(entry string) []uint16 {
	if n, err := strconv.ParseUint(entry, 10, 16); err == nil && n > 0 {
		return []uint16{uint16(n)}
	}
	return p.named[entry]
}

// Budget is how long after its first hook has started a pod with this grace period
// may be waited for: see the function Budget. ok is false where the reserve that
// the pod asks for leaves nothing of it, and the usual one is taken.
func (s Settings) Budget(grace, limit time.Duration) (budget time.Duration, ok bool) {
	switch {
	case s.Reserve == nil:
		return Budget(grace, limit), true
	case *s.Reserve >= grace:
		return Budget(grace, limit), false
	}
	return budgetOf(grace, *s.Reserve, limit), true
}

// Over returns the policy with what the settings ask for in its place.
func (s Settings) Over(p Policy) Policy {
	if s.Until.Only(UntilWithdrawn) {
		p.Until = UntilWithdrawn
	}
	if s.Settle != nil {
		p.Settle = *s.Settle
		// A longer quiet time than usual must not be cut short by what is usual.
		p.SettleMax = max(p.SettleMax, p.Settle)
	}
	if s.MinDelay != nil {
		p.MinDelay = *s.MinDelay
	}
	return p
}
