package lifecycle

import "fmt"

// Until is what a pod is held for.
type Until uint8

const (
	// UntilSessions holds a pod until it has no open session.
	UntilSessions Until = iota
	// UntilWithdrawn holds it until it is sent no new traffic and the quiet time has
	// passed. Its sessions are left to an application that ends them itself when it
	// gets SIGTERM.
	UntilWithdrawn
)

// String returns the word of the annotation.
func (u Until) String() string {
	switch u {
	case UntilSessions:
		return "sessions"
	case UntilWithdrawn:
		return "withdrawn"
	}
	return fmt.Sprintf("until %d", uint8(u))
}
