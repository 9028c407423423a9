#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 10: RDMA WRITE WITH IMMEDIATE.

load ../helpers
load turns

setup_file() {
	build asan-O0/10-write-imm asan-O2/10-write-imm gcc-O2/10-write-imm peers
}

setup() {
	asan=build/asan-O0/10-write-imm
	plain=build/gcc-O2/10-write-imm
	server=$asan/server
	client=$asan/client
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
	BIN=build/asan-O0 IPV=6 pair 10
	BIN=build/asan-O2 pair 10
}

@test "messages of every size and in any number of slots are right" {
	local size n=0 sizes=(0 1 1023 1024 1025 65536)

	turns "$plain" '|--size 0' '|--size 1' '|--size 1023' '|--size 1024' \
		'|--size 1025' '|--size 65536' \
		'--size 1048575 --slots 2|-t 30 --size 1048575 --count 3' \
		'--slots 1|--count 20' '--slots 64|--count 100 --size 100' \
		'--size 64|--count 300 --size 64'
	for size in "${sizes[@]}"; do
		said client $n "8 messages of $size bytes, each one answered" 'status 0'
		said server $n "8 messages, the client has left" 'status 0'
		n=$((n + 1))
	done
	said client 6 '3 messages of 1048575 bytes, each one answered' 'status 0'
	said server 6 '3 messages, the client has left' 'status 0'
	said server 7 '20 messages, the client has left' 'status 0'
	said server 8 '100 messages, the client has left' 'status 0'
	said server 9 '300 messages, the client has left' 'status 0'
}

@test "without a receive the sender gets 13, and a part of the message is there" {
	local rnr='completion of the RDMA WRITE \(wr_id [0-9]+\): RNR retry counter exceeded, status 13, .*the peer has no receive posted.*'

	turns "$asan" '--receives 0|--size 1024' '--receives 0|' '--receives 1|--count 2'
	said client 0 "$rnr" 'status 1'
	said server 0 'the client left, and we were told of no message; slot 0 has the first 0 bytes of one' \
		'status 1'
	said client 1 "$rnr" 'status 1'
	said server 1 'the client left, and we were told of no message; slot 0 has the first 3072 bytes of one' \
		'status 1'
	# One receive for four slots: it waits, and goes on.
	said client 2 '2 messages of 4000 bytes, each one answered' 'status 0'
}

@test "an immediate that is not what it should be" {
	turns "$asan" '|--wrong order' '|--wrong length' '|--wrong number' '--size 100|'
	said server 0 'the header is 0xa00f1000: message 2560, 987136 bytes; due was message 1, and 4000 bytes were written' \
		'status 1'
	said server 1 'the header is 0x00100fa1: message 1, 4001 bytes; due was message 1, and 4000 bytes were written' \
		'status 1'
	said server 2 'the header is 0x00200fa0: message 2, 4000 bytes; due was message 1, and 4000 bytes were written' \
		'status 1'
	for n in 0 1 2; do
		said client $n 'the server disconnected when 0 of 4 messages were answered|completion of the .*' \
			'status 1'
	done
	said client 3 'a message has 4000 bytes, and a slot has room for 100: write less, or start the server with a larger --size' \
		'status 1'
	said server 3 'the client left, and we were told of no message; .*' 'status 1'
}

@test "a message that is a plain SEND, or a plain WRITE" {
	serve "$server"
	run on client "$peers"/badclient --size 0 "$ADDR_SERVER"
	finished 1
	assert_equal "$stderr" 'a message came that is no RDMA WRITE with immediate: is the peer the client of this lesson?'

	serve "$server"
	run on client "$peers"/foreign client --notice none "$ADDR_SERVER"
	finished 1
	[[ $stderr == 'the client left, and we were told of no message; '* ]]
}

@test "one packet in a hundred is lost: every byte is right" {
	impair loss 1%
	serve "$server" -t 30
	connect -t 30 --count 40 --size 16384
	assert_success
	finished 0
	assert_line '40 messages, the client has left'
}

@test "private data that is no region with slots, and a server that does not answer" {
	local spec wanted

	while read -r spec wanted; do
		serve "$peers"/badserver --private "$spec"
		connect -t 2
		assert_failure 1
		[[ $stderr == *"$wanted"* ]]
		stop_jobs
	done <<-'END'
		zero:20 the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?
		addr,rkey,size,u32:0 0 slots in 4096 bytes: is it the server of this lesson?
		addr,rkey,size,u32:65 65 slots in 4096 bytes: is it the server of this lesson?
		addr,rkey,size,u32:3 3 slots in 4096 bytes: is it the server of this lesson?
	END
	# It takes the message, and its answer is another.
	serve "$peers"/badserver --private addr,rkey,size,u32:1 --echo --text x
	connect -t 2 --count 1
	assert_failure 1
	stop_jobs

	serve "$peers"/badserver --private addr,rkey,size,u32:1 --at received --do stall
	connect -t 2 --count 1
	assert_failure 1
	[[ $stderr == *'waited 2 s for a completion and none came'* ]]
}

@test "a side that is killed ends the other" {
	serve "$server" --size 64
	start client me "$client" --count 1000000 --size 64 "$ADDR_SERVER"
	wait_line peer '^message 8'
	signal_job peer KILL
	finish me
	assert_equal "$status" 1
	[[ $stderr =~ 'the server disconnected when '[0-9]+' of '[0-9]+' messages were answered' ||
		$stderr =~ 'status '(9|10|12|5)', ' ]]
	stop_jobs

	serve "$server" --size 64
	start client me "$client" --count 1000000 --size 64 "$ADDR_SERVER"
	wait_line peer '^message 8'
	signal_job me KILL
	finish peer
	[[ $status == [01] ]]
	[[ $output == *' messages, the client has left'* ||
		$stderr == *'status 12, '* || $stderr == *'status 9, '* ]]
}

@test "a side that stalls, and Ctrl-C" {
	serve "$server" -t 8
	start client other "$peers"/badclient --at established --do stall \
		"$ADDR_SERVER"
	finished 1
	echo "$stderr"
	[[ $stderr == 'waited 8 s for a completion and none came'* ]]
	stop_jobs

	serve "$server" -t 60
	start client other "$peers"/badclient --at established --do stall \
		"$ADDR_SERVER"
	wait_line other '^stalling'
	signal_job peer TERM
	signal_job other TERM
	finished 1
	[[ $stderr == 'stopped by Terminated'* ]]
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
