#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The ladder of packets.

load ../helpers

# The pictures of all lessons are drawn in one of them.
export BATS_TEST_TIMEOUT=300

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

@test "the packets of lessons 01 and 02, and their picture; no capture goes on after the run" {
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
	run lab/lab capture stop
	assert_failure 125
	# The picture has the same packets, and what it was made of.
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

@test "a WRITE of several packets, with its address and key; over IPv6, where the sides are told apart as well" {
	[ -d lessons/06-memory ] || skip "there is no lesson 06"
	IPV=6 wire 06 --size 5000
	assert_success
	assert_line --regexp 'RDMA WRITE First -+>\|  PSN [0-9]+, 1024 bytes of 5000 to 0x[0-9a-f]+ rkey 0x[0-9a-f]+$'
	assert_line --regexp 'RDMA WRITE Middle x 3 -+>\|  PSN [0-9]+ to [0-9]+, 3072 bytes$'
	assert_line --regexp 'RDMA WRITE Last -+>\|  PSN [0-9]+, 904 bytes$'
	assert_line --regexp '\|<-+ Acknowledge --\|'
	assert_equal "$(grep WRITE "$work/sequence")" "$(printf '%s\n' \
		'client RDMA WRITE First 1024' \
		'client RDMA WRITE Middle 1024 x 3' \
		'client RDMA WRITE Last 904')"
	# A wrong key is refused, and the picture says why.
	wire 06 --wrong rkey
	assert_line --regexp '<-+ NAK --\|  PSN [0-9]+, remote access error$'
	grep -q '^server NAK remote access error$' "$work/sequence"
}

# That two runs have the same sequence: the pictures in the lessons, below.
@test "a run that loses packets has the sequence of one that does not" {
	[ -d lessons/05-ping-pong ] || skip "there is no lesson 05"
	wire 05 --count 12
	assert_success
	cp "$work/sequence" "$work/first"
	# A run with another number would differ.
	grep -q '^client SEND Only 1024 x 12$' "$work/first"
	# A message that is lost seven times in a row would end the run: with a
	# tenth, that is one run in several thousand. The connection manager waits
	# 4 s before it asks again, so two losses of its own are more than the
	# programs wait of themselves.
	lab/lab impair loss 10%
	SERVER_ARGS='-t 60' wire 05 --count 12 -t 60
	# The client goes when it has its answers. With its last acknowledgement and
	# its goodbye lost, which is one run in a hundred, the server hears of neither.
	((status == 0)) || [[ $stderr == *'client | all came back, every byte right'*'status 12, '* ]] ||
		fail "$stderr"
	# Lost requests come again. The last acknowledgement may be lost for good.
	assert_equal "$(grep -v acknowledged "$work/sequence")" \
		"$(grep -v acknowledged "$work/first")"
}

@test "no receive: the refusal says how long to wait, and the message comes again" {
	[ -d lessons/05-ping-pong ] || skip "there is no lesson 05"
	SERVER_ARGS='--slots 1 --slow 300 --min-rnr-timer 27 --rnr-retry 6' \
		wire 05 --count 2 --window 2
	assert_success
	assert_line --regexp '<-+ RNR NAK --\|  PSN [0-9]+, not ready: wait [0-9.]+ ms$'
	assert_line --regexp 'SEND Only \(again\) -+>\|'
	grep -q '^server RNR NAK$' "$work/sequence"
}

@test "READ, atomics and datagrams" {
	make -s -C lessons/02-server
	lab/lab capture "$work/wire.pcap"
	# Ports 18515 to 18517, where the two talk first.
	start server tools sh -c 'ib_read_lat -d rxe0 -n 5 -s 3000 -p 18515 &
		ib_atomic_lat -d rxe0 -n 5 -p 18516 &
		ib_send_lat -d rxe0 -n 5 -c UD -p 18517 &
		wait'
	on server sh -c 'for i in $(seq 200); do
		[ "$(cat /proc/net/tcp /proc/net/tcp6 |
			grep -c ":485[345] .* 0A ")" != 3 ] || exit 0
		sleep 0.05; done; exit 1'
	on client sh -c 'set -e
		ib_read_lat -d rxe0 -n 5 -s 3000 -p 18515 "$0"
		ib_atomic_lat -d rxe0 -n 5 -p 18516 "$0"
		ib_send_lat -d rxe0 -n 5 -c UD -p 18517 "$0"' "$ADDR_SERVER" >/dev/null
	finish tools
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

@test "a run that goes wrong is shown, with its packets: a refused connection, and who refused it" {
	SERVER_ARGS='-t 1' wire 02 -p 10199
	assert_failure
	[[ $stderr == *'the run failed (status 1)'* ]]
	[[ $stderr == *REJECTED* ]]
	assert_line --regexp '<-+ CM ConnectReject --\|  reason 8: nobody listens'
}

@test "no capture goes on after a run that was interrupted" {
	local wire_pid

	# Its server has no client: it goes on until it is ended.
	SERVER_ARGS='-t 60' tools/wire/wire 02 -- -h >/dev/null 2>&1 3>&- &
	wire_pid=$!
	for _ in $(seq 300); do
		! lab/lab status | grep -q '^capture' || break
		sleep 0.1
	done
	lab/lab status | grep -q '^capture'
	kill -TERM "$wire_pid"
	wait "$wire_pid" || true
	run lab/lab capture stop
	assert_failure 125
	assert_output 'lab: no capture is running'
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
	tools/wire/figures --check
}
