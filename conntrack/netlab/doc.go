// Package netlab makes throw-away networks of Linux network namespaces: real
// kernels' connection tracking, NAT and routing for tests, benchmarks and the
// demo, without any external program.
//
// Namespaces have no name in the file system. A file descriptor holds each of
// them, so that the kernel removes them with the process, whatever ends it.
// Nothing of the host changes, with one exception that has a guard of its own:
// RaiseTable.
//
// It needs Linux, CAP_SYS_ADMIN and CAP_NET_ADMIN: root, or root of a user
// namespace of its own. On other systems the package is empty.
package netlab
