#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 09: RDMA READ, and how many of them at a time.

load ../helpers
load turns

setup_file() {
	build asan-O0/09-read asan-O2/09-read gcc-O2/09-read peers
}

setup() {
	asan=build/asan-O0/09-read
	plain=build/gcc-O2/09-read
	server=$asan/server
	client=$asan/client
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
	BIN=build/asan-O0 IPV=6 pair 09
	BIN=build/asan-O2 pair 09
}

@test "blocks and regions of every size are read with every byte right" {
	local sizes=(1 1023 1024 1025 65536 1048576) size n=0

	turns "$plain" '--size 1|' '--size 1023|--block 10' '--size 1024|' \
		'--size 1025|--block 1024' '--size 65536|--block 4095' \
		'--size 1048576|-t 30 --block 262144' \
		'--size 1048576 --grant 128|-t 30 -b 8192 -w 128 -d 128' \
		'--size 1048576|-t 30 --block 1048576 --window 1'
	for size in "${sizes[@]}" 1048576 1048576; do
		said client $n "$size bytes were read, every one right" 'status 0'
		said server $n 'status 0' 'disconnected: .* is in RTS'
		n=$((n + 1))
	done
}

# granted N ASKED GRANTED: turn N, on both sides
granted() {
	said server "$1" "the client asks for $2 READs at a time; our device takes 128, we grant $3" \
		"connected: our QP answers $3 READs at a time \(max_dest_rd_atomic\), and is in RTS" \
		'status 0'
	said client "$1" "we asked for $2 READs at a time, the server grants $3; our QP makes $3 \(max_rd_atomic\)"
}

@test "what is asked for and what is granted is the smaller of the two" {
	turns "$plain" '--grant 1|' '--grant 16|' '--grant 16|--depth 2' \
		'--grant 255|--depth 128 --window 128 --block 512' \
		'--grant 4|--depth 1 --window 128 --block 512' \
		'--grant 0|' '--grant 4|--depth 0'
	granted 0 16 1
	granted 1 16 16
	granted 2 2 2
	granted 3 128 128
	granted 4 1 1
	for n in 0 1 2 3 4; do
		said client $n '65536 bytes were read, every one right' 'status 0'
	done
	granted 5 16 0
	granted 6 0 0
	for n in 5 6; do
		said client $n 'the server grants no READ at all: a READ would be posted and wait for ever; ask for some with -d, and start the server with -g' \
			'status 1'
	done
}

# The table of the README.
@test "each right, key and depth that is missing or wrong" {
	local n

	turns "$asan" '--missing remote-read|' '|--wrong rkey' '|--wrong end' \
		'--missing qp-right|' '|--wrong local-write' \
		'--more|--depth 0' '--grant 0|-t 2 --wrong depth' '-t 2|--depth 129'
	for n in 0 1 2; do
		said client $n 'completion of the RDMA READ \(wr_id [0-9]+\): remote access error, status 10, .*' \
			'status 1'
		said server $n 'disconnected: .*, and is in ERR: something was refused' \
			'status 0'
	done
	for n in 3 5; do
		said client $n 'completion of the RDMA READ \(wr_id [0-9]+\): remote invalid request error, status 9, .*' \
			'status 1'
		said server $n 'disconnected: .*, and is in ERR: something was refused' \
			'status 0'
	done
	said client 4 'completion of the RDMA READ \(wr_id [0-9]+\): .*, status 4, .*' \
		'status 1'
	said client 6 'waited 2 s for a completion and none came: .*' 'status 1'
	said client 7 'rdma_connect: Invalid argument: more READs at a time than the device can do .*' \
		'status 1'
}

@test "one packet in a hundred is lost: every byte is right" {
	local size

	impair loss 1%
	for size in 65536 262144; do
		serve "$server" -t 30 --size $size
		connect -t 30
		assert_success
		finished 0
	done
}

@test "private data that is no region, and bytes that are not the pattern" {
	local spec wanted

	while read -r spec wanted; do
		serve "$peers"/badserver --depth 4 --private "$spec"
		connect
		assert_failure 1
		[[ $stderr == *"$wanted"* ]]
		stop_jobs
	done <<-'END'
		zero:16 the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?
		hex:ffffffffffffffff0000000100000002 the peer's private data is no memory region (address 0xffffffffffffffff, size 2)
		addr,u32:4711,size : remote access error, status 10, 
		addr,rkey,size byte 0 is 0x00, should be 0x
	END
}

@test "a server that refuses, dies or says nothing more" {
	serve "$peers"/badserver --at request --do reject
	connect
	assert_failure 1
	[[ $stderr == *'RDMA_CM_EVENT_REJECTED, status 28'* ]]
	stop_jobs

	# Its card goes on answering READs while the program says nothing.
	serve "$peers"/badserver --depth 4 --private addr,rkey,size \
		--at established --do stall
	start client me "$client" -t 1 "$ADDR_SERVER"
	finish me
	assert_equal "$status" 1
	[[ $stderr == 'byte 0 is 0x00, should be '* ]]
	stop_jobs

	# Many small READs, and in the middle of them it is killed.
	serve "$server" --size 16777216
	start client me "$client" --block 256 "$ADDR_SERVER"
	wait_line me "^the server's memory"
	signal_job peer KILL
	finish me
	assert_equal "$status" 1
	[[ $stderr =~ 'the server disconnected after '[0-9]+' of 65536 READs' ||
		$stderr =~ 'status '(9|10|12)', ' ]]
}

@test "a client that dies or stalls, and Ctrl-C, end the server" {
	serve "$server"
	run on client "$peers"/badclient --at established --do kill "$ADDR_SERVER"
	finished 0
	assert_line --partial 'disconnected: '

	serve "$server" -t 8
	start client other "$peers"/badclient --at established --do stall \
		"$ADDR_SERVER"
	finished 1
	[[ $stderr == 'waited 8 s for RDMA_CM_EVENT_DISCONNECTED and nothing came'* ]]
	stop_jobs

	serve "$server"
	signal_job peer INT
	finished 1
	assert_equal "$stderr" 'stopped by Interrupt'
}

@test "more READs at a time than were granted: SoftRoCE answers them all" {
	serve "$server" --grant 1
	run on client "$peers"/greedy 16 16 32 "$ADDR_SERVER"
	assert_success
	assert_line 'granted 1, and we make 16'
	assert_equal "$(grep -c '^READ: status 0$' <<<"$output")" 32
	finished 0
	assert_line 'connected: our QP answers 1 READs at a time (max_dest_rd_atomic), and is in RTS'
}

@test "no more READs are on the wire at a time than were granted" {
	local grant

	for grant in 1 4; do
		SERVER_ARGS="--grant $grant" SEQUENCE=$BATS_TEST_TMPDIR/sequence \
			run tools/wire/wire 09 -- --block 1024
		assert_success
		# The ladder: requests up, responses down.
		awk -v grant="$grant" '
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
