#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 17: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 17-crossed-wires
}

@test "the stub of 17 builds, and fails" {
	stub_fails 17-crossed-wires
}

@test "the solution of 17 passes, at -O0 and -O2" {
	solution_passes 17-crossed-wires
}

@test "each wrong answer to 17 fails with the hint that fits" {
	wrong_answers_fail 17-crossed-wires
}
