#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 12: every failure of the catalogue, as the kernel under test shows it.
#
# shellcheck disable=SC2086 # the programs are words without blanks

load ../helpers

setup_file() {
	build asan-O0/12-errors gcc-O2/12-errors gcc-O2/06-memory \
		build/peers/badclient build/peers/badserver build/peers/claims
}

setup() {
	asan=build/asan-O0/12-errors
	plain=build/gcc-O2/12-errors
	badclient=build/peers/badclient
}

teardown() {
	[ -z "${frozen:-}" ] || lab/lab thaw "$frozen"
	assert_nothing_left
}

serve() {
	start server server "$@"
	wait_line server '^listening on '
}

connect() {
	run --separate-stderr on client "$@" "$ADDR_SERVER"
}

# The names of those that --show all shows.
names() {
	$plain/client --table | awk -F '\t' '
		$1 != "status" && $1 != "unseen" && $7 == "" { print $1 }'
}

@test "each failure that needs no help is as the catalogue has it, with the sanitizers" {
	local name

	LIMIT=90 BIN=build/asan-O0 run pair 12 --show all
	assert_success
	# Not one word of surprise, from either side.
	refute_line --regexp '^(client|server) ! '
	for name in $(names); do
		assert_line --regexp "^client \| $name +.*, after [0-9]+\.[0-9] ms$"
	done
	assert_line --regexp '^server \| killed +the process of the server is dead; here is another$'
	[ "$(names | wc -l)" -ge 30 ]
}

@test "one failure in full, and over IPv6" {
	IPV=6 BIN=build/gcc-O2 run pair 12 --show rnr --show localhost
	assert_success
	assert_line 'client | rnr: a SEND that finds no receive'
	assert_line 'client |   done:  posted a SEND'
	assert_line --regexp '^client \|   seen:  13 RNR_RETRY_EXC_ERR, QP ERR, after '
	assert_line --regexp '^client \|   fix:   post receives before '
	assert_line --regexp '^client \|   seen:  rdma_resolve_route ENODEV, QP none, '
	assert_line "server | rnr: the target's side"
	assert_line 'server |   seen:  nothing, QP RTS'
	assert_line 'server |   lent:  the memory was left alone'
}

@test "a machine that is frozen: status 12 after a while" {
	serve $asan/server
	start client client $asan/client --show frozen "$ADDR_SERVER"
	wait_line client '^frozen: now lab/lab freeze server'
	frozen=server
	lab/lab freeze server
	wait_line client '^  seen:  12 RETRY_EXC_ERR, QP ERR, after '
	lab/lab thaw server
	frozen=''
	finish client
	assert_equal "$status" 0
	finish server
	assert_equal "$status" 0
}

@test "who is none of this lesson is refused, and the next one served" {
	local spec

	serve $asan/server
	for spec in zero:56 rubbish:56 text:LESSON12 hex:4c4553534f4e31 \
		text:LESSON12,u32:7,text:rnr text:LESSON12,u32:0,rubbish:20; do
		connect $badclient --private "$spec"
		assert_failure 1
		[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28"* ]]
	done
	# One that knows how to ask, for what there is not.
	connect $badclient --private text:LESSON12,u32:0,text:whatever,zero:12
	[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28"* ]]
	connect build/gcc-O2/06-memory/client
	[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 28"* ]]
	connect $asan/client --show bad-rkey
	assert_success
	finish server
	assert_equal "$status" 0
	[ "$(grep -c '^a client that is none of this lesson was refused$' \
		<<<"$stderr")" = 6 ]
	[ "$(grep -c "^a client was refused that asked for a failure that is not in the catalogue$" \
		<<<"$stderr")" = 2 ]
}

@test "a client that connects and goes, and Ctrl-C, end well" {
	serve $asan/server
	# It asks for rnr, and is killed where it should provoke it.
	connect $badclient --private text:LESSON12,u32:0,text:rnr,zero:17 \
		--at established --do kill
	connect $asan/client --show rnr
	assert_success
	finish server
	assert_equal "$status" 0

	serve $asan/server
	signal_job server INT
	finish server
	assert_equal "$status" 1
	[[ $stderr == "stopped by Interrupt"* ]]
}

@test "a server of another lesson lends nothing, or is not there" {
	serve build/peers/badserver --private zero:32
	connect $asan/client --show rnr
	assert_failure 1
	[[ $stderr == *"the peer's private data is no memory region (address 0x0, size 0): is it the server of this lesson?"* ]]
	stop_jobs
	connect $asan/client --show rnr -t 2
	assert_failure 1
	[[ $stderr == *"RDMA_CM_EVENT_REJECTED, status 8"* ]]
}

@test "the list, the table, and bad arguments, without a device" {
	run $asan/client --list
	assert_success
	assert_line --regexp '^frozen +the peer.s machine hangs \(needs your help\)$'
	assert_line --regexp '^7 BAD_RESP_ERR +an answer that fits no request'
	run --separate-stderr $asan/client --show rrn 1.2.3.4
	assert_failure 2
	[[ $stderr == "client: --show rrn: there is no such failure; --list names them"* ]]
	for flags in '' '-p 0 x' '--show' '-t 0 x' 'one two' '--list a b'; do
		run --separate-stderr $asan/client $flags
		assert_failure 2
		[[ $stderr == *"usage: client "* ]]
	done
	run --separate-stderr $asan/server operand
	assert_failure 2
	[[ $stderr == *"usage: server "* ]]
	tools/gallery --check
}

@test "what SoftRoCE says of itself is as docs/softroce-and-real-nics.md has it" {
	local release column said documented

	release=$(on client uname -r)
	case $release in
	6.1.*) column=3 ;;
	6.12.*) column=4 ;;
	7.*) column=5 ;;
	*) skip "kernel $release is not in the table" ;;
	esac
	said=$(on client build/peers/claims)
	documented=$(awk -F ' *[|] *' -v column=$column '
		$2 ~ /^[a-z]+(-[a-z0-9]+)*$/ && NF == 6 { print $2, $column }' \
		docs/softroce-and-real-nics.md)
	assert_equal "$said" "$documented"
}
