#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 15: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 15-tally
}

@test "the stub of 15 builds, and fails" {
	stub_fails 15-tally
}

@test "the solution of 15 passes, at -O0 and -O2" {
	solution_passes 15-tally
}

@test "each wrong answer to 15 fails with the hint that fits" {
	wrong_answers_fail 15-tally
}
