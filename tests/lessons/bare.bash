# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the tests of lessons 00, 01 and 02 share: nodes whose device is missing
# or not to be opened, and a look at how long something took.

# as_nobody NODE CMD...: on a node, as a user who is not root.
as_nobody() {
	local node=$1

	shift
	on "$node" setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

# restore NODE: its device as the lab made it. Cheap when nothing is missing.
restore() {
	LIMIT=20 on "$1" sh -c '
		if ! [ -e /dev/infiniband/uverbs0 ] && [ -e /tmp/uverbs0 ]; then
			mv /tmp/uverbs0 /dev/infiniband/uverbs0
		fi
		[ -e /sys/class/infiniband/rxe0 ] ||
			rdma link add rxe0 type rxe netdev link0
		chmod 666 /dev/infiniband/*'
}

# timed CMD...: `run --separate-stderr`, and the milliseconds in $took.
# shellcheck disable=SC2034 # for the test
timed() {
	local before=${EPOCHREALTIME//[!0-9]/}

	run --separate-stderr "$@"
	took=$(((${EPOCHREALTIME//[!0-9]/} - before) / 1000))
}

# steps FILE|-: the numbers that the lines of a story begin with, in a row.
steps() {
	sed -nE 's/^([0-9]+[a-z]?) (rdma|ibv)_.*/\1/p' "$@" | paste -sd' '
}

# refused_usage CMD...: status 2, usage on stderr, nothing on stdout. It needs
# no node, since nothing is started.
refused_usage() {
	run --separate-stderr "$@"
	assert_failure 2
	assert_output ''
	[[ $stderr == *usage:* ]] || fail "no usage in: $stderr"
}

# helps CMD: --help and -h print the usage, and that is all.
helps() {
	run --separate-stderr "$1" --help
	assert_success
	assert_line --index 0 --partial "usage: ${1##*/} "
	assert_equal "$stderr" ''
	assert_equal "$output" "$("$1" -h)"
}
