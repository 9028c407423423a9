#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 05: many messages both ways, and what happens when a receive is missing.

load ../helpers
load turns

setup_file() {
	build asan-O0/05-ping-pong asan-O2/05-ping-pong gcc-O2/05-ping-pong peers
}

# The side that a test is about is the one with the sanitizers.
setup() {
	plain=build/gcc-O2/05-ping-pong
	server=build/asan-O0/05-ping-pong/server
	client=build/asan-O0/05-ping-pong/client
	peers=build/peers
}

teardown() {
	undo
	assert_nothing_left
}

@test "a hundred messages go there and back" {
	run pair 05
	assert_success
	assert_line 'server | 8 slots of 1048576 bytes, 4 of them posted'
	assert_line 'client | 100 messages of 1024 bytes, 4 at a time'
	assert_line 'client | our card was told RNR 0 times'
	assert_line --regexp '^client \| all came back, every byte right: '
	assert_line --regexp '^server \| the client disconnected: 100 messages came and were sent back, [0-4] answers not yet acknowledged$'
}

@test "the pair runs in every build, over IPv4 and IPv6" {
	local n o2=build/asan-O2/05-ping-pong

	one_by_one "$server|$client --count 20|$ADDR6_SERVER" \
		"$o2/server|$o2/client --count 20"
	for n in 0 1; do
		said client $n 'all came back, every byte right: .*' 'status 0'
		said server $n 'the client disconnected: 20 messages came and were sent back, .*' \
			'status 0'
	done
}

@test "messages of 0 bytes to 1 MiB come back with every byte right" {
	local size count slots n=0 sizes=(0 1 1023 1024 1025 4096 65536 1048576) all=()

	for size in "${sizes[@]}"; do
		# Long messages go one by one: on a machine that is so busy that
		# acknowledgements come late, SoftRoCE cannot do more. One size
		# just fits into a slot.
		slots=1048576
		[ "$size" != 1025 ] || slots=1025
		if [ "$size" = 1025 ]; then
			all+=("-t 30 --size $slots|-t 30 --size $size --count 9 --window 1")
		elif [ "$size" -lt 4096 ]; then
			all+=("-t 30 --size $slots|-t 30 --size $size --count 9")
		else
			all+=("-t 30|-t 30 --size $size --count 3 --window 1")
		fi
	done
	turns "$plain" "${all[@]}"
	for size in "${sizes[@]}"; do
		count=$((size < 4096 ? 9 : 3))
		said client $n "$count messages of $size bytes, . at a time" \
			'all came back, every byte right: .*' 'status 0'
		said server $n "the client disconnected: $count messages came and were sent back, .*" \
			'status 0'
		n=$((n + 1))
	done
}

@test "as many under way as there are receives: nobody is told RNR" {
	local n

	turns "$plain" '--slots 1|--window 1' '--slots 2|--window 2' \
		'--slots 32|--window 32 --count 200'
	for n in 0 1 2; do
		said client $n 'our card was told RNR 0 times' 'status 0'
		said server $n 'status 0'
	done
	said server 2 '64 slots of 1048576 bytes, 32 of them posted'
}

@test "too few receives: RNR, and with retries that last every message arrives" {
	one_by_one "$server --slots 1 --slow 20 --rnr-retry 6 --min-rnr-timer 26|$plain/client --count 10" \
		"$server --slots 1 --slow 20|$client --count 3"
	said client 0 'our card was told RNR [1-9][0-9]* times' \
		'all came back, every byte right: .*' 'status 0'
	said server 0 'status 0'
	# With the timer as the CM leaves it, an RNR takes 655 ms. On some
	# kernels the acknowledgement timer may end the wait.
	if [[ ${from_client[1]} =~ right:\ ([0-9]+)\. ]]; then
		[ "${BASH_REMATCH[1]}" -ge 655 ]
	else
		said client 1 '! .*, status 12, .*' 'status 1'
	fi
}

@test "too few receives, and retries that do not last; a message longer than the receive" {
	local error='! completion of the SEND \(wr_id [0-9]+\): RNR retry counter exceeded, status 13, vendor syndrome 0x0: the peer has no receive posted: it must post before we send'

	one_by_one "$plain/server --slots 1 --slow 50 --rnr-retry 0|$client" \
		"$plain/server --slots 1 --slow 200 --min-rnr-timer 12|$client" \
		"$server --size 1023|$client"
	said client 0 "$error" 'our card was told RNR 1 times' 'status 1'
	# Messages behind it in the window may be told so, too.
	said client 1 "$error" 'our card was told RNR ([4-9]|1[0-9]) times' \
		'status 1'
	said server 0 'the client disconnected: [0-9]+ messages came and were sent back, .*' \
		'status 0'
	said server 1 'status 0'

	# Both sides get an error.
	said client 2 '! completion of the SEND \(wr_id [0-9]+\): .*, status (9|11), .*' \
		'status 1'
	said server 2 '! completion of the receive \(wr_id [0-9]+\): .*, status (1|2), .*' \
		'status 1'
}

# What the kernel takes from a dead process first is a matter of chance: its
# connection, or the memory that its receives point to.
@test "a side that is killed in the middle ends the other" {
	begin_cases at_once "$plain/server|$client --count 1000000" \
		"$server|$plain/client --count 1000000"
	wait_case client 0 '1000000 messages'
	signal_cases server KILL 0
	wait_case client 1 '1000000 messages'
	signal_cases client KILL 1
	finish_cases
	said client 0 'status 1' \
		'! (the peer disconnected after [0-9]+ of 1000000 answers|completion of the SEND .*, status (9|11|12), .*)'
	said server 1 'status [01]' \
		'(the client disconnected: [0-9]+ messages came and were sent back, [0-9]+ answers not yet acknowledged|! completion of the SEND .*, status (9|11|12), .*)'
}

# Those that stall are ended when the others have said what they have to say. The
# last is in the middle of it when the server's machine freezes.
@test "a server that refuses, leaves, dies, says nothing more or freezes, at each stage" {
	local n=0 text bad="$peers/badserver --receives 16 --at"

	begin_cases at_once "$bad request --do reject|$client" \
		"$bad request --do kill|$client" \
		"$bad request --do stall|$client -t 4" \
		"$bad established --do stall|$client -t 4" \
		"$bad established --do leave|$client" \
		"$bad received --do kill|$client --window 1" \
		"$plain/server|$client -t 4 --count 1000000"
	for n in 0 1 4 5; do
		wait_case client $n 'status '
	done
	wait_case server 2 stalling
	wait_case server 3 stalling
	wait_case client 6 '1000000 messages'
	freeze server
	for n in 2 3 6; do
		wait_case client $n 'status '
	done
	thaw
	signal_cases server KILL
	finish_cases
	n=0
	while read -r text; do
		said client $n "! $text" 'status 1'
		n=$((n + 1))
	done <<-'END'
		.*RDMA_CM_EVENT_REJECTED, status 28: consumer reject.*
		.*RDMA_CM_EVENT_REJECTED, status 28: consumer reject.*
		waited 4 s for RDMA_CM_EVENT_ESTABLISHED and nothing came.*
		waited 4 s for a completion and none came: is the peer frozen.*
		the peer disconnected after 0 of 100 answers
		the peer disconnected after 0 of 100 answers
	END
	# Which of the two depends on what had been acknowledged by then.
	said client 6 'status 1' \
		'! (completion of the SEND .*: transport retry counter exceeded, status 12, .*|waited 4 s for a completion and none came: is the peer frozen.*)'
}

@test "a client that leaves, dies, says nothing more or freezes, at each stage" {
	local n=0 wanted text bad="$peers/badclient --echo --receives 4 --at"

	begin_cases at_once "$server -t 5|$bad request --do kill" \
		"$server|$bad established --do kill" \
		"$server -t 5|$bad established --do stall" \
		"$server|$bad sent --do leave" \
		"$server -t 5|$bad sent --do stall" \
		"$server -t 5|$plain/client --count 1000000"
	wait_case server 1 'status '
	wait_case server 3 'status '
	wait_case client 2 stalling
	wait_case client 4 stalling
	wait_case client 5 '1000000 messages'
	freeze client
	for n in 0 2 4 5; do
		wait_case server $n 'status '
	done
	thaw
	signal_cases client KILL
	finish_cases
	n=0
	while read -r wanted text; do
		said server $n "$text" "status $wanted"
		n=$((n + 1))
	done <<-'END'
		1 ! (waited 5 s for|rdma_accept|rdma_create_qp|rdma_get_cm_event: waited for RDMA_CM_EVENT_ESTABLISHED, got).*
		0 the client disconnected: 0 messages came .*
		1 ! waited 5 s for a completion and none came: is the peer frozen.*
		0 the client disconnected: 1 messages came and were sent back.*
		1 ! waited 5 s for a completion and none came: is the peer frozen.*
		1 ! (completion of the SEND .*, status 12, .*|waited 5 s for a completion and none came: is the peer frozen.*)
	END
}

@test "packets are lost, one or five in a hundred: every byte is right, or it is said" {
	local pair="$plain/server -t 30|$client -t 30 --count"
	local back='the client disconnected: [0-9]+ messages came and were sent back, .*'

	impair loss 1%
	one_by_one "$pair 100" "$pair 100 --size 4096 --window 1"
	after_loss 0 1 "$back"
	after_loss 1 1 "$back"
	# The client stays until it has its answers, so no handshake is missed.
	[ "$right" = 2 ]
	said client 0 'all came back, every byte right: .*'
	said client 1 'all came back, every byte right: .*'

	impair loss 5%
	one_by_one "$pair 10 --size 1024" "$pair 10 --size 131072 --window 1"
	after_loss 0 5 "$back"
	after_loss 1 5 "$back"
	refute grep -r 'came back wrong' "$BATS_TEST_TMPDIR"
}

@test "answers that are wrong, too short or too many are noticed; any client is echoed" {
	local bad="$peers/badserver --receives"

	one_by_one "$bad 16 --messages 20 --echo --size 1024|$client" \
		"$bad 16 --messages 20 --echo --size 10|$client" \
		"$bad 0 --unasked 2 --size 0|$client --size 0 --count 1" \
		"$server|$peers/badclient --echo --receives 1 --receive-size 4096 --messages 5 --text 'of another program'"
	said client 0 '! message 0 came back wrong from byte .* on' 'status 1'
	erred client 1 'message 0 has 1024 bytes, and its answer 10: is the peer the server of this lesson?'
	# No receive for our one message, and two that answer it.
	erred client 2 'a message came that answers none of ours: is the peer the server of this lesson?'

	said client 3 'received 18 bytes' 'status 0'
	said server 3 '.*5 messages came and were sent back.*' 'status 0'
}

@test "Ctrl-C and SIGTERM end both sides, while they wait and at work" {
	begin_cases at_once "$server -t 50|true" \
		"$plain/server|$client --count 1000000" \
		"$server --slow 1000|$plain/client"
	wait_case server 0 listening
	wait_case client 1 '1000000 messages'
	wait_case client 2 '100 messages'
	signal_cases client INT 1
	signal_cases server INT 0
	signal_cases server TERM 2
	finish_cases
	erred server 0 'stopped by Interrupt'
	said client 1 '! stopped by Interrupt' 'status 1'
	said server 1 'status 0'
	said server 2 '! stopped by Terminated' 'status 1'
	said client 2 'status 1'
}

@test "the default pool is what a user who is not root may pin" {
	[ "${LAB:-vm}" = vm ] || skip "only on the virtual machines"
	local nobody="setpriv --reuid 65534 --clear-groups prlimit --memlock=8388608"

	one_by_one "$nobody $plain/server|$plain/client --count 5" \
		"$nobody $plain/server --slots 5|$plain/client --count 5"
	said client 0 'status 0'
	said server 0 'status 0'
	said client 1 'status 1'
	said server 1 'status 1' \
		'! ibv_reg_mr: Cannot allocate memory: more memory than RLIMIT_MEMLOCK lets us pin.*'
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local args program

	for args in '' '--count 0 x' '--count 1x x' '--size -1 x' \
		'--size 1048577 x' '--window 0 x' '--window 33 x' '-z x' 'one two' \
		'-t 0 x'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '--slots 0' '--slots 33' '--size 0' '--size 1048577' \
		'--slow 1001' '--rnr-retry 8' '--min-rnr-timer 32' '-p 0'; do
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
