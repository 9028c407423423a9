#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 09: RDMA READ, and how many of them at a time.

load ../helpers
load turns

setup_file() {
	build asan-O0/09-read asan-O2/09-read gcc-O2/09-read peers
}

# The side that a test is about is the one with the sanitizers.
setup() {
	plain=build/gcc-O2/09-read
	server=build/asan-O0/09-read/server
	client=build/asan-O0/09-read/client
	peers=build/peers
}

teardown() {
	undo
	assert_nothing_left
}

@test "memory is read, and both sides say how many READs at a time" {
	run pair 09
	assert_success
	assert_line --regexp '^server \| our memory: 65536 bytes at 0x[0-9a-f]+, rkey 0x[0-9a-f]+$'
	assert_line 'server | the client asks for 16 READs at a time; our device takes 128, we grant 4'
	assert_line 'server | connected: our QP answers 4 READs at a time (max_dest_rd_atomic), and is in RTS'
	assert_line 'client | we asked for 16 READs at a time, the server grants 4; our QP makes 4 (max_rd_atomic)'
	assert_line --regexp '^client \| 16 READs of 4096 bytes, 16 posted at a time: [0-9]+ us$'
	assert_line 'client | 65536 bytes were read, every one right'
	assert_line 'server | disconnected: our QP answers 4 READs at a time (max_dest_rd_atomic), and is in RTS'
}

@test "the pair runs in every build, over IPv4 and IPv6" {
	local n o2=build/asan-O2/09-read

	one_by_one "$server|$client|$ADDR6_SERVER" "$o2/server|$o2/client"
	for n in 0 1; do
		said client $n '65536 bytes were read, every one right' 'status 0'
		said server $n 'status 0'
	done
}

@test "blocks and regions of every size are read with every byte right" {
	local sizes=(1 1023 1024 1025 65536 1048576) size n=0

	turns "$plain" '--size 1|' '--size 1023|--block 10' '--size 1024|' \
		'--size 1025|--block 1024' '--size 65536|--block 4095' \
		'-t 30 --size 1048576|-t 30 --block 262144' \
		'-t 30 --size 1048576 --grant 128|-t 30 -b 8192 -w 128 -d 128' \
		'-t 30 --size 1048576|-t 30 --block 1048576 --window 1'
	for size in "${sizes[@]}" 1048576 1048576; do
		said client $n "$size bytes were read, every one right" 'status 0'
		said server $n 'status 0' 'disconnected: .* is in RTS'
		n=$((n + 1))
	done
}

# granted N ASKED GRANTED [SAID]: turn N, on both sides; the client calls it SAID
granted() {
	said server "$1" "the client asks for $2 READs at a time; our device takes 128, we grant $3" \
		"connected: our QP answers $3 READs at a time \(max_dest_rd_atomic\), and is in RTS" \
		'status 0'
	said client "$1" "we asked for ${4:-$2} READs at a time, the server grants $3; our QP makes $3 \(max_rd_atomic\)"
}

@test "what is asked for and what is granted is the smaller of the two" {
	turns "$plain" '--grant 1|' '--grant 16|' '--grant 16|--depth 2' \
		'--grant 255|--depth 255 --window 128 --block 512' \
		'--grant 4|--depth 1 --window 128 --block 512' \
		'--grant 0|' '--grant 4|--depth 0'
	granted 0 16 1
	granted 1 16 16
	granted 2 2 2
	# 255 is no number, but all that the device can make.
	granted 3 128 128 255
	granted 4 1 1
	for n in 0 1 2 3 4; do
		said client $n '65536 bytes were read, every one right' 'status 0'
	done
	granted 5 16 0
	granted 6 0 0
	for n in 5 6; do
		said client $n '! the server grants no READ at all: a READ would be posted and wait for ever; ask for some with -d, and start the server with -g' \
			'status 1'
	done
}

# The table of the README.
@test "each right, key and depth that is missing or wrong" {
	local n

	one_by_one "$server --missing remote-read|$plain/client" \
		"$plain/server|$client --wrong rkey" \
		"$plain/server|$client --wrong end" \
		"$server --missing qp-right|$plain/client" \
		"$plain/server|$client --wrong local-write" \
		"$server --more|$plain/client --depth 0" \
		"$server --grant 0|$plain/client -t 4 --wrong depth" \
		"$plain/server -t 1|$client --depth 129"
	for n in 0 1 2; do
		said client $n '! completion of the RDMA READ \(wr_id [0-9]+\): remote access error, status 10, .*' \
			'status 1'
		said server $n 'disconnected: .*, and is in ERR: something was refused' \
			'status 0'
	done
	for n in 3 5; do
		said client $n '! completion of the RDMA READ \(wr_id [0-9]+\): remote invalid request error, status 9, .*' \
			'status 1'
		said server $n 'disconnected: .*, and is in ERR: something was refused' \
			'status 0'
	done
	said client 4 '! completion of the RDMA READ \(wr_id [0-9]+\): .*, status 4, .*' \
		'status 1'
	said client 6 '! waited 4 s for a completion and none came: .*' 'status 1'
	said client 7 '! rdma_connect: Invalid argument: more READs at a time than the device can do .*' \
		'status 1'
}

@test "one packet in a hundred is lost: every byte is right" {
	local n pair="$plain/server -t 30 --size"

	impair loss 1%
	one_by_one "$pair 65536|$client -t 30" "$pair 262144|$client -t 30"
	for n in 0 1; do
		# The server of a client that has left before the handshake was
		# through says so; what was read is right all the same.
		after_loss $n 1
		said client $n "$((n ? 262144 : 65536)) bytes were read, every one right" \
			'status 0'
	done
}

@test "private data that is no region, and bytes that are not the pattern" {
	local bad="$peers/badserver --receives 0 --depth 4 --private"

	one_by_one "$bad zero:16|$client" \
		"$bad hex:ffffffffffffffff0000000100000002|$client" \
		"$bad addr,u32:4711,size|$client" "$bad addr,rkey,size|$client"
	erred client 0 "the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?"
	said client 1 "! the peer's private data is no memory region \(address 0xffffffffffffffff, size 2\).*" \
		'status 1'
	said client 2 '! .*: remote access error, status 10, .*' 'status 1'
	said client 3 '! byte 0 is 0x00, should be 0x.*' 'status 1'
}

# The READs of the last one are many and small, so that it is killed in the middle.
@test "a server that refuses, dies or says nothing more" {
	begin_cases at_once "$peers/badserver --at request --do reject|$client" \
		"$peers/badserver --depth 4 --private addr,rkey,size --at established --do stall|$client -t 4" \
		"$plain/server --size 16777216|$client --block 256"
	wait_case client 2 "the server's memory"
	signal_cases server KILL 2
	wait_case client 0 'status '
	wait_case client 1 'status '
	wait_case client 2 'status '
	signal_cases server TERM
	finish_cases
	said client 0 '! .*RDMA_CM_EVENT_REJECTED, status 28.*' 'status 1'
	# Its card goes on answering READs while the program says nothing.
	said client 1 '! byte 0 is 0x00, should be .*' 'status 1'
	said client 2 'status 1' \
		'! (the server disconnected after [0-9]+ of 65536 READs|.*status (9|10|12), .*)'
}

@test "a client that dies or stalls, and Ctrl-C, end the server" {
	local bad="$peers/badclient --at established --do"

	begin_cases at_once "$server|$bad kill" "$server -t 5|$bad stall" \
		"$server -t 50|true" "$server -t 50|$bad stall"
	wait_case server 2 listening
	wait_case client 3 stalling
	signal_cases server INT 2
	signal_cases server TERM 3
	wait_case server 1 'status '
	signal_cases client TERM
	finish_cases
	said server 0 'disconnected: .*' 'status 0'
	said server 1 '! waited 5 s for RDMA_CM_EVENT_DISCONNECTED and nothing came.*' \
		'status 1'
	erred server 2 'stopped by Interrupt'
	said server 3 '! stopped by Terminated' 'status 1'
}

@test "more READs at a time than were granted: SoftRoCE answers them all" {
	one_by_one "$server --grant 1|$peers/greedy 16 16 32"
	said client 0 'granted 1, and we make 16' 'status 0'
	assert_equal "$(grep -c '^READ: status 0$' <<<"${from_client[0]}")" 32
	said server 0 'status 0' \
		'connected: our QP answers 1 READs at a time \(max_dest_rd_atomic\), and is in RTS'
}

@test "no more READs are on the wire at a time than were granted" {
	local grant

	# All are posted before the first answer can come.
	impair delay 50ms
	for grant in 1 4; do
		SERVER_ARGS="--grant $grant -t 60" SEQUENCE=$BATS_TEST_TMPDIR/sequence \
			run tools/wire/wire 09 -- --block 1024
		assert_success
		# The ladder: requests up, responses down.
		awk -v grant="$grant" '
			/again/ { next } # the card has lost its patience
			/RDMA READ Request/ { if (++open > most) most = open }
			/RDMA READ Response/ { open-- }
			END { exit most != grant }' <<<"$output" ||
			fail "with $grant granted: $output"
	done
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local args program

	for args in '' '--block 0 x' '--block 1048577 x' '--depth 256 x' \
		'--window 0 x' '--window 129 x' '--wrong x x' '-z x' 'one two'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '--size 0' '--size 16777217' '--grant 256' \
		'--missing x' '-z'; do
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
