#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The helpers that the lessons' tests stand on: would they notice?

load ../helpers

setup_file() {
	build gcc-O2/02-server
}

setup() {
	bin=build/gcc-O2
}

teardown() {
	assert_nothing_left
}

@test "a job's output, errors and status come back" {
	start server job sh -c 'echo one; echo two; echo bad >&2; exit 7'
	finish job
	assert_equal "$status" 7
	assert_equal "$output" $'one\ntwo'
	assert_equal "${lines[1]}" two
	assert_equal "$stderr" bad
}

@test "wait_line finds a line that is there and one that comes later" {
	start server job sh -c 'echo early; sleep 0.5; echo late 42; sleep 5'
	wait_line job '^early$'
	wait_line job '^late ([0-9]+)$'
	assert_equal "$line" 'late 42'
	assert_equal "${BASH_REMATCH[1]}" 42
	wait_line job '^early$'
}

@test "wait_line fails at once when the job has ended, and when the time is over" {
	local before=$SECONDS

	start server job sh -c 'echo something else; exit 3'
	run wait_line job '^never$' 20
	assert_failure 1
	assert_output --partial 'job.out: something else'
	[ $((SECONDS - before)) -lt 10 ]
	finish job
	assert_equal "$status" 3

	start server other sleep 20
	run wait_line other '^never$' 1
	assert_failure 1
}

@test "signal_job reaches the program itself" {
	start server job sleep 20
	signal_job job KILL
	finish job
	assert_equal "$status" 137

	start server job sh -c 'trap "echo usr1; exit 9" USR1; echo ready; while :; do sleep 0.1; done'
	wait_line job ready
	signal_job job USR1
	finish job
	assert_equal "$status" 9
	assert_line usr1
}

@test "a job that runs too long is stopped, and its status says so" {
	LIMIT=1 start server job sleep 20
	finish job
	assert_equal "$status" 124
}

@test "a job that a test forgot is stopped" {
	start server job "$bin"/02-server/server -t 60
	wait_line job '^listening on '
	assert_nothing_left
	run on server pgrep -x server
	assert_failure 1
}

@test "what somebody else's process owns is found, on either node" {
	local node

	for node in server client; do
		on "$node" sh -c "setsid $bin/02-server/server -t 60 >/tmp/own 2>&1 & echo \$! >/tmp/own.pid
			until grep -q listening /tmp/own; do sleep 0.05; done"
		run assert_nothing_left
		on "$node" sh -c 'kill -9 $(cat /tmp/own.pid)'
		assert_failure 1
		assert_output --partial "left on the $node"
		assert_output --partial 'cm_id'
	done
}
