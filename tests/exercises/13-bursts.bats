#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 13: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 13-bursts
}

@test "the stub of 13 builds, and fails" {
	stub_fails 13-bursts
}

@test "the solution of 13 passes, at -O0 and -O2" {
	solution_passes 13-bursts
}

@test "each wrong answer to 13 fails with the hint that fits" {
	wrong_answers_fail 13-bursts
}
