package main

import (
	"errors"
	"os"
	"strings"

	"github.com/conndrain/conndrain/conntrack"
)

// hint says what to do about an error, beyond what its own text says.
func hint(err error) string {
	switch {
	case errors.Is(err, conntrack.ErrPermission):
		return "To grant it once: sudo setcap cap_net_admin+ep " + executable() +
			" (in a container: securityContext.capabilities.add [NET_ADMIN])."
	case errors.Is(err, conntrack.ErrNotTracking):
		return trackingHint
	}
	return ""
}

// trackingHint has a rule that changes nothing but that the kernel tracks.
const trackingHint = `For a pod, run it in the node's network namespace (hostNetwork: true). Elsewhere this rule makes the kernel track, and accepts
nothing that another rule drops:
  nft 'table inet conndrain { chain track { type filter hook input priority 0; ct state established accept; }; }'
In the server's own network namespace 'conndrain wait' works without it, for TCP alone (--protocol tcp); 'conndrain sessions' needs it.`

// executable is this program's path, for a command line.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "conndrain"
	}
	if strings.ContainsAny(path, " \t\n'\"\\$&;|<>()*?[]#~`!") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
