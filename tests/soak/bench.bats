#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 13 beside perftest: the best rungs are not behind.

load ../helpers

# For one test, in seconds.
export BATS_TEST_TIMEOUT=3600

@test "lesson 13 is as fast as perftest, and as quick" {
	STRICT=1 DRAW=0 tools/bench/bench
}
