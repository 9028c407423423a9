#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 15: many clients, one thread, one shared receive queue, and clients that
# are no good.

load ../helpers
load turns

# For this file, in seconds.
export BATS_TEST_TIMEOUT=180

setup_file() {
	build asan-O0/15-many-clients gcc-O0/15-many-clients \
		gcc-O2/15-many-clients clang-O2/15-many-clients \
		build/peers/badclient build/peers/badserver
}

setup() {
	server=build/asan-O0/15-many-clients/server
	client=build/asan-O0/15-many-clients/client
	plain=build/gcc-O2/15-many-clients
	bad=build/peers/badclient
}

teardown() {
	undo
	assert_nothing_left
}

# How many the server says that came, were there at most, were refused, answered,
# dropped.
totals() {
	[[ $output =~ ([0-9]+)\ clients\ came,\ ([0-9]+)\ at\ a\ time\ at\ most,\ and\ ([0-9]+)\ were\ refused\;\ ([0-9]+)\ answers\;\ ([0-9]+)\ clients\ dropped ]] ||
		fail "no totals in: $output"
	came=${BASH_REMATCH[1]} most=${BASH_REMATCH[2]} refused=${BASH_REMATCH[3]}
	answers=${BASH_REMATCH[4]} dropped=${BASH_REMATCH[5]}
}

@test "the pair runs, as make run shows it" {
	run pair 15 --clients 16
	assert_success
	assert_line 'server | 256 slots of 256 bytes in one queue, 4 requests of a client at a time'
	assert_line --regexp '^client \| 16 connections in '
	assert_line --regexp '^client \| 1600 requests of 64 bytes answered, every byte right: '
	assert_line --regexp '^server \| 16 clients came, .*; 1600 answers; 0 clients dropped$'
}

@test "sizes, windows and counts, in every build, over IPv6 too" {
	local asan=build/asan-O0/15-many-clients
	local o0=build/gcc-O0/15-many-clients clang=build/clang-O2/15-many-clients n

	one_by_one "$o0/server --once|$o0/client --clients 3 -n 20" \
		"$clang/server --once|$clang/client --clients 3 -n 20" \
		"$plain/server --once|$plain/client --clients 3 -n 20|$ADDR6_SERVER" \
		"$asan/server --once|$asan/client --clients 4 -n 20 -s 4 --window 1" \
		"$asan/server --once --window 16|$plain/client --clients 4 -n 40 -s 256" \
		"$plain/server --once|$asan/client --clients 4 -n 0" \
		"$plain/server --once|$asan/client --window 5" \
		"$asan/server --once --window 2|$plain/client --clients 2 -n 10"
	said client 0 '60 requests of 64 bytes answered, .*' 'status 0'
	said server 0 'status 0'
	said client 1 '60 requests of 64 bytes answered, .*' 'status 0'
	said server 1 'status 0'
	said client 2 '60 requests of 64 bytes answered, .*' 'status 0'
	said client 3 '80 requests of 4 bytes answered, .*' 'status 0'
	said client 4 '160 requests of 256 bytes answered, .*' 'status 0'
	said client 5 '0 requests of 64 bytes answered, .*' 'status 0'
	said client 6 '! --window 5 is more than the server allows, which is 4' 'status 1'
	said client 7 '20 requests of 64 bytes answered, .*' 'status 0'
	for n in 2 3 4 5 6 7; do
		said server $n 'status 0'
	done
}

@test "64 clients at once are all served" {
	LIMIT=110 serve "$server" --once -t 60
	LIMIT=100 run --separate-stderr on client "$plain/client" -t 60 --clients 64 -n 20 "$ADDR_SERVER"
	assert_success
	assert_line --regexp '^64 connections in '
	assert_line --regexp '^1280 requests of 64 bytes answered'
	finished 0
	totals
	assert_equal "$came $most $refused $answers $dropped" '64 64 0 1280 0'
}

# So few that no packet is lost for want of room, which costs its client seconds.
@test "of eight clients at work none is through long before another" {
	serve "$plain/server" --once -t 30
	run --separate-stderr on client "$plain/client" -t 30 --clients 8 -n 100 "$ADDR_SERVER"
	assert_success
	[[ $output =~ "the others had "([0-9]+)" to "[0-9]+" of 100" ]]
	[ "${BASH_REMATCH[1]}" -ge 25 ]
	finished 0
}

@test "300 clients one after another, and what they used is used again" {
	serve "$plain/server" --slots 16
	run --separate-stderr on client "$plain/client" --clients 300 --at-once 1 -n 1 \
		"$ADDR_SERVER"
	assert_success
	assert_line --regexp '^300 requests of 64 bytes answered, every byte right'
	signal_job peer TERM
	finished 0
	totals
	assert_equal "$came $refused $answers $dropped" '300 0 300 0'
}

@test "more requests under way than there are slots: they wait, and are right" {
	serve "$server" --once --slots 8 -t 30
	run --separate-stderr on client "$plain/client" -t 30 --clients 16 -n 30 "$ADDR_SERVER"
	assert_success
	assert_line --regexp '^480 requests of 64 bytes answered, every byte right'
	finished 0
}

# The bad ones all come while six good ones are at work.
@test "clients that stall, die, send rubbish or never leave harm nobody else" {
	serve "$server" -t 6
	LIMIT=40 start client bad sh -c '
		bad=$0 to=$1
		ask() { "$bad" "$@" "$to" & }
		ask --at resolved --do exit
		ask --at request --do exit
		ask --at request --do stall -t 30
		ask --at established --do stall -t 30
		ask --at established --do kill
		ask --text "ASK me" --messages 4 --at sent --do kill
		ask --text rubbish --receives 1 --echo
		ask --text "ASK" --receives 1 --echo
		ask --size 300 --at failed --do stall -t 30
		ask --size 0 --receives 1 --echo
		ask --text "ASK no receive" --messages 3 --rnr-retry 0 --at sent --do stall -t 30
		ask --text "ASK for ever" --messages 5 --rnr-retry 7 --at sent --do stall -t 30
		ask --text "ASK and ask" --messages 1000 --rnr-retry 7
		ask --text "ASK nicely" --receives 1 --echo --messages 3
		echo all are there
		wait' "$bad" "$ADDR_SERVER"
	wait_line bad '^all are there'
	run --separate-stderr on client "$plain/client" -t 30 --clients 6 -n 100 "$ADDR_SERVER"
	assert_success
	assert_line --regexp '^600 requests of 64 bytes answered, every byte right'

	# Wait until the last of the bad ones has been noticed, and come again.
	wait_errors peer 3 '^dropped .*: what it sent is no request'
	wait_errors peer 1 '^dropped .*: its message could not be received'
	wait_errors peer 3 '^dropped .*: nothing heard of it for 6 s'
	wait_errors peer 1 '^dropped .*: its answer did not arrive: RNR retry counter exceeded, status 13'
	wait_errors peer 1 '^dropped .*: it has more requests under way than it may'
	on server sh -c 'for i in $(seq 100); do
			rdma resource show qp | grep -q " pid [0-9]" || exit 0
			sleep 0.1
		done
		exit 1'
	run --separate-stderr on client "$plain/client" --clients 2 -n 10 "$ADDR_SERVER"
	assert_success
	on client pkill -KILL -x badclient || true # those that stall on
	signal_job peer TERM
	finished 0
	assert_line 'Terminated: 0 clients to say goodbye to'
	[ "$(grep -c '^dropped .*: what it sent is no request' <<<"$stderr")" = 3 ]
	[ "$(grep -c '^dropped .*: its message could not be received' <<<"$stderr")" = 1 ]
	refute grep -qvE '^(dropped |rdma_|$)' <<<"$stderr"
}

@test "a machine that freezes is noticed, and its place is free again" {
	serve "$server" -t 3
	# One at a time leaves the node time for others.
	start client frozen "$plain/client" --clients 4 -n 1000000 --window 1 "$ADDR_SERVER"
	wait_line frozen '^4 connections'
	freeze client
	wait_errors peer 4 '^dropped '
	thaw
	finish frozen
	assert_equal "$status" 1
	[ -n "$stderr" ]
	run on client "$plain/client" --clients 4 -n 5 "$ADDR_SERVER"
	assert_success
	signal_job peer TERM
	finished 0
}

# wait_errors NAME COUNT REGEX: until so many lines on its stderr match
wait_errors() {
	local deadline=$((SECONDS + 30))

	until [ "$(grep -cE "$3" "$BATS_TEST_TMPDIR/$1.err")" -ge "$2" ]; do
		[ $SECONDS -lt $deadline ] || {
			printf 'not %s times: %s\n' "$2" "$3"
			show_job "$1"
			return 1
		}
		sleep 0.1
	done
}

@test "SIGTERM: what has come is answered, all get a goodbye, and the sums agree" {
	local ended counted

	serve "$server" -t 20
	start client many "$client" -t 20 --clients 12 -n 1000000 "$ADDR_SERVER"
	wait_line many '^12 connections'
	signal_job peer TERM
	finished 0
	assert_line 'Terminated: 12 clients to say goodbye to'
	totals
	assert_equal "$came $dropped" '12 0'
	finish many
	assert_equal "$status" 1
	assert_line '12 of 12 connections failed'
	ended=$(grep -c '^client [0-9]*: the server ended the connection after' <<<"$stderr")
	assert_equal "$ended" 12
	# Each answer of which the server knows that it arrived was counted there.
	counted=$(sed -nE 's/^client .* after ([0-9]+) of .*/\1/p' <<<"$stderr" |
		awk '{ n += $1 } END { print n }')
	assert_equal "$counted" "$answers"
	[ "$answers" -gt 0 ]
}

@test "a second SIGTERM ends it at once, and Ctrl-C the client" {
	# A client that takes no answer, and one of three connections.
	begin_cases at_once \
		"$server -t 30|$bad --rnr-retry 7 --receives 0 --text 'ASK me' --messages 2 --at sent --do stall" \
		"$server --once|tests/lessons/when INT '3 connections*' $client --clients 3 -n 1000000"
	wait_case client 0 stalling
	signal_cases server TERM 0
	wait_case server 0 'Terminated: 1 clients'
	signal_cases server TERM 0
	wait_case server 0 'status '
	signal_cases client TERM 0
	finish_cases
	said server 0 'status 0'
	said client 1 '! stopped by Interrupt' 'status 1'
	said server 1 'status 0'
}

@test "one client too many, and another server or none, are told from one another" {
	begin_cases at_once "$server --once --clients 2|$client --clients 4 -n 5" \
		"build/peers/badserver --at established --do stall|$client" \
		"echo listening on nothing|$client --clients 3"
	wait_case client 1 '! '
	signal_cases server TERM 1
	finish_cases
	said client 0 '10 requests of 64 bytes answered.*' '2 of 4 connections failed' 'status 1'
	[ "$(grep -c 'RDMA_CM_EVENT_REJECTED, status 28' <<<"${from_client[0]}")" = 2 ]
	[ "$(grep -c '^! the server says: full' <<<"${from_client[0]}")" = 2 ]
	said server 0 'status 0'
	output=${from_server[0]}
	totals
	assert_equal "$came $refused" '2 2'
	said client 1 "! the server's private data does not begin with LESSON15: is it the server of this lesson\\?" 'status 1'
	said client 2 'status 1'
	[ "$(grep -c '^! client [0-2]: RDMA_CM_EVENT_REJECTED, status 8' <<<"${from_client[2]}")" = 3 ]
}

@test "with packets lost every answer is right" {
	impair loss 1%
	serve "$plain/server" --once -t 30
	run --separate-stderr on client "$plain/client" -t 30 --clients 8 -n 50 "$ADDR_SERVER"
	assert_success
	assert_line --regexp '^400 requests of 64 bytes answered, every byte right'
	finished 0
	totals
	assert_equal "$dropped $answers" "0 400"
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local args program

	for args in '' '--clients 0 x' '--clients 10001 x' '--at-once 0 x' \
		'--size 3 x' '--size 257 x' '--window 17 x' '--count x x' 'one two'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '--slots 0' '--slots 4097' '--window 0' '--clients 1025' \
		'-t 0' '-p 0'; do
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
