#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 08: the doorbell, and many messages by either notice.

load ../helpers
load turns
load write

setup_file() {
	build_both
	letters 1 1048576 >"$BATS_FILE_TMPDIR/letters"
}

setup() {
	server=$asan/$server08
	client=$asan/$client08
}

teardown() {
	undo
	assert_nothing_left
}

@test "the pair runs, as make run shows it" {
	run pair 08
	assert_success
	assert_line 'server | notice: the doorbell has the value 1'
	assert_line 'server | buffer: Hello, written by RDMA WRITE'
	assert_line 'client | 1 message of 29 bytes, notice by doorbell'
}

@test "the pair runs in every build, by either notice, over IPv4 and IPv6" {
	local build cases=() n

	for build in asan-O0 asan-O2 gcc-O0 gcc-O2; do
		cases+=("build/$build/$server08|build/$build/$client08 -n 5 --notify turns")
	done
	cases[0]+="|$ADDR6_SERVER"
	one_by_one "${cases[@]}" "$plain/$server08|$plain/$client08 --notify send"
	for n in 0 1 2 3; do
		well $n
		said server $n 'message 2 of 5: by SEND, 64 bytes, all right' \
			'message 5 of 5: by doorbell, 64 bytes, all right'
	done
	well 4
	said server 4 'notice: a SEND of 16 bytes, RDMA_WRITE_DONE' \
		'buffer: Hello, written by RDMA WRITE'
	said client 4 '1 message of 29 bytes, notice by SEND'
}

@test "a text of no byte and one of 1 MiB arrive with every byte right" {
	local sizes=(0 1048576)

	run rounds "$plain/$server08" -- "$plain/$client08" -- "${sizes[@]/#/-s}"
	assert_output "$(expected_rounds "$BATS_FILE_TMPDIR/letters" "${sizes[@]}")"
}

@test "messages of 0 bytes to 1 MiB are right, by either notice" {
	local size n=0 sizes=(0 1 1023 1024 1025 4096 65536 1048576) cases=()

	for size in "${sizes[@]}"; do
		cases+=("$plain/$server08 -w event -t 30|$plain/$client08 -t 30 -n 4 --notify turns -s $size")
	done
	one_by_one "${cases[@]}"
	for size in "${sizes[@]}"; do
		well $n
		said server $n "message 3 of 4: by doorbell, $size bytes, all right" \
			"message 4 of 4: by SEND, $size bytes, all right"
		n=$((n + 1))
	done
}

@test "three hundred messages in a row are right, by both notices and either wait" {
	local n many="$plain/$client08 -n 300 --notify turns"

	one_by_one "$plain/$server08|$many" "$plain/$server08 -w event|$many"
	for n in 0 1; do
		well $n
		said server $n 'message 3 of 300: by doorbell, 64 bytes, all right' \
			'message 300 of 300: by SEND, 64 bytes, all right'
	done
}

# One by one: more at a time would take from each other what a card needs to get
# over a loss.
@test "packets are lost, one or five in a hundred: every byte is right, or it is said" {
	local pair="$plain/$server08 -w event -t 30|$plain/$client08 -t 30 --notify"

	impair loss 1%
	one_by_one "$pair turns -n 20 -s 16384" "$pair turns -n 2 -s 1048576"
	right=0
	after_loss 0 1 'message 20 of 20: by SEND, 16384 bytes, all right'
	after_loss 1 1 'message 2 of 2: by SEND, 1048576 bytes, all right'
	# The client stays until it has its answers, so no handshake is missed.
	[ $right = 2 ]

	impair loss 5%
	one_by_one "$pair turns -n 20 -s 16384" "$pair turns -n 2 -s 1048576"
	after_loss 0 5 'message 20 of 20: by SEND, 16384 bytes, all right'
	after_loss 1 5 'message 2 of 2: by SEND, 1048576 bytes, all right'
	refute grep -r 'should be' "$BATS_TEST_TMPDIR"
}

# ---- other programs that speak the format ---------------------------------

@test "the server takes either notice, of any client, and of one that exits without a word" {
	local n

	one_by_one "$server|$plain/$client07 -m 'of lesson 07'" \
		"$server|$foreign client --notice send" \
		"$server -w event|$foreign client --private 4c4553534f4e20383132333435363738" \
		"$server -w event|$foreign client --notice send --then exit" \
		"$server|$foreign client --notice doorbell --then exit"
	said server 0 'notice: a SEND of 16 bytes, RDMA_WRITE_DONE' \
		'buffer: of lesson 07'
	for n in 0 1 2 3 4; do
		well $n
		[ $n = 0 ] || said server $n 'buffer: hello from elsewhere'
	done
	for n in 1 3; do
		said server $n 'notice: a SEND of 16 bytes, RDMA_WRITE_DONE'
		said server $((n + 1)) 'notice: the doorbell has the value 1'
	done
}

@test "the client talks to any server" {
	one_by_one "$foreign server --then stay|$client --notify send" \
		"$foreign server --then stay|$client --notify doorbell"
	well 0
	well 1
	said server 0 SEND 'text: Hello, written by RDMA WRITE'
	said server 1 doorbell 'text: Hello, written by RDMA WRITE'
}

# ---- what can go wrong, as the README says --------------------------------

@test "a client that says one thing and does another is found out" {
	local before='the client disconnected before its notice (the doorbell has the value'

	# Two say: LESSON08, so many messages, so many bytes each. 2 and 64 here.
	one_by_one "$server|$foreign client --private 4c4553534f4e30380000000200000040" \
		"$server -s 4096|$foreign client --private 4c4553534f4e3038ffffffffffffffff" \
		"$server|$foreign client --number 0x0100000000000000" \
		"$server|$foreign client --notice send --message RDMA_WRITE_DONE?" \
		"$server|$foreign client --wrong-key" \
		"$server -s 100|$foreign client --bytes 100" \
		"$server -s 28|$plain/$client08"
	said server 0 '! message 1: byte [0-9]+ is 0x.., should be 0x..' 'status 1'
	erred server 1 'message 1 of 4294967295 bytes is larger than the buffer'
	erred server 2 "$before 0x100000000000000, waited for 0x1)"
	erred server 3 'a SEND of 17 bytes came that is not RDMA_WRITE_DONE with its NUL, 16 bytes'
	said client 4 'WRITE: status 10' 'status 1'
	said server 4 '! our QP was shut: a request of the client was refused, its own output says which' \
		'! .*status 5, .*' 'status 1'
	well 5
	said server 5 "buffer: x{100} \(and no NUL behind it\)"
	# A text that does not fit is not written.
	said client 6 '! the text has 29 bytes with its NUL, .*' 'status 1'
	erred server 6 "$before 0x0, waited for 0x1)"
}

@test "a server whose keys or sizes are wrong is found out" {
	local is_it=': is it the server of this lesson?'

	one_by_one "$badserver --receives 0 --private addr,rkey,size,addr2,u32:4711,size2|$client" \
		"$badserver --private addr,rkey,size|$client" \
		"$badserver --private addr,rkey,size,addr2,rkey2,u32:16|$client" \
		"$plain/$server08 -s 28|$client"
	said client 0 'completed: RDMA WRITE of the text' 'status 1' \
		'! completion of the RDMA WRITE .*: remote access error, status 10, .*'
	erred client 1 "the peer's private data is no memory region (address 0x0, size 0)$is_it"
	erred client 2 "the server's doorbell has 16 bytes, and a doorbell has 8$is_it"
	erred client 3 "the text has 29 bytes with its NUL, and the server's buffer 28: write less, or start the server with a larger --size"
}

# ---- peers that die, freeze or leave --------------------------------------

# The last is in the middle of it when the server's machine freezes.
@test "the client ends when the server refuses, stalls, does not answer or freezes" {
	local n offer=addr,rkey,size,addr2,rkey2,size2

	begin_cases at_once "$badserver --at request --do reject|$client" \
		"$badserver --at request --do stall|$client -t 4" \
		"$badserver --private $offer --at established --do stall|$client -n 2 -t 4" \
		"$plain/$server07|$client -n 2 -t 4" \
		"$plain/$server08 -w event|$client -t 4 -n 1000000"
	wait_case client 0 'status '
	wait_case server 1 stalling
	wait_case server 2 stalling
	wait_case server 3 'status '
	wait_case server 4 'message 3 '
	freeze server
	for n in 1 2 4; do
		wait_case client $n 'status '
	done
	thaw
	signal_cases server KILL
	finish_cases
	said client 0 '! .*RDMA_CM_EVENT_REJECTED, status 28.*' 'status 1'
	said client 1 '! waited 4 s for RDMA_CM_EVENT_ESTABLISHED and nothing came.*' \
		'status 1'
	# It takes both WRITEs, and never answers.
	said client 2 '! message 1 was not answered.*' 'status 1'
	# That of lesson 07 knows of one message.
	said client 3 '! message 1 was not answered: does the server know --count, as that of lesson 08 does\?' \
		'status 1'
	said server 3 'status 0'
	said client 4 'status 1' \
		'! (.*status 12, |waited 4 s for a completion and none came).*'
}

@test "a side that is killed in the middle of it ends the other" {
	begin_cases at_once \
		"$plain/$server08|$client -n 1000000 --notify doorbell" \
		"$server|$plain/$client08 -n 1000000 --notify send"
	wait_case server 0 'message 3 '
	signal_cases server KILL 0
	wait_case server 1 'message 3 '
	signal_cases client KILL 1
	finish_cases
	said client 0 'status 1' \
		'! (the server disconnected before message [0-9]+ was acknowledged and answered|.*status (9|10|11|12), ).*'
	said server 1 'status 1' \
		'! (the client disconnected before its notice|.*status (9|12), ).*'
}

# One client is in the middle of it when its machine freezes; two, one for each
# wait, have been silent all the time.
@test "the watch does not last for ever, and the client's machine freezes" {
	local n silent="$badclient --at established --do stall"

	begin_cases at_once "$server -t 6|$plain/$client08 -n 1000000" \
		"$server -t 6|$silent" "$server -t 6 -w event|$silent"
	wait_case server 0 'message 3 '
	wait_case client 1 stalling
	wait_case client 2 stalling
	freeze client
	for n in 0 1 2; do
		wait_case server $n 'status '
	done
	thaw
	signal_cases client TERM
	finish_cases
	said server 0 'status 1' \
		"! (waited 6 s for the client's notice and none came: is it alive\?|.*status 12, ).*"
	for n in 1 2; do
		said server $n 'status 1' \
			"! waited 6 s for the client's notice and none came: is it alive\? \(the doorbell has the value 0x0, waited for 0x1\).*"
	done
}

@test "the watch notices a client that is gone, Ctrl-C, and a second client" {
	local n gone='the client disconnected before its notice (the doorbell has the value 0x0, waited for 0x1)'
	local silent="$badclient --at established --do"

	# The one that is busy all the time comes last.
	begin_cases at_once "$server -t 50 -w event|$silent kill" \
		"$server -t 50 -w event|$silent stall" \
		"$server -t 50|$silent kill" "$server -t 50|$silent stall"
	wait_case client 1 stalling
	wait_case server 1 connected
	wait_case client 3 stalling
	wait_case server 3 connected
	# It turns a second client away, and watches on.
	run --separate-stderr on client "$plain/$client08" -p 10133 "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *'RDMA_CM_EVENT_REJECTED, status 28'* ]]
	signal_cases server INT 1 3
	signal_cases client TERM
	finish_cases
	for n in 0 2; do
		erred server $n "$gone"
		said server $((n + 1)) '! stopped by Interrupt' 'status 1'
	done
}

# On this machine: no device is asked for.
@test "bad arguments are named, with the usage and status 2" {
	local flags

	# shellcheck disable=SC2086 # several arguments
	for flags in '-s -1' '-s 1048577' '-n 0' '-n 1000001' '--notify both' '--notify' \
		'-m x -n 2' '-p 0' '-t 0' '--what' 'two of'; do
		run --separate-stderr "$client" $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ""
	done
	# shellcheck disable=SC2086 # several arguments
	for flags in '-s 0' '-s 1048577' '-w never' '-p 65536' '-t x' 'operand'; do
		run --separate-stderr "$server" $flags
		assert_equal "$status" 2
		[[ $stderr == *"usage: server "* ]]
		assert_output ""
	done
	for flags in client server; do
		run --separate-stderr "$asan/08-write-doorbell/$flags" --help
		assert_success
		assert_output --partial "usage: $flags "
		assert_equal "$stderr" ""
	done
}
