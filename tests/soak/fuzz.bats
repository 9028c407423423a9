#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A million inputs for every parser of bytes from the other side, and for every
# command line.
#
# Needs no nodes.

load ../helpers

# For this file, in seconds.
export BATS_TEST_TIMEOUT=7200

@test "a million inputs for each harness, and nothing found" {
	tests/fuzz/run 1000000
}
