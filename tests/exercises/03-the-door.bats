#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 03: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 03-the-door
}

@test "the stub of 03 builds, and fails" {
	stub_fails 03-the-door
}

@test "the solution of 03 passes, at -O0 and -O2" {
	solution_passes 03-the-door
}

@test "each wrong answer to 03 fails with the hint that fits" {
	wrong_answers_fail 03-the-door
}
