#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 01: the bare client, and everything that can go wrong on its way. Its
# peer is the server of lesson 02 where all goes well, and otherwise a bad one.

load ../helpers
load bare
load crowd

story='1 2 3 4 5 6 7a 7b 7c 7 8 9 10 11 12 13 14 14a 15 16 17 18 19 20'

setup_file() {
	build {gcc,asan}-{O0,O2}/{01-client,02-server} peers
}

# A program of a crowd has its port in $p on the node. A server is patient: on a
# busy machine a client may need a while to be started.
setup() {
	client=build/asan-O0/01-client/client
	plain=build/gcc-O2/01-client/client
	server="build/gcc-O2/02-server/server -t 60 -p \$p"
	bad='build/peers/badserver -p $p'
	to="-p \$p $ADDR_SERVER"
	broken='' untouched=''
	cases=() wanted=()
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

# case_of COMMAND REGEX: of the crowd to come, and what it is to say.
case_of() {
	cases+=("$1")
	wanted+=("$2")
}

# failed N REGEX: command N of the client has, has said one line that matches, and
# its tear-down got as far as its beginning did.
failed() {
	ended client "$1" 1 "$2"
	torn_down
}

torn_down() {
	if [[ $output == *'2 rdma_create_event_channel'* ]]; then
		assert_line --index -1 '20 rdma_destroy_event_channel'
	fi
	if [[ $output == *'7 rdma_create_qp'* ]]; then
		assert_line '18 rdma_destroy_qp'
	fi
}

# all_fail: the cases do, one after the other, each with its message.
all_fail() {
	local n

	run_each client -1 "${cases[@]}"
	for n in "${!cases[@]}"; do
		failed $((n + 1)) "${wanted[n]}"
	done
}

# ---- what works -----------------------------------------------------------

@test "the twenty steps come in their order" {
	run pair 01
	assert_success
	assert_equal "$(sed -n 's/^client | //p' <<<"$output" | steps -)" "$story"
	assert_line 'server | 16 ibv_poll_cq: received 10 bytes: HelloWorld'
}

@test "the pair runs in each build, by IPv6, by name, with -a and -p, for another user" {
	local zone variant n=0 all=()

	zone=$(on server ip -6 -o address show dev link0 scope link |
		grep -o 'fe80[^/ ]*')%link0
	# The first has the port that is nobody's choice, 10121.
	for variant in gcc-O0 gcc-O2 asan-O0 asan-O2; do
		all+=("build/$variant/02-server/server -t 60 ${all:+-p \$p}"
			"build/$variant/01-client/client ${all:+-p \$p} $ADDR_SERVER")
	done
	pairs -1 "${all[@]}" \
		"$server" "$client -p \$p $ADDR6_SERVER" \
		"$server" "$plain -p \$p server" \
		"$server" "$plain -p \$p $zone" \
		"$server" "$client -a $ADDR_CLIENT --port \$p $ADDR_SERVER" \
		"$server" "as_nobody $plain $to"
	for n in {1..9}; do
		ended client "$n" 0
		assert_equal "$(steps <<<"$output")" "$story"
		case $n in
		5) assert_line "1 rdma_getaddrinfo: $ADDR6_SERVER port 10125" ;;
		6) assert_line '1 rdma_getaddrinfo: server port 10126' ;;
		7) assert_line "1 rdma_getaddrinfo: $zone port 10127" ;;
		esac
		ended server "$n" 0
		assert_line '16 ibv_poll_cq: received 10 bytes: HelloWorld'
	done
}

@test "messages of 0, 1 and 4096 bytes, and bytes that are no text; what comes unasked does no harm" {
	local n size text

	pairs -1 "$server" "$client $to -m ''" \
		"$server" "$plain $to -m x" \
		"$server" "$client $to -m \$(printf %4096s '' | tr ' ' x)" \
		"$server" "$plain $to --message \"\$(printf '\\001\\377\\n\\200%%s\\t')x\"" \
		"$bad --private rubbish:196 --unasked 1" "$client $to"
	for n in 1 2 3; do
		ended client "$n" 0
		ended server "$n" 0
		size=$((n < 3 ? n - 1 : 4096))
		text=$(printf '%*s' "$size" '' | tr ' ' x)
		assert_line "16 ibv_poll_cq: received $size bytes: $text"
	done
	text=$(printf '\001\377\n\200%%s\t')x
	ended client 4 0
	ended server 4 0
	[[ $output == *"received 8 bytes: $text"* ]]
	ended client 5 0
}

# ---- addresses ------------------------------------------------------------

@test "a server's address that leads nowhere is said to, and why" {
	local address n

	# The plain build where the sanitizers have seen the same lines.
	for address in "$client 127.0.0.1" "$plain ::1" "$plain localhost" \
		"$plain 0.0.0.0"; do
		case_of "$address" 'rdma_resolve_route: No such device: the address belongs to no RDMA device: 127\.0\.0\.1 and ::1 never do; use the address of the card, .*'
	done
	case_of "$client $ADDR_SERVER" \
		'.*waited for RDMA_CM_EVENT_ESTABLISHED, got RDMA_CM_EVENT_REJECTED, status 8: invalid service ID: nobody listens on that port; start the server first, and compare the two -p'
	case_of "$client nohost" \
		'rdma_getaddrinfo: nohost: Name or service not known: is the name or address right\?'
	case_of "$plain fe80::1%nocard" 'rdma_getaddrinfo: fe80::1%nocard: .*'
	case_of "$client fe80::1" \
		'\[fe80::1\]:10121: a link-local address needs its zone, the card that it is on, as in fe80::1%eth0: .*'
	case_of "$client 192.0.2.1" \
		'rdma_resolve_addr: 192\.0\.2\.1:10121: Network is unreachable: there is no route to that address: .*'
	case_of "$client 10.0.2.2" \
		'.*got RDMA_CM_EVENT_ADDR_ERROR, status -19 No such device: the way to that address leads through a card without an RDMA device: .*'
	case_of "ip route add unreachable 192.0.2.2/32; $plain 192.0.2.2
		status=\$?; ip route delete unreachable 192.0.2.2/32; exit \$status" \
		'rdma_resolve_addr: 192\.0\.2\.2:10121: No route to host: there is no route to that address: .*'
	all_fail
	for n in 1 2 3 4; do
		member client "$n"
		assert_line '5 rdma_get_cm_event: ADDR_RESOLVED'
	done
}

@test "a source address that is not ours, or does not fit" {
	case_of "$client -a nohost $ADDR_SERVER" 'rdma_getaddrinfo: nohost: .*'
	case_of "$plain -a fe80::1 $ADDR6_SERVER" \
		'\[fe80::1\]:.*needs its zone.*'
	case_of "$client -a 10.10.10.9 $ADDR_SERVER" \
		"rdma_resolve_addr: .*: Cannot assign requested address: our own address \\(-a\\) is not one of this machine's: .*"
	case_of "$client -a 10.0.2.15 $ADDR_SERVER" \
		'rdma_resolve_addr: .*: No such device: the card with our address has no RDMA device: .*'
	case_of "$plain -a fd10::2 $ADDR_SERVER" \
		'rdma_resolve_addr: .*: Invalid argument: the two addresses do not fit together: .*'
	case_of "$plain -a 127.0.0.1 $ADDR_SERVER" \
		'rdma_resolve_addr: .*: Invalid argument: the two addresses do not fit together: .*'
	all_fail
}

@test "an address that nobody has, and one that answers ARP and does not speak RDMA" {
	local n

	broken=server
	on server rdma link delete rxe0
	run_each client "$client -t 4 10.10.10.77" "$plain -t 4 fd10::77" \
		"$client -t 4 $ADDR_SERVER"
	for n in 1 2; do
		failed "$n" '.*got RDMA_CM_EVENT_ADDR_ERROR, status -110 Connection timed out: nobody answers for that address: try ping'
	done
	failed 3 'waited 4 s for ESTABLISHED and nothing came: is the peer alive and answering\? \(-t waits longer\)'
}

# ---- this machine ---------------------------------------------------------

@test "no device, none that may be opened, no memory that may be pinned" {
	local memory='see ulimit -l, raise it in /etc/security/limits.conf'

	broken=client
	case_of "chmod 600 /dev/infiniband/rdma_cm; as_nobody $client $ADDR_SERVER
		status=\$?; restore; exit \$status" \
		'rdma_create_event_channel: No such file or directory: /dev/infiniband/rdma_cm cannot be opened: run modprobe rdma_ucm; if it is there, see ls -l for who may'
	case_of "chmod 600 /dev/infiniband/uverbs0; as_nobody $client $ADDR_SERVER
		status=\$?; restore; exit \$status" \
		'.*ADDR_ERROR, status -1: our device cannot be opened: see ls -l /dev/infiniband for who may, and ulimit -n'
	# The library has warned before.
	case_of "ulimit -l 0; as_nobody $plain $ADDR_SERVER" \
		".*"$'\n'"ibv_reg_mr: Operation not permitted: RLIMIT_MEMLOCK lets us pin no memory at all: $memory"
	case_of "ulimit -l 1; as_nobody $plain $ADDR_SERVER" \
		".*"$'\n'"ibv_reg_mr: Cannot allocate memory: more memory than RLIMIT_MEMLOCK lets us pin: $memory"
	case_of "rdma link delete rxe0; $client $ADDR_SERVER
		status=\$?; restore; exit \$status" \
		'rdma_getaddrinfo: No such device: this machine has no RDMA device, or none that can be opened: run make softroce, or use LAB=vm'
	all_fail
}

# ---- the server -----------------------------------------------------------

@test "the server refuses, or ends: when it has been asked, or after its answer" {
	local n

	pairs -1 "$server --reject" "$plain $to" \
		"$bad --at request --do reject" "$client $to" \
		"$bad --at request --do exit" "$plain $to" \
		"$bad --at request --do kill" "$client $to" \
		"$bad --at request --do leave" "$plain $to" \
		"$bad --at accepted --do kill" "$client $to" \
		"$bad --at established --do kill" "$client $to" \
		"$bad --at received --do kill" "$client $to" \
		"$bad --at disconnected --do kill" "$client $to"
	for n in {1..5}; do
		failed "$n" '.*got RDMA_CM_EVENT_REJECTED, status 28: consumer reject: a server is there and refused \(rdma_reject\), or it ended in the middle of the handshake'
	done
	# What the client sees then depends on who is quicker; it does not wait
	# for its deadline, and fails only when its message was not taken.
	for n in {6..9}; do
		member client "$n"
		assert_line --index -1 '20 rdma_destroy_event_channel'
		[[ $stderr != *waited\ [0-9]* ]] || fail "stderr is: $stderr"
		[[ $output == *'14a ibv_poll_cq: success'* || $status == 1 ]]
	done
}

@test "the server stalls, at each stage; has no receive posted, or one that does not fit" {
	local stage n all=()

	for stage in request accepted received disconnected; do
		all+=("$bad --at $stage --do stall" "$client -t 5 $to")
	done
	pairs "${all[@]}" "$bad --receives 0" "$client $to" \
		"$bad --receive-size 9" "$client $to" \
		"$bad --read-only" "$client $to"
	failed 1 'waited 5 s for ESTABLISHED and nothing came: .*'
	for n in 2 3 4; do
		failed "$n" 'waited 5 s for DISCONNECTED and nothing came: .*'
		assert_line '14a ibv_poll_cq: success'
	done
	failed 5 'completion of the SEND \(wr_id 14\): RNR retry counter exceeded, status 13, .*: the peer has no receive posted: it must post before we send'
	assert_line '16 rdma_get_cm_event: DISCONNECTED'
	for n in 6 7; do
		failed "$n" 'completion of the SEND \(wr_id 14\): remote operation error, status 11, .*: the peer could not take it: its receive is too small, or points to memory that it may not write'
	done
}

@test "the server's machine freezes" {
	# Without a receive, and told to try again for ever, the SEND is under
	# way for longer than the client's patience.
	start server server build/peers/badserver --receives 0 --rnr-retry 7
	wait_line server '^listening on '
	start client client "$client" -t 3 "$ADDR_SERVER"
	wait_line client '^14 '
	lab/lab freeze server
	finish client
	lab/lab thaw server
	assert_equal "$status" 1
	# Whether our deadline or the card's patience is over first is a matter
	# of the kernel: 16 s on 6.1, 4 s on 6.12.
	case $stderr in
	'waited 3 s for a completion and none came: is the peer frozen, or UDP port 4791 shut?'*) ;;
	*'transport retry counter exceeded, status 12, vendor syndrome 0x0: no answer from the peer: is it dead or frozen, is UDP port 4791 open, is the MTU the same on both sides?'*) ;;
	*) fail "stderr is: $stderr" ;;
	esac
	[[ $stderr == *'waited 3 s for DISCONNECTED and nothing came: '* ]]
	assert_line --index -1 '20 rdma_destroy_event_channel'
}

# ---- Ctrl-C ---------------------------------------------------------------

@test "Ctrl-C ends each wait: for ADDR_RESOLVED, ESTABLISHED, the completion, DISCONNECTED" {
	local n patient="$client -t 60"

	pairs : "when 'INT@4 *' -- $patient 10.10.10.77" \
		"$bad --at request --do stall" "when 'INT@11 *' -- $patient $to" \
		"$bad --receives 0 --rnr-retry 7" "when 'INT@14 *' -- $patient $to" \
		"$bad --at established --do stall" "when 'INT@15 *' -- $patient $to" \
		"$bad --at request --do stall" "when 'TERM@11 *' -- $patient $to"
	for n in 1 2 3 4; do
		failed "$n" 'stopped by Interrupt'
	done
	failed 5 'stopped by Terminated'
}

# ---- other programs, usage ------------------------------------------------

@test "rping's and ucmatose's servers: it ends, and so do they" {
	serve_all "on_port timeout 40 rping -s -p \$p -C 1 -v" \
		"on_port ucmatose -p \$p -C 1"
	run_each client -1 "$plain $to" "$plain $to"
	# It looks at its CQ and at nothing else, if it has not ended by itself.
	# shellcheck disable=SC2016 # expanded on the node
	on server sh -c 'for i in $(pidof ucmatose); do kill $i 2>/dev/null || true; done'
	crowded server
	member server 1
	[ "$status" != 124 ] || fail "rping hangs"
	# Our message is rubbish to it, and it leaves: mostly after its card has
	# acknowledged that.
	member client 1
	assert_line '14 ibv_post_send: SEND of 10 bytes'
	assert_line '20 rdma_destroy_event_channel'
	if ((status == 0)); then
		assert_line '14a ibv_poll_cq: success'
	else
		assert_equal "$status" 1
		[ -n "$stderr" ]
	fi
	member client 2
	[[ $status == [01] ]]
	assert_line '20 rdma_destroy_event_channel'
}

@test "the advice that no program of the lessons runs into" {
	local n all=() provoke="build/peers/provoke"

	serve_all "build/peers/badserver --receives 0 --messages 0 --times 2"
	for what in reg-rights reg-empty reg-unmapped reg-readonly qp send-full \
		recv-full; do
		all+=("$provoke $what $ADDR_SERVER")
	done
	run_each client -1 "${all[@]}"
	crowded server
	for n in 1 2; do
		ended_saying client $n 0 'ibv_reg_mr: Invalid argument: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE beside them, and a region has one byte at least'
	done
	for n in 3 4; do
		ended_saying client $n 0 'ibv_reg_mr: Bad address: the range is not mapped, or not writable'
	done
	ended_saying client 5 0 'rdma_create_qp: Invalid argument: the peer has left already, or the device has not as much as we ask for'
	ended_saying client 6 0 'ibv_post_send: Cannot allocate memory: the send queue is full: reap completions first'
	ended_saying client 7 0 'ibv_post_recv: Cannot allocate memory: the receive queue is full: post fewer, or ask for a deeper one'
}

@test "usage: wrong words are refused, and --help is not" {
	untouched=1
	refused_usage "$client"
	refused_usage "$client" a b
	refused_usage "$client" -p 0 10.10.10.1
	refused_usage "$client" -p 65536 10.10.10.1
	refused_usage "$client" -p x 10.10.10.1
	refused_usage "$client" -p '' 10.10.10.1
	refused_usage "$client" -t 0 10.10.10.1
	refused_usage "$client" -t 3601 10.10.10.1
	refused_usage "$client" -t 1s 10.10.10.1
	refused_usage "$client" -m
	refused_usage "$client" -m "$(printf '%4097s' '')" 10.10.10.1
	refused_usage "$client" --nonsense 10.10.10.1
	helps "$client"
}
