# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the tests of lessons 00 to 04 share: the numbered steps, and what is asked
# wrongly.

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
