package lifecycle

import "fmt"

// Phase is where a drain stands. It is derived from an Observation each time
// and stored nowhere, so it cannot disagree with what was observed.
type Phase uint8

// The phases in their order. A new session leads from Settling back to
// Draining, the deadline from any phase to Released.
const (
	// Serving: it is not known yet whether the pod is terminating.
	Serving Phase = iota + 1
	// Withdrawing: new traffic is still sent to the pod.
	Withdrawing
	// Draining: a session still blocks, or it is unknown whether one does.
	Draining
	// Settling: nothing blocks, but something new may still begin.
	Settling
	// Released is the end.
	Released
)

// String returns the word used in output, metrics and logs.
func (p Phase) String() string {
	switch p {
	case Serving:
		return "serving"
	case Withdrawing:
		return "withdrawing"
	case Draining:
		return "draining"
	case Settling:
		return "settling"
	case Released:
		return "released"
	}
	return fmt.Sprintf("phase %d", uint8(p))
}
