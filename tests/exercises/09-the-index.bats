#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 09: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 09-the-index
}

@test "the stub of 09 builds, and fails" {
	stub_fails 09-the-index
}

@test "the solution of 09 passes, at -O0 and -O2" {
	solution_passes 09-the-index
}

@test "each wrong answer to 09 fails with the hint that fits" {
	wrong_answers_fail 09-the-index
}
