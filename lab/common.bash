# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What every script of the lab shares. Source it, do not run it.

LAB_ROOT=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
export PATH

say() {
	printf 'lab: %s\n' "$*" >&2
}

# Trouble of the lab itself: always status 125, so that nobody takes it for
# the status of a command that ran on a node.
die() {
	say "$@"
	exit 125
}

# need TOOL PACKAGE
need() {
	command -v "$1" >/dev/null ||
		die "$1 is missing: install the package $2 (lab/packages run does)"
}

# quote WORD...: each word quoted for any POSIX shell, in $quoted.
# ${word@Q} will not do: its $'..' is not understood by a node's /bin/sh.
quote() {
	local word
	quoted=
	for word; do
		quoted+=" '${word//\'/\'\\\'\'}'"
	done
	quoted=${quoted# }
}
