#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 11: atomics: a counter and a lock that several processes share.

load ../helpers
load turns

setup_file() {
	build asan-O0/11-atomics asan-O2/11-atomics gcc-O2/11-atomics peers
}

setup() {
	asan=build/asan-O0/11-atomics
	plain=build/gcc-O2/11-atomics
	server=$asan/server
	client=$asan/client
	peers=build/peers
}

teardown() {
	undo
	assert_nothing_left
}

@test "four processes count, and the totals are exact" {
	run pair 11
	assert_success
	assert_line --partial "HCA, atomic among this device's requests"
	assert_line 'server | 4 of 4 clients are connected, or have been'
	assert_line 'client | 40 tickets were drawn, none of them twice'
	assert_equal "$(grep -cE '^client \| client [1-4]: drew 10 tickets, the first [0-9]+, the last [0-9]+; took the lock 10 times, with [0-9]+ tries$' <<<"$output")" 4
	assert_line 'server | the counter is 40, the sum 40, the lock 0'
	assert_line 'server | exactly what 4 clients have counted'
}

@test "one, two and eight processes, in every build, over IPv6 too: the totals are exact" {
	local o2=build/asan-O2/11-atomics

	one_by_one "$plain/server -t 30|$plain/client -c 1 -n 50" \
		"$plain/server -t 30|$plain/client -c 2 -n 20" \
		"$plain/server -t 60|$plain/client -t 60 -c 8 -n 8" \
		"$asan/server -t 30|$asan/client -c 2 -n 5|$ADDR6_SERVER" \
		"$o2/server -t 30|$o2/client -c 2 -n 5"
	said server 0 'the counter is 50, the sum 50, the lock 0' 'status 0'
	said server 1 'the counter is 40, the sum 40, the lock 0' 'status 0'
	said server 2 'the counter is 64, the sum 64, the lock 0' 'status 0'
	said server 3 'the counter is 10, the sum 10, the lock 0' 'status 0'
	said server 4 'the counter is 10, the sum 10, the lock 0' 'status 0'
	said client 0 '50 tickets were drawn, none of them twice' 'status 0'
	said client 1 '40 tickets were drawn, none of them twice' 'status 0'
	said client 2 '64 tickets were drawn, none of them twice' 'status 0'
	said client 3 '10 tickets were drawn, none of them twice' 'status 0'
	said client 4 '10 tickets were drawn, none of them twice' 'status 0'
}

@test "two clients that were started apart share the numbers" {
	serve "$server" -t 30 -c 3
	start client one "$plain/client" -t 30 -c 2 -n 10 "$ADDR_SERVER"
	start client two "$client" -t 30 -c 1 -n 20 "$ADDR_SERVER"
	finish one
	assert_equal "$status" 0
	finish two
	assert_equal "$status" 0
	finished 0
	assert_line 'the counter is 40, the sum 40, the lock 0'
}

@test "without the lock the counter is exact, and the sum is not" {
	serve "$server" -t 30
	run --separate-stderr on client "$plain/client" -t 30 -n 20 --wrong no-lock "$ADDR_SERVER"
	assert_success
	assert_line '80 tickets were drawn, none of them twice'
	finished 1
	[[ $output =~ 'the counter is 80, the sum '([0-9]+)', the lock 0' ]]
	[ "${BASH_REMATCH[1]}" -lt 80 ]
	[[ $stderr == 'the clients wanted to count to 80, and leave the lock at 0' ]]
}

@test "a lock whose holder has left stays taken" {
	serve "$server" -t 30 -c 2
	connect -c 1 -n 2 --wrong keep
	assert_success
	connect -t 3 -c 1 -n 2
	assert_failure 1
	[[ $stderr == *'waited 3 s for the lock, and client 1 holds it: has it died?'* ]]
	[[ $stderr == *'1 of 1 clients failed'* ]]
	finished 1
	assert_line 'the counter is 4, the sum 2, the lock 1'
}

@test "a misaligned address, a missing right" {
	turns "$asan" '|-c 1 --wrong align' '--missing remote-atomic|-c 1'
	said client 0 '! ibv_post_send: Invalid argument: .*' 'status 1'
	said server 0 'the counter is 0, the sum 0, the lock 0' 'status 1'
	said client 1 '! completion of the atomic \(wr_id [0-9]+\): remote access error, status 10, .*' \
		'status 1'
	said server 1 'the counter is 0, the sum 0, the lock 0' 'status 1'
}

# Somebody who may have two processes, the first of which is the client itself.
@test "a client that cannot start all its processes ends those that it has started" {
	run --separate-stderr on client setpriv --reuid 54321 --clear-groups \
		prlimit --nproc=2 "$plain/client" -c 3 "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *'fork: Resource temporarily unavailable'* ]]
	[[ $stderr == *'3 of 3 clients failed'* ]]
}

@test "one packet in a hundred is lost: the totals are exact" {
	impair loss 1%
	serve "$server" -t 60
	run --separate-stderr on client "$plain/client" -t 60 -c 2 -n 20 "$ADDR_SERVER"
	assert_success
	finished 0
	assert_line 'the counter is 40, the sum 40, the lock 0'
}

@test "a client that is killed, and the others that go on" {
	serve "$server" -t 20
	run on client "$peers"/badclient --depth 1 \
		--private hex:4c4553534f4e31310000000000000002 --at established --do kill \
		"$ADDR_SERVER"
	connect -c 1 -n 5
	assert_success
	finished 0
	assert_line 'the counter is 5, the sum 5, the lock 0'
}

@test "a client that dies before it is let in does not end the server" {
	serve "$server" -t 30
	signal_job peer STOP
	run on client "$peers"/badclient --depth 1 \
		--private hex:4c4553534f4e31310000000100000001 --at request --do kill \
		"$ADDR_SERVER"
	signal_job peer CONT
	connect -c 1 -n 5
	assert_success
	finished 0
	assert_line 'the counter is 5, the sum 5, the lock 0'
}

@test "who is no client of this lesson, or one too many, is turned away" {
	serve "$server" -t 30
	run --separate-stderr on client "$peers"/badclient "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *'RDMA_CM_EVENT_REJECTED, status 28'* ]]
	start client other "$client" -t 10 -c 1 -n 100000 "$ADDR_SERVER"
	wait_line peer '^1 of 1 clients'
	connect -c 1
	assert_failure 1
	[[ $stderr == *'RDMA_CM_EVENT_REJECTED, status 28'* ]]
	# Ctrl-C, on both sides.
	signal_job other INT
	finish other
	assert_equal "$status" 1
	finished 1
}

@test "private data that is no region, and a server that grants no atomics" {
	all_at_once client "$peers/badserver --depth 1 --private zero:16|$client -c 1" \
		"$peers/badserver --depth 1 --private addr,rkey,u32:16|$client -c 1" \
		"$peers/badserver --private addr,rkey,size|$client -c 1"
	said client 0 "! .*the peer's private data is no memory region \(address 0x0, size 0\).*" 'status 1'
	said client 1 '! .*the server offers 16 bytes, and 1 atomics at a time: is it the server of this lesson\?.*' 'status 1'
	said client 2 '! .*the server offers 4096 bytes, and 0 atomics at a time.*' 'status 1'
}

@test "nobody comes, nobody leaves, and Ctrl-C" {
	begin_cases at_once "$server -t 1|true" \
		"$server -t 6|$peers/badclient --depth 1 --private hex:4c4553534f4e31310000000100000001 --at established --do stall" \
		"$server|true"
	wait_case server 2 'listening on '
	signal_cases server INT 2
	wait_case server 1 '! '
	signal_cases client TERM 1
	finish_cases
	erred server 0 'waited 1 s: 0 clients have come, 0 have left'
	erred server 1 'waited 6 s: 1 clients have come, 0 have left'
	erred server 2 'stopped by Interrupt'
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local args program

	for args in '' '--clients 0 x' '--clients 9 x' '--count 0 x' \
		'--wrong x x' '-z x' 'one two'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '--clients 0' '--clients 9' '--missing x' '-z'; do
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
