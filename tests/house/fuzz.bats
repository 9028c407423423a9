#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A short run of the fuzzers; tests/soak/fuzz.bats has a million inputs for each.

load ../helpers

# For this file, in seconds: a busy machine compiles for a while.
export BATS_TEST_TIMEOUT=600

@test "what looks at bytes of the other side, and at words, stands twenty thousand inputs" {
	tests/fuzz/run 20000 03-client 07-server 08-server 12-server \
		14-server 16-server 17-server 18-server options-12-client
}
