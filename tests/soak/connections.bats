#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Two thousand connections in a row: none fails, and nothing stays.

load ../helpers

# For this file, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2/03-event-loop gcc-O2/04-completions
}

teardown() {
	assert_nothing_left
}

@test "two thousand pairs of lesson 03, each with programs of its own" {
	local bin=build/gcc-O2/03-event-loop

	LIMIT=3500 in_a_row 2000 $bin/server $bin/client
	assert_equal "$(grep -c 'received 10 bytes: HelloWorld' \
		"$BATS_TEST_TMPDIR/row.server")" 2000
}

@test "a hundred thousand requests, one at a time, waiting by events" {
	local bin=build/gcc-O2/04-completions count=100000

	LIMIT=3500 start server peer $bin/server -t 60
	wait_line peer '^listening on '
	LIMIT=3500 on client $bin/client -t 60 -w event -n $count "$ADDR_SERVER"
	finish peer
	assert_equal "$status" 0
	assert_line --partial "answered $((count + 1)) requests"
}
