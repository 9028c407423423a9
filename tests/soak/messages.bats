#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A hundred thousand messages on one connection: nothing fails, nothing stays.

load ../helpers

# For one test, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2/04-completions gcc-O2/08-write-doorbell
}

teardown() {
	assert_nothing_left
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

@test "a hundred thousand messages are right, by both notices in turn" {
	local bin=build/gcc-O2/08-write-doorbell

	LIMIT=3500 start server peer $bin/server -t 60
	wait_line peer '^listening on '
	LIMIT=3500 on client $bin/client -t 60 --notify turns -n 100000 \
		"$ADDR_SERVER"
	finish peer
	assert_equal "$status" 0
	assert_line --regexp '^message 100000 of 100000: by .*, 64 bytes, all right$'
}
