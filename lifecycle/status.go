package lifecycle

import (
	"net/netip"
	"time"
)

// What a helper tells people, and takes from them. They ask inside of its own
// container, by `conndrain-node status` and `conndrain-node release`, which ask the
// running helper at LocalSocket. Both sides ignore fields that they do not know.
const (
	// LocalSocket is a Unix socket. Its folder is a volume of the helper's container:
	// an abstract one would belong to the network namespace, which is the node's, so
	// that whatever runs on the node's network could end its drains.
	LocalSocket = "/run/conndrain/local/helper.sock"
	// StatusPath answers a GET with a NodeStatus.
	StatusPath = "/v1/status"
	// ReleasePath takes a ReleaseRequest by POST and answers with a ReleaseAnswer.
	ReleasePath = "/v1/release"
	// MaxPeers is how many sessions of a drain a status names.
	MaxPeers = 20
)

// NodeStatus is how the drains of a node stand at one moment.
type NodeStatus struct {
	Node    string `json:"node"`
	Version string `json:"version,omitempty"`
	// Disabled says that the helper was told to hold nothing by sessions.
	Disabled bool `json:"disabled,omitempty"`
	// NotReady says why the helper is not ready, one reason each.
	NotReady []string `json:"notReady,omitempty"`
	// Drains are in the order of their begin.
	Drains []DrainStatus `json:"drains"`
}

// DrainStatus is how one pod's drain stands.
type DrainStatus struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Phase is the word of a Phase. A pod that was released is told of until it is
	// gone; Reason then says why it was.
	Phase  string `json:"phase"`
	Reason Reason `json:"reason,omitempty"`
	// StartedAt is when the pod's first hook started, by the node's clock.
	StartedAt      time.Time `json:"startedAt"`
	ElapsedSeconds float64   `json:"elapsedSeconds"`
	// RemainingSeconds is the time to the deadline; null where there is none yet.
	RemainingSeconds *float64 `json:"remainingSeconds"`
	// Source is who counts.
	Source string `json:"source,omitempty"`
	// Open, Idle and Lost are the sessions, New those that began during the drain;
	// null where they are unknown, and what they are after the release is what was
	// left at it.
	Open *int `json:"open"`
	Idle *int `json:"idle"`
	Lost *int `json:"lost"`
	New  *int `json:"new"`
	// Between counts those of Open without a request in flight; null where no hook tells.
	Between *int `json:"between"`
	// Peers are the first MaxPeers of the sessions that hold the pod: those of
	// unknown age, then the oldest. MorePeers counts the rest.
	Peers     []Peer `json:"peers,omitempty"`
	MorePeers int    `json:"morePeers,omitempty"`
	// ReleasedBy and ReleasedFor are who ended the drain and why, if a person did.
	ReleasedBy  string `json:"releasedBy,omitempty"`
	ReleasedFor string `json:"releasedFor,omitempty"`
	// Unknown says why the sessions are unknown.
	Unknown string `json:"unknown,omitempty"`
}

// Blocking is how many sessions hold the pod; ok is false where that is unknown.
func (d DrainStatus) Blocking() (n int, ok bool) {
	if d.Open == nil || d.Lost == nil {
		return 0, false
	}
	return *d.Open + *d.Lost, true
}

// Peer is one session that holds a pod.
type Peer struct {
	Client   netip.AddrPort `json:"client"`
	Port     uint16         `json:"port"`
	Protocol string         `json:"protocol"`
	State    string         `json:"state"`
	// Request is what the connection is doing: owes, sending, streaming, between or
	// unknown; empty where no hook tells.
	Request string `json:"request,omitempty"`
	// AgeSeconds is null for a session that was there before the drain: nobody knows
	// how old it is.
	AgeSeconds *float64 `json:"ageSeconds"`
	// QuietSeconds is how long there has been no packet, null where that is unknown.
	QuietSeconds *float64 `json:"quietSeconds"`
}

// ReleaseRequest ends drains, and says for whom and why.
type ReleaseRequest struct {
	// All of the node, or of Namespace where that is set; else Pods.
	All       bool     `json:"all,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Pods      []PodRef `json:"pods,omitempty"`
	By        string   `json:"by,omitempty"`
	Why       string   `json:"why,omitempty"`
}

// PodRef names a pod.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID is empty where whatever pod has the name is meant.
	UID string `json:"uid,omitempty"`
}

// ReleaseAnswer says what was released, as it stood then, and which pods had no
// drain that could be.
type ReleaseAnswer struct {
	Released []DrainStatus `json:"released"`
	Missing  []PodRef      `json:"missing,omitempty"`
}
