#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 01: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 01-many-sends
}

@test "the stub of 01 builds, and fails" {
	stub_fails 01-many-sends
}

@test "the solution of 01 passes, at -O0 and -O2" {
	solution_passes 01-many-sends
}

@test "each wrong answer to 01 fails with the hint that fits" {
	wrong_answers_fail 01-many-sends
}
