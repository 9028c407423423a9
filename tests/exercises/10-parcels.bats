#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 10: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 10-parcels
}

@test "the stub of 10 builds, and fails" {
	stub_fails 10-parcels
}

@test "the solution of 10 passes, at -O0 and -O2" {
	solution_passes 10-parcels
}

@test "each wrong answer to 10 fails with the hint that fits" {
	wrong_answers_fail 10-parcels
}
