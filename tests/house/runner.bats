#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The runner of the tests counts right, and every kind of failure is one.

load ../helpers

setup() {
	# A runner inside of a runner, with a results file of its own.
	unset TESTS_RESULTS TESTS_FILE TESTS_PREFIX FILTER
	export LAB_DIR=$BATS_TEST_TMPDIR/lab
}

# file NAME LINE...: makes a bats file. bats reads this file here first, and must
# not take the tests inside of it for its own: they are written TEST.
file() {
	local name=$1

	shift
	printf "%s\n" "# Needs no nodes." "$@" | sed "s/^TEST/@test/" \
		>"$BATS_TEST_TMPDIR/$name.bats"
}

# The runner on these files; the last line is what counts.
runner() {
	run env -u BATS_TEST_TIMEOUT "$@" tests/run \
		"$BATS_TEST_TMPDIR"/*.bats </dev/null 3>&-
	last=${lines[-1]}
}

@test "good tests pass" {
	file a 'TEST "one" { true; }' 'TEST "two" { true; }'
	file b 'TEST "three" { true; }'
	runner
	assert_success
	assert_equal "$last" '3 passed, 0 failed'
	assert_line --regexp '^ok +one  \([0-9.]+ s\)$'
}

@test "a bad test fails, and what it printed is shown" {
	file a 'TEST "one" { true; }' 'TEST "two" { echo why; false; }'
	runner
	assert_failure 1
	assert_equal "$last" '1 passed, 1 failed'
	assert_line --regexp '^FAIL +two'
	# There, and again at the end.
	assert_equal "$(grep -cE '^ +why$' <<<"$output")" 2
}

@test "files that run at the same time count as well" {
	file a 'TEST "one" { true; }'
	file b 'TEST "two" { false; }'
	file c 'TEST "three" { true; }'
	runner -u LAB_DIR JOBS=2
	assert_failure 1
	assert_equal "$last" '2 passed, 1 failed'
}

@test "a file that cannot be loaded is a failure" {
	file a 'TEST "one" { true; }'
	file b 'TEST "two" { if; }'
	file c 'load nonsense' 'TEST "three" { true; }'
	runner
	assert_failure 1
	assert_equal "$last" '1 passed, 2 failed'
}

@test "a file without tests, and no test at all, are failures" {
	file a '# nothing'
	runner
	assert_failure 1
	assert_equal "$last" '0 passed, 1 failed'
}

@test "tests that never ran because setup_file failed are failures" {
	file a 'setup_file() { false; }' 'TEST "one" { true; }' 'TEST "two" { true; }'
	runner
	assert_failure 1
	assert_equal "$last" '0 passed, 2 failed'
}

@test "a test that hangs is stopped and fails" {
	file a 'TEST "one" { sleep 100; }' 'TEST "two" { true; }'
	local before=$SECONDS
	runner BATS_TEST_TIMEOUT=5
	assert_failure 1
	assert_equal "$last" '1 passed, 1 failed'
	[ $((SECONDS - before)) -lt 60 ]
}

@test "a skipped test is named and not counted" {
	file a 'TEST "one" { skip "no such thing"; }' 'TEST "two" { true; }'
	runner
	assert_success
	assert_equal "$last" '1 passed, 0 failed'
	assert_line --partial 'one (no such thing)'
}

@test "only skipped tests are not a success" {
	file a 'TEST "one" { skip "no such thing"; }'
	runner
	assert_failure 1
	assert_equal "$last" '0 passed, 0 failed'
}

@test "FILTER chooses tests by name" {
	file a 'TEST "one" { true; }' 'TEST "two" { false; }'
	file b 'TEST "three" { false; }'
	runner FILTER=one
	assert_success
	assert_equal "$last" '1 passed, 0 failed'
}

@test "nodes that do not boot are a failure" {
	printf "@%s\n" 'test "one" { true; }' >"$BATS_TEST_TMPDIR/a.bats"
	runner KERNEL="$BATS_TEST_TMPDIR/no-kernel-here"
	assert_failure 1
	assert_equal "$last" '0 passed, 1 failed'
}

@test "a runner that is ended leaves no process and no folder" {
	local pid i status=0

	file a 'TEST "one" { echo $$ >"$MARK"; exec sleep 987; }'
	export TMPDIR=$BATS_TEST_TMPDIR/tmp MARK=$BATS_TEST_TMPDIR/mark
	mkdir "$TMPDIR"
	env -u BATS_TEST_TIMEOUT tests/run "$BATS_TEST_TMPDIR/a.bats" \
		>/dev/null 2>&1 </dev/null 3>&- &
	pid=$!
	for ((i = 0; i < 600; i++)); do
		[ ! -s "$MARK" ] || break
		sleep 0.05
	done
	[ -s "$MARK" ]
	kill -TERM "$pid"
	wait "$pid" || status=$?
	assert_equal "$status" 143
	run kill -0 "$(<"$MARK")"
	assert_failure
	assert_equal "$(ls -A "$TMPDIR")" ''
}
