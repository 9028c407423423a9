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
		asan-O0/08-write-doorbell build/peers/badclient build/peers/badserver
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
	local op size words=() n=0

	for op in write send; do
		for size in 8 1016 1024 1032 65536 1048576; do
			words+=("|--op $op -n 10 -s $size --window 4 --signal 2 --batch 2")
			words+=("|--op $op -n 4 -s $size --latency --window 2")
		done
	done
	turns "$plain" "${words[@]}"
	for op in 'RDMA WRITE' SEND; do
		for size in 8 1016 1024 1032 65536 1048576; do
			said client $n 'status 0'
			said server $n "10 messages of $size bytes by $op: every one is right" 'status 0'
			said client $((n + 1)) 'status 0'
			said server $((n + 1)) "4 messages of $size bytes by $op, there and back: every one is right" 'status 0'
			n=$((n + 2))
		done
	done
}

@test "with a packet in a hundred lost every message is right" {
	impair loss 1%
	turns "$plain" '-t 30|-t 30 -n 200 -s 4096 --window 8 --signal 4' \
		'-t 30|-t 30 -n 200 -s 1024 --window 16 --signal 8 --batch 8 --op send --wait event' \
		'-t 30|-t 30 -n 50 -s 64 --latency --op send'
	for n in 0 1 2; do
		said client $n 'status 0'
		said server $n '.*: every one is right' 'status 0'
	done
}

# ---- what can go wrong, as the README says --------------------------------

@test "who is not of this lesson is found out" {
	serve "$server"
	run --separate-stderr on client build/asan-O0/08-write-doorbell/client "$ADDR_SERVER"
	assert_failure 1
	finished 1
	assert_equal "$stderr" "the client's private data does not begin with LESSON13: is it the client of this lesson?"

	serve "$badserver" --private addr,rkey,size --memory 4096 --at established --do stall
	connect -t 2 --window 128
	assert_failure 1
	[[ $stderr == "the peer lends 4096 bytes, and 128 messages of 64 bytes do not fit there"* ]]
	stop_jobs

	serve "$badserver" --private zero:16 --at established --do stall
	connect -t 2 -n 10 --window 8
	assert_failure 1
	[[ $stderr == "the peer's private data is no memory region"* ]]
	stop_jobs
}

@test "a plan that is not within the limits is refused" {
	local plan

	# op, latency, more, size, count, window, signal, inline
	for plan in u32:9,u32:0,u32:0,u32:64,u32:10,u32:8,u32:1,u32:0 \
		u32:1,u32:0,u32:0,u32:63,u32:10,u32:8,u32:1,u32:0 \
		u32:3,u32:0,u32:0,u32:4294967288,u32:10,u32:8,u32:1,u32:0 \
		u32:3,u32:0,u32:0,u32:1048576,u32:10,u32:1024,u32:1,u32:0; do
		serve "$server"
		run on client "$badclient" --private "text:LESSON13,$plan" "$ADDR_SERVER"
		finished 1
		[[ $stderr == "the client asks for "*"that is not within our limits" ]]
	done
}

@test "a side that is killed ends the other" {
	serve "$server"
	start client client "$client" -n 10000000 --window 64 --signal 16 "$ADDR_SERVER"
	wait_line client '^connected'
	signal_job peer KILL
	finish client
	assert_equal "$status" 1
	[[ $stderr =~ ^"the peer disconnected: "[0-9]+" of 10000000 messages are done" ||
		$stderr == *"status "* ]]
	stop_jobs

	serve "$server"
	start client client "$client" --op send -n 10000000 --window 64 --signal 16 \
		--wait event "$ADDR_SERVER"
	wait_line client '^connected'
	signal_job client KILL
	finished 1
	[[ $stderr == "the peer disconnected: "* || $stderr == *"status "* ]]
	stop_jobs

	serve "$server"
	start client client "$client" -n 10000000 --window 64 --signal 16 "$ADDR_SERVER"
	wait_line client '^connected'
	signal_job client KILL
	finished 1
	[[ $stderr =~ ^"slot 0 has message "[0-9]+", and should have 9999937" ]]
}

@test "a machine that freezes ends the other side" {
	serve "$server"
	start client client "$client" -t 5 -n 10000000 --window 64 --wait event "$ADDR_SERVER"
	wait_line client '^connected'
	freeze server
	finish client
	undo
	assert_equal "$status" 1
	[[ $stderr == *"status 12, "* || $stderr == "waited 5 s and nothing came"* ]]
	stop_jobs

	serve "$server" -t 6
	start client client "$client" -n 10000000 --window 64 "$ADDR_SERVER"
	wait_line client '^connected'
	freeze client
	finished 1
	undo
	[[ $stderr == "waited 6 s and nothing was written after message "*": is the client alive?"* ]]
	stop_jobs
}

@test "Ctrl-C ends either side, and the peer with it" {
	serve "$server"
	start client client "$client" --op send -n 10000000 --window 64 --signal 16 "$ADDR_SERVER"
	wait_line client '^connected'
	signal_job client INT
	finish client
	assert_equal "$status" 1
	assert_equal "$stderr" "stopped by Interrupt"
	finished 1
	[[ $stderr == *"the peer disconnected: "* || $stderr == *"status 5"* ]]

	serve "$server"
	start client client "$client" -n 10000000 --window 64 "$ADDR_SERVER"
	wait_line client '^connected'
	signal_job peer TERM
	finished 1
	assert_equal "$stderr" "stopped by Terminated"
	finish client
	assert_equal "$status" 1
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
