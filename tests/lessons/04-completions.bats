#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 04: completions by polling and by events.

load ../helpers
load bare
load crowd

setup_file() {
	build gcc-O2/04-completions asan-O0/04-completions \
		asan-O2/04-completions peers
}

# A program of a crowd has its port in $p on the node. The side that is not looked
# at is the plain one.
setup() {
	slug=04-completions
	server=build/asan-O0/$slug/server
	client=build/asan-O0/$slug/client
	serve="$server -t 60 -p \$p"
	plain_serve="build/gcc-O2/$slug/server -t 60 -p \$p"
	to="-p \$p $ADDR_SERVER"
	# These do not end by themselves.
	ask="$client -t 60 $to -n 1000000"
	plain_client=build/gcc-O2/$slug/client
	plain_ask="$plain_client -t 60 $to -n 1000000"
	badserver='build/peers/badserver -p $p'
	badclient=build/peers/badclient
	impaired='' untouched=''
}

teardown() {
	[ -z "$untouched" ] || return 0
	stop_crowds
	[ -z "$impaired" ] || lab/lab impair clear
	assert_nothing_left
}

# serve NAME COMMAND...: start a server of any kind, and wait for its port.
serve() {
	start server "$@"
	wait_line "$1" '^listening on '
}

@test "the pair waits in both ways, and an event has nothing behind it" {
	run pair 04 -n 20
	assert_success
	assert_line --regexp '^client \| busy: 20 requests; each took [0-9]+ us and [0-9]+ us of CPU time; 0 events, 0 empty$'
	assert_line 'client | armed once, polled two completions, got one event; behind it: 0 completions'
	assert_line --regexp '^client \| event: 20 requests; each took [0-9]+ us and [0-9]+ us of CPU time; [1-9][0-9]* events, [0-9]+ empty$'
	assert_line --regexp '^server \| event: answered 41 requests; .* [1-9][0-9]* events, [0-9]+ empty$'
}

@test "each way of the client with each way of the server, over IPv6, in each build" {
	local theirs ours n=0 counts=(10 11 21)

	# Each way of each side once under the sanitizers.
	pairs -1 "$serve -w busy" "$plain_client $to -n 10 -w busy" \
		"$plain_serve -w busy" "$client $to -n 10 -w event" \
		"$plain_serve -w busy" "$client $to -n 10 -w both" \
		"$plain_serve -w event" "$client $to -n 10 -w busy" \
		"$serve -w event" "$plain_client $to -n 10 -w event" \
		"$serve -w event" "$plain_client $to -n 10 -w both" \
		"$serve" "$client $to -n 10 -w event --solicited" \
		"build/asan-O2/$slug/server -t 60 -p \$p" \
		"build/asan-O2/$slug/client -n 20 -p \$p $ADDR6_SERVER"
	for theirs in busy event; do
		for ours in 0 1 2; do
			n=$((n + 1))
			ended client "$n" 0
			ended server "$n" 0
			assert_line --partial "$theirs: answered ${counts[ours]} requests; "
		done
	done
	for n in 7 8; do
		ended client "$n" 0
		ended server "$n" 0
	done
}

@test "an event that is not acknowledged makes ibv_destroy_cq wait for ever" {
	run_each server build/peers/unacked 'build/peers/unacked ack'
	ended server 1 3
	assert_output 'ibv_destroy_cq did not return'
	ended server 2 0 '.*'
}

@test "nobody listens, nobody comes, the server refuses; another kind of server or client is recognised" {
	pairs : "$client $to" \
		"$badserver --at request --do reject" "$client $to" \
		"$badserver --echo --text short" "$client $to -w event" \
		"$badserver --receives 0" "$client $to -w event" \
		"$serve" "$badclient $to --text 'HiWorld!'" \
		"$serve" "$badclient $to --size 9" \
		"$server -t 1 -p \$p" :
	ended client 1 1 '.*got RDMA_CM_EVENT_REJECTED, status 8: .*'
	ended client 2 1 '.*got RDMA_CM_EVENT_REJECTED, status 28: .*'
	ended client 3 1 'what came \(5 bytes\) is not the answer to request 1 of 201: is that the server of lesson 04\?.*'
	ended client 4 1 'completion of the SEND \(wr_id 2\): RNR retry counter exceeded, status 13, .*'
	ended_saying server 5 1 'what came (8 bytes) is not request 1: is that the client of lesson 04?'
	ended server 6 1 'completion of the receive \(wr_id 1\): .*'
	ended server 7 1 'waited 1 s for RDMA_CM_EVENT_CONNECT_REQUEST and nothing came: .*'
}

@test "the server or the client is killed in the middle: the other says so, in both ways" {
	local n

	# The time is for some requests to have gone to and fro.
	pairs -1 "delay=0.3; when 'KILL@a client*' -- $plain_serve" "$ask -w busy" \
		"delay=0.3; when 'KILL@a client*' -- $plain_serve" "$ask -w event" \
		"$serve -w busy" "delay=0.3; when 'KILL@connected to*' -- $plain_ask -w busy" \
		"$serve -w event" "delay=0.3; when 'KILL@connected to*' -- $plain_ask -w busy"
	for n in 1 2; do
		ended client "$n" 1 'the peer disconnected before it answered request [0-9]+ of 100000[01].*|completion of the .*'
	done
	for n in 3 4; do
		ended server "$n" 1 'the peer disconnected (after [0-9]+ of 1000000 requests|before its first request)|completion of the SEND \(wr_id 2\): .*, status (9|11|12), .*'
	done
}

@test "a wake-up is lost, the server stops answering, the client asks nothing: the deadlines say so" {
	local n

	persist : : : \
		"$badclient --at established --do stall --persist $to"
	crowd server server -l "$server --lose-wakeup -t 8 -p \$p" \
		"when 'STOP@a client has connected' -- $plain_serve" \
		"when 'STOP@a client has connected' -- $plain_serve" \
		"$server -t 3 -p \$p"
	listening server 1
	crowd client first "$client -t 60 $to -n 10 -w event"
	listening server 2 3
	crowd client client : \
		"$client -t 3 $to -n 1000000 -w busy" \
		"$client -t 3 $to -n 1000000 -w event"
	crowded client
	# shellcheck disable=SC2016 # expanded on the node
	on server sh -c 'kill -KILL $(pgrep -x server -r T)'
	crowded server
	crowded first
	ended_saying server 1 1 'waited 8 s for an event and none came, and a completion is in the CQ: it came before the arming, so it raised no event'
	ended_saying first 1 1 'the peer disconnected before it answered request 1 of 11'
	for n in 2 3; do
		ended client "$n" 1 'waited 3 s for a completion and none came: is the peer frozen, or UDP port 4791 shut\?.*'
	done
	ended server 4 1 'waited 3 s for a completion and none came: .*'
	end_stalling client
	crowded persistent
}

@test "the server's machine freezes: the SEND ends with status 12" {
	serve peer "$server" -t 60
	start client asker "$client" -n 1000000 -w event -t 5 "$ADDR_SERVER"
	wait_line asker '^connected to '
	# A server that is frozen between its card's acknowledgement and its answer
	# leaves no SEND under way. So the client pauses until the answer is there,
	# and sends the next request to a machine that is frozen.
	signal_job asker STOP
	on server true
	lab/lab freeze server
	signal_job asker CONT
	finish asker
	lab/lab thaw server
	assert_equal "$status" 1
	[[ $stderr == 'completion of the SEND (wr_id 2): transport retry counter exceeded, status 12, '*'no answer from the peer'* ]]
}

@test "a second client is turned away, and the first one is not disturbed" {
	serve peer "$server" -t 60
	start client asker "$client" -n 1000000 -w event -t 60 "$ADDR_SERVER"
	wait_line asker '^connected to '
	run --separate-stderr on client "$client" "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *"got RDMA_CM_EVENT_REJECTED, status 28: "* ]]
	signal_job asker INT
	finish asker
	assert_equal "$status" 1
	assert_equal "$stderr" 'stopped by Interrupt'
	finish peer
	assert_equal "$status" 1
	[[ $stderr =~ 'the peer disconnected after '[0-9]+' of 1000001 requests' ]]
}

@test "Ctrl-C ends the client in both ways of waiting, and the server in each wait" {
	local n

	pairs -1 "$plain_serve" "when 'INT@connected to*' -- $ask -w busy" \
		"$plain_serve" "when 'INT@connected to*' -- $ask -w event" \
		"when 'TERM@a client*' -- $serve -w busy" "$plain_ask -w busy" \
		"when 'TERM@a client*' -- $serve -w event" "$plain_ask -w event" \
		"when 'INT@listening on*' -- $serve" :
	for n in 1 2; do
		ended client "$n" 1 'stopped by Interrupt'
	done
	for n in 3 4; do
		ended server "$n" 1 'stopped by Terminated'
		ended client "$n" 1 '.*'
	done
	ended server 5 1 'stopped by Interrupt'
}

@test "three packets in a hundred are lost, and every answer is right" {
	local n

	impaired=1
	lab/lab impair loss 3%
	pairs -1 "$serve" "$client -t 60 $to -n 50" \
		"$serve" "$client -t 60 $to -n 100 -w event --solicited"
	for n in 1 2; do
		ended client "$n" 0
		ended server "$n" 0
	done
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	untouched=1
	for args in '' '-n 0 x' '-n 1000001 x' '-w sleep x' '-t 0 x' '-z x' 'one two'; do
		# shellcheck disable=SC2086 # several arguments
		refused_usage "$client" $args
		[[ $stderr == *'usage: client '* ]]
	done
	for args in more '-p 65536' '-w both' '-w busy -l' '-t x'; do
		# shellcheck disable=SC2086 # several arguments
		refused_usage "$server" $args
		[[ $stderr == *'usage: server '* ]]
	done
	helps "$client"
	helps "$server"
}
