#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lessons 07 and 08, many times and for long: nothing fails, nothing stays.

load ../helpers

# For one test, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2/07-write-send gcc-O2/08-write-doorbell
}

teardown() {
	assert_nothing_left
}

@test "two thousand pairs of each lesson, each with programs of its own" {
	local lesson bin

	for lesson in 07-write-send 08-write-doorbell; do
		bin=build/gcc-O2/$lesson
		LIMIT=1750 in_a_row 2000 "$bin/server" "$bin/client"
		assert_equal "$(grep -c '^buffer: Hello, written by RDMA WRITE' \
			"$BATS_TEST_TMPDIR/row.server")" 2000
	done
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
