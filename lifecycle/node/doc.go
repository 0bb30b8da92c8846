// Package node is a node's helper: it answers the hooks of the node's pods when
// they may end. It knows a pod by the source address of its request, watches the
// pod until no EndpointSlice routes new traffic to it, follows its sessions in the
// node's connection tracking table, and releases it when the last one has ended or
// its time is up.
//
// It needs CAP_NET_ADMIN in the node's network namespace, and of the API: pods
// get, list and watch; endpointslices list and watch; nodes and services get;
// tokenreviews create; events create and patch.
package node
