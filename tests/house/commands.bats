#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The commands that a learner types: they are listed, and wrong ones are
# refused before anything has been started.

load ../helpers

setup() {
	# A lab that nobody else uses: a refused command must leave it empty.
	export LAB_DIR=$BATS_TEST_TMPDIR/lab
	mkdir "$LAB_DIR"
	unset LAB
}

# refused CMD...: status 2 with usage on stderr, nothing on stdout, no lab.
refused() {
	run --separate-stderr timeout 20 "$@" </dev/null
	assert_equal "$status" 2
	assert_output ''
	[[ $stderr == *usage:* ]] || fail "no usage in: $stderr"
	assert_equal "$(ls -A "$LAB_DIR")" ''
}

@test "make alone prints the list of commands" {
	run --separate-stderr make
	assert_success
	assert_line --regexp '^make run '
	assert_line --regexp '^make test '
	assert_equal "$output" "$(make -s help)"
	assert_equal "$stderr" ''
}

@test "every command in the list exists, and every command is in the list" {
	local listed there

	listed=$(make -s help | sed -nE 's/^make ([a-z-]+).*/\1/p' | sort -u)
	there=$(sed -nE 's/^\.PHONY: ([a-z-]+).*/\1/p' Makefile | sort -u)
	assert_equal "$listed" "$there"
	# Each line of the list begins with the command itself.
	assert_equal "$(make -s help | grep -cv '^make [a-z]')" 0
}

@test "the list's lines fit on a terminal" {
	assert_equal "$(make -s help | grep -E '.{101}' || true)" ''
}

@test "make run refuses a lesson that is not there" {
	refused make -s run LESSON=99
	refused make -s run LESSON=nonsense
	refused make -s run LESSON='../x'
	refused lab/run 99
}

@test "make run refuses a kind of lab that is not there" {
	refused make -s run LAB=foo
	refused make -s run LAB=foo LESSON=01
}

@test "make run LAB=ssh wants to be told the two machines" {
	refused make -s run LAB=ssh
}

@test "make shell without a terminal says what to type, and starts nothing" {
	run --separate-stderr make -s shell </dev/null
	assert_success
	assert_output --partial "lab/lab shell server"
	assert_equal "$(ls -A "$LAB_DIR")" ""
}

@test "make shell refuses a kind of lab that is not there" {
	refused make -s shell LAB=foo
}

@test "make test refuses a file that is not there" {
	refused make -s test TESTS=tests/nonsense.bats
	refused tests/run lab/lab
}

@test "the scripts refuse words that they do not know" {
	refused lab/packages
	refused lab/packages foo
	refused lab/packages run test
	LAB=foo refused lab/packages run
	refused tests/kernels
	refused tests/links --nonsense
	refused tests/readme nonsense.md
}

@test "what is not a target is refused by make" {
	run make -s nonsense
	assert_failure 2
}
