#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 06: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 06-two-inboxes
}

@test "the stub of 06 builds, and fails" {
	stub_fails 06-two-inboxes
}

@test "the solution of 06 passes, at -O0 and -O2" {
	solution_passes 06-two-inboxes
}

@test "each wrong answer to 06 fails with the hint that fits" {
	wrong_answers_fail 06-two-inboxes
}
