#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 07: a text written into the server's memory, and the SEND behind it.
#
# shellcheck disable=SC2086 # the programs are words without blanks

load ../helpers
load write

setup_file() {
	build_both
	letters 1 1048576 >"$BATS_FILE_TMPDIR/letters"
}

teardown() {
	mend
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

@test "the pair runs in every build, with and without sanitizers" {
	local build

	for build in asan-O0 asan-O2 gcc-O0 gcc-O2; do
		both build/$build/$server07 -- build/$build/$client07 -m "$build"
		assert_line "buffer: $build"
	done
}

@test "the pair runs over IPv6" {
	IPV=6 BIN=$asan run pair 07
	assert_success
	assert_line 'server | buffer: Hello, written by RDMA WRITE'
}

@test "texts of 0 bytes to 1 MiB arrive with every byte right" {
	local sizes=(0 1 1023 1024 1025 4096 65536 1048576)

	run rounds $plain/$server07 -- $plain/$client07 -- "${sizes[@]/#/-s}"
	assert_output "$(expected_rounds "$BATS_FILE_TMPDIR/letters" "${sizes[@]}")"
}

@test "with a packet in a hundred lost every byte is right" {
	local sizes=(1025 65536 1048576)

	impair loss 1%
	run rounds "$plain/$server07 -t 30" -- "$plain/$client07 -t 30" -- \
		"${sizes[@]/#/-s}"
	assert_output "$(expected_rounds "$BATS_FILE_TMPDIR/letters" "${sizes[@]}")"
}

@test "with five in a hundred lost every byte is right, or the client says 12" {
	impair loss 5%
	for size in 65536 1048576; do
		serve $plain/$server07 -t 30
		client $plain/$client07 -t 30 -s "$size"
		if [ "$status" = 0 ]; then
			finish server
			grep '^buffer: ' "$BATS_TEST_TMPDIR/server.out" |
				cut -c 9- | cmp - <(head -c $((size - 1)) \
					"$BATS_FILE_TMPDIR/letters"
				echo)
		else
			[[ $stderr == *"status 12, "* ||
				$stderr == *"waited 30 s for RDMA_CM_EVENT_"* ]]
			finish server
			refute_line --partial "buffer: "
		fi
	done
}

# ---- other programs that speak the format ---------------------------------

@test "the server takes either notice, of any client" {
	both $asan/$server07 -- $asan/$client08 -m "of lesson 08"
	assert_line "notice: the doorbell has the value 1"
	assert_line "buffer: of lesson 08"
	both $asan/$server07 -- $asan/$client08 --notify send -m "by SEND"
	assert_line "notice: a SEND of 16 bytes, RDMA_WRITE_DONE"
	assert_line "buffer: by SEND"
	both $asan/$server07 -- $foreign client --notice send
	assert_line "notice: a SEND of 16 bytes, RDMA_WRITE_DONE"
	assert_line "buffer: hello from elsewhere"
	both $asan/$server07 -- $foreign client --notice doorbell \
		--private 4c4553534f4e20383132333435363738
	assert_line "notice: the doorbell has the value 1"
	assert_line "buffer: hello from elsewhere"
}

@test "the client talks to any server" {
	both $asan/$server08 -- $asan/$client07
	assert_line "notice: a SEND of 16 bytes, RDMA_WRITE_DONE"
	assert_line "buffer: Hello, written by RDMA WRITE"
	both $foreign server -- $asan/$client07
	assert_line "SEND"
	assert_line "text: Hello, written by RDMA WRITE"
	both $foreign server --then stay -- $asan/$client07 -m 'and again'
	assert_line "text: and again"
}

@test "a client that gives its notice and exits without a word is served" {
	both $asan/$server07 -- $foreign client --notice send --then exit
	assert_line "buffer: hello from elsewhere"
	both $asan/$server07 -- $foreign client --notice doorbell --then exit
	assert_line "buffer: hello from elsewhere"
}

# ---- what can go wrong, as the README says --------------------------------

@test "a text that fits exactly is written, one byte more is not" {
	both $asan/$server07 -s 29 -- $asan/$client07
	assert_line "buffer: Hello, written by RDMA WRITE"
	serve $asan/$server07 -s 28
	client $asan/$client07
	assert_failure 1
	assert_equal "$stderr" "the text has 29 bytes with its NUL, and the server's buffer 28: write less, or start the server with a larger --size"
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "the client disconnected before its notice (the doorbell has the value 0x0)"
}

@test "a text without a NUL is printed as far as the buffer goes" {
	both $asan/$server07 -s 100 -- $foreign client --notice send --bytes 100
	assert_line "buffer: $(printf 'x%.0s' {1..100}) (and no NUL behind it)"
}

@test "a SEND that is not the notice is refused" {
	serve $asan/$server07
	client $foreign client --notice send --message HELLO
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "a SEND of 6 bytes came that is not RDMA_WRITE_DONE with its NUL, 16 bytes"

	serve $asan/$server07
	client $foreign client --notice send --message "$(printf 'y%.0s' {1..100})"
	finish server
	assert_equal "$status" 1
	[[ $stderr == "completion of the receive "*", status "* ]]
}

@test "a doorbell in the wrong byte order is told from a right one" {
	serve $asan/$server07
	client $foreign client --number 0x0100000000000000
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "the client disconnected before its notice (the doorbell has the value 0x100000000000000)"
}

@test "a WRITE with the wrong key or past the end is refused" {
	local flags

	for flags in --wrong-key '--offset 4090'; do
		serve $asan/$server07 -s 4096
		client $foreign client $flags
		assert_failure 1
		assert_line "WRITE: status 10"
		finish server
		assert_equal "$status" 1
		[[ $stderr == "our QP was shut: a request of the client was refused, its own output says which"*"status 5, "* ]]
		refute_line --partial "buffer: "
	done
}

@test "a server that hands out a wrong key is told by status 10" {
	serve $badserver --private addr,u32:4711,size,addr2,rkey2,size2
	client $asan/$client07
	assert_failure 1
	[[ $stderr == "completion of the RDMA WRITE "*": remote access error, status 10, "* ]]
}

@test "private data that is no such thing is refused" {
	local spec wanted

	while read -r spec wanted; do
		serve $badserver ${spec:+--private "$spec"}
		client $asan/$client07
		assert_failure 1
		assert_equal "$stderr" "$wanted"
		stop_jobs
	done <<-'END'
		zero:32 the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?
		text:short the peer's private data is no memory region (address 0x73686f7274000000, size 0): is it the server of this lesson?
		rubbish:32 the server's doorbell has 2779096485 bytes, and a doorbell has 8: is it the server of this lesson?
		hex:ffffffffffffffff0000000100000001 the peer's private data is no memory region (address 0xffffffffffffffff, size 1): is it the server of this lesson?
		addr,rkey,size,addr2,rkey2,u32:4 the server's doorbell has 4 bytes, and a doorbell has 8: is it the server of this lesson?
	END
	serve $badserver
	client $asan/$client07
	assert_failure 1
	[[ $stderr == *"is it the server of this lesson?" ]]
}

# ---- peers that die, freeze or leave --------------------------------------

offer=addr,rkey,size,addr2,rkey2,size2

@test "the client ends when the server refuses, stalls, dies or has no receive" {
	serve $badserver --at request --do reject
	client $asan/$client07
	assert_failure 1
	[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28"* ]]
	stop_jobs

	serve $badserver --at request --do stall
	client $asan/$client07 -t 3
	assert_failure 1
	assert_equal "$stderr" "waited 3 s for RDMA_CM_EVENT_ESTABLISHED and nothing came: is the peer alive and answering? (-t waits longer)"
	stop_jobs

	serve $badserver --at request --do kill
	client $asan/$client07
	assert_failure 1
	[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28"* ]]
	finish server

	# Connected, and no receive for the SEND: the text arrives, the notice
	# does not.
	serve $badserver --private $offer --receives 0 --at established --do stall
	client $asan/$client07
	assert_failure 1
	assert_line "completed: RDMA WRITE"
	[[ $stderr == "completion of the SEND "*", status 13, "* ]]
	stop_jobs

	# The same, and it dies meanwhile.
	serve $badserver --private $offer --receives 0 --at established --do kill
	client $asan/$client07
	assert_failure 1
	[[ $stderr == *"the server disconnected before it had acknowledged everything"* ||
		$stderr == *", status 1"[023]", "* ]]
	finish server
}

@test "the client ends when the server's machine is frozen" {
	serve $asan/$server07
	freeze server
	client $asan/$client07 -t 3
	thaw server
	assert_failure 1
	[[ $stderr == *"waited 3 s for RDMA_CM_EVENT_"*" and nothing came"* ||
		$stderr == *"RDMA_CM_EVENT_ADDR_ERROR"* ]]
	stop_jobs
}

@test "the server ends when the client leaves or dies before its notice" {
	local gone="the client disconnected before its notice (the doorbell has the value 0x0)"

	serve $asan/$server07
	client $foreign client --notice none
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "$gone"

	serve $asan/$server07
	client $badclient --at established --do kill
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "$gone"

}

@test "the server ends when the client stalls, before its notice or after it" {
	# Both at once, since each takes its time.
	start server early $asan/$server07 -t 8 -p 10122
	start server late $asan/$server07 -t 8 -p 10123
	wait_line early '^listening on '
	wait_line late '^listening on '
	start client silent $badclient -p 10122 --at established --do stall \
		"$ADDR_SERVER"
	start client stays $foreign client -p 10123 --then stay "$ADDR_SERVER"

	finish early
	assert_equal "$status" 1
	[[ $stderr == "waited 8 s for the client's notice and none came: is it alive? (the doorbell has the value 0x0)"* ]]
	finish late
	assert_equal "$status" 1
	assert_line "buffer: hello from elsewhere"
	[[ $stderr == "waited 8 s for RDMA_CM_EVENT_DISCONNECTED and nothing came"* ]]
	finish stays
	assert_line "RDMA_CM_EVENT_DISCONNECTED"
	stop_jobs
}

@test "the server ends when the client's machine is frozen" {
	serve $asan/$server07 -t 8
	start client client $badclient --at established --do stall "$ADDR_SERVER"
	wait_line client '^stalling'
	freeze client
	finish server
	thaw client
	assert_equal "$status" 1
	[[ $stderr == "waited 8 s for the client's notice and none came: is it alive?"* ]]
	stop_jobs
}

@test "Ctrl-C and SIGTERM end the server at each of its waits" {
	local signal

	for signal in INT TERM; do
		serve $asan/$server07
		signal_job server $signal
		finish server
		assert_equal "$status" 1
		[[ $stderr == "stopped by "* ]]

		serve $asan/$server07
		start client client $badclient --at established --do stall \
			"$ADDR_SERVER"
		wait_line client '^stalling'
		wait_line server '^connected'
		signal_job server $signal
		signal_job client TERM
		finish server
		assert_equal "$status" 1
		[[ $stderr == "stopped by "* ]]
		stop_jobs
	done
}

@test "twenty-five pairs in a row, each with programs of its own" {
	LIMIT=100 in_a_row 25 $plain/$server07 $plain/$client07
	assert_equal "$(grep -c '^buffer: Hello, written by RDMA WRITE' \
		"$BATS_TEST_TMPDIR/row.server")" 25
}

@test "bad arguments are named, with the usage and status 2" {
	local flags

	for flags in '-s -1' '-s 1048577' '-s many' '-p 0' '-t 0' '--what' 'two of'; do
		run --separate-stderr $asan/$client07 $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ""
	done
	run --separate-stderr $asan/$client07
	assert_equal "$status" 2
	for flags in '-s 0' '-s 1048577' '-p 65536' '-t x' '--what' 'operand'; do
		run --separate-stderr $asan/$server07 $flags
		assert_equal "$status" 2
		[[ $stderr == *"usage: server "* ]]
		assert_output ""
	done
	for flags in client server; do
		run --separate-stderr $asan/07-write-send/$flags --help
		assert_success
		assert_output --partial "usage: $flags "
		assert_equal "$stderr" ""
	done
}
