// Package lifecycle holds what a drain is decided by: its phases, the reasons
// for its end, and the one pure function Decide.
//
// It does no I/O and reads no clock; it uses the standard library only.
package lifecycle
