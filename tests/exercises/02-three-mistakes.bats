#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 02: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 02-three-mistakes
}

@test "the stub of 02 builds, and fails" {
	stub_fails 02-three-mistakes
}

@test "the solution of 02 passes, at -O0 and -O2" {
	solution_passes 02-three-mistakes
}

@test "each wrong answer to 02 fails with the hint that fits" {
	wrong_answers_fail 02-three-mistakes
}
