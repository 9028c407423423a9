#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 14: the ring. Nothing is lost, nothing is read half, nothing is overrun.

load ../helpers
load turns

# For this file, in seconds.
export BATS_TEST_TIMEOUT=180

setup_file() {
	build asan-O0/14-ring gcc-O2/14-ring clang-O0/14-ring \
		gcc-O2/08-write-doorbell \
		build/peers/badserver build/peers/badring
}

setup() {
	server=build/asan-O0/14-ring/server
	client=build/asan-O0/14-ring/client
	plain=build/gcc-O2/14-ring
	badserver=build/peers/badserver
	badring=build/peers/badring
	# A stream without an end that leaves the nodes the time to hear of a signal.
	few='-n 10000000 -r 256 -m 112 --batch 1'
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
	local n op build=build/asan-O0/14-ring cases=()

	for op in ring send; do
		cases+=("$build/server|$build/client --op $op -n 100 -r 256 -m 112")
		[ $op = ring ] || build=build/clang-O0/14-ring
		cases+=("$build/server|$build/client --op $op -n 100 -r 272 -m 0 --batch 1"
			"$build/server|$build/client --op $op -n 300 -r 1040 -m 400 --batch 1000")
		build=build/clang-O0/14-ring
		cases+=("$build/server|$build/client --op $op -n 20 -r 262144 -m 65536 --batch 2"
			"$build/server|$build/client --op $op -n 1"
			"$plain/server|$plain/client --op $op -n 50|$ADDR6_SERVER")
		build=build/asan-O0/14-ring
	done
	one_by_one "${cases[@]}"
	for op in 0 6; do
		for n in 0:100 1:100 2:300 3:20 4:1 5:50; do
			said client $((op + ${n%:*})) '.* messages/s, .*' 'status 0'
			said server $((op + ${n%:*})) "${n#*:} messages, .* every one right and in its turn.*" 'status 0'
		done
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

@test "the server believes nothing that a client has written" {
	all_at_once server "$server|$badring --tail 20480" \
		"$server|$badring --tail 24" \
		"$server|$badring --tail 32 --length 4096" \
		"$server|$badring --tail 32 --length 17" \
		"$server|$badring --tail 16 --seq 7" \
		"$server|$badring --tail 16384 --length 0xffffffff" \
		"$server|build/gcc-O2/08-write-doorbell/client"
	said server 0 '! the tail says 20480, and we have read up to 0 in a ring of 16384' 'status 1'
	said server 1 '! the tail says 24, and we have read up to 0 in a ring of 16384' 'status 1'
	said server 2 '! a message of 4096 bytes does not fit in the 32 bytes that are there' 'status 1'
	said server 3 '! a message of 17 bytes does not fit in the 32 bytes that are there' 'status 1'
	said server 4 '! message 1 was due, of [0-9]+ bytes, and number 7 of 0 bytes came' 'status 1'
	said server 5 '! a message of 4294967295 bytes does not fit.*' 'status 1'
	erred server 6 "the client's private data does not begin with LESSON14: is it the client of this lesson?"
}

@test "nor the client what the server has, and it overruns no server that does not read" {
	local read_none

	begin_cases at_once "$badring --head 1048576|$client -n 10 --batch 100" \
		"$badring --head 8|$client -n 10" \
		"$badring|$client -n 1000 -t 3" \
		"$badserver --private addr,rkey,size,addr2,rkey2,size2 --at established --do stall|$client"
	wait_case client 3 '! '
	signal_cases server TERM 3
	finish_cases
	said client 0 '! the server says that it has read up to 1048576, and it was at 0 of .*' 'status 1'
	said client 1 '! the server says that it has read up to 8, and it was at 0 of .*' 'status 1'
	said client 3 '! the server lends a ring of .*: is it the server of this lesson\?.*' 'status 1'
	read_none='the server does not go on reading: it has read 0 of ([0-9]+) bytes'
	said client 2 "! $read_none.*" 'status 1'
	[[ ${from_client[2]} =~ $read_none ]]
	[ "${BASH_REMATCH[1]}" -le 16384 ]
	[ "${BASH_REMATCH[1]}" -gt 15000 ]
}

@test "a side that is killed, or told to stop, ends the other" {
	begin_cases at_once "$plain/server|$client $few" \
		"$server|tests/lessons/when INT connected $client -n 10000000"
	wait_case client 0 connected
	signal_cases server KILL 0
	finish_cases
	said client 0 '! (the server disconnected: it has read .*|.*status .*)' 'status 1'
	erred client 1 'stopped by Interrupt'
	said server 1 '! (the client disconnected: .* of 10000000 messages are here.*|.*status .*)' 'status 1'
}

# A node freezes on which one connection has its client, another its server.
@test "a machine that freezes ends the other side" {
	start client peer "$plain/server"
	wait_line peer '^listening on '
	# shellcheck disable=SC2086 # several arguments
	start server me "$client" -t 4 $few "$ADDR_CLIENT"
	begin_cases at_once "$server -t 4|$plain/client $few"
	wait_line me '^connected'
	wait_case client 0 connected
	freeze client
	wait_case server 0 '! '
	finish me
	assert_equal "$status" 1
	[[ $stderr == *"status 12, "* || $stderr == "the server does not go on reading: "* ]]
	thaw
	signal_cases client KILL
	finish_cases
	said server 0 '! (waited 4 s and nothing came: .*|.*status 12, .*)' 'status 1'
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
