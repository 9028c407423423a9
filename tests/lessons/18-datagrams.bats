#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 18: datagrams that arrive, that are lost, and that go to a group.
#
# shellcheck disable=SC2086 # the programs are words without blanks

load ../helpers
load turns

asan=build/asan-O0/18-datagrams
group=239.10.10.18

setup_file() {
	build {asan,gcc}-{O0,O2}/18-datagrams
}

teardown() {
	undo
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
	local n o2=build/asan-O2/18-datagrams plain=build/gcc-O2/18-datagrams

	one_by_one "$o2/server|$o2/client -n 3 -s 16" \
		"$plain/server|$plain/client -n 3 -s 16" \
		"$asan/server|$asan/client -s 1024|$ADDR6_SERVER"
	for n in 0 1; do
		said client $n 'the server has 3 of 3: 0 lost, 0 came twice' 'status 0'
		said server $n 'status 0'
	done
	said client 2 'the server has 10 of 10: 0 lost, 0 came twice' 'status 0'
	said server 2 'the first datagram: 1064 bytes, .* of fd10::2' 'status 0'
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
	# No more, so that the connection manager gets its own messages through.
	impair loss 5%
	serve -t 30
	client -t 30 -n 300
	assert_success
	assert_line --regexp '^the server has [0-9]+ of 300: [1-9][0-9]* lost, 0 came twice$'
	finish server
	assert_equal "$status" 0
	impair duplicate 50%
	# Room for each of them twice: what is lost here nobody has thrown away.
	serve -r 200
	client -n 100
	assert_success
	assert_line --regexp '^the server has 100 of 100: 0 lost, [1-9][0-9]* came twice$'
	finish server
	assert_equal "$status" 0
}

@test "a group: the server has them, and so has the sender" {
	one_by_one "$asan/server -g $group|$asan/client -g $group" \
		"$asan/server|$asan/client -g $group"
	said client 0 "joined $group: QP number 0xffffff, Q_Key 0x1234567" \
		'the server has 10 of 10: 0 lost, 0 came twice' \
		'and we have had 10 of them ourselves' 'status 0'
	said server 0 'status 0'
	# Who is no member hears nothing.
	said client 1 'the server has 0 of 10: 10 lost, 0 came twice' 'status 0'
	said server 1 '0 of 0 datagrams have come.*' 'status 0'
}

@test "too long for a packet, nobody is there, nobody answers, and nobody comes" {
	local active_mtu="the port's active_mtu is 1024"

	begin_cases at_once "$asan/server -t 3|$asan/client -s 1025" \
		"echo listening on nothing|$asan/client" \
		"$asan/server -w 1000|$asan/client -t 2" \
		"$asan/server -t 8|$asan/client -n 1000000" \
		"$asan/server|$asan/client -n 1000000"
	# The client dies when it has been told the number: nothing says so.
	wait_case client 3 'found: '
	signal_cases client KILL 3
	# Nor of a server.
	wait_case client 4 'found: '
	signal_cases server KILL 4
	signal_cases client INT 4
	finish_cases
	erred client 0 "a datagram of 1025 bytes does not fit into one packet: $active_mtu"
	said server 0 '! waited 3 s for RDMA_CM_EVENT_CONNECT_REQUEST.*' 'status 1'
	erred client 1 "RDMA_CM_EVENT_UNREACHABLE, status 1: nobody listens on that port; start the server first, and compare the two -p"
	erred client 4 'stopped by Interrupt'
	# It has ten datagrams to think about, for a second each.
	said client 2 '! asked [0-9]+ times in 2 s, and the server gives no answer: is it alive\?' 'status 1'
	said server 2 '10 of 10 datagrams have come.*' 'status 0'
	erred server 3 'waited 8 s for a datagram and none came: is the client alive?'

	serve -t 60
	freeze server
	client -t 2
	thaw
	assert_failure 1
	[[ $stderr == *"waited 2 s for the server's queue pair and nothing came"* ||
		$stderr == *RDMA_CM_EVENT_* ]]
	signal_job server TERM
	finish server
	[[ $stderr == "stopped by Terminated" ]]
	assert_equal "$status" 1
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
