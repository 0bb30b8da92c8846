package lifecycle

import "time"

// The wire format between a hook and its node's helper. Application images keep
// old hooks for years, and a node is updated before or after them: both sides
// ignore fields that they do not know and do without those that are missing.
const (
	// DrainPath takes a DrainRequest by POST and answers with a DrainAnswer.
	DrainPath = "/v1/drain"
	// Header is in every answer of a helper, with HeaderV1 as its value. An answer
	// without it is from something in between, and means nothing.
	Header   = "Conndrain"
	HeaderV1 = "v1"
	// APIPort is where a helper listens for hooks.
	APIPort = 10940
	// MetricsPort is where it listens for scrapes and probes.
	MetricsPort = 10941
	// MaxRequestBytes is the size of the largest request that is read.
	MaxRequestBytes = 256 << 10
	// SidecarPort is where a sidecar takes a kubelet's hooks.
	SidecarPort = 10942
	// MaxWait is the longest that a helper holds a request.
	MaxWait = 25 * time.Second
)

// DrainRequest asks how the drain of the caller's pod stands, and begins it if it
// has not begun. It names no pod: the helper goes by the address that it comes from.
type DrainRequest struct {
	// ElapsedSeconds is how long ago the hook started, by a clock that cannot be set.
	ElapsedSeconds float64 `json:"elapsedSeconds,omitempty"`
	// WaitSeconds is how long the answer may be held back for the release. 0 asks
	// for an answer at once.
	WaitSeconds float64 `json:"waitSeconds,omitempty"`
	// Version is that of the hook, for the helper's log.
	Version string `json:"version,omitempty"`
	// FallbackSleepSeconds is how long the hook waits at the least when nobody can
	// tell it about sessions.
	FallbackSleepSeconds float64 `json:"fallbackSleepSeconds,omitempty"`
	// Serves are ports of the pod that the hook itself listens on: what comes to them
	// is no session of the pod.
	Serves []uint16 `json:"serves,omitempty"`
	// Sockets are those of the pod's network namespace; absent where the hook does
	// not tell.
	Sockets *SocketList `json:"sockets,omitempty"`
	// Can are the words for what the hook is able to do beyond that.
	Can []string `json:"can,omitempty"`
	// Requests are what the pod's connections are doing.
	Requests *RequestReport `json:"requests,omitempty"`
	// Notified is how a Notify was carried out; it is said once.
	Notified *Notified `json:"notified,omitempty"`
	// Leaving is set in the last request of a hook that ends by itself. Nobody waits
	// for the answer.
	Leaving *Leaving `json:"leaving,omitempty"`
}

// DrainAnswer says how a drain stands.
type DrainAnswer struct {
	// Phase is the word of a Phase; only "released" lets a hook return.
	Phase string `json:"phase,omitempty"`
	// Reason says why it was released.
	Reason Reason `json:"reason,omitempty"`
	// RemainingSeconds is the time to the deadline: 0 if it has passed, absent where
	// the caller has no drain.
	RemainingSeconds *float64 `json:"remainingSeconds,omitempty"`
	// Source is who counted.
	Source string `json:"source,omitempty"`
	// Open, Idle and Lost are the sessions, Cut those that were left at the
	// deadline; absent where they are unknown.
	Open *int `json:"open,omitempty"`
	Idle *int `json:"idle,omitempty"`
	Lost *int `json:"lost,omitempty"`
	Cut  *int `json:"cut,omitempty"`
	// Message is for a person; set where there is no phase.
	Message string `json:"message,omitempty"`
	// Mark is to be given back with the next look at the pod's sockets.
	Mark string `json:"mark,omitempty"`
	// Look asks for such a look now, and for the next request at once.
	Look bool `json:"look,omitempty"`
	// HostNetwork says that the caller has the node's network, so that its sockets
	// are not the pod's alone.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// LookShare is the part of a CPU that the hook may take for looks at its connections
	// that nobody asks for; absent leaves it to the hook.
	LookShare float64 `json:"lookShare,omitempty"`
	// WhenQuiet lets the hook end its wait by itself.
	WhenQuiet *WhenQuiet `json:"whenQuiet,omitempty"`
	// Notify is to be carried out now, and told of with the next request, at once.
	Notify *Notify `json:"notify,omitempty"`
}

// Released says whether the hook may return.
func (a DrainAnswer) Released() bool { return a.Phase == Released.String() }

// Remaining is the time to the deadline, if the answer tells.
func (a DrainAnswer) Remaining() (time.Duration, bool) {
	if a.RemainingSeconds == nil {
		return 0, false
	}
	return Seconds(*a.RemainingSeconds), true
}

// Seconds makes a duration of what was read from the wire: never negative, and
// never longer than a day, whatever was sent.
func Seconds(s float64) time.Duration {
	const most = 24 * time.Hour
	switch {
	case !(s > 0): // also not a number
		return 0
	case s >= most.Seconds():
		return most
	}
	return time.Duration(s * float64(time.Second))
}
