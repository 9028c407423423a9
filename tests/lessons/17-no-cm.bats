#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 17: a connection by hand, and what comes of one wrong attribute.
#
# shellcheck disable=SC2086 # the programs are words without blanks

load ../helpers

asan=build/asan-O0/17-no-cm

setup_file() {
	build {asan,gcc}-{O0,O2}/17-no-cm
	build gcc-O2/08-write-doorbell
}

teardown() {
	assert_nothing_left
}

serve() {
	start server server $asan/server "$@"
	wait_line server '^listening on '
}

client() {
	run --separate-stderr on client $asan/client "$@" "$ADDR_SERVER"
}

@test "the pair runs, as make run shows it" {
	run pair 17
	assert_success
	assert_line --regexp '^client \| device rxe0 port 1, GID [0-9]+: ::ffff:10.10.10.2, MTU 1024$'
	assert_line --regexp '^server \| exchanged: the peer has QP number 0x[0-9a-f]+, first PSN 0x[0-9a-f]+, GID ::ffff:10.10.10.2, MTU 1024$'
	assert_line 'client | completed: RDMA WRITE of the doorbell'
	assert_line 'server | the doorbell has the value 1'
	assert_line 'server | buffer: Hello, by hand'
}

@test "every build does it, and IPv6 does; long texts arrive" {
	local variant text

	for variant in asan-O2 gcc-O2; do
		BIN=build/$variant run pair 17 -m $variant
		assert_success
		assert_line "server | buffer: $variant"
	done
	IPV=6 BIN=build/asan-O0 run pair 17
	assert_success
	assert_line --regexp '^client \| device rxe0 port 1, GID [0-9]+: fd10::2, MTU 1024$'
	assert_line 'server | buffer: Hello, by hand'
	text=$(printf 'x%.0s' {1..5000})
	serve
	client -m "$text"
	assert_success
	finish server
	assert_equal "$status" 0
	assert_line "buffer: $text"
}

@test "a wrong attribute: the state, the GRH, the number, the PSN, the rights" {
	local wrong

	for wrong in rtr:RTS grh:RTR; do
		serve
		client --wrong ${wrong%:*}
		assert_failure 1
		assert_equal "$stderr" "ibv_modify_qp to ${wrong#*:}: Invalid argument: an attribute is missing or wrong, or the QP is not in the state before"
		finish server
		assert_equal "$status" 1
		[[ $stderr == 'the peer has closed the TCP connection in the middle of the exchange' ]]
	done

	serve
	client --wrong qpn
	assert_failure 1
	[[ $stderr == 'completion of the RDMA WRITE '*', status 12, '* ]]
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" 'the client has gone, and the doorbell has not rung'

	serve --wrong psn
	client
	assert_failure 1
	[[ $stderr == 'completion of the RDMA WRITE '*', status 12, '* ]]
	finish server

	# One answer, and then none.
	SERVER_ARGS="--wrong psn" run tools/wire/wire 17
	assert_equal "$(grep -c "NAK --.*PSN sequence error" <<<"$output")" 1
	refute_output --partial "Acknowledge --"

	serve --wrong access
	client
	assert_failure 1
	[[ $stderr == 'completion of the RDMA WRITE '*', status 9, '* ]]
	finish server
}

@test "addresses without a device, nobody there, and other peers" {
	start client alone $asan/server -t 4
	wait_line alone '^listening on '
	run --separate-stderr on client $asan/client 127.0.0.1
	assert_failure 1
	assert_equal "$stderr" 'no RDMA device has the RoCE v2 GID ::ffff:127.0.0.1: use the address of a card that has one (see `rdma link`)'
	finish alone
	assert_equal "$status" 1

	client
	assert_failure 1
	[[ $stderr == "connect: $ADDR_SERVER:10121: Connection refused"* ]]

	# Somebody else listens, and says something else, or nothing.
	start server other busybox nc -l -p 10121 -e \
		sh -c 'head -c 64 /dev/zero; sleep 1'
	on server sh -c 'until grep -qi ":2789 " /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done'
	client
	assert_failure 1
	assert_equal "$stderr" 'what came by TCP is no record of a queue pair: is it the peer of this lesson?'
	stop_jobs

	# A client of a lesson with the CM finds nobody there: that is another port.
	serve -t 8
	run --separate-stderr on client build/gcc-O2/08-write-doorbell/client "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *'REJECTED, status 8'* ]]
	# And one that connects by TCP and is silent, or leaves.
	on client busybox nc "$ADDR_SERVER" 10121 </dev/null || true
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" 'the peer has closed the TCP connection in the middle of the exchange'
}

@test "a client that stops, and Ctrl-C" {
	serve -t 3
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" 'waited 3 s for a client and nothing came'

	serve
	signal_job server INT
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" 'stopped by Interrupt'
}

@test "bad arguments are named, with the usage and status 2" {
	local flags

	for flags in '--wrong nothing' '-p 0' '-t 0' '--what' 'two of'; do
		run --separate-stderr $asan/client $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ''
	done
	for flags in '--wrong qpn' '-p 65536' '-t x' operand; do
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
