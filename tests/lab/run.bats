#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# lab/run: pairs on the nodes, their output, the table.

load ../helpers

setup_file() {
	build gcc-O2/01-client gcc-O2/02-server
	export BIN=build/gcc-O2
}

teardown() {
	assert_nothing_left
}

@test "bad usage: status 2, and nothing is started" {
	local words

	for words in 99 no-such-lesson '01 02' --bogus; do
		# shellcheck disable=SC2086 # the words of the command
		run --separate-stderr lab/run $words
		assert_equal "$words: $status" "$words: 2"
		assert_equal "$output" ''
		[[ $stderr == *'usage: lab/run'* ]]
	done
	IPV=5 run lab/run 02
	assert_failure 2
	LIMIT=soon run lab/run 02
	assert_failure 2
	run lab/run --help
	assert_success
}

@test "both sides' output, each line led by its side, and a table" {
	run --separate-stderr lab/run 02
	assert_success
	assert_line --index 0 '== 02-server =='
	assert_line --regexp '^server \| listening on '
	assert_line --regexp '^client \| '
	refute_line --regexp '^(server|client) !'
	assert_line --regexp '^lesson +what it shows +result +time$'
	assert_line --regexp '^02-server +[a-z].* +ok +[0-9]+\.[0-9] s$'
	assert_equal "$stderr" ''
}

@test "a lesson by number, name, and both" {
	local name

	for name in 2 server 02-server; do
		# It need not run: which one was meant?
		SERVER_ARGS=--bogus run lab/run "$name"
		assert_failure 1
		assert_line '== 02-server =='
	done
}

@test "over IPv6, with arguments for each side" {
	IPV=6 SERVER_ARGS='-p 10222' run lab/run 01 -- -p 10222 -m 'two'
	assert_success
	assert_line --regexp '^server \| listening on .*:10222$'
	assert_line --regexp '^server \| .*received 3 bytes: two$'
	assert_line --partial "$ADDR6_SERVER"
}

@test "a side that fails: its errors on stderr, status 1, and the table says which" {
	# the server is somewhere else
	SERVER_ARGS='-t 1' run --separate-stderr lab/run 01 -- -p 10223
	assert_failure 1
	[[ $stderr == *'client ! '* ]]
	[[ $stderr == *'server ! '* ]]
	assert_line --regexp '^01-client .*client: exit status 1, server: exit status 1'
	# the server does not even start: the client is not started
	SERVER_ARGS=--bogus run --separate-stderr lab/run 02
	assert_failure 1
	[[ $stderr == *'server ! '* ]]
	refute_line --regexp '^client'
	assert_line --regexp '^02-server .*the server ended before it listened, server: exit status 2'
}

@test "a side that hangs is stopped" {
	SERVER_ARGS='-t 60' LIMIT=3 run lab/run 02 -- -p 10224
	assert_failure 1
	assert_line --regexp '^02-server .*server: stopped after 3 s'
}

@test "SIGTERM stops both sides" {
	local pid status=0

	: >"$BATS_TEST_TMPDIR/out"
	SERVER_ARGS='-t 60' timeout --foreground 60 lab/run 02 -- -h \
		>"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	timeout 50 tail -s 0.05 -n +1 -f --pid="$pid" "$BATS_TEST_TMPDIR/out" 3>&- |
		grep -q -m 1 'listening on'
	kill -TERM "$pid"
	wait "$pid" || status=$?
	assert_equal "$status" 143
	run on server pgrep -x server
	assert_failure 1
}
