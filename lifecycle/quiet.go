package lifecycle

import "time"

// What a pod that is held for its requests waits for if nothing else is said.
const (
	// DefaultQuiet is how long a connection has to be silent of which nobody can tell
	// whether a request is in flight.
	DefaultQuiet = 10 * time.Second
	// DefaultBusyAfter is how long a moment without a request is waited for before one
	// with few of them has to do.
	DefaultBusyAfter = 10 * time.Second
)

// WhenQuiet lets a hook end its wait by itself, at a moment at which no request is in
// flight: nothing else holds the pod now. The lists are of the moment of the answer;
// each answer brings new ones, and an answer without them takes the permission back.
// A connection to a port that somebody listens on and that is on none of them holds.
type WhenQuiet struct {
	// Requests and Strict are the clients whose connections hold while a request is
	// in flight, by the wide rule and by the strict one. One that has no socket holds
	// too.
	Requests PeerSet `json:"requests,omitempty"`
	Strict   PeerSet `json:"strict,omitempty"`
	// Ignored are those that do not hold, IgnoredPorts the pod's own ports to which
	// none of the others does. One that is in one of the other lists, too, holds as
	// they say while it has a socket, and not without one.
	Ignored      PeerSet  `json:"ignored,omitempty"`
	IgnoredPorts []uint16 `json:"ignoredPorts,omitempty"`
	// QuietSeconds is after how long a silence a connection holds no more of which
	// the hook cannot tell.
	QuietSeconds float64 `json:"quietSeconds"`
	// BusyAfterSeconds is after how long the moment with the fewest requests will do;
	// 0 is never.
	BusyAfterSeconds float64 `json:"busyAfterSeconds"`
}

// MaxQuietPeers is how many clients a WhenQuiet names. A pod with more is held for its
// sessions.
const MaxQuietPeers = 20000

// Leaving is a hook's last word: it ends its wait by itself, by a WhenQuiet.
type Leaving struct {
	// Cut counts the requests that were in flight all the same, Untold the ones of them
	// that were perhaps none, since nobody could tell.
	Cut    int `json:"cut"`
	Untold int `json:"untold,omitempty"`
}

// RequestReport is what a pod's connections are doing, as its hook sees it.
type RequestReport struct {
	// Classes are the clients by the word of their class, under the wide rule.
	Classes map[string]PeerSet `json:"classes,omitempty"`
	// Counts are how many there are of each: more than Classes names where there are
	// very many.
	Counts map[string]int `json:"counts,omitempty"`
	// QuietAgoSeconds is how long ago the latest moment was at which no request was in
	// flight on any of them, those of which nobody can tell silent for DefaultQuiet;
	// absent if there was none yet.
	QuietAgoSeconds *float64 `json:"quietAgoSeconds,omitempty"`
	// Blind says why the hook cannot tell requests at all; empty where it can.
	Blind string `json:"blind,omitempty"`
}

// MaxClassedPeers is how many clients a RequestReport names.
const MaxClassedPeers = 2000

// Notify asks a hook to tell the application that the drain has begun, once: by a
// request to the pod itself, or by a signal to the first process of the hook's
// container.
type Notify struct {
	// Method, Scheme, Port and Path are those of the request; Path may have a query.
	Method string `json:"method,omitempty"`
	Scheme string `json:"scheme,omitempty"`
	Port   uint16 `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	// Signal is the signal's name, such as SIGUSR1; empty where it is a request.
	Signal string `json:"signal,omitempty"`
}

// Notified says how that went; Failure is empty where it went well.
type Notified struct {
	Failure string `json:"failure,omitempty"`
	// Unanswered is set where the failure is that an application which was asked has not
	// answered: it may have heard.
	Unanswered bool `json:"unanswered,omitempty"`
}

// What a hook can do beyond the first release, as it says in its requests.
const (
	// CanJudge: it ends its wait by a WhenQuiet.
	CanJudge = "judge"
	// CanRequest and CanSignal: it carries out a Notify of this kind.
	CanRequest = "notify-http"
	CanSignal  = "notify-signal"
)
