// Command bench holds the classifier of package requests against what clients
// know: each client notes when it began to send a request and when it had read the
// last byte of the answer, and every look at a connection is judged by that.
//
// One look is one connection at one instant. Looks within a margin of a change are
// left out and counted. Servers and clients run in a network namespace of their own.
package main
