#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 12: every failure of the catalogue, as the kernel under test shows it.
#
# shellcheck disable=SC2086 # the programs are words without blanks

load ../helpers
load turns

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
	undo
	assert_nothing_left
}

serve() {
	start server server "$@"
	wait_line server '^listening on '
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
	freeze server
	wait_line client '^  seen:  12 RETRY_EXC_ERR, QP ERR, after '
	thaw
	finish client
	assert_equal "$status" 0
	finish server
	assert_equal "$status" 0
}

@test "who is none of this lesson is refused, one that goes is let go, and the next one served" {
	LIMIT=90 serve $asan/server
	LIMIT=60 run on client sh -c '
		bad=$0 client=$1 address=$2
		try() {
			echo "== $*"
			"$@" "$address" 2>&1
			echo "status $?"
		}
		for spec in zero:56 rubbish:56 text:LESSON12 hex:4c4553534f4e31 \
			text:LESSON12,u32:7,text:rnr text:LESSON12,u32:0,rubbish:20; do
			try "$bad" --private "$spec"
		done
		# One that knows how to ask, for what there is not.
		try "$bad" --private text:LESSON12,u32:0,text:whatever,zero:12
		try build/gcc-O2/06-memory/client
		echo "== all were refused"
		# It asks for rnr, and is killed where it should provoke it.
		try "$bad" --private text:LESSON12,u32:0,text:rnr,zero:17 \
			--at established --do kill
		try "$client" --show bad-rkey --show rnr' \
		$badclient $asan/client "$ADDR_SERVER"
	refused=${output%%'== all were refused'*}
	[ "$(grep -c 'RDMA_CM_EVENT_REJECTED, status 28' <<<"$refused")" = 8 ]
	[ "$(grep -c '^status 1$' <<<"$refused")" = 8 ]
	assert_line 'status 137'
	assert_equal "${lines[-1]}" 'status 0'
	finish server
	assert_equal "$status" 0
	[ "$(grep -c '^a client that is none of this lesson was refused$' \
		<<<"$stderr")" = 6 ]
	[ "$(grep -c "^a client was refused that asked for a failure that is not in the catalogue$" \
		<<<"$stderr")" = 2 ]
}

@test "a client that dies before it is let in is told of, and the next one served" {
	LIMIT=90 serve $asan/server
	signal_job server STOP
	run on client $badclient --private text:LESSON12,u32:0,text:rnr,zero:17 \
		--at request --do kill "$ADDR_SERVER"
	signal_job server CONT
	run on client $asan/client --show bad-rkey "$ADDR_SERVER"
	assert_success
	finish server
	[[ $stderr == "rdma_create_qp: Invalid argument: the peer has left already"* ]]
	# Not all that was asked for was shown.
	assert_equal "$status" 1
}

@test "a server of another lesson lends nothing, or is not there; and Ctrl-C" {
	begin_cases at_once "$asan/server|true" \
		"build/peers/badserver --private zero:32|$asan/client --show rnr" \
		"echo listening on nothing|$asan/client --show rnr"
	wait_case server 0 'listening on '
	signal_cases server INT 0
	wait_case client 1 '! '
	signal_cases server TERM 1
	finish_cases
	said server 0 '! stopped by Interrupt.*' 'status 1'
	said client 1 "! .*the peer's private data is no memory region \(address 0x0, size 0\): is it the server of this lesson\?.*" 'status 1'
	said client 2 '! .*RDMA_CM_EVENT_REJECTED, status 8.*' 'status 1'
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
