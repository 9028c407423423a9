#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 07: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 07-in-blocks
}

@test "the stub of 07 builds, and fails" {
	stub_fails 07-in-blocks
}

@test "the solution of 07 passes, at -O0 and -O2" {
	solution_passes 07-in-blocks
}

@test "each wrong answer to 07 fails with the hint that fits" {
	wrong_answers_fail 07-in-blocks
}
