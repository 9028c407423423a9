#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 08: the doorbell, and many messages by either notice.
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

@test "the pair runs, as make run shows it, by doorbell and by SEND" {
	run pair 08
	assert_success
	assert_line 'server | notice: the doorbell has the value 1'
	assert_line 'server | buffer: Hello, written by RDMA WRITE'
	assert_line 'client | 1 message of 29 bytes, notice by doorbell'
	run pair 08 --notify send
	assert_success
	assert_line 'server | notice: a SEND of 16 bytes, RDMA_WRITE_DONE'
	assert_line 'server | buffer: Hello, written by RDMA WRITE'
	assert_line 'client | 1 message of 29 bytes, notice by SEND'
}

@test "the pair runs in every build, with and without sanitizers, by either notice" {
	local build notify

	for build in asan-O0 asan-O2 gcc-O0 gcc-O2; do
		for notify in doorbell send; do
			both build/$build/$server08 -- build/$build/$client08 \
				-n 5 --notify $notify
			[[ $output == *"message 5 of 5: by "*", 64 bytes, all right"* ]]
		done
	done
}

@test "the pair runs over IPv6" {
	IPV=6 BIN=$asan run pair 08
	assert_success
	assert_line 'server | buffer: Hello, written by RDMA WRITE'
}

@test "one text of 0 bytes to 1 MiB arrives with every byte right" {
	local sizes=(0 1 1023 1024 1025 4096 65536 1048576)

	run rounds $plain/$server08 -- $plain/$client08 -- "${sizes[@]/#/-s}"
	assert_output "$(expected_rounds "$BATS_FILE_TMPDIR/letters" "${sizes[@]}")"
}

@test "three messages of each size are right, by either notice" {
	local notify size wanted

	wanted=$(for size in 0 1 1023 1024 1025 4096 65536 1048576; do
		echo "-s$size 0 0 4294967295 0"
	done)
	for notify in doorbell send; do
		run rounds $plain/$server08 -- \
			"$plain/$client08 -n 3 --notify $notify" -- \
			-s0 -s1 -s1023 -s1024 -s1025 -s4096 -s65536 -s1048576
		assert_output "$wanted"
	done
}

@test "three hundred messages in a row are right, by either notice and either wait" {
	local notify wait by

	for notify in doorbell send; do
		by=${notify/send/SEND}
		LIMIT=100 both $plain/$server08 -- $plain/$client08 -n 300 --notify $notify
		assert_line "message 300 of 300: by $by, 64 bytes, all right"
		LIMIT=100 both $plain/$server08 -w event -- $plain/$client08 -n 300 \
			--notify $notify
		assert_line "message 300 of 300: by $by, 64 bytes, all right"
	done
}

@test "the server tells a wrong byte from a right one" {
	# It says: LESSON08, 2 messages, 64 bytes each.
	serve $asan/$server08
	client $foreign client --private 4c4553534f4e30380000000200000040
	finish server
	assert_equal "$status" 1
	[[ $stderr =~ ^"message 1: byte "[0-9]+" is 0x"..", should be 0x".. ]]
}

@test "a client that promises more than the buffer holds is not believed" {
	serve $asan/$server08 -s 4096
	client $foreign client --private 4c4553534f4e3038ffffffffffffffff
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "message 1 of 4294967295 bytes is larger than the buffer"
}

@test "with a packet in a hundred lost every byte is right, by either notice" {
	local notify size

	impair loss 1%
	for notify in doorbell send; do
		both $plain/$server08 -t 30 -- $plain/$client08 -t 30 -n 20 \
			-s 16384 --notify $notify
		both $plain/$server08 -t 30 -- $plain/$client08 -t 30 -n 2 \
			-s 1048576 --notify $notify
	done
}

@test "with five in a hundred lost every byte is right, or somebody says 12" {
	local notify

	impair loss 5%
	for notify in doorbell send; do
		serve $plain/$server08 -t 30
		client $plain/$client08 -t 30 -n 20 -s 16384 --notify $notify
		finish_after_loss "$status" "$stderr"
		serve $plain/$server08 -t 30
		client $plain/$client08 -t 30 -n 2 -s 1048576 --notify $notify
		finish_after_loss "$status" "$stderr"
	done
}

# ---- other programs that speak the format ---------------------------------

@test "the server takes either notice, of any client" {
	local by

	both $asan/$server08 -- $asan/$client07 -m "of lesson 07"
	assert_line "notice: a SEND of 16 bytes, RDMA_WRITE_DONE"
	assert_line "buffer: of lesson 07"
	for by in send doorbell; do
		both $asan/$server08 -- $foreign client --notice $by
		assert_line "buffer: hello from elsewhere"
		both $asan/$server08 -w event -- $foreign client --notice $by \
			--private 4c4553534f4e20383132333435363738
		assert_line "buffer: hello from elsewhere"
	done
}

@test "the client talks to any server" {
	local by

	for by in send doorbell; do
		both $foreign server -- $asan/$client08 --notify $by
		assert_line "${by/send/SEND}"
		assert_line "text: Hello, written by RDMA WRITE"
		both $asan/$server07 -- $asan/$client08 --notify $by -m "to 07"
		assert_line "buffer: to 07"
	done
}

@test "a client that gives its notice and exits without a word is served" {
	both $asan/$server08 -- $foreign client --notice send --then exit
	assert_line "buffer: hello from elsewhere"
	both $asan/$server08 -- $foreign client --notice doorbell --then exit
	assert_line "buffer: hello from elsewhere"
}

# ---- what can go wrong, as the README says --------------------------------

@test "many messages need a server that answers" {
	serve $asan/$server07
	client $asan/$client08 -n 2 -t 3
	assert_failure 1
	[[ $stderr == *"message 1 was not answered: does the server know --count, as that of lesson 08 does?"* ]]
	finish server
	assert_equal "$status" 0
}

@test "a text that does not fit is not written" {
	serve $asan/$server08 -s 28
	client $asan/$client08
	assert_failure 1
	assert_equal "$stderr" "the text has 29 bytes with its NUL, and the server's buffer 28: write less, or start the server with a larger --size"
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "the client disconnected before its notice (the doorbell has the value 0x0, waited for 0x1)"
}

@test "a doorbell in the wrong byte order is told from a right one" {
	serve $asan/$server08
	client $foreign client --number 0x0100000000000000
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "the client disconnected before its notice (the doorbell has the value 0x100000000000000, waited for 0x1)"
}

@test "a text without a NUL is printed as far as the buffer goes" {
	both $asan/$server08 -s 100 -- $foreign client --bytes 100
	assert_line "buffer: $(printf 'x%.0s' {1..100}) (and no NUL behind it)"
}

@test "a SEND that is not the notice is refused" {
	serve $asan/$server08
	client $foreign client --notice send --message RDMA_WRITE_DONE?
	finish server
	assert_equal "$status" 1
	assert_equal "$stderr" "a SEND of 17 bytes came that is not RDMA_WRITE_DONE with its NUL, 16 bytes"
}

@test "a WRITE with the wrong key is refused, and both sides say so" {
	serve $asan/$server08
	client $foreign client --wrong-key
	assert_failure 1
	assert_line "WRITE: status 10"
	finish server
	assert_equal "$status" 1
	[[ $stderr == "our QP was shut: a request of the client was refused, its own output says which"*"status 5, "* ]]

	serve $badserver --private addr,rkey,size,addr2,u32:4711,size2
	client $asan/$client08
	assert_failure 1
	assert_line "completed: RDMA WRITE of the text"
	[[ $stderr == "completion of the RDMA WRITE "*": remote access error, status 10, "* ]]
	stop_jobs
}

@test "private data that is no such thing is refused" {
	local spec wanted

	while read -r spec wanted; do
		serve $badserver --private "$spec"
		client $asan/$client08
		assert_failure 1
		assert_equal "$stderr" "$wanted"
		stop_jobs
	done <<-'END'
		zero:32 the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?
		rubbish:32 the server's doorbell has 2779096485 bytes, and a doorbell has 8: is it the server of this lesson?
		addr,rkey,size the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?
		addr,rkey,size,addr2,rkey2,u32:16 the server's doorbell has 16 bytes, and a doorbell has 8: is it the server of this lesson?
	END
}

# ---- peers that die, freeze or leave --------------------------------------

@test "the client ends when the server refuses, stalls or leaves" {
	serve $badserver --at request --do reject
	client $asan/$client08
	assert_failure 1
	[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28"* ]]
	stop_jobs

	serve $badserver --at request --do stall
	client $asan/$client08 -t 3
	assert_failure 1
	[[ $stderr == "waited 3 s for RDMA_CM_EVENT_ESTABLISHED and nothing came"* ]]
	stop_jobs

	# It takes both WRITEs, and never answers.
	serve $badserver --private addr,rkey,size,addr2,rkey2,size2 \
		--at established --do stall
	client $asan/$client08 -n 2 -t 3
	assert_failure 1
	[[ $stderr == *"message 1 was not answered"* ]]
	stop_jobs
}

@test "a side that is killed in the middle of it ends the other" {
	local notify

	for notify in doorbell send; do
		serve $asan/$server08
		start client client $asan/$client08 -n 1000000 --notify $notify \
			"$ADDR_SERVER"
		wait_line server '^message 3 '
		signal_job server KILL
		finish client
		assert_equal "$status" 1
		[[ $stderr =~ ^"the server disconnected before message "[0-9]+" was acknowledged and answered" ||
			$stderr == *"status 12, "* ||
			$stderr == *"status 9, "* ]]
		stop_jobs

		serve $asan/$server08
		start client client $asan/$client08 -n 1000000 --notify $notify \
			"$ADDR_SERVER"
		wait_line server '^message 3 '
		signal_job client KILL
		finish server
		assert_equal "$status" 1
		[[ $stderr == "the client disconnected before its notice"* ||
			$stderr == *"status 12, "* || $stderr == *"status 9, "* ]]
		stop_jobs
	done
}

@test "a machine that is frozen in the middle of it ends the other side" {
	serve $asan/$server08
	start client client $asan/$client08 -t 5 -n 1000000 "$ADDR_SERVER"
	wait_line server '^message 3 '
	freeze server
	finish client
	thaw server
	assert_equal "$status" 1
	[[ $stderr == *"status 12, "* ||
		$stderr == *"waited 5 s for a completion and none came"* ]]
	stop_jobs

	serve $asan/$server08 -t 8
	start client client $asan/$client08 -n 1000000 "$ADDR_SERVER"
	wait_line server '^message 3 '
	freeze client
	finish server
	thaw client
	assert_equal "$status" 1
	[[ $stderr == *"waited 8 s for the client's notice and none came: is it alive?"* ||
		$stderr == *"status 12, "* ]]
	stop_jobs
}

@test "the watch notices a client that is gone, and Ctrl-C" {
	local wait

	for wait in busy event; do
		serve $asan/$server08 -w $wait
		client $badclient --at established --do kill
		finish server
		assert_equal "$status" 1
		assert_equal "$stderr" "the client disconnected before its notice (the doorbell has the value 0x0, waited for 0x1)"

		serve $asan/$server08 -w $wait
		start client client $badclient --at established --do stall \
			"$ADDR_SERVER"
		wait_line client '^stalling'
		wait_line server '^connected'
		signal_job server INT
		signal_job client TERM
		finish server
		assert_equal "$status" 1
		[[ $stderr == "stopped by Interrupt"* ]]
		stop_jobs
	done
}

@test "the watch does not last for ever" {
	start server busy $asan/$server08 -t 8 -p 10122
	start server event $asan/$server08 -t 8 -p 10123 -w event
	wait_line busy '^listening on '
	wait_line event '^listening on '
	start client one $badclient -p 10122 --at established --do stall \
		"$ADDR_SERVER"
	start client two $badclient -p 10123 --at established --do stall \
		"$ADDR_SERVER"
	for job in busy event; do
		finish $job
		assert_equal "$status" 1
		[[ $stderr == "waited 8 s for the client's notice and none came: is it alive? (the doorbell has the value 0x0, waited for 0x1)"* ]]
	done
	stop_jobs
}

@test "a second client is turned away while the first one is watched" {
	serve $asan/$server08 -t 20
	start client first $badclient --at established --do stall "$ADDR_SERVER"
	wait_line first '^stalling'
	wait_line server '^connected'
	client $asan/$client08
	assert_failure 1
	[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28"* ]]
	signal_job first KILL
	finish server
	assert_equal "$stderr" "the client disconnected before its notice (the doorbell has the value 0x0, waited for 0x1)"
}

@test "twenty-five pairs in a row, each with programs of its own" {
	LIMIT=100 in_a_row 25 $plain/$server08 $plain/$client08
	assert_equal "$(grep -c '^buffer: Hello, written by RDMA WRITE' \
		"$BATS_TEST_TMPDIR/row.server")" 25
}

@test "bad arguments are named, with the usage and status 2" {
	local flags

	for flags in '-s -1' '-s 1048577' '-n 0' '-n 1000001' '--notify both' '--notify' \
		'-m x -n 2' '-p 0' '-t 0' '--what' 'two of'; do
		run --separate-stderr $asan/$client08 $flags "$ADDR_SERVER"
		assert_equal "$status" 2
		[[ $stderr == *"usage: client "* ]]
		assert_output ""
	done
	for flags in '-s 0' '-s 1048577' '-w never' '-p 65536' '-t x' 'operand'; do
		run --separate-stderr $asan/$server08 $flags
		assert_equal "$status" 2
		[[ $stderr == *"usage: server "* ]]
		assert_output ""
	done
	for flags in client server; do
		run --separate-stderr $asan/08-write-doorbell/$flags --help
		assert_success
		assert_output --partial "usage: $flags "
		assert_equal "$stderr" ""
	done
}
