#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 07: a text written into the server's memory, and the SEND behind it.

load ../helpers
load turns
load write

setup_file() {
	build_both
	letters 1 1048576 >"$BATS_FILE_TMPDIR/letters"
}

setup() {
	server=$asan/$server07
	client=$asan/$client07
}

teardown() {
	undo
	assert_nothing_left
}

@test "the pair runs, as make run shows it" {
	run pair 07
	assert_success
	assert_line 'server | notice: a SEND of 16 bytes, RDMA_WRITE_DONE'
	assert_line 'server | buffer: Hello, written by RDMA WRITE'
	assert_line 'client | completed: RDMA WRITE'
	assert_line 'client | completed: SEND'
}

@test "the pair runs in every build, over IPv4 and IPv6" {
	local build cases=() n=0

	for build in asan-O0 asan-O2 gcc-O0 gcc-O2; do
		cases+=("build/$build/$server07|build/$build/$client07 -m $build")
	done
	cases[0]+="|$ADDR6_SERVER"
	one_by_one "${cases[@]}"
	for build in asan-O0 asan-O2 gcc-O0 gcc-O2; do
		well $n
		said server $n "buffer: $build"
		n=$((n + 1))
	done
}

@test "texts of 0 bytes to 1 MiB arrive with every byte right" {
	local sizes=(0 1 1023 1024 1025 4096 65536 1048576)

	run rounds "$plain/$server07" -- "$plain/$client07" -- "${sizes[@]/#/-s}"
	assert_output "$(expected_rounds "$BATS_FILE_TMPDIR/letters" "${sizes[@]}")"
}

@test "packets are lost, one or five in a hundred: every byte is right, or it is said" {
	local letters=$BATS_FILE_TMPDIR/letters pair=("$plain/$server07 -t 30" --
		"$plain/$client07 -t 30" --)

	impair loss 1%
	run rounds "${pair[@]}" -s1025 -s65536 -s1048576
	right=0
	rounds_after_loss "$letters" 1 3
	[ $right -ge 1 ]
	impair loss 5%
	run rounds "${pair[@]}" -s65536 -s1048576
	rounds_after_loss "$letters" 5 2
}

# ---- other programs that speak the format ---------------------------------

@test "the server takes either notice, of any client, and of one that exits without a word" {
	local n

	one_by_one "$server|$plain/$client08 -m 'of lesson 08'" \
		"$server|$plain/$client08 --notify send -m 'by SEND'" \
		"$server|$foreign client --notice doorbell --then exit --private 4c4553534f4e20383132333435363738" \
		"$server|$foreign client --notice send --then exit" \
		"$server|$foreign client --notice doorbell"
	for n in 0 1 2 3 4; do
		well $n
	done
	said server 0 'notice: the doorbell has the value 1' 'buffer: of lesson 08'
	said server 1 'notice: a SEND of 16 bytes, RDMA_WRITE_DONE' 'buffer: by SEND'
	said server 2 'notice: the doorbell has the value 1' 'buffer: hello from elsewhere'
	said server 3 'notice: a SEND of 16 bytes, RDMA_WRITE_DONE' \
		'buffer: hello from elsewhere'
	said server 4 'notice: the doorbell has the value 1' 'buffer: hello from elsewhere'
}

# That of lesson 08 is among them; its tests have it.
@test "the client talks to any server" {
	one_by_one "$foreign server --then stay|$client" \
		"$foreign server --then stay|$client -m 'and again'"
	well 0
	well 1
	said server 0 SEND 'text: Hello, written by RDMA WRITE'
	said server 1 'text: and again'
}

# ---- what can go wrong, as the README says --------------------------------

@test "a client that does another thing than agreed is found out" {
	local before='the client disconnected before its notice (the doorbell has the value' n

	one_by_one "$server -s 29|$plain/$client07" \
		"$server -s 100|$foreign client --notice send --bytes 100" \
		"$server|$foreign client --notice send --message HELLO" \
		"$server|$foreign client --notice send --message $(printf 'y%.0s' {1..100})" \
		"$server|$foreign client --number 0x0100000000000000" \
		"$server -s 4096|$foreign client --wrong-key" \
		"$server -s 4096|$foreign client --offset 4090" \
		"$server -s 28|$plain/$client07"
	# A text that fits exactly is written.
	well 0
	said server 0 'buffer: Hello, written by RDMA WRITE'
	# One without a NUL is printed as far as the buffer goes.
	well 1
	said server 1 'buffer: x{100} \(and no NUL behind it\)'
	erred server 2 'a SEND of 6 bytes came that is not RDMA_WRITE_DONE with its NUL, 16 bytes'
	said server 3 '! completion of the receive .*, status .*' 'status 1'
	erred server 4 "$before 0x100000000000000)"
	for n in 5 6; do
		said client $n 'WRITE: status 10' 'status 1'
		said server $n 'status 1' '! .*status 5, .*' \
			'! our QP was shut: a request of the client was refused, its own output says which'
		[[ ${from_server[n]} != *'buffer: '* ]]
	done
	said client 7 'status 1'
	erred server 7 "$before 0x0)"
}

@test "a server whose keys or sizes are wrong is found out" {
	local is_it=': is it the server of this lesson?' bad="$badserver --private"

	one_by_one "$plain/$server07 -s 28|$client" \
		"$badserver --receives 0 --private addr,u32:4711,size,addr2,rkey2,size2|$client" \
		"$bad zero:32|$client" "$bad rubbish:32|$client" \
		"$bad hex:ffffffffffffffff0000000100000001|$client" \
		"$bad addr,rkey,size,addr2,rkey2,u32:4|$client" "$badserver|$client"
	erred client 0 "the text has 29 bytes with its NUL, and the server's buffer 28: write less, or start the server with a larger --size"
	said client 1 '! completion of the RDMA WRITE .*: remote access error, status 10, .*' \
		'status 1'
	erred client 2 "the peer's private data is no memory region (address 0x0, size 0)$is_it"
	erred client 3 "the server's doorbell has 2779096485 bytes, and a doorbell has 8$is_it"
	erred client 4 "the peer's private data is no memory region (address 0xffffffffffffffff, size 1)$is_it"
	erred client 5 "the server's doorbell has 4 bytes, and a doorbell has 8$is_it"
	said client 6 '! .*is it the server of this lesson\?' 'status 1'
}

# ---- peers that die, freeze or leave --------------------------------------

# The machine of the last server freezes before its client comes.
@test "the client ends when the server refuses, stalls, dies, has no receive or freezes" {
	local n bad="$badserver --at" offer='--private addr,rkey,size,addr2,rkey2,size2'

	begin_cases at_once "$bad request --do reject|$client" \
		"$bad request --do stall|$client -t 4" \
		"$bad request --do kill|$client" \
		"$bad established --do stall $offer --receives 0|$client" \
		"$bad established --do kill $offer --receives 0|$client" \
		"$plain/$server07 -t 50|true"
	for n in 0 2 3 4; do
		wait_case client $n 'status '
	done
	wait_case server 1 stalling
	wait_case server 5 listening
	freeze server
	connect -t 2 -p 10135
	wait_case client 1 'status '
	thaw
	signal_cases server TERM
	finish_cases
	said client 0 '! .*RDMA_CM_EVENT_REJECTED, status 28.*' 'status 1'
	erred client 1 'waited 4 s for RDMA_CM_EVENT_ESTABLISHED and nothing came: is the peer alive and answering? (-t waits longer)'
	said client 2 '! .*RDMA_CM_EVENT_REJECTED, status 28.*' 'status 1'
	# Connected, and no receive for the SEND: the text arrives, the notice
	# does not.
	said client 3 'completed: RDMA WRITE' 'status 1' \
		'! completion of the SEND .*, status 13, .*'
	# The same, and it dies meanwhile.
	said client 4 'status 1' \
		'! (the server disconnected before it had acknowledged everything|.*, status 1[023], .*)'
	assert_failure 1
	[[ $stderr == *"waited 2 s for RDMA_CM_EVENT_"*" and nothing came"* ||
		$stderr == *"RDMA_CM_EVENT_ADDR_ERROR"* ]]
}

# Two stall, one before its notice and one after it; the third's machine freezes,
# and with it theirs.
@test "the server ends when the client leaves, dies, stalls or freezes" {
	local gone='the client disconnected before its notice (the doorbell has the value 0x0)'
	local bad="$badclient --at established --do"

	begin_cases at_once "$server -t 5|$bad stall" \
		"$server -t 5|$foreign client --then stay" \
		"$server|$foreign client --notice none" "$server|$bad kill"
	wait_case client 0 stalling
	wait_case server 1 'buffer: '
	wait_case server 2 'status '
	wait_case server 3 'status '
	freeze client
	wait_case server 0 'status '
	wait_case server 1 'status '
	thaw
	signal_cases client TERM
	finish_cases
	said server 0 'status 1' \
		"! waited 5 s for the client's notice and none came: is it alive\? \(the doorbell has the value 0x0\).*"
	said server 1 'status 1' 'buffer: hello from elsewhere' \
		'! waited 5 s for RDMA_CM_EVENT_DISCONNECTED and nothing came.*'
	erred server 2 "$gone"
	erred server 3 "$gone"
}

@test "Ctrl-C and SIGTERM end the server at each of its waits" {
	local n

	begin_cases at_once "$server -t 50|true" "$server -t 50|true" \
		"$server -t 50|$badclient --at established --do stall" \
		"$server -t 50|$foreign client --then stay"
	wait_case server 0 listening
	wait_case server 1 listening
	wait_case client 2 stalling
	wait_case server 2 connected
	wait_case server 3 'buffer: '
	signal_cases server INT 0 2 3
	signal_cases server TERM 1
	signal_cases client TERM 2
	finish_cases
	erred server 0 'stopped by Interrupt'
	erred server 1 'stopped by Terminated'
	for n in 2 3; do
		said server $n '! stopped by Interrupt' 'status 1'
	done
	said client 3 RDMA_CM_EVENT_DISCONNECTED 'status 0'
}

# On this machine: no device is asked for.
@test "bad arguments are named, with the usage and status 2" {
	local flags

	# shellcheck disable=SC2086 # several arguments
	for flags in '-s -1' '-s 1048577' '-s many' '-p 0' '-t 0' '--what' 'two of'; do
		run --separate-stderr "$client" $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ""
	done
	run --separate-stderr "$client"
	assert_equal "$status" 2
	# shellcheck disable=SC2086 # several arguments
	for flags in '-s 0' '-s 1048577' '-p 65536' '-t x' '--what' 'operand'; do
		run --separate-stderr "$server" $flags
		assert_equal "$status" 2
		[[ $stderr == *"usage: server "* ]]
		assert_output ""
	done
	for flags in client server; do
		run --separate-stderr "$asan/07-write-send/$flags" --help
		assert_success
		assert_output --partial "usage: $flags "
		assert_equal "$stderr" ""
	done
}
