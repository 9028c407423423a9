#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 14: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 14-one-piece
}

@test "the stub of 14 builds, and fails" {
	stub_fails 14-one-piece
}

@test "the solution of 14 passes, at -O0 and -O2" {
	solution_passes 14-one-piece
}

@test "each wrong answer to 14 fails with the hint that fits" {
	wrong_answers_fail 14-one-piece
}
