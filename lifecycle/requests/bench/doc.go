//go:build linux

// Command bench holds the classifier of package requests against what is known to
// have happened, for each kind of traffic on each server over each link.
//
// A request carries a number. Its client notes when it began to send it, when the
// first write had returned and when it had read the last byte of the answer. Its
// server notes when it had the request and when it began to write the last part of
// the answer: Go in this process; Node.js and gunicorn on their standard output,
// with the machine's monotonic clock; nginx, where it serves files, in its access log
// with milliseconds. Behind nginx as a proxy it is the Go server that notes.
//
// So a request surely is in flight from the server's first moment to its last one (on
// the link without delay from the client's write on: then no server has to have
// seen all of the request), and surely is not before its client began and after it
// had all. What lies between is unclear, and so is what is within 20 ms of any of
// these moments: such looks are left out and counted. One look is one connection at
// one instant.
//
// Servers and clients run in two network namespaces of their own. The links between
// them with a delay are made of TUN devices and this process, so that they need
// nothing of the kernel that not every one has.
package main
