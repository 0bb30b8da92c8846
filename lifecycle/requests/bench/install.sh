#!/usr/bin/env bash
# The servers that the bench measures, from Debian's packages: only what is missing,
# and none of them is started. As root or with sudo.
set -euo pipefail

# command:package
needs=(nginx:nginx node:nodejs gunicorn:gunicorn)

missing=()
for n in "${needs[@]}"; do
	command -v "${n%%:*}" >/dev/null || missing+=("${n#*:}")
done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || {
	echo "The bench needs ${missing[*]}: install them, or leave their servers out with --servers go,go-tls" >&2
	exit 1
}
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)
echo "installing ${missing[*]}" >&2

# A package of a server starts it where nothing says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' | "${root[@]}" install -m 0755 /dev/stdin $policy
	trap '"${root[@]}" rm -f $policy' EXIT
fi
"${root[@]}" apt-get update -q >&2
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
