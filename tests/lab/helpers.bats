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

@test "a job's output, errors and status come back; one that runs too long is stopped" {
	start server job sh -c 'echo one; echo two; echo bad >&2; exit 7'
	LIMIT=1 start server long sleep 60
	finish job
	assert_equal "$status" 7
	assert_equal "$output" $'one\ntwo'
	assert_equal "${lines[1]}" two
	assert_equal "$stderr" bad
	finish long
	assert_equal "$status" 124
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
	start server other sleep 60
	run wait_line job '^never$' 50
	assert_failure 1
	assert_output --partial 'job.out: something else'
	run wait_line other '^never$' 1
	assert_failure 1
	[ $((SECONDS - before)) -lt 50 ]
	finish job
	assert_equal "$status" 3
}

@test "signal_job reaches the program itself" {
	start server dies sleep 60
	start server catches sh -c 'trap "echo usr1; exit 9" USR1; echo ready; while :; do sleep 0.1; done'
	signal_job dies KILL
	wait_line catches ready
	signal_job catches USR1
	finish dies
	assert_equal "$status" 137
	finish catches
	assert_equal "$status" 9
	assert_line usr1
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
		# shellcheck disable=SC2016 # expanded on the node
		on "$node" sh -c 'setsid "$0" -t 60 >/tmp/own 2>&1 & echo $! >/tmp/own.pid
			for i in $(seq 400); do
				! grep -q listening /tmp/own || exit 0
				sleep 0.05
			done
			exit 1' "$bin/02-server/server"
	done
	run assert_nothing_left
	for node in server client; do
		# shellcheck disable=SC2016
		on "$node" sh -c 'kill -9 $(cat /tmp/own.pid)'
	done
	assert_failure 1
	for node in server client; do
		[[ $output == *"left on the $node:"*" cm_id "* ]]
	done
}
