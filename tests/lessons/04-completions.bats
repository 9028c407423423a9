#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 04: completions by polling and by events.

load ../helpers

setup_file() {
	build asan-O0/02-server asan-O0/04-completions asan-O2/04-completions \
		peers
}

setup() {
	bin=build/asan-O0
	server=$bin/04-completions/server
	client=$bin/04-completions/client
	peers=build/peers
}

teardown() {
	lab/lab impair clear
	assert_nothing_left
}

# serve NAME COMMAND...: start a server of any kind, and wait for its port.
serve() {
	start server "$@"
	wait_line "$1" '^listening on '
}

# ask [ARG...]: the lesson's client.
ask() {
	run --separate-stderr on client "$client" "$@" "$ADDR_SERVER"
}

# ask_for_long [ARG...]: a client that does not end by itself.
ask_for_long() {
	start client asker "$client" -n 1000000 "$@" "$ADDR_SERVER"
	wait_line asker '^connected to '
}

@test "the pair waits in both ways, and an event has nothing behind it" {
	run pair 04 -n 20
	assert_success
	assert_line --regexp '^client \| busy: 20 requests; each took [0-9]+ us and [0-9]+ us of CPU time; 0 events, 0 empty$'
	assert_line 'client | armed once, polled two completions, got one event; behind it: 0 completions'
	assert_line --regexp '^client \| event: 20 requests; each took [0-9]+ us and [0-9]+ us of CPU time; [1-9][0-9]* events, [0-9]+ empty$'
	assert_line --regexp '^server \| event: answered 41 requests; .* [1-9][0-9]* events, [0-9]+ empty$'
}

@test "the pair runs under the sanitizers, at -O0 and -O2, over IPv4 and IPv6" {
	BIN=build/asan-O0 IPV=6 pair 04 -n 20
	BIN=build/asan-O2 pair 04 -n 20
}

@test "each way of the client with each way of the server" {
	local theirs ours count

	for theirs in busy event; do
		while read -r ours count; do
			serve peer "$server" -w "$theirs"
			# shellcheck disable=SC2086 # several arguments
			ask -n 10 -w $ours
			assert_success
			finish peer
			assert_equal "$status" 0
			assert_line --partial "$theirs: answered $count requests; "
		done <<-'END'
			busy 10
			event 11
			both 21
		END
	done
	serve peer "$server"
	ask -n 10 -w event --solicited
	assert_success
	finish peer
	assert_equal "$status" 0
}

@test "the wake-up is lost with --lose-wakeup, and the server says why" {
	serve peer "$server" --lose-wakeup -t 5
	ask -n 10 -w event
	assert_failure 1
	assert_equal "$stderr" 'the peer disconnected before it answered request 1 of 11'
	finish peer
	assert_equal "$status" 1
	assert_equal "$stderr" 'waited 5 s for an event and none came, and a completion is in the CQ: it came before the arming, so it raised no event'
}

@test "an event that is not acknowledged makes ibv_destroy_cq wait for ever" {
	run on server "$peers"/unacked
	assert_equal "$status" 3
	assert_output 'ibv_destroy_cq did not return'
	run on server "$peers"/unacked ack
	assert_success
}

@test "nobody listens, the server refuses, nobody comes" {
	ask
	assert_failure 1
	[[ $stderr == *"got RDMA_CM_EVENT_REJECTED, status 8: "* ]]

	serve peer "$peers"/badserver --at request --do reject
	ask
	assert_failure 1
	[[ $stderr == *"got RDMA_CM_EVENT_REJECTED, status 28: "* ]]
	finish peer

	run --separate-stderr on server "$server" -t 1
	assert_failure 1
	[[ $stderr == "waited 1 s for RDMA_CM_EVENT_CONNECT_REQUEST and nothing came: "* ]]
}

@test "the server is killed in the middle: the client says so, in both ways" {
	local way

	for way in busy event; do
		serve peer "$server"
		ask_for_long -w $way
		signal_job peer KILL
		finish peer
		finish asker
		assert_equal "$status" 1
		[[ $stderr =~ 'the peer disconnected before it answered request '[0-9]+' of 100000'|'completion of the ' ]]
	done
}

@test "the client is killed in the middle: the server says so, in both ways" {
	local way

	for way in busy event; do
		serve peer "$server" -w $way
		ask_for_long -w busy
		signal_job asker KILL
		finish asker
		finish peer
		assert_equal "$status" 1
		[[ $stderr =~ 'the peer disconnected '(after [0-9]+ of 1000000 requests|before its first request) ]]
	done
}

@test "the server's program stops answering: the deadline says so, in both ways" {
	local way

	for way in busy event; do
		serve peer "$server"
		ask_for_long -w $way -t 2
		signal_job peer STOP
		finish asker
		assert_equal "$status" 1
		[[ $stderr == 'waited 2 s for a completion and none came: is the peer frozen, or UDP port 4791 shut?'* ]]
		signal_job peer KILL
		finish peer
	done
}

@test "a client that asks nothing: the deadline of the server says so" {
	# Its errors are in its output here, to be waited for.
	serve peer sh -c 'exec "$0" -t 5 2>&1' "$server"
	start client idle "$peers"/badclient --at established --do stall \
		"$ADDR_SERVER"
	wait_line peer '^a client has connected'
	wait_line peer '^waited 5 s for a completion and none came: '
	signal_job idle KILL
	finish idle
	finish peer
	assert_equal "$status" 1
}

@test "the server's machine freezes: the SEND ends with status 12" {
	serve peer "$server"
	ask_for_long -w event -t 5
	lab/lab freeze server
	finish asker
	lab/lab thaw server
	assert_equal "$status" 1
	[[ $stderr == 'completion of the SEND (wr_id 2): transport retry counter exceeded, status 12, '*'no answer from the peer'* ]]
	finish peer
	assert_equal "$status" 1
}

@test "the server has no receive posted: the SEND ends with status 13" {
	serve peer "$peers"/badserver --receives 0
	ask -w event
	assert_failure 1
	[[ $stderr == 'completion of the SEND (wr_id 2): RNR retry counter exceeded, status 13, '* ]]
	finish peer
}

@test "another kind of server or client is recognised" {
	serve peer "$peers"/badserver --echo --text short
	ask -w event
	assert_failure 1
	[[ $stderr == 'what came (5 bytes) is not the answer to request 1 of 201: is that the server of lesson 04?'* ]]
	finish peer

	serve peer "$server"
	run on client "$peers"/badclient --text 'HiWorld!' "$ADDR_SERVER"
	finish peer
	assert_equal "$status" 1
	assert_equal "$stderr" 'what came (8 bytes) is not request 1: is that the client of lesson 04?'

	serve peer "$server"
	run on client "$peers"/badclient --size 9 "$ADDR_SERVER"
	finish peer
	assert_equal "$status" 1
	[[ $stderr == 'completion of the receive (wr_id 1): '* ]]
}

@test "a second client is turned away, and the first one is not disturbed" {
	serve peer "$server"
	ask_for_long -w event
	run --separate-stderr on client "$client" "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *"got RDMA_CM_EVENT_REJECTED, status 28: "* ]]
	signal_job asker INT
	finish asker
	assert_equal "$stderr" 'stopped by Interrupt'
	finish peer
	[[ $stderr =~ 'the peer disconnected after '[0-9]+' of 1000001 requests' ]]
}

@test "Ctrl-C ends the client in both ways of waiting, and the server in each wait" {
	local way

	for way in busy event; do
		serve peer "$server" -w $way
		ask_for_long -w $way
		signal_job asker INT
		finish asker
		assert_equal "$status $stderr" '1 stopped by Interrupt'
		finish peer

		serve peer "$server" -w $way
		ask_for_long -w $way
		signal_job peer TERM
		finish peer
		assert_equal "$status $stderr" '1 stopped by Terminated'
		finish asker
		assert_equal "$status" 1
	done
	serve peer "$server"
	signal_job peer INT
	finish peer
	assert_equal "$status $stderr" '1 stopped by Interrupt'
}

@test "three packets in a hundred are lost, and every answer is right" {
	local args

	lab/lab impair loss 3%
	for args in '-n 50' '-n 100 -w event --solicited'; do
		serve peer "$server" -t 20
		# shellcheck disable=SC2086 # several arguments
		ask -t 20 $args
		assert_success
		finish peer
		assert_equal "$status" 0
	done
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	for args in '' '-n 0 x' '-n 1000001 x' '-w sleep x' '-t 0 x' '-z x' 'one two'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '-p 65536' '-w both' '-w busy -l' '-t x'; do
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
