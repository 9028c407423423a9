#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 05: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 05-receipts
}

@test "the stub of 05 builds, and fails" {
	stub_fails 05-receipts
}

@test "the solution of 05 passes, at -O0 and -O2" {
	solution_passes 05-receipts
}

@test "each wrong answer to 05 fails with the hint that fits" {
	wrong_answers_fail 05-receipts
}
