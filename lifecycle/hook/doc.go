// Package hook is what runs inside a pod: it asks the node's helper when the pod
// may end, and goes by the pod's own sockets while no helper answers. It needs no
// rights, no token and no files.
package hook
