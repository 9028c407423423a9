#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 03: the pair as an event loop, and what each event leads to.

load ../helpers
load bare
load crowd

setup_file() {
	build asan-O0/03-event-loop asan-O2/03-event-loop \
		gcc-O0/03-event-loop gcc-O2/{01-client,02-server,03-event-loop} \
		peers
}

# A program of a crowd has its port in $p on the node.
setup() {
	slug=03-event-loop
	server=build/asan-O0/$slug/server
	client=build/asan-O0/$slug/client
	plain=build/gcc-O2/$slug
	serve="$server -t 60 -p \$p"
	peers=build/peers
	badserver="$peers/badserver -p \$p"
	badclient=$peers/badclient
	to="-p \$p $ADDR_SERVER"
	broken='' untouched=''
}

teardown() {
	local node

	[ -z "$untouched" ] || return 0
	stop_crowds
	for node in $broken; do
		restore "$node"
	done
	assert_nothing_left
}

# serve NAME COMMAND...: start a server of any kind, and wait for its port.
serve() {
	start server "$@"
	wait_line "$1" '^listening on '
}

@test "the pair goes from state to state" {
	run pair 03
	assert_success
	for line in 'listening on [::]:10121' '-> LISTENING' \
		RDMA_CM_EVENT_CONNECT_REQUEST '-> ACCEPTING' \
		RDMA_CM_EVENT_ESTABLISHED 'received 10 bytes: HelloWorld' \
		'-> RECEIVED' RDMA_CM_EVENT_DISCONNECTED '-> DONE'; do
		assert_line "server | $line"
	done
	for line in '-> RESOLVING_ADDRESS' RDMA_CM_EVENT_ADDR_RESOLVED \
		'-> RESOLVING_ROUTE' RDMA_CM_EVENT_ROUTE_RESOLVED \
		'-> CONNECTING' RDMA_CM_EVENT_ESTABLISHED '-> SENDING' \
		'SEND of 10 bytes completed' '-> DISCONNECTING' \
		RDMA_CM_EVENT_DISCONNECTED '-> DONE'; do
		assert_line "client | $line"
	done
}

@test "the pair runs in each build, over IPv6, with the programs of lessons 01 and 02, at each size" {
	local n size text sizes xs="\$(printf %4096s '' | tr ' ' x)"

	pairs -1 \
		"build/gcc-O0/$slug/server -t 60 -p \$p" \
		"build/gcc-O0/$slug/client $to" \
		"build/gcc-O2/$slug/server -t 60 -p \$p" \
		"build/gcc-O2/$slug/client $to" \
		"$serve" "$client -p \$p $ADDR6_SERVER -m x" \
		"build/asan-O2/$slug/server -t 60 -p \$p" \
		"build/asan-O2/$slug/client $to -m \$(printf %.1025s $xs)" \
		"$serve" "$client $to -m $xs" \
		"build/gcc-O2/02-server/server -t 60 -p \$p" \
		"$client $to -m ''" \
		"$serve" "build/gcc-O2/01-client/client $to -m 'from lesson 01'"
	sizes=(0 10 10 1 1025 4096 0 14)
	for n in {1..7}; do
		ended client "$n" 0
		ended server "$n" 0
		size=${sizes[n]}
		case $n in
		1 | 2) text=HelloWorld ;;
		7) text='from lesson 01' ;;
		*) text=$(printf '%*s' "$size" '' | tr ' ' x) ;;
		esac
		# Lesson 02 has it behind the number of a step.
		assert_line --regexp "(^|: )received $size bytes: $text\$"
	done
}

@test "a server may refuse and say why, and what is no reason is not said; or nobody listens" {
	local n reason refused='rdma_get_cm_event: while CONNECTING: RDMA_CM_EVENT_REJECTED, status 28: [^:]*'
	local reject="$badserver --at request --do reject"

	reason=$(printf '%147s' '' | tr ' ' r)
	pairs -1 "$serve -r $reason" "$client $to" \
		"$reject --private zero:148" "$plain/client $to" \
		"$reject --private rubbish:148" "$client $to" \
		"$reject --private text:unended,rubbish:141" "$client $to" \
		: "$plain/client $to"
	ended client 1 1 "$refused: .*the server's reason: $reason"
	assert_line RDMA_CM_EVENT_REJECTED
	ended server 1 0
	assert_line "refused a client: $reason"
	for n in 2 3 4; do
		ended client "$n" 1 "$refused: .*"
		[[ $stderr != *reason:* ]]
	done
	ended_saying client 5 1 'rdma_get_cm_event: while CONNECTING: RDMA_CM_EVENT_REJECTED, status 8: invalid service ID: nobody listens on that port; start the server first, and compare the two -p'
}

@test "a second client is turned away while the first is in, which is not disturbed" {
	serve peer "$server" -t 60
	start client first "$badclient" --at established --do stall \
		--text first "$ADDR_SERVER"
	wait_line first '^stalling'
	wait_line peer '^-> RECEIVING'
	run --separate-stderr on client "$client" "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *"status 28: "*"the server's reason: busy with another client"* ]]
	wait_line peer '^refused a client: busy with another client'
	signal_job first KILL
	finish first
	finish peer
	assert_equal "$status" 1
	assert_equal "$stderr" 'the peer disconnected while we were RECEIVING'
}

@test "a server, or a client, that leaves or is killed, at each stage" {
	local n

	# The plain build where the sanitizers see the same lines next to it.
	pairs -1 "$badserver --at request --do kill" "$client $to" \
		"$badserver --at request --do leave" "$plain/client $to" \
		"$badserver --at received --do kill" "$client $to" \
		"$badserver --at disconnected --do kill" "$plain/client $to" \
		"$serve" "$badclient --at request --do kill $to" \
		"$serve" "$badclient --at established --do kill $to" \
		"$plain/server -t 60 -p \$p" "$badclient --at established --do leave $to" \
		"$serve" "$badclient --at sent --do kill --text hello $to" \
		"$plain/server -t 60 -p \$p" "$badclient --at disconnect --do kill --text hello $to"
	for n in 1 2; do
		ended client "$n" 1 '.*while CONNECTING: RDMA_CM_EVENT_REJECTED, status 28: consumer reject.*'
	done
	# Its card may have died before it could acknowledge: lesson 01.
	member client 3
	[ "$status" = 0 ] ||
		ended client 3 1 'the peer disconnected while we were SENDING'
	ended client 4 0 '.*'
	ended server 5 1 '.*(rdma_create_qp|rdma_accept|while ACCEPTING).*'
	for n in 6 7; do
		ended server "$n" 1 '.*the peer disconnected while we were RECEIVING.*'
	done
	for n in 8 9; do
		ended server "$n" 0 '.*'
	done
}

@test "a server that stalls, that has no receive posted, that is nowhere: the client says where it was" {
	pairs "$badserver --at request --do stall" "$client -t 4 $to" \
		"$badserver --at received --do stall" "$client -t 4 $to" \
		"$badserver --receives 0" "$client $to" \
		: "$client -t 4 10.10.10.77" \
		: "$client 127.0.0.1"
	ended client 1 1 '.*waited 4 s while CONNECTING and nothing came: is the peer alive.*'
	ended client 2 1 '.*waited 4 s while DISCONNECTING and nothing came: is the peer alive.*'
	ended client 3 1 'completion of the SEND \(wr_id 14\): RNR retry counter exceeded, status 13, .*the peer has no receive posted.*'
	assert_line '-> DISCONNECTING'
	ended client 4 1 'rdma_get_cm_event: while RESOLVING_ADDRESS: RDMA_CM_EVENT_ADDR_ERROR, status -110 Connection timed out: nobody answers for that address.*'
	assert_line RDMA_CM_EVENT_ADDR_ERROR
	ended client 5 1 'rdma_resolve_route: No such device: the address belongs to no RDMA device.*'
}

@test "a client that stalls, or never comes: the server says where it was" {
	# The client that stalls early has to find a server, and this waits longer.
	persist \
		"$badclient --at sent --do stall --persist --text hello $to"
	crowd server server -l "$server -t 4 -p \$p" "$server -t 8 -p \$p" \
		"$server -t 1 -p \$p"
	listening server 2
	crowd client late : "$badclient --at request --do stall $to"
	crowded server
	ended server 1 1 'waited 4 s while RECEIVED and nothing came: is the peer alive.*'
	assert_line 'received 5 bytes: hello'
	ended server 2 1 'waited 8 s while ACCEPTING and nothing came: is the peer alive.*'
	ended server 3 1 'waited 1 s while LISTENING and nothing came: .*'
	end_stalling client
	crowded persistent
	crowded late
}

@test "Ctrl-C ends the client in each state" {
	local n patient="$client -t 60"

	pairs : "when 'INT@-> RESOLVING_ADDRESS' -- $patient 10.10.10.77" \
		"$badserver --at request --do stall" \
		"when 'INT@-> CONNECTING' -- $patient $to" \
		"$badserver --at received --do stall" \
		"when 'INT@-> DISCONNECTING' -- $patient $to" \
		"$badserver --receives 0" \
		"when 'TERM@-> SENDING' -- $patient $to"
	for n in 1 2 3; do
		ended client "$n" 1 'stopped by Interrupt'
	done
	ended client 4 1 'stopped by Terminated'
	assert_line '-> DISCONNECTING'
}

@test "Ctrl-C ends the server in each state" {
	local n

	# With a peer that is silent a second one ends the goodbye.
	pairs "when 'INT@-> LISTENING' -- $serve" : \
		"when 'INT@-> ACCEPTING' -- $serve" \
		"$badclient --at request --do stall $to" \
		"when 'INT@-> RECEIVING' 'INT@-> DISCONNECTING' -- $serve" \
		"$badclient --at established --do stall $to" \
		"when 'INT@-> RECEIVED' 'INT@-> DISCONNECTING' -- $serve" \
		"$badclient --at sent --do stall --text hello $to"
	for n in 1 2; do
		ended server "$n" 1 'stopped by Interrupt'
	done
	for n in 3 4; do
		ended server "$n" 1 'stopped by Interrupt.stopped by Interrupt'
	done
}

@test "the server's machine freezes: the client says so within its deadline" {
	serve peer "$server" -t 60
	lab/lab freeze server
	run --separate-stderr on client "$client" -t 2 "$ADDR_SERVER"
	lab/lab thaw server
	assert_failure 1
	[[ $stderr =~ 'waited 2 s while CONNECTING'|'while RESOLVING_ADDRESS: RDMA_CM_EVENT_ADDR_ERROR' ]]
}

@test "the device is taken away: each side says so, and ends" {
	[ "${LAB:-vm}" = vm ] || skip "only on the virtual machines"

	# teardown gives them back.
	broken='server client'
	serve peer "$peers/badserver" --at received --do stall
	start client me "$client" -t 60 "$ADDR_SERVER"
	wait_line me '^-> DISCONNECTING'
	on client rdma link delete rxe0
	finish me
	assert_equal "$status" 1
	[[ $stderr == 'rdma_get_cm_event: while DISCONNECTING: RDMA_CM_EVENT_DEVICE_REMOVAL'* ]]
	end_stalling server
	finish peer

	restore client
	serve peer "$server" -t 60
	start client other "$badclient" --at established --do stall "$ADDR_SERVER"
	wait_line peer '^-> RECEIVING'
	on server rdma link delete rxe0
	finish peer
	assert_equal "$status" 1
	assert_equal "$stderr" 'rdma_get_cm_event: while RECEIVING: RDMA_CM_EVENT_DEVICE_REMOVAL, status 0: the RDMA device was taken away: rdma link shows what is left'
	end_stalling client
	finish other
}

@test "ten pairs in a row, each with programs of its own" {
	LIMIT=110 in_a_row 10 "build/gcc-O2/$slug/server" "build/gcc-O2/$slug/client"
	assert_equal "$(grep -c 'received 10 bytes: HelloWorld' \
		"$BATS_TEST_TMPDIR/row.server")" 10
	assert_equal "$(grep -c -- '-> DONE' "$BATS_TEST_TMPDIR/row.client")" 10
}

# The helpers that this lesson has shown, in one process on each side.
@test "three hundred connections in a row leave nothing behind in the process" {
	LIMIT=115 serve peer "$peers/badserver" --times 301
	LIMIT=110 on client "$badclient" --times 300 "$ADDR_SERVER" \
		>"$BATS_TEST_TMPDIR/client"
	assert_equal "$(grep -c '^at sent' "$BATS_TEST_TMPDIR/client")" 300
	run on server sh -c 'for what in qp cq mr pd cm_id; do
		rdma resource show $what | grep " comm badserver"
	done'
	# Only what listens.
	assert_equal "${#lines[@]}" 1
	assert_line --partial 'state LISTEN'
	signal_job peer INT
	finish peer
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local long

	untouched=1
	long=$(printf '%4097s' '' | tr ' ' x)
	for args in '' '-p 0 x' '-t 0 x' '-z x' 'one two' "-m $long x"; do
		# shellcheck disable=SC2086 # several arguments
		refused_usage "$client" $args
		[[ $stderr == *'usage: client '* ]]
	done
	for args in more '-p 65536' '-t x' '-r' "-r ${long:0:148}"; do
		# shellcheck disable=SC2086 # several arguments
		refused_usage "$server" $args
		[[ $stderr == *'usage: server '* ]]
	done
	helps "$client"
	helps "$server"
}
