#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 14 for long: a million messages, with lost packets and without.

load ../helpers
load ../lessons/turns

# For one test, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2/14-ring
}

teardown() {
	undo
	assert_nothing_left
}

@test "a million messages of random lengths, every one right and in its turn" {
	LIMIT=3500 serve build/gcc-O2/14-ring/server -t 60
	LIMIT=3500 on client build/gcc-O2/14-ring/client -t 60 -n 1000000 -r 65536 \
		--batch 64 "$ADDR_SERVER"
	finished 0
	assert_line --regexp '^1000000 messages, .* every one right and in its turn'
}

@test "a hundred thousand with a packet in a hundred lost" {
	impair loss 1%
	LIMIT=3500 serve build/gcc-O2/14-ring/server -t 60
	LIMIT=3500 on client build/gcc-O2/14-ring/client -t 60 -n 100000 -r 16384 \
		"$ADDR_SERVER"
	finished 0
	assert_line --regexp '^100000 messages, .* every one right and in its turn'
}
