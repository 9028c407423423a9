#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 02: the listening server, and everything that a client or the machine
# can do to it.

load ../helpers
load bare

story='1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22'

setup_file() {
	build {gcc,asan}-{O0,O2}/{01-client,02-server} peers
}

setup() {
	client=build/asan-O0/01-client/client
	server=build/asan-O0/02-server/server
	bad=build/peers/badclient
	broken=
}

teardown() {
	[ -z "$broken" ] || restore server
	assert_nothing_left
}

# serve [ARG...]: the lesson's server as job `server`. Its patience is longer
# than usual: on a busy machine a client may need a while to be started.
serve() {
	start server server "$server" -t 30 "$@"
	wait_line server '^listening on '
}

# ended STATUS REGEX: so did the server, after one line on stderr that matches
# (none for an empty one), and torn down.
ended() {
	finish server
	assert_equal "$status" "$1"
	[[ $stderr =~ ^$2$ ]] || fail "stderr is: $stderr"
	assert_line --index -1 '22 rdma_destroy_event_channel'
	[[ $output != *'11 rdma_create_qp'* ]] || assert_line '20 rdma_destroy_qp'
}

# does_not_start REGEX [ARG...]: it fails with such a line, and does not listen.
does_not_start() {
	local regex=$1

	shift
	run --separate-stderr on server "$server" "$@"
	assert_failure 1
	[[ $output != *'listening on'* ]] || fail "it listens"
	[[ $stderr =~ ^$regex$ ]] || fail "stderr is: $stderr"
	[[ $output != *'2 rdma_create_event_channel'* ]] ||
		assert_line --index -1 '22 rdma_destroy_event_channel'
}

# stopped_at REGEX [WORD...]: each signal ends the server that has printed
# this. The client is a bad one with these words, if there are any.
stopped_at() {
	local regex=$1 signal before

	shift
	for signal in INT TERM; do
		serve
		[ $# = 0 ] || start client client "$bad" "$@" "$ADDR_SERVER"
		wait_line server "$regex"
		before=$SECONDS
		signal_job server $signal
		# A client that stalls does not say goodbye either, and a
		# second Ctrl-C ends the wait for that.
		if [[ $* == *stall* ]]; then
			! wait_line server '^19 ' || signal_job server $signal
		fi
		ended 1 'stopped by (Interrupt|Terminated)(.stopped by .*)?'
		[ $((SECONDS - before)) -lt 25 ] || fail "it took too long"
		[ $# = 0 ] || signal_job client TERM || true
		[ $# = 0 ] || finish client
	done
}

# ---- what works -----------------------------------------------------------

@test "the numbered steps come in their order" {
	run pair 02
	assert_success
	assert_equal "$(sed -n 's/^server | //p' <<<"$output" | steps -)" "$story"
	assert_line 'server | 16 ibv_poll_cq: received 10 bytes: HelloWorld'
}

@test "the pair runs over IPv6 in each build" {
	local variant

	for variant in gcc-O0 gcc-O2 asan-O0 asan-O2; do
		start server server build/$variant/02-server/server -t 30
		wait_line server '^listening on '
		on client build/$variant/01-client/client "$ADDR6_SERVER"
		ended 0 ''
		assert_equal "$(steps <<<"$output")" "$story"
	done
}

@test "it listens where -a says, and on every address without" {
	local zone address shown

	zone=$(on server ip -6 -o address show dev link0 scope link |
		grep -o 'fe80[^/ ]*')
	for address in "$ADDR_SERVER" "$ADDR6_SERVER" "$zone%link0" server \
		0.0.0.0 ::; do
		shown=$address
		[ "$address" != server ] || shown=$ADDR6_SERVER
		[[ $shown != *:* ]] || shown="[$shown]"
		serve -a "$address"
		assert_equal "$line" "listening on $shown:10121"
		case $address in
		0.0.0.0 | ::) address=$ADDR_SERVER ;;
		esac
		on client "$client" "$address"
		ended 0 ''
	done
}

@test "it prints the bytes that came, no more and no fewer" {
	local size message=$BATS_TEST_TMPDIR/message

	for size in 1 10 4096; do
		head -c "$size" /dev/urandom >"$message"
		serve
		on client "$bad" --stdin "$ADDR_SERVER" <"$message"
		# Not `finish`: a shell variable holds no NUL.
		wait "${job_pid[server]}"
		unset 'job_pid[server]'
		{
			printf '16 ibv_poll_cq: received %d bytes: ' "$size"
			cat "$message"
			printf '\n17 '
		} >"$message.shown"
		grep -qzaF "$(tr '\0' '\n' <"$message.shown")" \
			<(tr '\0' '\n' <"$BATS_TEST_TMPDIR/server.out") ||
			fail "the $size bytes did not come out as they went in"
	done
	serve
	on client "$bad" --size 0 "$ADDR_SERVER"
	ended 0 ''
	assert_line '16 ibv_poll_cq: received 0 bytes: '
}

@test "-r refuses the client" {
	serve --reject
	run on client "$client" "$ADDR_SERVER"
	assert_failure 1
	assert_line --partial 'RDMA_CM_EVENT_REJECTED, status 28'
	ended 0 ''
	assert_line 'rdma_reject: the client was refused'
}

@test "private data and depths that nobody asked for do no harm" {
	serve
	on client "$bad" --private rubbish:56 --depth 255 "$ADDR_SERVER"
	ended 0 ''
}

# ---- addresses and ports --------------------------------------------------

@test "127.0.0.1, ::1 and a card without a device are no addresses for it" {
	local address

	for address in 127.0.0.1 ::1 localhost 10.0.2.15; do
		does_not_start 'rdma_bind_addr: .*: No such device: no RDMA device that we may open has that address: 127\.0\.0\.1 and ::1 never are one'\''s; leave -a out to listen on all of them' \
			-a $address
	done
}

@test "an address of another machine" {
	does_not_start 'rdma_bind_addr: 10\.10\.10\.9:10121: Cannot assign requested address: it is not one of this machine'\''s addresses \(see `ip address`\), or an RDMA program listens on that port already .*' \
		-a 10.10.10.9
	does_not_start 'rdma_bind_addr: \[fd10::9\]:10121: Cannot assign .*' \
		-a fd10::9
}

@test "a port that is taken" {
	serve -a "$ADDR_SERVER"
	does_not_start 'rdma_bind_addr: 10\.10\.10\.1:10121: Address already in use: an RDMA program listens there already: `rdma resource show cm_id` names it; -p takes another port' \
		-a "$ADDR_SERVER"
	does_not_start 'rdma_bind_addr: \[::\]:10121: Cannot assign requested address: .*, or an RDMA program listens on that port already \(see `rdma resource show cm_id`; -p takes another port\)'
	# What the message sends one to look at is there.
	run on server rdma resource show cm_id
	assert_line --regexp 'state LISTEN .*src-addr 10\.10\.10\.1:10121'
	signal_job server TERM
	ended 1 'stopped by Terminated'
}

@test "no such host, no zone" {
	does_not_start 'rdma_getaddrinfo: nohost: Name or service not known: is the name or address right\?' \
		-a nohost
	does_not_start '\[fe80::1\]:10121: a link-local address needs its zone, .*' \
		-a fe80::1
}

@test "a port of root's, as somebody else" {
	run --separate-stderr as_nobody server "$server" -p 1023
	assert_failure 1
	assert_equal "$stderr" 'rdma_bind_addr: [::]:1023: Permission denied: ports below 1024 are for root: -p takes another port'
}

# ---- this machine ---------------------------------------------------------

@test "no device" {
	broken=1
	on server rdma link delete rxe0
	does_not_start 'rdma_getaddrinfo: No such device: this machine has no RDMA device, or none that can be opened: run make softroce, or use LAB=vm'
}

@test "the connection manager is not to be opened" {
	broken=1
	on server chmod 600 /dev/infiniband/rdma_cm
	run --separate-stderr as_nobody server "$server"
	assert_failure 1
	[[ $stderr == 'rdma_create_event_channel: No such file or directory: /dev/infiniband/rdma_cm cannot be opened: '* ]]
}

@test "the device is not to be opened: it listens, and no client gets through" {
	broken=1
	on server chmod 600 /dev/infiniband/uverbs0
	start server server setpriv --reuid=65534 --regid=65534 --clear-groups \
		"$server"
	wait_line server '^listening on '
	run on client "$client" "$ADDR_SERVER"
	assert_failure 1
	ended 1 'rdma_get_cm_event: Resource temporarily unavailable: an event came that could not be used: may we open /dev/infiniband/uverbs\*\? See ls -l'
}

@test "the device is taken away while it listens" {
	broken=1
	serve -a "$ADDR_SERVER"
	on server rdma link delete rxe0
	ended 1 '.*got RDMA_CM_EVENT_DEVICE_REMOVAL, status 0: the RDMA device was taken away: rdma link shows what is left'
}

# ---- the client -----------------------------------------------------------

@test "no client comes" {
	run --separate-stderr on server "$server" -t 1
	assert_failure 1
	assert_equal "$stderr" 'waited 1 s for a client (CONNECT_REQUEST) and nothing came: is the peer alive and answering? (-t waits longer)'
	assert_line --index -1 '22 rdma_destroy_event_channel'
}

@test "the client ends before it asks" {
	serve -t 1
	on client "$bad" --at resolved --do kill "$ADDR_SERVER" || true
	ended 1 'waited 1 s for a client .*'
}

@test "the client ends when it has asked" {
	local words

	# Whether we are still busy with its request or have already accepted.
	for words in kill leave; do
		serve
		on client "$bad" --at request --do $words "$ADDR_SERVER" || true
		ended 1 '(rdma_create_qp: Invalid argument: the peer has left already, .*|rdma_accept: Invalid argument: the peer has left already|.*waited for RDMA_CM_EVENT_ESTABLISHED, .*)'
	done
}

@test "an accept that comes when the client has left" {
	start server server build/peers/provoke accept
	wait_line server '^listening on '
	start client client "$bad" --at request --do stall "$ADDR_SERVER"
	wait_line server '^prepared'
	signal_job client TERM
	finish client
	signal_job server INT
	finish server
	assert_equal "$status" 0
	[[ $stderr == *'rdma_accept: Invalid argument: the peer has left already' ]]
}

@test "the client ends without a message" {
	local words

	for words in kill leave; do
		serve
		on client "$bad" --at established --do $words "$ADDR_SERVER" ||
			true
		ended 1 'the connection ended before the completion came'
	done
}

@test "the client ends after its message, with a goodbye or without" {
	local words

	for words in '--at sent --do kill' '--at disconnect --do kill' \
		'--at disconnect --do stall -t 1' '--at sent --do exit'; do
		serve
		# shellcheck disable=SC2086 # several words
		on client "$bad" --text farewell $words "$ADDR_SERVER" || true
		ended 0 ''
		assert_line '16 ibv_poll_cq: received 8 bytes: farewell'
	done
}

@test "the client stalls: the deadline ends each wait" {
	local stage port=10121

	# All at the same time, to wait only once. A client that persists is
	# there when its server begins to listen.
	for stage in established sent; do
		start client "$stage-client" "$bad" --at "$stage" --do stall \
			--persist -p "$port" "$ADDR_SERVER"
		wait_line "$stage-client" '^at request'
		start server "$stage" "$server" -t 4 -p "$port"
		port=$((port + 1))
	done
	start server request "$server" -t 8 -p "$port"
	wait_line request '^listening on '
	start client request-client "$bad" --at request --do stall \
		-p "$port" "$ADDR_SERVER"
	stalled() {
		finish "$1"
		assert_equal "$status" 1
		[[ $stderr =~ ^$2$ ]] || fail "stderr is: $stderr"
		assert_line --index -1 '22 rdma_destroy_event_channel'
		signal_job "$1-client" TERM
		finish "$1-client"
	}
	stalled established 'waited 4 s for a completion and none came: .*waited 4 s for DISCONNECTED and nothing came: .*'
	stalled sent 'waited 4 s for DISCONNECTED and nothing came: .*waited 4 s for DISCONNECTED .*'
	stalled request 'waited 8 s for ESTABLISHED and nothing came: .*'
}

@test "the client's machine freezes" {
	start client client "$bad" --at established --do stall --persist \
		"$ADDR_SERVER"
	serve -t 5
	wait_line client '^stalling'
	lab/lab freeze client
	ended 1 'waited 5 s for a completion and none came: is the peer frozen, .*'
	lab/lab thaw client
	signal_job client TERM
	finish client
}

@test "a message that is longer than the receive" {
	serve
	run on client "$bad" --size 4097 "$ADDR_SERVER"
	assert_failure 1
	assert_line --partial 'completion of the SEND (wr_id 4294967296): remote operation error, status 11'
	ended 1 'completion of the receive \(wr_id 12\): local QP operation error, status 2, .*: an lkey is wrong, the device cannot do what was asked, or, on SoftRoCE, a receive was too small'
}

@test "a second message finds no receive" {
	serve
	run on client "$bad" --messages 2 "$ADDR_SERVER"
	assert_failure 1
	assert_line --partial 'RNR retry counter exceeded, status 13'
	ended 0 ''
	assert_line --partial '16 ibv_poll_cq: received 10 bytes: '
}

# ---- Ctrl-C ---------------------------------------------------------------

@test "Ctrl-C while it waits for a client" {
	stopped_at '^listening on '
}

@test "Ctrl-C while it waits for ESTABLISHED" {
	stopped_at '^13 ' --at request --do stall
}

@test "Ctrl-C while it waits for the completion" {
	stopped_at '^15 ' --at established --do stall
}

@test "Ctrl-C while it waits for DISCONNECTED" {
	stopped_at '^16 ' --at sent --do stall --text farewell
}

# ---- other programs, usage ------------------------------------------------

@test "rping's and ucmatose's clients: it ends, and so do they" {
	# They wait for something that we do not send, until we disconnect.
	serve -t 6
	run on client timeout 25 rping -c -a "$ADDR_SERVER" -p 10121 -C 1
	[ "$status" != 124 ] || fail "rping hangs"
	finish server
	assert_line --partial '16 ibv_poll_cq: received 16 bytes: '
	assert_line --index -1 '22 rdma_destroy_event_channel'

	serve -t 6
	run on client timeout 25 ucmatose -s "$ADDR_SERVER" -p 10121 -C 0
	[ "$status" != 124 ] || fail "ucmatose hangs"
	ended 1 'waited 6 s for a completion and none came: .*'
}

@test "ucmatose's client waits for an answer: our deadline ends it" {
	# It looks at its CQ and at nothing else, so it would wait for ever.
	serve -t 5
	start client client ucmatose -s "$ADDR_SERVER" -p 10121 -C 1
	finish server
	assert_equal "$status" 1
	[[ $stderr == 'waited 5 s for '* ]] || fail "stderr is: $stderr"
	assert_line --index -1 '22 rdma_destroy_event_channel'
	signal_job client KILL
	finish client
}

@test "usage: wrong words are refused, and --help is not" {
	refused_usage "$server" here
	refused_usage "$server" -a
	refused_usage "$server" -p 0
	refused_usage "$server" -p 65536
	refused_usage "$server" -p 10121x
	refused_usage "$server" -t 0
	refused_usage "$server" -t 3601
	refused_usage "$server" -t -1
	refused_usage "$server" --nonsense
	helps "$server"
}
