#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 18: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 18-ask-again
}

@test "the stub of 18 builds, and fails" {
	stub_fails 18-ask-again
}

@test "the solution of 18 passes, at -O0 and -O2" {
	solution_passes 18-ask-again
}

@test "each wrong answer to 18 fails with the hint that fits" {
	wrong_answers_fail 18-ask-again
}
