#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The ladder of packets.

load ../helpers

setup() {
	work=$BATS_TEST_TMPDIR
}

teardown() {
	lab/lab impair clear >/dev/null 2>&1 || true
	assert_nothing_left
}

# wire LESSON [ARG...]: make wire. $output is the ladder, $work/sequence what is
# the same in every run, $work/wire.svg the picture.
wire() {
	local lesson=$1

	shift
	run --separate-stderr env SVG="$work/wire.svg" \
		SEQUENCE="$work/sequence" PCAP="$work/wire.pcap" \
		tools/wire/wire "$lesson" -- "$@"
}

# names: of the packets in $output, in order, without what varies
names() {
	sed -nE 's/^ *[0-9.]+ ms \|(-- (.*) -+>|<-+ (.*) --)\|.*/\2\3/p' \
		<<<"$output"
}

@test "the packets of lessons 01 and 02" {
	wire 02
	assert_success
	assert_equal "$(names)" "$(printf '%s\n' 'CM ConnectRequest' \
		'CM ConnectReply' 'CM ReadyToUse' 'SEND Only' Acknowledge \
		'CM DisconnectRequest' 'CM DisconnectReply')"
	assert_line --regexp '-- CM ConnectRequest -+>\|  port 10121, QP [0-9]+, PSN from [0-9]+, retry 6'
	assert_line --regexp '\|-- SEND Only -+>\|  PSN [0-9]+, 10 bytes$'
	assert_line --regexp '\|<-+ Acknowledge --\|  PSN [0-9]+$'
	assert_equal "$(<"$work/sequence")" "$(printf '%s\n' \
		'CM client ConnectRequest' 'CM server ConnectReply' \
		'CM client ReadyToUse' 'CM Disconnect' 'client SEND Only 10' \
		'server acknowledged: all')"
	# The acknowledgement has the number of what it acknowledges.
	assert_equal "$(grep -oE 'PSN [0-9]+(,|$)' <<<"$output" | tr -d , |
		sort -u | wc -l)" 1
	# What is kept is a capture, and shows the same.
	local first=$output
	run --separate-stderr env FROM="$work/wire.pcap" tools/wire/wire 02
	assert_output "$first"
}

@test "over IPv6 the sides are told apart as well" {
	IPV=6 wire 02
	assert_success
	assert_line --regexp '\|-- SEND Only -+>\|'
	assert_line --regexp '\|<-+ Acknowledge --\|'
}

@test "the picture has the same packets, and what it was made of" {
	wire 02
	assert_success
	run cat "$work/wire.svg"
	assert_line --index 0 --regexp '^<svg .*role="img"'
	assert_line --partial 'client: CM ConnectRequest'
	assert_line --partial 'prefers-color-scheme: dark'
	assert_equal "$(tail -n 1 "$work/wire.svg")" '</svg>'
	assert_equal "$(grep -c 'class="\(cm\|request\|ack\)" x1' \
		"$work/wire.svg")" 7
	assert_equal "$(sed -n '/^<metadata>$/,/^<\/metadata>$/{//!p;}' \
		"$work/wire.svg")" "$(<"$work/sequence")"
	# Every element is closed.
	assert_equal "$(grep -o '<text' "$work/wire.svg" | wc -l)" \
		"$(grep -o '</text>' "$work/wire.svg" | wc -l)"
}

@test "a WRITE of several packets, with its address and key" {
	[ -d lessons/06-memory ] || skip "there is no lesson 06"
	wire 06 --size 5000
	assert_success
	assert_line --regexp 'RDMA WRITE First -+>\|  PSN [0-9]+, 1024 bytes of 5000 to 0x[0-9a-f]+ rkey 0x[0-9a-f]+$'
	assert_line --regexp 'RDMA WRITE Middle x 3 -+>\|  PSN [0-9]+ to [0-9]+, 3072 bytes$'
	assert_line --regexp 'RDMA WRITE Last -+>\|  PSN [0-9]+, 904 bytes$'
	assert_equal "$(grep WRITE "$work/sequence")" "$(printf '%s\n' \
		'client RDMA WRITE First 1024' \
		'client RDMA WRITE Middle 1024 x 3' \
		'client RDMA WRITE Last 904')"
	# A wrong key is refused, and the picture says why.
	wire 06 --wrong rkey
	assert_line --regexp '<-+ NAK --\|  PSN [0-9]+, remote access error$'
	grep -q '^server NAK remote access error$' "$work/sequence"
}

@test "two runs have the same sequence, also where packets get lost" {
	[ -d lessons/05-ping-pong ] || skip "there is no lesson 05"
	wire 05 --count 12
	assert_success
	cp "$work/sequence" "$work/first"
	grep -q '^client SEND Only 1024 x 12$' "$work/first"
	wire 05 --count 12
	assert_equal "$(<"$work/sequence")" "$(<"$work/first")"
	wire 05 --count 11
	[ "$(<"$work/sequence")" != "$(<"$work/first")" ]
	lab/lab impair loss 15%
	wire 05 --count 12
	assert_success
	# Lost requests come again. The last acknowledgement may be lost for good.
	assert_equal "$(grep -v acknowledged "$work/sequence")" \
		"$(grep -v acknowledged "$work/first")"
}

@test "no receive: the refusal says how long to wait, and the message comes again" {
	[ -d lessons/05-ping-pong ] || skip "there is no lesson 05"
	SERVER_ARGS='--slots 1 --slow 50 --min-rnr-timer 24' \
		wire 05 --count 2 --window 2
	assert_success
	assert_line --regexp '<-+ RNR NAK --\|  PSN [0-9]+, not ready: wait [0-9.]+ ms$'
	assert_line --regexp 'SEND Only \(again\) -+>\|'
	grep -q '^server RNR NAK$' "$work/sequence"
}

@test "READ, atomics and datagrams" {
	make -s -C lessons/02-server
	lab/lab capture "$work/wire.pcap"
	for tool in ib_read_lat ib_atomic_lat ib_send_lat; do
		args=(-d rxe0 -n 5)
		[ $tool != ib_send_lat ] || args+=(-c UD)
		[ $tool != ib_read_lat ] || args+=(-s 3000)
		start server "$tool" "$tool" "${args[@]}"
		# Port 18515, where the two talk first.
		on server sh -c 'for i in $(seq 200); do
			grep -q ":4853 .* 0A " /proc/net/tcp /proc/net/tcp6 &&
				exit 0; sleep 0.05; done; exit 1'
		on client "$tool" "${args[@]}" "$ADDR_SERVER" >/dev/null
		finish "$tool"
	done
	lab/lab capture stop
	run --separate-stderr env FROM="$work/wire.pcap" tools/wire/wire 02
	assert_success
	assert_line --regexp 'RDMA READ Request -+>\|  PSN [0-9]+, 3000 bytes from 0x[0-9a-f]+ rkey 0x'
	assert_line --regexp '<-+ RDMA READ Response First --\|  PSN [0-9]+, 1024 bytes$'
	assert_line --regexp '<-+ RDMA READ Response Last --\|  PSN [0-9]+, 952 bytes$'
	assert_line --regexp 'FetchAdd -+>\|  PSN [0-9]+, at 0x[0-9a-f]+ rkey 0x[0-9a-f]+, add 0x'
	assert_line --regexp '<-+ ATOMIC Acknowledge --\|  PSN [0-9]+, was 0x'
	assert_line --regexp '-- SEND Only -+>\|  PSN [0-9]+, 2 bytes, from QP [0-9]+$'
}

@test "a refused connection, and who refused it" {
	make -s -C lessons/01-client
	lab/lab capture "$work/wire.pcap"
	run on client lessons/01-client/client -p 10199 "$ADDR_SERVER"
	lab/lab capture stop
	run --separate-stderr env FROM="$work/wire.pcap" tools/wire/wire 01
	assert_line --regexp '<-+ CM ConnectReject --\|  reason 8: nobody listens'
}

@test "what went wrong in a run is shown, with its packets" {
	SERVER_ARGS='-t 2' wire 02 -p 10199
	assert_failure
	[[ $stderr == *'the run failed (status 1)'* ]]
	[[ $stderr == *REJECTED* ]]
	assert_line --partial 'CM ConnectReject'
}

@test "no capture goes on after a run, nor after one that was interrupted" {
	local wire_pid

	wire 02
	run lab/lab capture stop
	assert_failure 125
	tools/wire/wire 02 -- -t 60 >/dev/null 2>&1 3>&- &
	wire_pid=$!
	for _ in $(seq 100); do
		lab/lab status | grep -q '^capture' && break
		sleep 0.1
	done
	kill -TERM "$wire_pid"
	wait "$wire_pid" || true
	run lab/lab capture stop
	assert_failure 125
}

@test "make wire refuses what it cannot do" {
	local args

	for args in '' '99' '02 03' '--nonsense'; do
		# shellcheck disable=SC2086 # none, one or two words
		run --separate-stderr tools/wire/wire $args
		assert_failure 2
		[[ $stderr == *usage:* ]]
	done
	LAB=native run tools/wire/wire 02
	assert_failure 2
	FROM=nonsense.pcap run tools/wire/wire 02
	assert_failure 2
	run tools/wire/figures nonsense
	assert_failure 2
}

@test "the pictures in the lessons are of what runs today" {
	compgen -G 'lessons/*/wire.svg' >/dev/null || skip "none is drawn yet"
	tools/wire/figures --check
}
