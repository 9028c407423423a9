#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Many boots, and many connections on one boot: nothing fails, nothing stays.

load ../helpers

# For this file, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2/01-client gcc-O2/02-server
}

@test "fifty labs in a row come up, run a command, and leave nothing behind" {
	local i

	export LAB_DIR=$BATS_TEST_TMPDIR/lab
	for i in $(seq 50); do
		lab/lab up
		on server true
		on client true
		lab/lab down
		[ ! -e "$LAB_DIR" ] || fail "boot $i: $(ls -A "$LAB_DIR") stayed"
		run pgrep -f "$LAB_DIR"
		assert_failure 1
		((i % 10)) || echo "# $i boots" >&3
	done
}

@test "two thousand pairs of lessons 01 and 02, each with programs of its own" {
	local bin=build/gcc-O2

	LIMIT=3500 in_a_row 2000 $bin/02-server/server $bin/01-client/client
	assert_equal "$(grep -c 'received 10 bytes: HelloWorld' \
		"$BATS_TEST_TMPDIR/row.server")" 2000
	assert_nothing_left
}
