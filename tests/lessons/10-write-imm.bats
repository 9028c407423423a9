#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 10: RDMA WRITE WITH IMMEDIATE.

load ../helpers
load turns

setup_file() {
	build asan-O0/10-write-imm asan-O2/10-write-imm gcc-O2/10-write-imm peers
}

# The side that a test is about is the one with the sanitizers.
setup() {
	plain=build/gcc-O2/10-write-imm
	server=build/asan-O0/10-write-imm/server
	client=build/asan-O0/10-write-imm/client
	peers=build/peers
}

teardown() {
	undo
	assert_nothing_left
}

@test "each message brings its header with it, and is answered" {
	local n

	run pair 10
	assert_success
	assert_line --regexp '^server \| 4 slots of 65536 bytes at 0x[0-9a-f]+, rkey 0x[0-9a-f]+; 4 receives$'
	for n in 1 2 3 4 5 6 7 8; do
		assert_line "server | message $n: header 0x00${n}00fa0, 4000 bytes in slot $(((n - 1) % 4)), every one right"
	done
	assert_line 'client | 8 messages of 4000 bytes, each one answered'
	assert_line 'server | 8 messages, the client has left'
}

@test "the pair runs in every build, over IPv4 and IPv6" {
	local n o2=build/asan-O2/10-write-imm

	one_by_one "$server|$client|$ADDR6_SERVER" "$o2/server|$o2/client"
	for n in 0 1; do
		said client $n '8 messages of 4000 bytes, each one answered' 'status 0'
		said server $n '8 messages, the client has left' 'status 0'
	done
}

@test "messages of every size and in any number of slots are right" {
	local size count n=0 sizes=(0 1 1023 1024 1025 65536)

	turns "$plain" '|--size 0' '--slots 1|--size 1 --count 20' '|--size 1023' \
		'--slots 64|--count 100 --size 1024' '|--size 1025' '--slots 1|-t 30 --size 65536' \
		'--size 1048575 --slots 1|-t 30 --size 1048575 --count 3' \
		'--size 64|--count 300 --size 64'
	for size in "${sizes[@]}" 1048575 64; do
		case $n in
		1) count=20 ;;
		3) count=100 ;;
		6) count=3 ;;
		7) count=300 ;;
		*) count=8 ;;
		esac
		said client $n "$count messages of $size bytes, each one answered" \
			'status 0'
		said server $n "$count messages, the client has left" 'status 0'
		n=$((n + 1))
	done
}

# The waiting for the receives overlaps.
@test "without a receive the sender gets 13, and a part of the message is there" {
	local rnr='! completion of the RDMA WRITE \(wr_id [0-9]+\): RNR retry counter exceeded, status 13, .*the peer has no receive posted.*'

	begin_cases at_once "$server --receives 0|$client --size 1024" \
		"$server --receives 0|$client" \
		"$plain/server --receives 1|$plain/client --count 2"
	finish_cases
	said client 0 "$rnr" 'status 1'
	said server 0 '! the client left, and we were told of no message; slot 0 has the first 0 bytes of one' \
		'status 1'
	said client 1 "$rnr" 'status 1'
	said server 1 '! the client left, and we were told of no message; slot 0 has the first 3072 bytes of one' \
		'status 1'
	# One receive for four slots: it waits, and goes on.
	said client 2 '2 messages of 4000 bytes, each one answered' 'status 0'
}

@test "an immediate that is not what it should be, and messages of another kind" {
	one_by_one "$server|$client --wrong order" "$server|$plain/client --wrong length" \
		"$server|$plain/client --wrong number" "$server --size 100|$client" \
		"$server|$peers/badclient --size 0" \
		"$server|$peers/foreign client --notice none"
	erred server 0 'the header is 0xa00f1000: message 2560, 987136 bytes; due was message 1, and 4000 bytes were written'
	erred server 1 'the header is 0x00100fa1: message 1, 4001 bytes; due was message 1, and 4000 bytes were written'
	erred server 2 'the header is 0x00200fa0: message 2, 4000 bytes; due was message 1, and 4000 bytes were written'
	for n in 0 1 2; do
		said client $n '! (the server disconnected when 0 of 4 messages were answered|completion of the .*)' \
			'status 1'
	done
	erred client 3 'a message has 4000 bytes, and a slot has room for 100: write less, or start the server with a larger --size'
	said server 3 '! the client left, and we were told of no message; .*' 'status 1'
	# A plain SEND, and a plain WRITE.
	erred server 4 'a message came that is no RDMA WRITE with immediate: is the peer the client of this lesson?'
	said server 5 '! the client left, and we were told of no message; .*' 'status 1'
}

@test "one packet in a hundred is lost: every byte is right" {
	local n

	# Messages of several packets go one by one, as in lesson 05.
	impair loss 1%
	one_by_one "$plain/server -t 30|$client -t 30 --count 40 --size 1000" \
		"$server --slots 1 -t 30|$plain/client -t 30 --count 40 --size 16384"
	for n in 0 1; do
		after_loss $n 1 '40 messages, the client has left'
	done
	# The client stays until it has its answers, so no handshake is missed.
	[ "$right" = 2 ]
}

@test "private data that is no region with slots" {
	local n=0 slots bad="$peers/badserver --private"

	one_by_one "$bad zero:20|$client" "$bad addr,rkey,size,u32:0|$client" \
		"$bad addr,rkey,size,u32:65|$client" "$bad addr,rkey,size,u32:3|$client" \
		"$bad addr,rkey,size,u32:1 --echo --text x|$client --count 1" \
		"$bad addr,rkey,size,u32:1 --echo --size 0|$client --count 1"
	erred client 0 "the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?"
	for slots in 0 65 3; do
		n=$((n + 1))
		erred client $n "$slots slots in 4096 bytes: is it the server of this lesson?"
	done
	# It takes the message, and its answer is another: one with a byte in it, for
	# which there is no room, and one without a header.
	said client 4 '! completion of the receive \(wr_id [0-9]+\): .*' 'status 1'
	erred client 5 'the answer is for 0x00000000, due was 0x00100fa0: is it the server of this lesson?'
}

@test "a side that is killed ends the other" {
	begin_cases at_once \
		"$plain/server --size 64|$client --count 1000000 --size 64" \
		"$server --size 64|$plain/client --count 1000000 --size 64"
	wait_case server 0 'message 8'
	signal_cases server KILL 0
	wait_case server 1 'message 8'
	signal_cases client KILL 1
	finish_cases
	said client 0 'status 1' \
		'! (the server disconnected when [0-9]+ of [0-9]+ messages were answered|.*status (9|10|12|5), .*)'
	said server 1 'status [01]' \
		'([0-9]+ messages, the client has left|! .*status (9|12), .*)'
}

@test "a side that stalls, and Ctrl-C" {
	local silent="$peers/badclient --at established --do stall"

	begin_cases at_once "$server -t 5|$silent" "$server -t 50|$silent" \
		"$server -t 50|true" \
		"$peers/badserver --private addr,rkey,size,u32:1 --at received --do stall|$client -t 4 --count 1"
	wait_case client 1 stalling
	wait_case server 2 listening
	signal_cases server TERM 1
	signal_cases server INT 2
	wait_case server 0 'status '
	wait_case client 3 'status '
	signal_cases client TERM
	signal_cases server TERM
	finish_cases
	said server 0 '! waited 5 s for a completion and none came.*' 'status 1'
	said server 1 '! stopped by Terminated' 'status 1'
	erred server 2 'stopped by Interrupt'
	# It takes the message, and does not answer.
	said client 3 '! waited 4 s for a completion and none came.*' 'status 1'
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local args program

	for args in '' '--size -1 x' '--size 1048576 x' '--count 0 x' \
		'--wrong x x' '-z x' 'one two'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '--size 0' '--size 1048576' '--slots 0' '--slots 65' \
		'--receives 65' '-z'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$server" $args
		assert_failure 2
		[[ $stderr == *'usage: server '* && -z $output ]]
	done
	for program in "$client" "$server"; do
		run --separate-stderr "$program" --help
		assert_success
		assert_line --partial 'usage: '
	done
}
