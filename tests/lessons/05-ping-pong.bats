#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 05: many messages both ways, and what happens when a receive is missing.

load ../helpers
load turns

setup_file() {
	build asan-O0/05-ping-pong asan-O2/05-ping-pong gcc-O2/05-ping-pong peers
}

setup() {
	asan=build/asan-O0/05-ping-pong
	plain=build/gcc-O2/05-ping-pong
	server=$asan/server
	client=$asan/client
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
	assert_line 'server | the client disconnected: 100 messages came and were sent back, 0 answers not yet acknowledged'
}

@test "the pair runs in every build, over IPv4 and IPv6" {
	BIN=build/asan-O0 IPV=6 pair 05 --count 20
	BIN=build/asan-O2 pair 05 --count 20
}

@test "messages of 0 bytes to 1 MiB come back with every byte right" {
	local size count n=0 sizes=(0 1 1023 1024 1025 4096 65536 1048576) all=()

	for size in "${sizes[@]}"; do
		# Long messages go one by one: on a machine that is so busy that
		# acknowledgements come late, SoftRoCE cannot do more.
		if [ "$size" -lt 65536 ]; then
			all+=("-t 30|-t 30 --size $size --count 9")
		else
			all+=("-t 30|-t 30 --size $size --count 3 --window 1")
		fi
	done
	# One that just fits into a slot.
	turns "$plain" "${all[@]}" '--size 1025|--size 1025 --count 9'
	for size in "${sizes[@]}" 1025; do
		count=$((size == 65536 || size == 1048576 ? 3 : 9))
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
	turns "$asan" \
		'--slots 1 --slow 20 --rnr-retry 6 --min-rnr-timer 26|--count 10' \
		'--slots 1 --slow 20|--count 3'
	said client 0 'our card was told RNR [1-9][0-9]* times' \
		'all came back, every byte right: .*' 'status 0'
	said server 0 'status 0'
	# With the timer as the CM leaves it, an RNR takes 655 ms. On some
	# kernels the acknowledgement timer may end the wait.
	if [[ ${from_client[1]} =~ right:\ ([0-9]+)\. ]]; then
		[ "${BASH_REMATCH[1]}" -ge 655 ]
	else
		said client 1 '.*, status 12, .*' 'status 1'
	fi
}

@test "too few receives, and retries that do not last: status 13" {
	local error='completion of the SEND \(wr_id [0-9]+\): RNR retry counter exceeded, status 13, vendor syndrome 0x0: the peer has no receive posted: it must post before we send'

	turns "$asan" '--slots 1 --slow 50 --rnr-retry 0|' \
		'--slots 1 --slow 200 --min-rnr-timer 12|'
	said client 0 "$error" 'our card was told RNR 1 times' 'status 1'
	# Messages behind it in the window may be told so, too.
	said client 1 "$error" 'our card was told RNR ([4-9]|1[0-9]) times' \
		'status 1'
	said server 0 'the client disconnected: [0-9]+ messages came and were sent back, .*' \
		'status 0'
	said server 1 'status 0'
}

@test "a message longer than the receive: both sides get an error" {
	turns "$asan" '--size 1023|'
	said client 0 'completion of the SEND \(wr_id [0-9]+\): .*, status (9|11), .*' \
		'status 1'
	said server 0 'completion of the receive \(wr_id [0-9]+\): .*, status (1|2), .*' \
		'status 1'
}

@test "the server is killed in the middle" {
	serve "$server"
	start client me "$client" --count 1000000 "$ADDR_SERVER"
	wait_line me 'at a time$'
	signal_job peer KILL
	finish me
	assert_equal "$status" 1
	[[ $stderr =~ 'the peer disconnected after '[0-9]+' of 1000000 answers' ||
		$stderr == *'status 12, '* ]]
	finish peer
}

@test "the client is killed in the middle" {
	serve "$server"
	start client me "$client" --count 1000000 "$ADDR_SERVER"
	wait_line me 'at a time$'
	signal_job me KILL
	finish me
	finished 0
	assert_line --regexp '^the client disconnected: [0-9]+ messages came and were sent back, [0-9]+ answers not yet acknowledged$'
}

@test "a server that refuses, leaves, dies or says nothing more, at each stage" {
	local stage deed text

	while read -r stage deed text; do
		echo "the server at $stage: $deed"
		serve "$peers"/badserver --receives 16 --at "$stage" --do "$deed"
		connect -t 1
		assert_failure 1
		[[ $stderr == *"$text"* ]]
		stop_jobs
	done <<-'END'
		request reject RDMA_CM_EVENT_REJECTED, status 28: consumer reject
		request kill RDMA_CM_EVENT_REJECTED, status 28: consumer reject
		request stall waited 1 s for RDMA_CM_EVENT_ESTABLISHED and nothing came
		established stall waited 1 s for a completion and none came: is the peer frozen
		established leave the peer disconnected after 0 of 100 answers
		received kill the peer disconnected after 0 of 100 answers
	END
}

@test "a client that leaves, dies or says nothing more, at each stage" {
	local stage deed wanted text

	while read -r stage deed wanted text; do
		echo "the client at $stage: $deed"
		serve "$server" -t 3
		start client other "$peers"/badclient --echo --receives 4 \
			--at "$stage" --do "$deed" "$ADDR_SERVER"
		finished "$wanted"
		[[ $output$stderr =~ $text ]]
		stop_jobs
	done <<-'END'
		request kill 1 waited 3 s for|rdma_accept|rdma_create_qp|waited for RDMA_CM_EVENT_ESTABLISHED, got
		established kill 0 the client disconnected: 0 messages came
		established stall 1 waited 3 s for a completion and none came: is the peer frozen
		sent leave 0 the client disconnected: 1 messages came and were sent back
		sent stall 1 waited 3 s for a completion and none came: is the peer frozen
	END
}

@test "the server's machine freezes in the middle: status 12, or the deadline" {
	serve "$server" -t 20
	start client me "$client" -t 3 --count 1000000 "$ADDR_SERVER"
	wait_line me 'at a time$'
	freeze server
	finish me
	assert_equal "$status" 1
	# Which of the two depends on what had been acknowledged by then.
	[[ $stderr == *'completion of the SEND '*': transport retry counter exceeded, status 12, '* ||
		$stderr == *'waited 3 s for a completion and none came: is the peer frozen'* ]]
	lab/lab thaw server
	signal_job peer KILL || true # it may have ended by itself
	finish peer
}

@test "the client's machine freezes in the middle: the server says so" {
	serve "$server" -t 6
	start client me "$client" --count 1000000 "$ADDR_SERVER"
	wait_line me 'at a time$'
	freeze client
	finish peer
	lab/lab thaw client
	assert_equal "$status" 1
	[[ $stderr == *'completion of the SEND '*', status 12, '* ||
		$stderr == *'waited 6 s for a completion and none came: is the peer frozen'* ]]
}

@test "one packet in a hundred is lost: every byte is right" {
	impair loss 1%
	serve "$server"
	connect --count 100 --size 4096
	assert_success
	assert_line --partial 'all came back, every byte right'
	finished 0
}

@test "five in a hundred are lost: every byte is right, or a side says 12" {
	local size

	impair loss 5%
	for size in 1024 131072; do
		serve "$server"
		connect --count 10 --size $size
		if [ "$status" = 0 ]; then
			assert_line --partial 'all came back, every byte right'
			finished 0
		else
			errors=$stderr
			finish peer
			[[ $errors$stderr == *'status 12, '* ||
				$errors == *'waited 10 s for RDMA_CM_EVENT_'* ]]
			[[ $errors != *'came back wrong'* ]]
		fi
	done
}

@test "answers that are wrong, too short or too many are noticed" {
	serve "$peers"/badserver --receives 16 --messages 20 --echo --size 1024
	connect
	assert_failure 1
	[[ $stderr == 'message 0 came back wrong from byte '*' on' ]]
	stop_jobs

	serve "$peers"/badserver --receives 16 --messages 20 --echo --size 10
	connect
	assert_failure 1
	assert_equal "$stderr" 'message 0 has 1024 bytes, and its answer 10: is the peer the server of this lesson?'
	stop_jobs

	# No receive for our one message, and two that answer it.
	serve "$peers"/badserver --receives 0 --unasked 2 --size 0
	connect --size 0 --count 1
	assert_failure 1
	assert_equal "$stderr" 'a message came that answers none of ours: is the peer the server of this lesson?'
}

@test "the server echoes whatever a client sends" {
	serve "$server"
	run on client "$peers"/badclient --echo --receives 1 --receive-size 4096 \
		--messages 5 --text 'of another program' "$ADDR_SERVER"
	assert_success
	assert_line 'received 18 bytes'
	finished 0
	assert_line --partial '5 messages came and were sent back'
}

@test "Ctrl-C and SIGTERM end both sides, while they wait and at work" {
	serve "$server"
	signal_job peer INT
	finished 1
	assert_equal "$stderr" 'stopped by Interrupt'

	serve "$server"
	start client me "$client" --count 1000000 "$ADDR_SERVER"
	wait_line me 'at a time$'
	signal_job me INT
	finish me
	assert_equal "$status" 1
	[[ $stderr == 'stopped by Interrupt'* ]]
	finished 0

	serve "$server" --slow 1000
	start client me "$client" "$ADDR_SERVER"
	wait_line me 'at a time$'
	signal_job peer TERM
	finished 1
	[[ $stderr == 'stopped by Terminated'* ]]
	finish me
	assert_equal "$status" 1
}

@test "the default pool is what a user who is not root may pin" {
	[ "${LAB:-vm}" = vm ] || skip "only on the virtual machines"
	serve setpriv --reuid 65534 --clear-groups prlimit --memlock=8388608 \
		build/gcc-O2/05-ping-pong/server
	connect --count 5
	assert_success
	finished 0
	serve setpriv --reuid 65534 --clear-groups prlimit --memlock=8388608 \
		build/gcc-O2/05-ping-pong/server --slots 5
	connect --count 5
	assert_failure 1
	finished 1
	[[ $stderr == 'ibv_reg_mr: Cannot allocate memory: more memory than RLIMIT_MEMLOCK lets us pin'* ]]
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
