#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 17: a connection by hand, and what comes of one wrong attribute.
#
# shellcheck disable=SC2086 # the programs are words without blanks

load ../helpers
load turns

asan=build/asan-O0/17-no-cm

setup_file() {
	build {asan,gcc}-{O0,O2}/17-no-cm
	build gcc-O2/08-write-doorbell
}

teardown() {
	undo
	assert_nothing_left
}

serve() {
	start server server $asan/server "$@"
	wait_line server '^listening on '
}

client() {
	run --separate-stderr on client $asan/client "$ADDR_SERVER"
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
	local variant cases=() text

	for variant in asan-O2 gcc-O2; do
		variant=build/$variant/17-no-cm
		cases+=("$variant/server|$variant/client -m $variant")
	done
	text=$(printf 'x%.0s' {1..5000})
	one_by_one "${cases[@]}" "$asan/server|$asan/client|$ADDR6_SERVER" \
		"$asan/server|$asan/client -m $text"
	said server 0 'buffer: build/asan-O2/17-no-cm' 'status 0'
	said client 0 'status 0'
	said server 1 'buffer: build/gcc-O2/17-no-cm' 'status 0'
	said client 1 'status 0'
	said client 2 'device rxe0 port 1, GID [0-9]+: fd10::2, MTU 1024' 'status 0'
	said server 2 'buffer: Hello, by hand' 'status 0'
	said client 3 'status 0'
	said server 3 "buffer: $text" 'status 0'
}

@test "a wrong attribute: the state, the GRH, the number, the PSN, the rights" {
	local n state

	all_at_once client "$asan/server|$asan/client --wrong rtr" \
		"$asan/server|$asan/client --wrong grh" \
		"$asan/server|$asan/client --wrong qpn" \
		"$asan/server --wrong psn|$asan/client" \
		"$asan/server --wrong access|$asan/client"
	for state in 0:RTS 1:RTR; do
		n=${state%:*}
		erred client "$n" "ibv_modify_qp to ${state#*:}: Invalid argument: an attribute is missing or wrong, or the QP is not in the state before"
		erred server "$n" 'the peer has closed the TCP connection in the middle of the exchange'
	done
	said client 2 '! completion of the RDMA WRITE .*, status 12, .*' 'status 1'
	erred server 2 'the client has gone, and the doorbell has not rung'
	said client 3 '! completion of the RDMA WRITE .*, status 12, .*' 'status 1'
	said client 4 '! completion of the RDMA WRITE .*, status 9, .*' 'status 1'

	# One answer, and then none.
	SERVER_ARGS="--wrong psn" run tools/wire/wire 17
	assert_equal "$(grep -c "NAK --.*PSN sequence error" <<<"$output")" 1
	refute_output --partial "Acknowledge --"
}

@test "addresses without a device, nobody there, and other peers" {
	start client alone $asan/server
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
	on server sh -c 'until grep -qi ":2789 0*:0000 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done'
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
	begin_cases at_once "$asan/server -t 3|true" "$asan/server|true"
	wait_case server 1 'listening on '
	signal_cases server INT 1
	finish_cases
	erred server 0 'waited 3 s for a client and nothing came'
	erred server 1 'stopped by Interrupt'
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
