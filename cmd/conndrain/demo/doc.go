// Package demo is `conndrain demo`: it shows on one screen, with real traffic on
// the real kernel, what waiting for a pod's last session saves.
//
// It builds a client, a node and a pod in network namespaces of its own, "deletes"
// the pod while clients still download from it, waits as `conndrain wait` does, and
// compares that with what fixed sleeps would have done to the same downloads.
package demo
