package conntrack

import "errors"

// Errors that a caller may branch on. They are wrapped with what was tried.
var (
	// ErrPermission means that the process lacks CAP_NET_ADMIN in the user
	// namespace that owns the network namespace.
	ErrPermission = errors.New("reading connection tracking needs CAP_NET_ADMIN: run as root, or grant the capability")
	// ErrUnsupported means that this kernel has no connection tracking, or none
	// that can be asked over netlink (CONFIG_NF_CT_NETLINK).
	ErrUnsupported = errors.New("this kernel offers no connection tracking over netlink: it needs CONFIG_NF_CONNTRACK and CONFIG_NF_CT_NETLINK (modprobe nf_conntrack_netlink)")
	// ErrNotTracking means that no rule makes the kernel track connections in this
	// network namespace: its table is empty whatever lives here.
	ErrNotTracking = errors.New("connections are not tracked in this network namespace: no firewall or NAT rule asks for it, so an empty table proves nothing; run where the traffic is tracked (the node's own network namespace) or add a rule that uses connection tracking")

	errOverflow  = errors.New("events were lost: the receive buffer overflowed")
	errRejoined  = errors.New("events were not heard while the socket was opened again")
	errMalformed = errors.New("malformed conntrack message")
	errNoFilter  = errors.New("this kernel cannot filter its conntrack table")
	errResized   = errors.New("the conntrack table was resized during the snapshot")
)
