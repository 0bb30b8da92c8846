// Package conntrack answers one question exactly and without polling the
// table: which live sessions does this address have right now, and when does
// the last one end?
//
// A Reader takes one snapshot of the kernel's connection tracking table, keeps
// it by the kernel's events, and asks the kernel again for each known session,
// because events do not cover flows that are older than their listener. What
// the kernel answers now is the truth, events are hints, and "unknown" is never
// zero.
//
// It needs Linux 5.8 or newer for filtered snapshots (older kernels stream) and
// CAP_NET_ADMIN in the user namespace that owns the network namespace.
package conntrack
