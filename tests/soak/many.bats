#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lessons 15 and 16 for long: two thousand clients one after the other, and a
# store that many use for a while.

load ../helpers

# For one test, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2/15-many-clients gcc-O2/16-store history
}

teardown() {
	assert_nothing_left
}

@test "two thousand clients one after another, of one server" {
	local bin=build/gcc-O2/15-many-clients

	LIMIT=3500 start server peer $bin/server --slots 16 -t 60
	wait_line peer '^listening on '
	LIMIT=3500 on client $bin/client -t 60 --clients 2000 --at-once 1 -n 2 \
		"$ADDR_SERVER"
	signal_job peer TERM
	finish peer
	assert_equal "$status" 0
	assert_line --regexp '^2000 clients came, .*; 4000 answers; 0 clients dropped$'
}

@test "two thousand clients, sixty-four at a time" {
	local bin=build/gcc-O2/15-many-clients

	LIMIT=3500 start server peer $bin/server -t 60
	wait_line peer '^listening on '
	LIMIT=3500 on client $bin/client -t 60 --clients 2000 --at-once 64 -n 2 \
		"$ADDR_SERVER"
	signal_job peer TERM
	finish peer
	assert_equal "$status" 0
	assert_line --regexp '^2000 clients came, .*; 4000 answers; 0 clients dropped$'
}

@test "twenty histories of twelve clients are linearizable, torn reads and all" {
	local bin=build/gcc-O2/16-store i

	for i in $(seq 20); do
		start server peer $bin/server --once --slow-write $((i * 150))
		wait_line peer '^listening on '
		LIMIT=300 on client sh -c '
			rm -f /tmp/history.*
			"$0" --history /tmp/history -t 60 --work 200 --clients 12 \
				--keys 3 "$1" && "$2" /tmp/history.*' \
			$bin/client "$ADDR_SERVER" build/history/linear
		finish peer
		assert_equal "$status" 0
	done
}
