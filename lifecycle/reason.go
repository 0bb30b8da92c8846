package lifecycle

// Reason says why a drain was released. It is written to output, Events and
// metric labels as it is; the empty Reason means that it was not released yet.
type Reason string

// The reasons.
const (
	// Drained: the last session ended, or there was none.
	Drained Reason = "Drained"
	// Expired: the deadline came while something blocked or was unknown.
	Expired Reason = "Expired"
	// NotTerminating: the pod is not being deleted, so there is nothing to wait for.
	NotTerminating Reason = "NotTerminating"
	// ReleasedByUser: a person ended the drain.
	ReleasedByUser Reason = "ReleasedByUser"
	// Disabled: the helper holds nothing, the hook has only slept.
	Disabled Reason = "Disabled"
	// Cancelled: the one who waited gave up.
	Cancelled Reason = "Cancelled"
)
