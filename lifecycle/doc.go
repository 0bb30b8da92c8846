// Package lifecycle holds what a drain is decided by: its phases, its budget, the
// reasons for its end and the one pure function Decide; and what a hook and its
// node's helper tell each other.
//
// It does no I/O and reads no clock; it uses the standard library only.
package lifecycle
