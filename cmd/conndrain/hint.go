package main

import (
	"errors"

	"github.com/conndrain/conndrain/conntrack"
)

// hint says what to do about an error, beyond what its own text says.
func hint(err error) string {
	switch {
	case errors.Is(err, conntrack.ErrPermission):
		return "Run it with sudo, or give the program the right once: setcap cap_net_admin+ep " +
			"(in a container: securityContext.capabilities.add [NET_ADMIN])."
	case errors.Is(err, conntrack.ErrNotTracking):
		return "For a pod, run it in the node's network namespace (hostNetwork: true), not in the pod's."
	}
	return ""
}
