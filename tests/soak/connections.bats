#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lessons 01 to 08, two thousand pairs in a row of each: none fails, nothing stays.

load ../helpers

# For one test, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2
}

teardown() {
	assert_nothing_left
}

# two_thousand SERVER CLIENT REGEX [ARG...]: pairs of these lessons, each with
# programs of its own; the client gets ARGs. Both sides of each pair must end with
# status 0, and each server must print a line that matches.
two_thousand() {
	local bin=build/gcc-O2

	LIMIT=3500 in_a_row 2000 "$bin/$1/server" "$bin/$2/client" "${@:4}"
	assert_equal "$(grep -cE "$3" "$BATS_TEST_TMPDIR/row.server")" 2000
}

@test "two thousand pairs of lessons 01 and 02" {
	two_thousand 02-server 01-client 'received 10 bytes: HelloWorld$'
}

@test "two thousand pairs of lesson 03" {
	two_thousand 03-event-loop 03-event-loop 'received 10 bytes: HelloWorld$'
}

@test "two thousand pairs of lesson 04" {
	two_thousand 04-completions 04-completions '^event: answered 5 requests;' -n 2
}

@test "two thousand pairs of lesson 05" {
	two_thousand 05-ping-pong 05-ping-pong ': 2 messages came and were sent back,' --count 2
}

@test "two thousand pairs of lesson 06" {
	two_thousand 06-memory 06-memory '^4096 bytes were written, every one right;'
}

@test "two thousand pairs of lesson 07" {
	two_thousand 07-write-send 07-write-send '^buffer: Hello, written by RDMA WRITE'
}

@test "two thousand pairs of lesson 08" {
	two_thousand 08-write-doorbell 08-write-doorbell '^buffer: Hello, written by RDMA WRITE'
}
