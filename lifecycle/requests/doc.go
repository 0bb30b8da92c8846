// Package requests tells a request in flight from a pause between two, by what a
// kernel counts of the connections of HTTP/1.x servers.
//
// Which came last on a connection, in or out, can always be decided. Whether an
// answer is complete cannot: it is learned, for each served port, from what the
// answers before have gone on to do. What is not known is Unknown, and blocks.
//
// It cannot see inside HTTP/2 and gRPC, nor behind an answer whose headers were sent
// early and which then pauses.
//
// It does no I/O, reads no clock and uses the standard library only.
package requests
