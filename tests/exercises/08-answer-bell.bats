#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 08: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 08-answer-bell
}

@test "the stub of 08 builds, and fails" {
	stub_fails 08-answer-bell
}

@test "the solution of 08 passes, at -O0 and -O2" {
	solution_passes 08-answer-bell
}

@test "each wrong answer to 08 fails with the hint that fits" {
	wrong_answers_fail 08-answer-bell
}
