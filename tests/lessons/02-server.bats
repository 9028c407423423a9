#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 02: the listening server, and everything that a client or the machine
# can do to it.

load ../helpers
load bare
load crowd

story='1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22'

setup_file() {
	build {gcc,asan}-{O0,O2}/{01-client,02-server} peers
}

# A program of a crowd has its port in $p on the node.
setup() {
	server=build/asan-O0/02-server/server
	plain="build/gcc-O2/02-server/server -t 60 -p \$p"
	# Its patience is longer than usual: on a busy machine a client may need
	# a while to be started.
	serve="$server -t 60 -p \$p"
	client=build/gcc-O2/01-client/client
	bad=build/peers/badclient
	to="-p \$p $ADDR_SERVER"
	broken='' untouched=''
	cases=() wanted=()
}

teardown() {
	[ -z "$untouched" ] || return 0
	stop_crowds
	[ -z "$broken" ] || restore server
	assert_nothing_left
}

# was N STATUS [REGEX]: so did server N of the crowd end, after one line on stderr
# that matches (none without REGEX), and torn down.
was() {
	ended server "$1" "$2" "${3:-}"
	torn_down
}

torn_down() {
	[[ $output != *'2 rdma_create_event_channel'* ]] ||
		assert_line --index -1 '22 rdma_destroy_event_channel'
	[[ $output != *'11 rdma_create_qp'* ]] || assert_line '20 rdma_destroy_qp'
}

# alone STATUS REGEX: the same of a server that is the job `server`.
alone() {
	finish server
	assert_equal "$status" "$1"
	[[ $stderr =~ ^$2$ ]] || fail "stderr is: $stderr"
	torn_down
}

# case_of COMMAND REGEX: a server that does not start, and what it is to say.
case_of() {
	cases+=("$1")
	wanted+=("$2")
}

# ---- what works -----------------------------------------------------------

@test "the numbered steps come in their order" {
	run pair 02
	assert_success
	assert_equal "$(sed -n 's/^server | //p' <<<"$output" | steps -)" "$story"
	assert_line 'server | 16 ibv_poll_cq: received 10 bytes: HelloWorld'
}

@test "the pair runs over IPv6 in each build; it listens where -a says, and on every address without" {
	local variant zone address shown n all=()

	zone=$(on server ip -6 -o address show dev link0 scope link |
		grep -o 'fe80[^/ ]*')%link0
	# The first has the port that is nobody's choice, 10121.
	for variant in gcc-O0 gcc-O2 asan-O0 asan-O2; do
		all+=("build/$variant/02-server/server -t 60 ${all:+-p \$p}"
			"build/$variant/01-client/client ${all:+-p \$p} $ADDR6_SERVER")
	done
	for address in "$ADDR_SERVER" "$ADDR6_SERVER" "$zone" server; do
		all+=("$plain -a $address" "$client -p \$p $address")
	done
	pairs -1 "${all[@]}" "$plain -a 0.0.0.0" "$client $to" \
		"$serve -a ::" "$client $to"
	shown=('' '[::]' '[::]' '[::]' '[::]' "$ADDR_SERVER" "[$ADDR6_SERVER]"
		"[$zone]" "[$ADDR6_SERVER]" 0.0.0.0 '[::]')
	for n in {1..10}; do
		ended client "$n" 0
		was "$n" 0
		assert_equal "$(steps <<<"$output")" "$story"
		assert_line "listening on ${shown[n]}:$((10120 + n))"
	done
}

@test "it prints the bytes that came, no more and no fewer" {
	local size at n=0 message=$BATS_TEST_TMPDIR/message all=() sizes=(1 10 4096)

	# Any bytes come through a shell as base64.
	for size in "${sizes[@]}"; do
		head -c "$size" /dev/urandom >"$message.$size"
		all+=("{ $serve; echo \$? >\$n.st; } | tee \$n.raw |
				grep -a --line-buffered '^listening on '
				base64 -w 0 \$n.raw
				exit \$(cat \$n.st)"
			"echo $(base64 -w 0 "$message.$size") | base64 -d |
				$bad --stdin $to")
	done
	pairs -1 "${all[@]}" "$serve" "$bad --size 0 $to"
	for size in "${sizes[@]}"; do
		n=$((n + 1))
		ended client "$n" 0
		ended server "$n" 0
		# Not into a variable: those hold no NUL.
		base64 -d <<<"${lines[1]}" >"$message.out"
		{
			printf '16 ibv_poll_cq: received %d bytes: ' "$size"
			cat "$message.$size"
			printf '\n17 '
		} >"$message.shown"
		at=$(LC_ALL=C grep -abo -m 1 "16 ibv_poll_cq: received $size bytes: " \
			"$message.out" | head -n 1 | cut -d: -f1)
		tail -c +$((at + 1)) "$message.out" |
			cmp -n "$(stat -c %s "$message.shown")" - "$message.shown" ||
			fail "the $size bytes did not come out as they went in"
	done
	was 4 0
	assert_line '16 ibv_poll_cq: received 0 bytes: '
}

@test "-r refuses; what nobody asked for does no harm; a message too long, or one too many" {
	pairs "$serve --reject" "$client $to" \
		"$serve" "$bad --private rubbish:56 --depth 255 $to" \
		"$serve" "$bad --size 4097 $to" \
		"$serve" "$bad --messages 2 $to"
	ended client 1 1 '.*RDMA_CM_EVENT_REJECTED, status 28.*'
	was 1 0
	assert_line 'rdma_reject: the client was refused'
	ended client 2 0
	was 2 0
	ended client 3 1 'completion of the SEND \(wr_id 4294967296\): remote operation error, status 11.*'
	was 3 1 'completion of the receive \(wr_id 12\): local QP operation error, status 2, .*: an lkey is wrong, the device cannot do what was asked, or, on SoftRoCE, a receive was too small'
	ended client 4 1 '.*RNR retry counter exceeded, status 13.*'
	was 4 0
	assert_line --partial '16 ibv_poll_cq: received 10 bytes: '
}

# ---- addresses and ports --------------------------------------------------

@test "addresses that are none for it, and ports that are taken or root's" {
	local address n

	start server holder "$server" -t 60 -a "$ADDR_SERVER"
	wait_line holder '^listening on '
	assert_equal "$line" "listening on $ADDR_SERVER:10121"

	case_of "$server -a $ADDR_SERVER" \
		'rdma_bind_addr: 10\.10\.10\.1:10121: Address already in use: an RDMA program listens there already: `rdma resource show cm_id` names it; -p takes another port'
	case_of "$server" \
		'rdma_bind_addr: \[::\]:10121: Cannot assign requested address: .*, or an RDMA program listens on that port already \(see `rdma resource show cm_id`; -p takes another port\)'
	for address in "$serve -a 127.0.0.1" "$plain -a ::1" \
		"$plain -a localhost" "$serve -a 10.0.2.15"; do
		case_of "$address" \
			'rdma_bind_addr: .*: No such device: no RDMA device that we may open has that address: 127\.0\.0\.1 and ::1 never are one'\''s; leave -a out to listen on all of them'
	done
	case_of "$server -p \$p -a 10.10.10.9" \
		'rdma_bind_addr: 10\.10\.10\.9:[0-9]+: Cannot assign requested address: it is not one of this machine'\''s addresses \(see `ip address`\), or an RDMA program listens on that port already .*'
	case_of "$plain -a fd10::9" \
		'rdma_bind_addr: \[fd10::9\]:[0-9]+: Cannot assign .*'
	case_of "$server -a nohost" \
		'rdma_getaddrinfo: nohost: Name or service not known: is the name or address right\?'
	case_of "$server -a fe80::1" \
		'\[fe80::1\]:10121: a link-local address needs its zone, .*'
	case_of "as_nobody $server -p 1023" \
		'rdma_bind_addr: \[::\]:1023: Permission denied: ports below 1024 are for root: -p takes another port'
	run_each server -1 "${cases[@]}" 'rdma resource show cm_id'
	for n in "${!cases[@]}"; do
		was $((n + 1)) 1 "${wanted[n]}"
		[[ $output != *'listening on'* ]] || fail "it listens"
	done
	# What the message sends one to look at is there.
	member server $((n + 2))
	assert_line --regexp 'state LISTEN .*src-addr 10\.10\.10\.1:10121'

	signal_job holder TERM
	finish holder
	assert_equal "$status $stderr" '1 stopped by Terminated'
	torn_down
}

# ---- this machine ---------------------------------------------------------

@test "the connection manager is not to be opened, or the device: no client gets through then" {
	broken=1
	pairs "chmod 600 /dev/infiniband/rdma_cm
			as_nobody $server -p \$p; echo status \$? >&2
			chmod 666 /dev/infiniband/rdma_cm
			chmod 600 /dev/infiniband/uverbs0
			as_nobody $serve" \
		"$client $to"
	member client 1
	assert_equal "$status" 1
	was 1 1 'rdma_create_event_channel: No such file or directory: /dev/infiniband/rdma_cm cannot be opened: .*
status 1
rdma_get_cm_event: Resource temporarily unavailable: an event came that could not be used: may we open /dev/infiniband/uverbs\*\? See ls -l'
}

@test "the device is taken away while it listens, and then there is none" {
	broken=1
	start server server "$server" -t 60 -a "$ADDR_SERVER"
	wait_line server '^listening on '
	on server rdma link delete rxe0
	alone 1 '.*got RDMA_CM_EVENT_DEVICE_REMOVAL, status 0: the RDMA device was taken away: rdma link shows what is left'
	run --separate-stderr on server "$server"
	assert_failure 1
	assert_equal "$stderr" 'rdma_getaddrinfo: No such device: this machine has no RDMA device, or none that can be opened: run make softroce, or use LAB=vm'
}

# ---- the client -----------------------------------------------------------

@test "the client never comes, or ends: before it asks, when it has, after that, after its message" {
	local n say='--text farewell'

	# The plain build where the sanitizers see the same lines next to it.
	pairs -1 "$server -t 1 -p \$p" "$bad --at resolved --do kill $to" \
		"$serve" "$bad --at request --do kill $to" \
		"$plain" "$bad --at request --do leave $to" \
		"$serve" "$bad --at established --do kill $to" \
		"$plain" "$bad --at established --do leave $to" \
		"$serve" "$bad $say --at sent --do kill $to" \
		"$plain" "$bad $say --at sent --do exit $to" \
		"$plain" "$bad $say --at disconnect --do kill $to" \
		"$serve" "$bad $say --at disconnect --do stall -t 1 $to"
	# The first waits for another client, and its time is over then.
	ended_saying server 1 1 'waited 1 s for a client (CONNECT_REQUEST) and nothing came: is the peer alive and answering? (-t waits longer)'
	torn_down
	# Whether we are still busy with its request or have already accepted.
	for n in 2 3; do
		was "$n" 1 'rdma_create_qp: Invalid argument: the peer has left already, .*|rdma_accept: Invalid argument: the peer has left already|.*waited for RDMA_CM_EVENT_ESTABLISHED, .*'
	done
	for n in 4 5; do
		was "$n" 1 'the connection ended before the completion came'
	done
	for n in 6 7 8 9; do
		was "$n" 0
		assert_line '16 ibv_poll_cq: received 8 bytes: farewell'
	done
}

@test "an accept that comes when the client has left" {
	start server server build/peers/provoke accept
	wait_line server '^listening on '
	start client client "$bad" --at request --do stall "$ADDR_SERVER"
	wait_line server '^prepared'
	end_stalling client
	finish client
	signal_job server INT
	finish server
	assert_equal "$status" 0
	[[ $stderr == *'rdma_accept: Invalid argument: the peer has left already' ]]
}

@test "a second client while the first is there ends it, and is refused" {
	start server server "$server" -t 20
	wait_line server '^listening on '
	start client first "$bad" --at sent --do stall --text first "$ADDR_SERVER"
	wait_line server '^16 ibv_poll_cq'
	run --separate-stderr on client "$bad" "$ADDR_SERVER"
	[[ $stderr == *'got RDMA_CM_EVENT_REJECTED, status 28'* ]] || fail "$stderr"
	end_stalling client
	alone 1 'rdma_get_cm_event: waited for RDMA_CM_EVENT_DISCONNECTED, got RDMA_CM_EVENT_CONNECT_REQUEST, status 0: not an event that belongs here'
	finish first
}

@test "the client stalls: the deadline ends each wait" {
	# The client that stalls early has to find a server, and this waits longer.
	persist \
		"$bad --at established --do stall --persist $to" \
		"$bad --at sent --do stall --persist $to"
	crowd server server -l "$server -t 4 -p \$p" "$server -t 4 -p \$p" \
		"$server -t 8 -p \$p"
	listening server 3
	crowd client late : : "$bad --at request --do stall $to"
	crowded server
	was 1 1 'waited 4 s for a completion and none came: .*waited 4 s for DISCONNECTED and nothing came: .*'
	was 2 1 'waited 4 s for DISCONNECTED and nothing came: .*waited 4 s for DISCONNECTED .*'
	was 3 1 'waited 8 s for ESTABLISHED and nothing came: .*'
	end_stalling client
	crowded persistent
	crowded late
}

@test "the client's machine freezes" {
	start client client "$bad" --at established --do stall --persist \
		"$ADDR_SERVER"
	wait_line client '^at request'
	start server server "$server" -t 3
	wait_line client '^stalling'
	lab/lab freeze client
	alone 1 'waited 3 s for a completion and none came: is the peer frozen, .*'
	lab/lab thaw client
	signal_job client TERM
	finish client
}

# ---- Ctrl-C ---------------------------------------------------------------

@test "Ctrl-C ends each wait: for a client, ESTABLISHED, the completion, DISCONNECTED" {
	local n

	# A client that stalls does not say goodbye either, and a second Ctrl-C
	# ends the wait for that.
	pairs "when 'INT@listening on *' -- $serve" : \
		"when 'INT@13 *' -- $serve" "$bad --at request --do stall $to" \
		"when 'INT@15 *' 'INT@19 *' -- $serve" \
		"$bad --at established --do stall $to" \
		"when 'INT@16 *' 'INT@19 *' -- $serve" \
		"$bad --at sent --do stall --text farewell $to" \
		"when 'TERM@15 *' 'TERM@19 *' -- $serve" \
		"$bad --at established --do stall $to"
	for n in 1 2; do
		was "$n" 1 'stopped by Interrupt'
	done
	for n in 3 4; do
		was "$n" 1 'stopped by Interrupt.stopped by Interrupt'
	done
	was 5 1 'stopped by Terminated.stopped by Terminated'
}

# ---- other programs, usage ------------------------------------------------

@test "rping's and ucmatose's clients: it ends, and so do they; one of them waits for our deadline" {
	# They wait for something that we do not send, until we disconnect. The
	# last looks at its CQ and at nothing else, so it would wait for ever.
	serve_all "$server -t 10 -p \$p" "$server -t 10 -p \$p" \
		"${plain/-t 60/-t 10}"
	crowd client client \
		"timeout 40 rping -c -a $ADDR_SERVER -p \$p -C 1" \
		"timeout 40 ucmatose -s $ADDR_SERVER -p \$p -C 0" \
		"ucmatose -s $ADDR_SERVER -p \$p -C 1 &
			echo \$! >/run/ucmatose.pid; wait \$!"
	crowded server
	# shellcheck disable=SC2016 # expanded on the node
	on client sh -c 'kill -KILL $(cat /run/ucmatose.pid)'
	crowded client
	for n in 1 2; do
		member client "$n"
		[ "$status" != 124 ] || fail "client $n hangs"
	done
	member server 1
	assert_line --partial '16 ibv_poll_cq: received 16 bytes: '
	assert_line --index -1 '22 rdma_destroy_event_channel'
	was 2 1 'waited 10 s for a completion and none came: .*'
	was 3 1 'waited 10 s for .*'
	assert_line '14 rdma_get_cm_event: ESTABLISHED'
}

@test "usage: wrong words are refused, and --help is not" {
	untouched=1
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
