#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 04: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 04-the-sleeper
}

@test "the stub of 04 builds, and fails" {
	stub_fails 04-the-sleeper
}

@test "the solution of 04 passes, at -O0 and -O2" {
	solution_passes 04-the-sleeper
}

@test "each wrong answer to 04 fails with the hint that fits" {
	wrong_answers_fail 04-the-sleeper
}
