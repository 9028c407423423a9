#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 18: datagrams that arrive, that are lost, and that go to a group.
#
# shellcheck disable=SC2086 # the programs are words without blanks

load ../helpers

asan=build/asan-O0/18-datagrams
group=239.10.10.18

setup_file() {
	build {asan,gcc}-{O0,O2}/18-datagrams
}

teardown() {
	[ -z "${impaired:-}" ] || lab/lab impair clear
	assert_nothing_left
}

# serve ARG...: the server as job `server`, until it listens
serve() {
	start server server $asan/server "$@"
	wait_line server '^listening on '
}

client() {
	run --separate-stderr on client $asan/client "$@" "$ADDR_SERVER"
}

@test "the pair runs, as make run shows it" {
	run pair 18
	assert_success
	assert_line 'client | sent: 10 datagrams of 64 bytes, all completed with status 0'
	assert_line 'client | the server has 10 of 10: 0 lost, 0 came twice'
	assert_line --regexp "^server \| the first datagram: 104 bytes, 40 of them the GRH, from QP number 0x[0-9a-f]+ of $ADDR_CLIENT$"
	assert_line 'server | 10 of 10 datagrams have come, 0 out of order, 0 twice, 0 that were not for us'
}

@test "every build says the same, and IPv6 does" {
	local variant

	for variant in asan-O2 gcc-O2; do
		BIN=build/$variant run pair 18 -n 3 -s 16
		assert_success
		assert_line 'client | the server has 3 of 3: 0 lost, 0 came twice'
	done
	IPV=6 BIN=build/asan-O0 run pair 18 -s 1024
	assert_success
	assert_line 'client | the server has 10 of 10: 0 lost, 0 came twice'
	assert_line --regexp '^server \| the first datagram: 1064 bytes, .* of fd10::2$'
}

@test "what is larger than a packet is not sent" {
	serve -t 3
	client -s 1025
	assert_failure 1
	assert_equal "$stderr" "a datagram of 1025 bytes does not fit into one packet: the port's active_mtu is 1024"
	finish server
	assert_equal "$status" 1
	[[ $stderr == "waited 3 s for RDMA_CM_EVENT_CONNECT_REQUEST"* ]]
}

@test "datagrams without a receive are lost, and every SEND is a good one" {
	local lost

	serve -r 2 -w 20
	client -n 60
	assert_success
	assert_line 'sent: 60 datagrams of 64 bytes, all completed with status 0'
	assert_line --regexp '^the server has [0-9]+ of 60: [1-9][0-9]* lost, 0 came twice$'
	lost=$(sed -nE 's/.*: ([0-9]+) lost.*/\1/p' <<<"$output")
	finish server
	assert_equal "$status" 0
	assert_line "$((60 - lost)) of 60 datagrams have come, 0 out of order, 0 twice, 0 that were not for us"
	assert_line --regexp '^lost: '
	# As many are named as were counted.
	assert_equal "$(sed -n 's/^lost: //p' <<<"$output" | tr ' ' '\n' | awk -F- '
		{ n += NF == 2 ? $2 - $1 + 1 : 1 } END { print n }')" "$lost"
}

@test "on a bad wire losses are counted, and questions asked again" {
	impaired=1
	# A tenth, so that the connection manager gets its own messages through.
	lab/lab impair loss 10%
	serve -t 30
	client -t 30 -n 300
	assert_success
	assert_line --regexp '^the server has [0-9]+ of 300: [1-9][0-9]* lost, 0 came twice$'
	finish server
	assert_equal "$status" 0
	lab/lab impair duplicate 50%
	# Room for each of them twice: what is lost here nobody has thrown away.
	serve -r 200
	client -n 100
	assert_success
	assert_line --regexp '^the server has 100 of 100: 0 lost, [1-9][0-9]* came twice$'
	finish server
}

@test "a group: the server has them, and so has the sender" {
	serve -g $group
	client -g $group
	assert_success
	assert_line --regexp "^joined $group: QP number 0xffffff$"
	assert_line 'the server has 10 of 10: 0 lost, 0 came twice'
	assert_line 'and we have had 10 of them ourselves'
	finish server
	assert_equal "$status" 0
	# Who is no member hears nothing.
	serve
	client -g $group
	assert_success
	assert_line 'the server has 0 of 10: 10 lost, 0 came twice'
	finish server
}

@test "nobody is there, nobody answers, and nobody comes" {
	client -t 2
	assert_failure 1
	assert_equal "$stderr" "RDMA_CM_EVENT_UNREACHABLE, status 1: nobody listens on that port; start the server first, and compare the two -p"

	# The server dies when it has told its number: nothing says so.
	start server server $asan/server
	wait_line server '^listening on '
	start client client $asan/client -t 3 -n 1000000 "$ADDR_SERVER"
	wait_line client '^found: '
	signal_job server KILL
	signal_job client INT
	finish client
	assert_equal "$status" 1
	[[ $stderr == "stopped by Interrupt" ]]

	serve
	wait_line server '^listening on '
	lab/lab freeze server
	client -t 2
	lab/lab thaw server
	assert_failure 1
	[[ $stderr == *"waited 2 s for the server's queue pair and nothing came"* ||
		$stderr == *RDMA_CM_EVENT_* ]]
	signal_job server TERM
	finish server
	[[ $stderr == "stopped by Terminated" ]]
}

@test "bad arguments are named, with the usage and status 2" {
	local flags

	for flags in '-n 0' '-n 1000001' '-s 15' '-s 4097' '-p 0' '--what' 'two of'; do
		run --separate-stderr $asan/client $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ''
	done
	for flags in '-r 0' '-r 201' '-w -1' '-w 1001' '-t x' operand; do
		run --separate-stderr $asan/server $flags
		assert_equal "$status" 2
		[[ $stderr == *"usage: server "* ]]
		assert_output ''
	done
	for flags in client server; do
		run --separate-stderr $asan/$flags --help
		assert_success
		assert_output --partial "usage: $flags "
		assert_equal "$stderr" ''
	done
}
