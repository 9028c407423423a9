#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 13: the ladder. What is tested is the accounting, which is exact, and that
# every byte is right. How fast it is, is for make bench.

load ../helpers
load turns

# For this file, in seconds.
export BATS_TEST_TIMEOUT=180

setup_file() {
	build asan-O0/13-throughput gcc-O2/13-throughput clang-O0/13-throughput \
		gcc-O2/08-write-doorbell build/peers/badclient build/peers/badserver
}

setup() {
	server=build/asan-O0/13-throughput/server
	client=build/asan-O0/13-throughput/client
	plain=build/gcc-O2/13-throughput
	badclient=build/peers/badclient
	badserver=build/peers/badserver
}

teardown() {
	undo
	assert_nothing_left
}

# rungs COUNT: the counted part of each rung, as it has to be
rungs() {
	local n=$1

	cat <<-END
		one at a time: $n posts, $n completions
		a window of 128: $n posts, $n completions
		one in 32 signalled: $n posts, $((n / 32)) completions
		32 in a post: $((n / 32)) posts, $((n / 32)) completions
		inline: $((n / 32)) posts, $((n / 32)) completions
		sleep until an event: $((n / 32)) posts, $((n / 32)) completions
		16 times the size: $((n / 32)) posts, $((n / 32)) completions
	END
}

# The same of what a client has printed.
counted() {
	sed -nE 's/^(client \| )?([a-z0-9, ]*[a-z0-9]) +[0-9.]+ messages\/s.*\((.*)\)$/\2: \3/p' <<<"$output"
}

@test "the ladder, as make run shows it: posts and completions are exact" {
	run pair 13 -n 320
	assert_success
	assert_line 'client | 320 messages of 64 bytes by RDMA WRITE'
	assert_equal "$(counted)" "$(rungs 320)"
	assert_equal "$(grep -c '^server | 320 messages of 64 bytes by RDMA WRITE: every one is right$' <<<"$output")" 6
	assert_line 'server | 320 messages of 1024 bytes by RDMA WRITE: every one is right'
}

@test "the ladder by SEND, with sanitizers, over IPv6" {
	BIN=build/asan-O0 IPV=6 run pair 13 --op send -n 96
	assert_success
	assert_equal "$(counted)" "$(rungs 96)"
	assert_equal "$(grep -c '^server | 96 messages of .* by SEND: every one is right$' <<<"$output")" 7
}

@test "every queue slot is accounted for, whatever the numbers" {
	local n op

	for op in write send; do
		turns build/clang-O0/13-throughput \
			"|--op $op -n 100 --window 16 --signal 7 --batch 5" \
			"|--op $op -n 1" \
			"|--op $op -n 33 --window 64 --signal 32" \
			"|--op $op -n 50 --window 1" \
			"|--op $op -n 50 --window 1024 --signal 1024 --batch 1 --wait event" \
			"-w busy|--op $op -n 64 --window 8 --signal 8 --wait event" \
			"|--op $op -n 67 --window 64 --signal 1 --batch 64 --inline 64" \
			"|--op $op -n 40 --latency --window 8 --signal 4"
		n=0
		for counts in '20 posts, 15 completions' '1 posts, 1 completions' \
			'33 posts, 2 completions' '50 posts, 50 completions' \
			'50 posts, 1 completions' '64 posts, 8 completions' \
			'2 posts, 67 completions' '40 posts, 10 completions'; do
			said client $n ".* messages/s .*\($counts\)" 'status 0'
			said server $n '.*: every one is right' 'status 0'
			n=$((n + 1))
		done
	done
}

@test "messages of 8 bytes to a megabyte are right, one way and there and back" {
	local op size count words=() n=0

	# Every slot of the memory is used twice at the least.
	for op in write send; do
		for size in 8 1016 1024 1032 65536 1048576; do
			count=$((size < 1048576 ? 10 : 5))
			words+=("|--op $op -n $count -s $size --window 4 --signal 2 --batch 2")
		done
	done
	for size in 8 1024 1048576; do
		words+=("|--op write -n 3 -s $size --latency --window 2")
	done
	for size in 1016 1032 65536; do
		words+=("|--op send -n 4 -s $size --latency --window 2")
	done
	turns "$plain" "${words[@]}"
	for op in 'RDMA WRITE' SEND; do
		for size in 8 1016 1024 1032 65536 1048576; do
			said client $n 'status 0'
			said server $n "(5|10) messages of $size bytes by $op: every one is right" 'status 0'
			n=$((n + 1))
		done
	done
	for size in 8 1024 1048576 1016 1032 65536; do
		said client $n 'status 0'
		said server $n "[34] messages of $size bytes by (RDMA WRITE|SEND), there and back: every one is right" 'status 0'
		n=$((n + 1))
	done
}

@test "with a packet in a hundred lost every message is right" {
	local n pair="$plain/server -t 30|$plain/client -t 30"

	impair loss 1%
	one_by_one "$pair -n 200 -s 4096 --window 8 --signal 4" \
		"$pair -n 200 -s 1024 --window 16 --signal 8 --batch 8 --op send --wait event" \
		"$pair -n 50 -s 64 --latency --op send"
	# By WRITE the client needs nothing of the server's program.
	after_loss 0 1 '.*: every one is right'
	said client 0 'status 0'
	for n in 1 2; do
		said client $n 'status 0'
		said server $n '.*: every one is right' 'status 0'
	done
}

# ---- what can go wrong, as the README says --------------------------------

@test "who is not of this lesson, or plans beyond the limits, is found out" {
	local n offer="$badserver --at established --do stall --private"

	# op, latency, more, size, count, window, signal, inline
	begin_cases at_once "$server|build/gcc-O2/08-write-doorbell/client" \
		"$server|$badclient --private text:LESSON13,u32:9,u32:0,u32:0,u32:64,u32:10,u32:8,u32:1,u32:0" \
		"$server|$badclient --private text:LESSON13,u32:1,u32:0,u32:0,u32:63,u32:10,u32:8,u32:1,u32:0" \
		"$server|$badclient --private text:LESSON13,u32:3,u32:0,u32:0,u32:4294967288,u32:10,u32:8,u32:1,u32:0" \
		"$server|$badclient --private text:LESSON13,u32:3,u32:0,u32:0,u32:1048576,u32:10,u32:1024,u32:1,u32:0" \
		"$offer addr,rkey,size --memory 4096|$client --window 128" \
		"$offer zero:16|$client -n 10 --window 8"
	wait_case client 5 '! '
	wait_case client 6 '! '
	signal_cases server TERM 5 6
	finish_cases
	erred server 0 "the client's private data does not begin with LESSON13: is it the client of this lesson?"
	said client 0 'status 1'
	for n in 1 2 3 4; do
		said server $n '! the client asks for .*: that is not within our limits' 'status 1'
	done
	said client 5 '! the peer lends 4096 bytes, and 128 messages of 64 bytes do not fit there.*' 'status 1'
	said client 6 "! the peer's private data is no memory region.*" 'status 1'
}

@test "a side that is killed, or told to stop, ends the other" {
	local n many='-n 10000000 --wait event' when=tests/lessons/when

	# One at a time leaves the nodes the time to hear of a signal.
	begin_cases at_once "$plain/server|$client $many --window 1" \
		"$server|$client $many --window 1" \
		"$server|$when KILL connected $plain/client --op send $many --window 64 --signal 16" \
		"$server|$when KILL connected $plain/client $many --window 64 --signal 16" \
		"$server|$when INT connected $client --op send $many --window 64 --signal 16"
	wait_case client 0 connected
	wait_case client 1 connected
	signal_cases server KILL 0
	signal_cases server TERM 1
	finish_cases
	said client 0 '! (the peer disconnected: [0-9]+ of 10000000 messages are done.*|.*status .*)' 'status 1'
	erred server 1 'stopped by Terminated'
	said client 1 'status 1'
	said server 2 '! (the peer disconnected: .*|.*status .*)' 'status 1'
	said server 3 '! slot 0 has message [0-9]+, and should have 9999937.*' 'status 1'
	erred client 4 'stopped by Interrupt'
	said server 4 '! .*(the peer disconnected: |status 5).*' 'status 1'
}

# A node freezes on which one connection has its client, another its server.
@test "a machine that freezes ends the other side" {
	local many='-n 10000000 --window 64 --wait event'

	start client peer "$plain/server"
	wait_line peer '^listening on '
	# shellcheck disable=SC2086 # several arguments
	start server me "$client" -t 5 $many "$ADDR_CLIENT"
	begin_cases at_once "$server -t 4|$plain/client $many"
	wait_line me '^connected'
	wait_case client 0 connected
	freeze client
	wait_case server 0 '! waited '
	thaw
	signal_cases client KILL
	finish me
	assert_equal "$status" 1
	[[ $stderr == *"status 12, "* || $stderr == "waited 5 s and nothing came"* ]]
	finish_cases
	said server 0 '! waited 4 s and nothing was written after message [0-9]+: is the client alive\?' 'status 1'
}

@test "bad arguments are named, with the usage and status 2" {
	local flags

	while IFS= read -r flags; do
		# shellcheck disable=SC2086 # words without blanks
		run --separate-stderr "$client" $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ""
	done <<-'END'
		-n 0
		-s 7
		-s 12
		-s 1048584
		--op read
		--window 0
		--window 1025
		--window 16 --signal 17
		--window 16 --signal 9 --batch 9
		--window 1024 -s 1048576
		--latency --batch 2 --window 4
		--inline 513
		--wait never
		-s 8192
		two of
	END
	for flags in '-w never' '-p 0' operand; do
		# shellcheck disable=SC2086
		run --separate-stderr "$server" $flags
		assert_equal "$status" 2
		[[ $stderr == *"usage: server "* ]]
	done
	run --separate-stderr "$client" --window 16 --signal 9 --batch 9 "$ADDR_SERVER"
	[[ $stderr == "client: --signal 9 and --batch 9 do not fit into --window 16: the queue would be full of requests that nobody tells us of"* ]]
	for flags in client server; do
		run --separate-stderr build/asan-O0/13-throughput/$flags --help
		assert_success
		assert_output --partial "usage: $flags "
		assert_equal "$stderr" ""
	done
}
