// Package sockdiag looks at the TCP sockets of this network namespace and says
// which of them are live sessions of a server in it.
//
// It is what a server knows by itself, without any right: where the data path
// bypasses connection tracking, or an entry vanished under a live connection,
// its sockets decide.
package sockdiag
