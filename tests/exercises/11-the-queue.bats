#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Exercise 11: the stub, the solution, and answers as they go wrong.

load ../helpers
load grading

setup_file() {
	grade_all 11-the-queue
}

@test "the stub of 11 builds, and fails" {
	stub_fails 11-the-queue
}

@test "the solution of 11 passes, at -O0 and -O2" {
	solution_passes 11-the-queue
}

@test "each wrong answer to 11 fails with the hint that fits" {
	wrong_answers_fail 11-the-queue
}
