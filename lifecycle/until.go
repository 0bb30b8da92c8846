package lifecycle

import (
	"fmt"
	"maps"
)

// Until is what a session holds its pod for.
type Until uint8

const (
	// UntilSessions holds a pod until the session has ended.
	UntilSessions Until = iota
	// UntilWithdrawn holds it until it is sent no new traffic and the quiet time has
	// passed. Its sessions are left to an application that ends them itself when it
	// gets SIGTERM.
	UntilWithdrawn
	// UntilRequests holds it until no request is in flight on the session, as far as
	// the pod's own sockets tell of one that speaks HTTP/1.x. The first stream that a
	// port ever sends can be taken for a pause.
	UntilRequests
	// UntilRequestsStrict is the same on evidence that was never wrong: it lets go
	// less often.
	UntilRequestsStrict
)

var untilNames = [...]string{
	UntilSessions: "sessions", UntilWithdrawn: "withdrawn", UntilRequests: "requests", UntilRequestsStrict: "requests-strict",
}

// String returns the word of the annotation.
func (u Until) String() string {
	if int(u) < len(untilNames) {
		return untilNames[u]
	}
	return fmt.Sprintf("until %d", uint8(u))
}

// OfRequests says whether a session holds for its requests only.
func (u Until) OfRequests() bool { return u == UntilRequests || u == UntilRequestsStrict }

// Untils are what the sessions of a pod hold it for, by their served port. The zero
// Untils hold it for all sessions.
type Untils struct {
	// Ports say it of single ports, Rest of all others.
	Ports map[uint16]Until
	Rest  Until
}

// Of is what sessions of a served port hold for.
func (u Untils) Of(port uint16) Until {
	if of, ok := u.Ports[port]; ok {
		return of
	}
	return u.Rest
}

// Only says whether no session holds for anything else.
func (u Untils) Only(what Until) bool {
	for _, of := range u.Ports {
		if of != what {
			return false
		}
	}
	return u.Rest == what
}

// Any says whether some session may hold for what f says yes to.
func (u Untils) Any(f func(Until) bool) bool {
	for _, of := range u.Ports {
		if f(of) {
			return true
		}
	}
	return f(u.Rest)
}

// Equal says whether both mean the same.
func (u Untils) Equal(v Untils) bool { return u.Rest == v.Rest && maps.Equal(u.Ports, v.Ports) }
