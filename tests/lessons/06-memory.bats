#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 06: memory regions, their rights, and an address that is handed over.

load ../helpers
load turns

setup_file() {
	build asan-O0/06-memory asan-O2/06-memory gcc-O2/06-memory peers
}

setup() {
	asan=build/asan-O0/06-memory
	plain=build/gcc-O2/06-memory
	server=$asan/server
	client=$asan/client
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
	BIN=build/asan-O0 IPV=6 pair 06
	BIN=build/asan-O2 pair 06
}

@test "writes of 0 bytes to 1 MiB arrive with every byte right" {
	local size n=1 sizes=(1 1023 1024 1025 4096 65536 1048576) all=()

	for size in "${sizes[@]}"; do
		all+=("-t 30|-t 30 --size $size")
	done
	turns "$plain" '|--size 0' "${all[@]}" '--size 100|--size 100'
	said client 0 'completed: success' 'status 0'
	said server 0 'nothing was written' 'status 0'
	for size in "${sizes[@]}"; do
		said client $n 'completed: success' 'status 0'
		said server $n "$size bytes were written, every one right; $((1048576 - size)) were not touched" \
			'status 0'
		n=$((n + 1))
	done
	said server $n '100 bytes were written, every one right; 0 were not touched'
}

@test "a region is pinned in whole pages" {
	turns "$plain" '--size 1|--size 1' '--size 4096|' '--size 4097|' '|'
	said server 0 'pinned: 4 kB' 'status 0'
	said server 1 'pinned: 4 kB' 'status 0'
	said server 2 'pinned: 8 kB' 'status 0'
	said server 3 'pinned: 1024 kB' 'status 0'
}

# refused N STATUS STATE: what turn N must have said when the request was
# refused with that status, and the server's QP was found in that state
refused() {
	said client "$1" "completion of the RDMA WRITE \(wr_id [0-9]+\): .*, status ($2), vendor syndrome .*" \
		'status 1'
	said server "$1" "the client has disconnected; our QP is in $3.*" \
		'status 0'
}

# The table of the README, line by line.
@test "each right, key and length that is missing or wrong" {
	local n

	turns "$asan" '--missing remote-write|' '--missing same-pd|' \
		'--missing region|' '|--wrong rkey' '|--wrong end' \
		'--size 1|--wrong end --size 0' '--missing qp-right|' \
		'|--wrong lkey' '|--wrong local-end' '--missing rkey|' \
		'|--wrong rkey --size 0' '--size 100|' '--missing local-write|'
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
	said client 11 "we have 4096 bytes to write, and the server's memory has room for 100: write fewer with -s" \
		'status 1'
	said server 11 'nothing was written' 'status 0'

	said server 12 'ibv_reg_mr: Invalid argument: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE beside them.*' \
		'status 1'
	said client 12 '.*RDMA_CM_EVENT_REJECTED, status 28.*' 'status 1'
}

@test "more than RLIMIT_MEMLOCK cannot be pinned by a user who is not root" {
	[ "${LAB:-vm}" = vm ] || skip "only on the virtual machines"
	local nobody=(setpriv --reuid 65534 --clear-groups prlimit)

	serve "${nobody[@]}" --memlock=1048576 build/gcc-O2/06-memory/server
	connect
	assert_success
	finished 0
	assert_line 'RLIMIT_MEMLOCK: 1024 kB'

	serve "${nobody[@]}" --memlock=65536 build/gcc-O2/06-memory/server
	connect
	assert_failure 1
	finished 1
	[[ $stderr == 'ibv_reg_mr: Cannot allocate memory: more memory than RLIMIT_MEMLOCK lets us pin'* ]]
}

@test "private data that is no region is refused" {
	local spec wanted

	while read -r spec wanted; do
		serve "$peers"/badserver ${spec:+--private "$spec"}
		connect
		assert_failure 1
		assert_equal "$stderr" "the peer's private data is no memory region ($wanted): is it the server of this lesson?"
		stop_jobs
	done <<-'END'
		zero:16 address 0x0, size 0
		text:short address 0x73686f7274000000, size 0
		addr,rkey address 0x
		u64:0,u32:1,u32:4096 address 0x0, size 4096
		u64:4096,u32:1,u32:0 address 0x1000, size 0
		hex:ffffffffffffffff0000000100000002 address 0xffffffffffffffff, size 2
	END
	# None at all: what arrives is zeros, or nothing.
	serve "$peers"/badserver
	connect
	assert_failure 1
	[[ $stderr == *'is it the server of this lesson?' ]]
	stop_jobs

	# Rubbish that looks like a region is refused by the server's card.
	serve "$peers"/badserver --private rubbish:16
	connect
	assert_failure 1
	[[ $stderr == *': remote access error, status 10, '* ]]
}

@test "one packet in a hundred is lost: every byte is right" {
	local size

	impair loss 1%
	for size in 4096 262144; do
		serve "$server"
		connect --size $size
		assert_success
		finished 0
		assert_line --partial "$size bytes were written, every one right"
	done
}

@test "five in a hundred are lost: every byte is right, or the client says 12" {
	local size

	impair loss 5%
	for size in 4096 262144; do
		serve "$server"
		connect --size $size
		if [ "$status" = 0 ]; then
			finished 0
			assert_line --partial "$size bytes were written, every one right"
		else
			[[ $stderr == *'status 12, '* ||
				$stderr == *'waited 10 s for RDMA_CM_EVENT_'* ]]
			finish peer
			[[ $stderr != *'nobody should have'* ]]
		fi
	done
}

@test "bytes that nobody should have written are noticed" {
	serve "$server"
	run on client "$peers"/foreign client --notice none --bytes 8 "$ADDR_SERVER"
	assert_success
	finished 1
	[[ $stderr == 'byte '*' is 0x78, and nobody should have written that: is the peer the client of this lesson?' ]]
}

@test "a server that refuses, leaves, dies or says nothing more, at each stage" {
	local stage deed text

	while read -r stage deed text; do
		echo "the server at $stage: $deed"
		serve "$peers"/badserver --at "$stage" --do "$deed"
		connect -t 1
		assert_failure 1
		[[ $stderr == *"$text"* ]]
		stop_jobs
	done <<-'END'
		request reject RDMA_CM_EVENT_REJECTED, status 28: consumer reject
		request kill RDMA_CM_EVENT_REJECTED, status 28: consumer reject
		request stall waited 1 s for RDMA_CM_EVENT_ESTABLISHED and nothing came
	END

	# Its card goes on working while the program says nothing.
	serve "$peers"/badserver --private addr,rkey,size --at established --do stall
	connect -t 1
	assert_line 'completed: success'
	assert_failure 1
	[[ $stderr == 'waited 1 s for RDMA_CM_EVENT_DISCONNECTED and nothing came'* ]]
}

@test "a client that leaves, dies or says nothing more, at each stage" {
	local stage deed wanted text

	while read -r stage deed wanted text; do
		echo "the client at $stage: $deed"
		serve "$server" -t 3
		start client other "$peers"/badclient --at "$stage" --do "$deed" \
			"$ADDR_SERVER"
		finished "$wanted"
		[[ $output$stderr =~ $text ]]
		stop_jobs
	done <<-'END'
		request kill 1 waited 3 s for|rdma_accept|rdma_create_qp|waited for RDMA_CM_EVENT_ESTABLISHED, got
		established kill 0 nothing was written
		established leave 0 nothing was written
		established stall 1 waited 3 s for RDMA_CM_EVENT_DISCONNECTED and nothing came
	END
}

@test "the server's machine freezes: the client says so within its deadline" {
	serve "$server" -t 3
	freeze server
	connect -t 2
	lab/lab thaw server
	assert_failure 1
	[[ $stderr == *'waited 2 s for RDMA_CM_EVENT_'*' and nothing came'* ||
		$stderr == *'RDMA_CM_EVENT_ADDR_ERROR'* ]]
	finish peer
	assert_equal "$status" 1
}

@test "the client's machine freezes: the server says so within its deadline" {
	serve "$server" -t 3
	start client other "$peers"/badclient --at established --do stall \
		"$ADDR_SERVER"
	wait_line other '^stalling'
	freeze client
	finish peer
	lab/lab thaw client
	assert_equal "$status" 1
	[[ $stderr == 'waited 3 s for RDMA_CM_EVENT_DISCONNECTED and nothing came'* ]]
}

@test "Ctrl-C and SIGTERM end both sides at each of their waits" {
	serve "$server"
	signal_job peer INT
	finished 1
	assert_equal "$stderr" 'stopped by Interrupt'

	serve "$server"
	start client other "$peers"/badclient --at established --do stall \
		"$ADDR_SERVER"
	wait_line other '^stalling'
	wait_line peer '^pinned'
	signal_job peer TERM
	signal_job other TERM
	finished 1
	[[ $stderr == 'stopped by Terminated'* ]]
	finish other

	serve "$peers"/badserver --at request --do stall
	start client me "$client" "$ADDR_SERVER"
	wait_line peer '^stalling'
	signal_job me INT
	finish me
	assert_equal "$status $stderr" '1 stopped by Interrupt'
	stop_jobs

	serve "$peers"/badserver --private addr,rkey,size --at established --do stall
	start client me "$client" "$ADDR_SERVER"
	wait_line me '^completed: success'
	signal_job me INT
	finish me
	assert_equal "$status $stderr" '1 stopped by Interrupt'
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
