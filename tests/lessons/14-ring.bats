#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 14: the ring. Nothing is lost, nothing is read half, nothing is overrun.

load ../helpers
load turns

# For this file, in seconds.
export BATS_TEST_TIMEOUT=180

setup_file() {
	build asan-O0/14-ring gcc-O2/14-ring clang-O0/14-ring \
		asan-O0/08-write-doorbell \
		build/peers/badserver build/peers/badring
}

setup() {
	server=build/asan-O0/14-ring/server
	client=build/asan-O0/14-ring/client
	plain=build/gcc-O2/14-ring
	badserver=build/peers/badserver
	badring=build/peers/badring
}

teardown() {
	undo
	assert_nothing_left
}

@test "the pair runs, as make run shows it" {
	run pair 14
	assert_success
	assert_line 'server | lending a ring of 16384 bytes for messages of up to 256'
	assert_line --regexp '^client \| 1000 messages of 0 to 256 bytes through 16384 bytes, as a ring: '
	assert_line --regexp '^server \| 1000 messages, 128465 bytes, every one right and in its turn'
}

@test "every size of ring, of message and of batch, by ring and by SEND, over IPv6 too" {
	local n op

	for op in ring send; do
		turns build/asan-O0/14-ring "|--op $op -n 100 -r 256 -m 112" \
			"|--op $op -n 100 -r 272 -m 0 --batch 1" \
			"|--op $op -n 300 -r 1040 -m 400 --batch 1000"
		for n in 0 1 2; do
			said client $n '.* messages/s, .*' 'status 0'
			said server $n '[13]00 messages, .* every one right and in its turn.*' 'status 0'
		done
		turns build/clang-O0/14-ring "|--op $op -n 20 -r 262144 -m 65536 --batch 2" \
			"|--op $op -n 1"
		for n in 0 1; do
			said server $n '(20|1) messages, .* every one right and in its turn.*' 'status 0'
		done
		ADDR_SERVER=$ADDR6_SERVER turns "$plain" "|--op $op -n 50"
		said server 0 '50 messages, .* every one right and in its turn.*' 'status 0'
	done
}

@test "a hundred thousand messages of random lengths, every one right and in its turn" {
	LIMIT=100 turns "$plain" '-t 60|-t 60 -n 100000 -m 48 -r 32768 --batch 128'
	said client 0 '100000 messages of 0 to 48 bytes .*' 'status 0'
	said server 0 '100000 messages, .* every one right and in its turn.*' 'status 0'
}

@test "with packets lost too" {
	impair loss 1%
	turns "$plain" '-t 30|-t 30 -n 5000 -r 4096' '-t 30|-t 30 -n 500 -r 4096 --op send'
	said server 0 '5000 messages, .* every one right and in its turn.*' 'status 0'
	said server 1 '500 messages, .* every one right and in its turn.*' 'status 0'
	said client 0 'status 0'
	said client 1 'status 0'
}

# ---- what can go wrong, as the README says --------------------------------

# refuses WORDS REGEX: what the server says to a client that writes WORDS
refuses() {
	serve "$server"
	# shellcheck disable=SC2086 # words without blanks
	run on client "$badring" $1 "$ADDR_SERVER"
	finished 1
	[[ $stderr =~ ^$2 ]] || fail "$1: $stderr"
}

@test "the server believes nothing that a client has written" {
	refuses '--tail 20480' 'the tail says 20480, and we have read up to 0 in a ring of 16384$'
	refuses '--tail 24' 'the tail says 24, and we have read up to 0 in a ring of 16384$'
	refuses '--tail 32 --length 4096' 'a message of 4096 bytes does not fit in the 32 bytes that are there$'
	refuses '--tail 32 --length 17' 'a message of 17 bytes does not fit in the 32 bytes that are there$'
	refuses '--tail 16 --seq 7' 'message 1 was due, of [0-9]+ bytes, and number 7 of 0 bytes came$'
	refuses '--tail 16384 --length 0xffffffff' 'a message of 4294967295 bytes does not fit'
}

@test "nor the client what the server has" {
	serve "$badring" --head 1048576
	connect -t 2 -n 10 --batch 100
	assert_failure 1
	[[ $stderr == "the server says that it has read up to 1048576, and it was at 0 of "* ]]
	stop_jobs
	serve "$badring" --head 8
	connect -t 2 -n 10
	assert_failure 1
	[[ $stderr == "the server says that it has read up to 8, and it was at 0 of "* ]]
	stop_jobs
}

@test "a server that does not read is not overrun" {
	serve "$badring"
	connect -n 1000 -t 2
	assert_failure 1
	[[ $stderr =~ ^"the server does not go on reading: it has read 0 of "([0-9]+)" bytes" ]]
	[ "${BASH_REMATCH[1]}" -le 16384 ]
	[ "${BASH_REMATCH[1]}" -gt 15000 ]
	stop_jobs
}

@test "who is not of this lesson is found out" {
	serve "$server"
	run on client build/asan-O0/08-write-doorbell/client "$ADDR_SERVER"
	finished 1
	assert_equal "$stderr" "the client's private data does not begin with LESSON14: is it the client of this lesson?"

	serve "$badserver" --private addr,rkey,size,addr2,rkey2,size2 --at established --do stall
	connect -t 2
	assert_failure 1
	[[ $stderr == "the server lends a ring of "*": is it the server of this lesson?"* ]]
	stop_jobs
}

@test "a side that is killed, or told to stop, ends the other" {
	serve "$server"
	start client client "$client" -n 10000000 "$ADDR_SERVER"
	wait_line client '^connected'
	signal_job peer KILL
	finish client
	assert_equal "$status" 1
	[[ $stderr == "the server disconnected: it has read "* || $stderr == *"status "* ]]
	stop_jobs

	serve "$server"
	start client client "$client" -n 10000000 "$ADDR_SERVER"
	wait_line client '^connected'
	signal_job client INT
	finish client
	assert_equal "$status" 1
	assert_equal "$stderr" "stopped by Interrupt"
	finished 1
	[[ $stderr == "the client disconnected: "*" of 10000000 messages are here" ||
		$stderr == *"status "* ]]
}

@test "a machine that freezes ends the other side" {
	serve "$server" -t 6
	start client client "$client" -n 10000000 "$ADDR_SERVER"
	wait_line client '^connected'
	freeze client
	finished 1
	undo
	[[ $stderr == "waited 6 s and nothing came: "* || $stderr == *"status 12, "* ]]
	stop_jobs

	serve "$server"
	start client client "$client" -t 5 -n 10000000 "$ADDR_SERVER"
	wait_line client '^connected'
	freeze server
	finish client
	undo
	assert_equal "$status" 1
	[[ $stderr == *"status 12, "* || $stderr == "the server does not go on reading: "* ]]
	stop_jobs
}

@test "bad arguments are named, with the usage and status 2" {
	local flags

	for flags in '-n 0' '-m 65537' '-r 255' '-r 264' '-r 256 -m 256' '--batch 0' \
		'--op write' '-p 0' 'two of'; do
		# shellcheck disable=SC2086
		run --separate-stderr "$client" $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ""
	done
	run --separate-stderr "$server" operand
	assert_equal "$status" 2
	for flags in client server; do
		run --separate-stderr build/asan-O0/14-ring/$flags --help
		assert_success
		assert_output --partial "usage: $flags "
	done
}
