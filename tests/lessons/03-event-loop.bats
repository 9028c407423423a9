#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 03: the pair as an event loop, and what each event leads to.

load ../helpers

setup_file() {
	build asan-O0/01-client asan-O0/02-server asan-O0/03-event-loop \
		asan-O2/03-event-loop gcc-O2/03-event-loop peers
}

setup() {
	bin=build/asan-O0
	server=$bin/03-event-loop/server
	client=$bin/03-event-loop/client
	peers=build/peers
}

teardown() {
	assert_nothing_left
}

# serve NAME COMMAND...: start a server of any kind, and wait for its port.
serve() {
	start server "$@"
	wait_line "$1" '^listening on '
}

# connect [ARG...]: the lesson's client.
connect() {
	run --separate-stderr on client "$client" "$@" "$ADDR_SERVER"
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

@test "the pair runs under the sanitizers, at -O0 and -O2, over IPv4 and IPv6" {
	BIN=build/asan-O0 IPV=6 pair 03
	BIN=build/asan-O2 pair 03
}

@test "the client understands the server of lesson 02, the server the client of 01" {
	serve peer "$bin"/02-server/server
	connect -m 'to lesson 02'
	assert_success
	finish peer
	assert_equal "$status" 0
	assert_line --partial 'received 12 bytes: to lesson 02'

	serve peer "$server"
	on client "$bin"/01-client/client -m 'from lesson 01' "$ADDR_SERVER"
	finish peer
	assert_equal "$status" 0
	assert_line 'received 14 bytes: from lesson 01'
}

@test "messages of 0 to 4096 bytes arrive as they are" {
	local size text

	for size in 0 1 1025 4096; do
		text=$(printf '%*s' "$size" '' | tr ' ' x)
		serve peer "$server"
		connect -m "$text"
		assert_success
		finish peer
		assert_equal "$status" 0
		assert_line "received $size bytes: $text"
	done
}

@test "a server may refuse, and say why" {
	local reason

	reason=$(printf '%147s' '' | tr ' ' r)
	serve peer "$server" -r "$reason"
	connect
	assert_failure 1
	assert_line RDMA_CM_EVENT_REJECTED
	[[ $stderr == *"rdma_get_cm_event: while CONNECTING: RDMA_CM_EVENT_REJECTED, status 28: "* ]]
	[[ $stderr == *"the server's reason: $reason"* ]]
	finish peer
	assert_equal "$status" 0
	assert_line "refused a client: $reason"
}

@test "a refusal without a reason, or with rubbish in its place, is said as it is" {
	local data

	for data in zero:148 rubbish:148 text:unended,rubbish:141; do
		serve peer "$peers"/badserver --at request --do reject --private "$data"
		connect
		assert_failure 1
		[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28: "* ]]
		[[ $stderr != *reason:* ]]
		finish peer
	done
}

@test "a second client is turned away while the first is in, which is not disturbed" {
	serve peer "$server" -t 20
	start client first "$peers"/badclient --at established --do stall \
		--text first "$ADDR_SERVER"
	wait_line first '^stalling'
	wait_line peer '^-> RECEIVING'
	connect
	assert_failure 1
	[[ $stderr == *"status 28: "*"the server's reason: busy with another client"* ]]
	wait_line peer '^refused a client: busy with another client'
	signal_job first KILL
	finish first
	finish peer
	assert_equal "$status" 1
	assert_equal "$stderr" 'the peer disconnected while we were RECEIVING'
}

@test "nobody listens, nobody has the address, no device has it" {
	connect
	assert_failure 1
	assert_equal "$stderr" 'rdma_get_cm_event: while CONNECTING: RDMA_CM_EVENT_REJECTED, status 8: invalid service ID: nobody listens on that port; start the server first, and compare the two -p'

	run --separate-stderr on client "$client" -t 2 10.10.10.77
	assert_failure 1
	assert_line RDMA_CM_EVENT_ADDR_ERROR
	[[ $stderr == "rdma_get_cm_event: while RESOLVING_ADDRESS: RDMA_CM_EVENT_ADDR_ERROR, status -110 Connection timed out: nobody answers for that address"* ]]

	run --separate-stderr on client "$client" 127.0.0.1
	assert_failure 1
	[[ $stderr == "rdma_resolve_route: No such device: the address belongs to no RDMA device"* ]]
}

@test "a server that leaves or is killed, at each stage" {
	# stage, deed, status of the client, what it says
	local stage deed wanted text

	while read -r stage deed wanted text; do
		echo "the server at $stage: $deed"
		serve peer "$peers"/badserver --at "$stage" --do "$deed"
		connect
		assert_equal "$status" "$wanted"
		[[ $stderr == *"$text"* ]]
		finish peer
	done <<-'END'
		request kill 1 while CONNECTING: RDMA_CM_EVENT_REJECTED, status 28: consumer reject
		request leave 1 while CONNECTING: RDMA_CM_EVENT_REJECTED, status 28: consumer reject
		received kill 0
		disconnected kill 0
	END
}

@test "a client that leaves or is killed, at each stage" {
	local stage deed wanted text

	while read -r stage deed wanted text; do
		echo "the client at $stage: $deed"
		serve peer "$server" -t 3
		run on client "$peers"/badclient --at "$stage" --do "$deed" \
			--text hello "$ADDR_SERVER"
		finish peer
		assert_equal "$status" "$wanted"
		[[ $stderr =~ $text ]]
	done <<-'END'
		request kill 1 rdma_create_qp|rdma_accept|while ACCEPTING|waited 3 s while
		established kill 1 the peer disconnected while we were RECEIVING
		established leave 1 the peer disconnected while we were RECEIVING
		sent kill 0
		disconnect kill 0
	END
}

@test "a server that does nothing more, at each stage: the deadline says where" {
	local stage state

	while read -r stage state; do
		echo "the server at $stage"
		serve peer "$peers"/badserver --at "$stage" --do stall
		connect -t 1
		assert_failure 1
		[[ $stderr == *"waited 1 s while $state and nothing came: is the peer alive"* ]]
		signal_job peer TERM
		finish peer
	done <<-'END'
		request CONNECTING
		received DISCONNECTING
	END
}

@test "a client that does nothing more, at each stage: the deadline says where" {
	local stage state

	while read -r stage state; do
		echo "the client at $stage"
		# Its errors are in its output here, to be waited for.
		serve peer sh -c 'exec "$0" -t 5 2>&1' "$server"
		start client other "$peers"/badclient --at "$stage" --do stall \
			--text hello "$ADDR_SERVER"
		wait_line other '^stalling'
		wait_line peer "^-> $state"
		wait_line peer "^waited 5 s while $state and nothing came: is the peer alive"
		signal_job other KILL
		finish other
		finish peer
		assert_equal "$status" 1
	done <<-'END'
		request ACCEPTING
		sent RECEIVED
	END
}

@test "nobody connects: the server does not wait for ever" {
	run --separate-stderr on server "$server" -t 1
	assert_failure 1
	[[ $stderr == "waited 1 s while LISTENING and nothing came: "* ]]
}

@test "no receive is posted: the SEND fails with status 13" {
	serve peer "$peers"/badserver --receives 0
	connect
	assert_failure 1
	[[ $stderr == "completion of the SEND (wr_id 14): RNR retry counter exceeded, status 13, "*"the peer has no receive posted"* ]]
	assert_line '-> DISCONNECTING'
	finish peer
}

@test "Ctrl-C ends the client in each state" {
	start client me "$client" 10.10.10.77
	wait_line me '^-> RESOLVING_ADDRESS'
	signal_job me INT
	finish me
	assert_equal "$status $stderr" '1 stopped by Interrupt'

	serve peer "$peers"/badserver --at request --do stall
	start client me "$client" "$ADDR_SERVER"
	wait_line me '^-> CONNECTING'
	wait_line peer '^stalling'
	signal_job me INT
	finish me
	assert_equal "$status $stderr" '1 stopped by Interrupt'
	signal_job peer KILL
	finish peer

	serve peer "$peers"/badserver --receives 0
	start client me "$client" "$ADDR_SERVER"
	wait_line me '^-> SENDING'
	signal_job me TERM
	finish me
	assert_equal "$status $stderr" '1 stopped by Terminated'
	assert_line '-> DISCONNECTING'
	finish peer

	serve peer "$peers"/badserver --at received --do stall
	start client me "$client" "$ADDR_SERVER"
	wait_line me '^-> DISCONNECTING'
	signal_job me INT
	finish me
	assert_equal "$status $stderr" '1 stopped by Interrupt'
	signal_job peer KILL
	finish peer
}

@test "Ctrl-C ends the server in each state" {
	local stage state

	serve peer "$server"
	signal_job peer INT
	finish peer
	assert_equal "$status $stderr" '1 stopped by Interrupt'
	for stage in request:ACCEPTING established:RECEIVING sent:RECEIVED; do
		state=${stage#*:} stage=${stage%:*}
		serve peer "$server"
		start client other "$peers"/badclient --at "$stage" --do stall \
			--text hello "$ADDR_SERVER"
		wait_line peer "^-> $state"
		wait_line other '^stalling'
		signal_job peer INT
		# With a peer that is silent this ends the goodbye, too.
		if [ "$state" != ACCEPTING ]; then
			wait_line peer '^-> DISCONNECTING'
			signal_job peer INT
		fi
		finish peer
		assert_equal "$status" 1
		[[ $stderr == 'stopped by Interrupt'* ]]
		signal_job other KILL
		finish other
	done
}

@test "the server's machine freezes: the client says so within its deadline" {
	serve peer "$server" -t 20
	lab/lab freeze server
	connect -t 2
	lab/lab thaw server
	assert_failure 1
	[[ $stderr =~ 'waited 2 s while CONNECTING'|'while RESOLVING_ADDRESS: RDMA_CM_EVENT_ADDR_ERROR' ]]
	signal_job peer KILL
	finish peer
}

@test "the device is taken away: each side says so, and ends" {
	[ "${LAB:-vm}" = vm ] || skip "only on the virtual machines"
	local add='rdma link add rxe0 type rxe netdev link0'

	serve peer "$server" -t 20
	start client other "$peers"/badclient --at established --do stall \
		"$ADDR_SERVER"
	wait_line peer '^-> RECEIVING'
	on server rdma link del rxe0
	on server sh -c "$add"
	finish peer
	assert_equal "$status" 1
	assert_equal "$stderr" 'rdma_get_cm_event: while RECEIVING: RDMA_CM_EVENT_DEVICE_REMOVAL, status 0: the RDMA device was taken away: rdma link shows what is left'
	signal_job other KILL
	finish other

	serve peer "$peers"/badserver --at received --do stall
	start client me "$client" -t 20 "$ADDR_SERVER"
	wait_line me '^-> DISCONNECTING'
	on client rdma link del rxe0
	on client sh -c "$add"
	finish me
	assert_equal "$status" 1
	[[ $stderr == 'rdma_get_cm_event: while DISCONNECTING: RDMA_CM_EVENT_DEVICE_REMOVAL'* ]]
	signal_job peer KILL
	finish peer
	pair 03
}

@test "twenty-five pairs in a row, each with programs of its own" {
	LIMIT=110 in_a_row 25 build/gcc-O2/03-event-loop/server \
		build/gcc-O2/03-event-loop/client
	assert_equal "$(grep -c 'received 10 bytes: HelloWorld' \
		"$BATS_TEST_TMPDIR/row.server")" 25
	assert_equal "$(grep -c -- '-> DONE' "$BATS_TEST_TMPDIR/row.client")" 25
}

# The helpers that this lesson has shown, in one process on each side.
@test "three hundred connections in a row leave nothing behind in the process" {
	serve peer "$peers"/badserver --times 301
	LIMIT=110 on client "$peers"/badclient --times 300 "$ADDR_SERVER" \
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

	long=$(printf '%4097s' '' | tr ' ' x)
	for args in '' '-p 0 x' '-t 0 x' '-z x' 'one two' "-m $long x"; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '-p 65536' '-t x' '-r' "-r ${long:0:148}"; do
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
