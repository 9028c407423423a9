#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 16: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 16-notice-board
}

@test "the stub of 16 builds, and fails" {
	stub_fails 16-notice-board
}

@test "the solution of 16 passes, at -O0 and -O2" {
	solution_passes 16-notice-board
}

@test "each wrong answer to 16 fails with the hint that fits" {
	wrong_answers_fail 16-notice-board
}
