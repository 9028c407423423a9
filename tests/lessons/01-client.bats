#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 01: the bare client, and everything that can go wrong on its way. Its
# peer is the server of lesson 02 where all goes well, and otherwise a bad one.

load ../helpers
load bare

story='1 2 3 4 5 6 7a 7b 7c 7 8 9 10 11 12 13 14 14a 15 16 17 18 19 20'

setup_file() {
	build {gcc,asan}-{O0,O2}/{01-client,02-server} peers
}

setup() {
	client=build/asan-O0/01-client/client
	server=build/asan-O0/02-server/server
	bad=build/peers/badserver
	broken='' impaired=''
}

teardown() {
	local node

	for node in $broken; do
		restore "$node"
	done
	[ -z "$impaired" ] || lab/lab impair clear
	assert_nothing_left
}

# serve CMD...: a server of any kind as job `server`.
serve() {
	start server server "$@"
	wait_line server '^listening on '
}

# fails_with REGEX CMD...: it fails, says one line that matches, and its
# tear-down got as far as its beginning did.
fails_with() {
	local regex=$1

	shift
	timed on client "$@"
	assert_failure 1
	[[ $stderr =~ ^$regex$ ]] || fail "stderr is: $stderr"
	if [[ $output == *'2 rdma_create_event_channel'* ]]; then
		assert_line --index -1 '20 rdma_destroy_event_channel'
	fi
	if [[ $output == *'7 rdma_create_qp'* ]]; then
		assert_line '18 rdma_destroy_qp'
	fi
}

# A SEND that has no receive is tried again for two seconds; with a slow wire,
# for more than four.
slow_wire() {
	impaired=1
	lab/lab impair delay 300ms
}

# stopped_at REGEX ADDRESS [WORD...]: each signal ends the client that has
# printed this. The server is a bad one with these words, if there are any.
stopped_at() {
	local regex=$1 address=$2 signal before

	shift 2
	for signal in INT TERM; do
		[ $# = 0 ] || serve "$bad" "$@"
		start client client "$client" -t 30 "$address"
		wait_line client "$regex"
		before=$SECONDS
		signal_job client $signal
		finish client
		assert_equal "$status" 1
		[[ $stderr == 'stopped by '@(Interrupt|Terminated) ]] ||
			fail "$stderr"
		assert_line --index -1 '20 rdma_destroy_event_channel'
		[ $((SECONDS - before)) -lt 25 ] || fail "it took too long"
		[ $# = 0 ] || signal_job server TERM || true
		[ $# = 0 ] || finish server
	done
}

# Run the client until somebody listens.
retry_refused() {
	for _ in {1..20}; do
		run on client "$@"
		[[ $output == *'status 8:'* ]] || return 0
	done
}

# ---- what works -----------------------------------------------------------

@test "the twenty steps come in their order" {
	run pair 01
	assert_success
	assert_equal "$(sed -n 's/^client | //p' <<<"$output" | steps -)" "$story"
	assert_line 'server | 16 ibv_poll_cq: received 10 bytes: HelloWorld'
}

@test "the pair runs at -O0 and -O2, plain and under the sanitizers" {
	local variant

	for variant in gcc-O0 gcc-O2 asan-O0 asan-O2; do
		serve build/$variant/02-server/server -t 30
		run --separate-stderr on client \
			build/$variant/01-client/client "$ADDR_SERVER"
		assert_success
		assert_equal "$(steps <<<"$output")" "$story"
		assert_equal "$stderr" ''
		finish server
		assert_equal "$status$stderr" 0
		assert_line '16 ibv_poll_cq: received 10 bytes: HelloWorld'
	done
}

@test "a server is found by IPv6, by name, and by link-local address with a zone" {
	local address zone

	zone=$(on server ip -6 -o address show dev link0 scope link |
		grep -o 'fe80[^/ ]*')
	for address in "$ADDR6_SERVER" server "$zone%link0"; do
		serve "$server" -t 30
		run --separate-stderr on client "$client" "$address"
		assert_success
		assert_line "1 rdma_getaddrinfo: $address port 10121"
		finish server
		assert_equal "$status" 0
	done
}

@test "-a names our own address, -p the port" {
	serve "$server" -t 30 -p 4711
	on client "$client" -a "$ADDR_CLIENT" --port 4711 "$ADDR_SERVER"
	finish server
	assert_equal "$status" 0
}

@test "messages of 0, 1 and 4096 bytes, and bytes that are no text" {
	local size text

	for size in 0 1 4096; do
		text=$(printf '%*s' "$size" '' | tr ' ' x)
		serve "$server" -t 30
		on client "$client" -m "$text" "$ADDR_SERVER"
		finish server
		assert_line "16 ibv_poll_cq: received $size bytes: $text"
	done
	text=$(printf '\001\377\n\200%%s\t')x
	serve "$server" -t 30
	on client "$client" --message "$text" "$ADDR_SERVER"
	finish server
	[[ $output == *"received 8 bytes: $text"* ]]
}

@test "what the server sends unasked, and its private data, do no harm" {
	serve "$bad" --private rubbish:196 --unasked 1
	run --separate-stderr on client "$client" "$ADDR_SERVER"
	assert_success
	assert_equal "$stderr" ''
}

# ---- addresses ------------------------------------------------------------

@test "127.0.0.1, ::1, localhost and 0.0.0.0 end at the route" {
	local address

	for address in 127.0.0.1 ::1 localhost 0.0.0.0; do
		fails_with 'rdma_resolve_route: No such device: the address belongs to no RDMA device: 127\.0\.0\.1 and ::1 never do; use the address of the card, .*' \
			"$client" $address
		assert_line '5 rdma_get_cm_event: ADDR_RESOLVED'
	done
}

@test "nobody listens" {
	fails_with '.*waited for RDMA_CM_EVENT_ESTABLISHED, got RDMA_CM_EVENT_REJECTED, status 8: invalid service ID: nobody listens on that port; start the server first, and compare the two -p' \
		"$client" "$ADDR_SERVER"
}

@test "no such host" {
	fails_with 'rdma_getaddrinfo: nohost: Name or service not known: is the name or address right\?' \
		"$client" nohost
	fails_with 'rdma_getaddrinfo: fe80::1%nocard: .*' "$client" fe80::1%nocard
	fails_with 'rdma_getaddrinfo: nohost: .*' \
		"$client" -a nohost "$ADDR_SERVER"
}

@test "an address that nobody has" {
	local address

	for address in 10.10.10.77 fd10::77; do
		fails_with '.*got RDMA_CM_EVENT_ADDR_ERROR, status -110 Connection timed out: nobody answers for that address: try ping' \
			"$client" -t 2 $address
	done
}

@test "an address that no route or a card without a device leads to" {
	fails_with 'rdma_resolve_addr: 192\.0\.2\.1:10121: Network is unreachable: there is no route to that address: .*' \
		"$client" 192.0.2.1
	fails_with '.*got RDMA_CM_EVENT_ADDR_ERROR, status -19 No such device: the way to that address leads through a card without an RDMA device: .*' \
		"$client" 10.0.2.2
	on client ip route add unreachable 192.0.2.2/32
	fails_with 'rdma_resolve_addr: 192\.0\.2\.2:10121: No route to host: there is no route to that address: .*' \
		"$client" 192.0.2.2
	on client ip route delete unreachable 192.0.2.2/32
}

@test "a link-local address without its zone" {
	fails_with '\[fe80::1\]:10121: a link-local address needs its zone, the card that it is on, as in fe80::1%eth0: .*' \
		"$client" fe80::1
	fails_with '\[fe80::1\]:.*needs its zone.*' \
		"$client" -a fe80::1 "$ADDR6_SERVER"
}

@test "a source address that is not ours, or does not fit" {
	fails_with "rdma_resolve_addr: .*: Cannot assign requested address: our own address \\(-a\\) is not one of this machine's: .*" \
		"$client" -a 10.10.10.9 "$ADDR_SERVER"
	fails_with 'rdma_resolve_addr: .*: No such device: the card with our address has no RDMA device: .*' \
		"$client" -a 10.0.2.15 "$ADDR_SERVER"
	fails_with 'rdma_resolve_addr: .*: Invalid argument: the two addresses do not fit together: .*' \
		"$client" -a fd10::2 "$ADDR_SERVER"
	fails_with 'rdma_resolve_addr: .*: Invalid argument: the two addresses do not fit together: .*' \
		"$client" -a 127.0.0.1 "$ADDR_SERVER"
}

@test "an address that answers ARP and does not speak RDMA" {
	broken=server
	on server rdma link delete rxe0
	fails_with 'waited 2 s for ESTABLISHED and nothing came: is the peer alive and answering\? \(-t waits longer\)' \
		"$client" -t 2 "$ADDR_SERVER"
}

# ---- this machine ---------------------------------------------------------

@test "no device" {
	broken=client
	on client rdma link delete rxe0
	fails_with 'rdma_getaddrinfo: No such device: this machine has no RDMA device, or none that can be opened: run make softroce, or use LAB=vm' \
		"$client" "$ADDR_SERVER"
}

@test "the connection manager is not to be opened" {
	broken=client
	on client chmod 600 /dev/infiniband/rdma_cm
	run --separate-stderr as_nobody client "$client" "$ADDR_SERVER"
	assert_failure 1
	assert_equal "$stderr" 'rdma_create_event_channel: No such file or directory: /dev/infiniband/rdma_cm cannot be opened: run modprobe rdma_ucm; if it is there, see ls -l for who may'
}

@test "the device is not to be opened" {
	broken=client
	on client chmod 600 /dev/infiniband/uverbs0
	run --separate-stderr as_nobody client "$client" "$ADDR_SERVER"
	assert_failure 1
	[[ $stderr == *'ADDR_ERROR, status -1: our device cannot be opened: see ls -l /dev/infiniband for who may, and ulimit -n' ]] ||
		fail "$stderr"
}

@test "no memory may be pinned, or too little" {
	serve "$server" -t 30
	run --separate-stderr as_nobody client \
		bash -c "ulimit -l 0; build/gcc-O2/01-client/client $ADDR_SERVER"
	assert_failure 1
	# The library has warned before.
	assert_equal "${stderr_lines[-1]}" 'ibv_reg_mr: Operation not permitted: RLIMIT_MEMLOCK lets us pin no memory at all: see ulimit -l, raise it in /etc/security/limits.conf'
	run --separate-stderr as_nobody client \
		bash -c "ulimit -l 1; build/gcc-O2/01-client/client $ADDR_SERVER"
	assert_failure 1
	assert_equal "${stderr_lines[-1]}" 'ibv_reg_mr: Cannot allocate memory: more memory than RLIMIT_MEMLOCK lets us pin: see ulimit -l, raise it in /etc/security/limits.conf'
	signal_job server TERM
}

@test "another user than root can run it" {
	serve "$server" -t 30
	run as_nobody client build/gcc-O2/01-client/client "$ADDR_SERVER"
	assert_success
}

# ---- the server -----------------------------------------------------------

refused='.*got RDMA_CM_EVENT_REJECTED, status 28: consumer reject: a server is there and refused \(rdma_reject\), or it ended in the middle of the handshake'

@test "the server refuses, or ends when it has been asked" {
	local words

	serve "$server" -t 30 --reject
	fails_with "$refused" "$client" "$ADDR_SERVER"
	for words in reject exit kill leave; do
		serve "$bad" --at request --do "$words"
		fails_with "$refused" "$client" "$ADDR_SERVER"
		finish server
	done
}

@test "the server is killed after its answer" {
	local stage

	# What the client sees depends on who is quicker; it ends at once, and
	# fails only when its message was not taken.
	for stage in accepted established received disconnected; do
		serve "$bad" --at "$stage" --do kill
		timed on client "$client" -t 8 "$ADDR_SERVER"
		assert_line --index -1 '20 rdma_destroy_event_channel'
		[[ $output == *'14a ibv_poll_cq: success'* ]] ||
			assert_failure 1
		[ "$took" -lt 8000 ] || fail "took $took ms"
		finish server
	done
}

@test "the server stalls: the deadline ends each wait" {
	local stage

	for stage in request accepted received disconnected; do
		serve "$bad" --at "$stage" --do stall
		if [ $stage = request ]; then
			fails_with 'waited 2 s for ESTABLISHED and nothing came: .*' \
				"$client" -t 2 "$ADDR_SERVER"
		else
			fails_with 'waited 2 s for DISCONNECTED and nothing came: .*' \
				"$client" -t 2 "$ADDR_SERVER"
			assert_line '14a ibv_poll_cq: success'
		fi
		signal_job server TERM
		finish server
	done
}

@test "the server has no receive posted" {
	serve "$bad" --receives 0
	fails_with 'completion of the SEND \(wr_id 14\): RNR retry counter exceeded, status 13, .*: the peer has no receive posted: it must post before we send' \
		"$client" "$ADDR_SERVER"
	assert_line '16 rdma_get_cm_event: DISCONNECTED'
}

@test "the server's receive is too short, or not to be written" {
	local words

	for words in '--receive-size 9' --read-only; do
		# shellcheck disable=SC2086 # one word or two
		serve "$bad" $words
		fails_with 'completion of the SEND \(wr_id 14\): remote operation error, status 11, .*: the peer could not take it: its receive is too small, or points to memory that it may not write' \
			"$client" "$ADDR_SERVER"
		finish server
	done
}

@test "the server's machine freezes" {
	slow_wire
	serve "$bad" --receives 0
	start client client "$client" -t 4 "$ADDR_SERVER"
	wait_line client '^14 '
	lab/lab freeze server
	finish client
	lab/lab thaw server
	assert_equal "$status" 1
	# Whether our deadline or the card's patience is over first is a matter
	# of the kernel: 16 s on 6.1, 4 s on 6.12.
	case $stderr in
	'waited 4 s for a completion and none came: is the peer frozen, or UDP port 4791 shut?'*) ;;
	*'transport retry counter exceeded, status 12, vendor syndrome 0x0: no answer from the peer: is it dead or frozen, is UDP port 4791 open, is the MTU the same on both sides?'*) ;;
	*) fail "stderr is: $stderr" ;;
	esac
	[[ $stderr == *'waited 4 s for DISCONNECTED and nothing came: '* ]]
	assert_line --index -1 '20 rdma_destroy_event_channel'
}

# ---- Ctrl-C ---------------------------------------------------------------

@test "Ctrl-C while it waits for ADDR_RESOLVED" {
	stopped_at '^4 ' 10.10.10.77
}

@test "Ctrl-C while it waits for ESTABLISHED" {
	stopped_at '^11 ' "$ADDR_SERVER" --at request --do stall
}

@test "Ctrl-C while it waits for the completion" {
	slow_wire
	stopped_at '^14 ' "$ADDR_SERVER" --receives 0
}

@test "Ctrl-C while it waits for DISCONNECTED" {
	stopped_at '^15 ' "$ADDR_SERVER" --at established --do stall
}

# ---- other programs, usage ------------------------------------------------

@test "rping's and ucmatose's servers: it ends, and so do they" {
	start server server timeout 20 rping -s -p 10121 -C 1 -v
	# rping prints nothing when it listens.
	retry_refused "$client" "$ADDR_SERVER"
	assert_line '14a ibv_poll_cq: success'
	finish server
	[ "$status" != 124 ] || fail "rping hangs"

	start server server timeout 20 ucmatose -p 10121 -C 1
	retry_refused "$client" "$ADDR_SERVER"
	assert_line '20 rdma_destroy_event_channel'
	signal_job server TERM || true # it may have ended by itself
	finish server
}

@test "the advice that no program of the lessons runs into" {
	local what

	provoked() {
		run --separate-stderr on client build/peers/provoke "$1" "$ADDR_SERVER"
		assert_success
		assert_equal "$stderr" "$2"
	}
	for what in reg-rights reg-empty; do
		provoked $what 'ibv_reg_mr: Invalid argument: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE beside them, and a region has one byte at least'
	done
	for what in reg-unmapped reg-readonly; do
		provoked $what 'ibv_reg_mr: Bad address: the range is not mapped, or not writable'
	done
	provoked qp 'rdma_create_qp: Invalid argument: the peer has left already, or the device has not as much as we ask for'
	serve "$bad" --receives 0 --messages 0 --times 2
	provoked send-full 'ibv_post_send: Cannot allocate memory: the send queue is full: reap completions first'
	provoked recv-full 'ibv_post_recv: Cannot allocate memory: the receive queue is full: post fewer, or ask for a deeper one'
	finish server
}

@test "usage: wrong words are refused, and --help is not" {
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
