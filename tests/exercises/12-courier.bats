#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 12: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 12-courier
}

@test "the stub of 12 builds, and fails" {
	stub_fails 12-courier
}

@test "the solution of 12 passes, at -O0 and -O2" {
	solution_passes 12-courier
}

@test "each wrong answer to 12 fails with the hint that fits" {
	wrong_answers_fail 12-courier
}
