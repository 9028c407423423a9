#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 06: memory regions, their rights, and an address that is handed over.

load ../helpers
load turns

setup_file() {
	build asan-O0/06-memory asan-O2/06-memory gcc-O2/06-memory peers
}

# The side that a test is about is the one with the sanitizers.
setup() {
	plain=build/gcc-O2/06-memory
	server=build/asan-O0/06-memory/server
	client=build/asan-O0/06-memory/client
	peers=build/peers
}

teardown() {
	undo
	assert_nothing_left
}

@test "what can be registered, and a region that is handed over and written to" {
	run pair 06
	assert_success
	assert_line --regexp "^server \| our memory: 1048576 bytes at 0x[0-9a-f]+, lkey 0x[0-9a-f]+, rkey 0x[0-9a-f]+$"
	assert_line --regexp "^client \| the server's memory: 1048576 bytes at 0x[0-9a-f]+, rkey 0x[0-9a-f]+$"
	assert_line 'client | completed: success'
	assert_line 'server | the client has disconnected; our QP is in RTS, as it should be'
	assert_line 'server | 4096 bytes were written, every one right; 1044480 were not touched'
	# What the server says of its memory is what the client is told.
	[[ $output =~ our\ memory:\ 1048576\ bytes\ at\ (0x[0-9a-f]+) ]]
	assert_line --partial "RDMA WRITE of 4096 bytes to ${BASH_REMATCH[1]}"

	local line
	for line in 'no right +lkey' 'LOCAL_WRITE +lkey' 'REMOTE_READ +lkey' \
		'REMOTE_WRITE +Invalid argument' \
		'LOCAL_WRITE, REMOTE_WRITE +lkey' \
		'REMOTE_ATOMIC +Invalid argument' \
		'LOCAL_WRITE, REMOTE_ATOMIC +lkey' \
		'no bytes at all +Invalid argument' 'read-only, no right +lkey' \
		'read-only, LOCAL_WRITE +Bad address' 'not mapped +Bad address'; do
		assert_line --regexp "^server \|   $line( |$)"
	done
}

@test "the pair runs in every build, over IPv4 and IPv6" {
	local n o2=build/asan-O2/06-memory

	one_by_one "$server|$client|$ADDR6_SERVER" "$o2/server|$o2/client"
	for n in 0 1; do
		said client $n 'completed: success' 'status 0'
		said server $n '4096 bytes were written, every one right; 1044480 were not touched' \
			'status 0'
	done
}

@test "writes of 0 bytes to 1 MiB arrive with every byte right, in whole pages that are pinned" {
	local n=0 region size kb

	turns "$plain" '--size 100|--size 0' '--size 1|--size 1' \
		'--size 4096|--size 1023' '--size 4097|--size 1024' '|--size 1025' \
		'-t 30|-t 30 --size 65536' '-t 30|-t 30 --size 1048576'
	said server 0 'nothing was written'
	while read -r region size kb; do
		said client $n 'completed: success' 'status 0'
		said server $n "pinned: $kb kB" 'status 0'
		[ "$size" = 0 ] || said server $n "$size bytes were written, every one right; $((region - size)) were not touched"
		n=$((n + 1))
	done <<-'END'
		100 0 4
		1 1 4
		4096 1023 4
		4097 1024 8
		1048576 1025 1024
		1048576 65536 1024
		1048576 1048576 1024
	END
}

# refused N STATUS STATE: what case N must have said when the request was
# refused with that status, and the server's QP was found in that state
refused() {
	said client "$1" "! completion of the RDMA WRITE \(wr_id [0-9]+\): .*, status ($2), vendor syndrome .*" \
		'status 1'
	said server "$1" "the client has disconnected; our QP is in $3.*" \
		'status 0'
}

# The table of the README, line by line.
@test "each right, key and length that is missing or wrong" {
	local n

	one_by_one "$server --missing remote-write|$plain/client" \
		"$server --missing same-pd|$plain/client" \
		"$server --missing region|$plain/client" \
		"$plain/server|$client --wrong rkey" \
		"$plain/server|$client --wrong end" \
		"$plain/server --size 1|$client --wrong end --size 0" \
		"$server --missing qp-right|$plain/client" \
		"$plain/server|$client --wrong lkey" \
		"$plain/server|$client --wrong local-end" \
		"$server --missing rkey|$plain/client" \
		"$plain/server|$client --wrong rkey --size 0" \
		"$plain/server --size 100|$client" \
		"$server --missing local-write|$plain/client"
	for n in 0 1 2 3 4 5; do
		refused $n 10 'ERR: something was refused'
		said server $n 'nothing was written'
	done
	refused 6 9 'ERR: something was refused'
	said server 6 'nothing was written'

	# Of our own side's errors kernels from 6.12 on say 5.
	refused 7 '2|5' RTS
	said server 7 'nothing was written'
	refused 8 '4|5' RTS
	# The packets before the one that failed have arrived.
	said server 8 '4096 bytes were written, every one right; 1044480 were not touched'

	# SoftRoCE lets an lkey pass for an rkey, and looks at no key when
	# there is nothing to write.
	said client 9 'completed: success' 'status 0'
	said server 9 '4096 bytes were written, .*' 'status 0'
	said client 10 'completed: success' 'status 0'
	said server 10 'nothing was written' 'status 0'

	# More than there is room for is not even tried.
	erred client 11 "we have 4096 bytes to write, and the server's memory has room for 100: write fewer with -s"
	said server 11 'nothing was written' 'status 0'

	said server 12 '! ibv_reg_mr: Invalid argument: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE beside them.*' \
		'status 1'
	said client 12 '! .*RDMA_CM_EVENT_REJECTED, status 28.*' 'status 1'
}

@test "more than RLIMIT_MEMLOCK cannot be pinned by a user who is not root" {
	[ "${LAB:-vm}" = vm ] || skip "only on the virtual machines"
	local nobody="setpriv --reuid 65534 --clear-groups prlimit"

	one_by_one "$nobody --memlock=1048576 $plain/server|$plain/client" \
		"$nobody --memlock=65536 $plain/server|$plain/client"
	said client 0 'completed: success' 'status 0'
	said server 0 'RLIMIT_MEMLOCK: 1024 kB' 'status 0'
	said client 1 'status 1'
	said server 1 '! ibv_reg_mr: Cannot allocate memory: more memory than RLIMIT_MEMLOCK lets us pin.*' \
		'status 1'
}

@test "private data that is no region is refused, and bytes of another client noticed" {
	local bad="$peers/badserver --private" n=0 wanted

	one_by_one "$bad zero:16|$client" "$bad text:short|$client" \
		"$bad u64:0,u32:1,u32:4096|$client" \
		"$bad u64:4096,u32:1,u32:0|$client" \
		"$bad hex:ffffffffffffffff0000000100000002|$client" \
		"$peers/badserver|$client" "$peers/badserver --receives 0 --private rubbish:16|$client" \
		"$server|$peers/foreign client --notice none --bytes 8"
	for wanted in 'address 0x0, size 0' 'address 0x73686f7274000000, size 0' \
		'address 0x0, size 4096' \
		'address 0x1000, size 0' 'address 0xffffffffffffffff, size 2'; do
		said client $n "! the peer's private data is no memory region \($wanted\): is it the server of this lesson\?" \
			'status 1'
		n=$((n + 1))
	done
	# None at all: what arrives is zeros, or nothing.
	said client 5 '! .*is it the server of this lesson\?' 'status 1'
	# Rubbish that looks like a region is refused by the server's card. (Without a
	# receive it does not notice, and leave, before we have our completion.)
	said client 6 '! .*: remote access error, status 10, .*' 'status 1'
	said client 7 'status 0'
	said server 7 '! byte .* is 0x78, and nobody should have written that: is the peer the client of this lesson\?' \
		'status 1'
}

@test "packets are lost, one or five in a hundred: every byte is right, or it is said" {
	local n percent pair="$plain/server -t 30|$client -t 30 --size"

	for percent in 1 5; do
		impair loss $percent%
		one_by_one "$pair 4096" "$pair 4096" "$pair 262144"
		right=0
		for n in 0 1 2; do
			after_loss $n $percent "$((n < 2 ? 4096 : 262144)) bytes were written, every one right; .*"
		done
		[ $percent = 5 ] || [ $right -ge 1 ]
		refute grep -r 'nobody should have' "$BATS_TEST_TMPDIR"
	done
}

# Those that stall are ended when the others have said what they have to say. The
# machine of the last server freezes before its client comes.
@test "a server that refuses, dies, says nothing more or freezes, at each stage" {
	local n bad="$peers/badserver"

	begin_cases at_once "$bad --at request --do reject|$client" \
		"$bad --at request --do kill|$client" \
		"$bad --at request --do stall|$client -t 4" \
		"$bad --private addr,rkey,size --at established --do stall|$client -t 4" \
		"$plain/server -t 50|true"
	wait_case client 0 'status '
	wait_case client 1 'status '
	wait_case server 2 stalling
	wait_case client 3 'completed: success'
	wait_case server 4 listening
	freeze server
	connect -t 2 -p 10134
	for n in 2 3; do
		wait_case client $n 'status '
	done
	thaw
	signal_cases server TERM
	finish_cases
	said client 0 '! .*RDMA_CM_EVENT_REJECTED, status 28: consumer reject.*' \
		'status 1'
	said client 1 '! .*RDMA_CM_EVENT_REJECTED, status 28: consumer reject.*' \
		'status 1'
	said client 2 '! waited 4 s for RDMA_CM_EVENT_ESTABLISHED and nothing came.*' \
		'status 1'
	# Its card goes on working while the program says nothing.
	said client 3 'completed: success' 'status 1' \
		'! waited 4 s for RDMA_CM_EVENT_DISCONNECTED and nothing came.*'
	assert_failure 1
	[[ $stderr == *'waited 2 s for RDMA_CM_EVENT_'*' and nothing came'* ||
		$stderr == *'RDMA_CM_EVENT_ADDR_ERROR'* ]]
}

@test "a client that leaves, dies, says nothing more or freezes, at each stage" {
	local bad="$peers/badclient"

	begin_cases at_once "$server -t 5|$bad --at request --do kill" \
		"$server|$bad --at established --do kill" \
		"$server|$bad --at established --do leave" \
		"$server -t 5|$bad --at established --do stall"
	wait_case server 1 'status '
	wait_case server 2 'status '
	wait_case client 3 stalling
	freeze client
	wait_case server 0 'status '
	wait_case server 3 'status '
	thaw
	signal_cases client TERM
	finish_cases
	said server 0 '! (waited 5 s for|rdma_accept|rdma_create_qp|rdma_get_cm_event: waited for RDMA_CM_EVENT_ESTABLISHED, got).*' \
		'status 1'
	said server 1 'nothing was written' 'status 0'
	said server 2 'nothing was written' 'status 0'
	said server 3 '! waited 5 s for RDMA_CM_EVENT_DISCONNECTED and nothing came.*' \
		'status 1'
}

@test "Ctrl-C and SIGTERM end both sides at each of their waits" {
	local bad="$peers/badserver"

	begin_cases at_once "$server -t 50|true" \
		"$server -t 50|$peers/badclient --at established --do stall" \
		"$bad --at request --do stall|$client -t 50" \
		"$bad --private addr,rkey,size --at established --do stall|$client -t 50"
	wait_case server 0 'listening'
	wait_case client 1 'stalling'
	wait_case server 1 'pinned'
	wait_case server 2 'stalling'
	wait_case client 3 'completed: success'
	signal_cases client INT 2 3
	signal_cases server INT 0
	signal_cases server TERM
	signal_cases client TERM
	finish_cases
	erred server 0 'stopped by Interrupt'
	said server 1 '! stopped by Terminated' 'status 1'
	erred client 2 'stopped by Interrupt'
	erred client 3 'stopped by Interrupt'
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local args program

	for args in '' '--size -1 x' '--size 1048577 x' '--wrong x x' '-z x' \
		'one two' '-t 0 x' '-p x x'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '--size 0' '--size 67108865' '--missing x' '-p 0' '-z'; do
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
