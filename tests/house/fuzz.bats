#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A short run of the fuzzers; tests/soak/fuzz.bats has a million inputs for each.

load ../helpers

# For this file, in seconds: a busy machine compiles for a while.
export BATS_TEST_TIMEOUT=600

@test "what looks at bytes of the other side stands fifty thousand inputs" {
	tests/fuzz/run 50000 messages
}

@test "command lines of two programs stand twenty thousand inputs" {
	tests/fuzz/run 20000 options-08-client options-12-client
}
