#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The recorder of verbs calls on real programs, and the time line that is made
# of two records. recorder.bats has what needs no device.
#
# shellcheck disable=SC2016 # jq has variables of its own

load ../helpers

setup_file() {
	make -s -C tools/trace WERROR=1
	make -s -C tests/tools
	make -s -C lessons/01-client
	make -s -C lessons/02-server
	build asan-O0
}

setup() {
	library=$TOP/build/trace/libverbstrace.so
	bin=build/tests-tools
	on_node=/tmp/trace-test.$BATS_ROOT_PID.$BATS_SUITE_TEST_NUMBER
}

teardown() {
	assert_nothing_left
}

# recorded NODE NAME CMD...: start with the recorder; SETTINGS for env
recorded() {
	local node=$1 name=$2

	shift 2
	# shellcheck disable=SC2086 # settings are words
	start "$node" "$name" env ${SETTINGS:-} \
		LD_PRELOAD="${PRELOAD:-}$library" \
		VERBS_TRACE="$on_node.$name" "$@"
}

# fetch NODE NAME: its record, into $BATS_TEST_TMPDIR/NAME.jsonl
fetch() {
	on "$1" sh -c 'cat "$0"; rm -f "$0"' "$on_node.$2" | tools/trace/lines \
		>"$BATS_TEST_TMPDIR/$2.jsonl"
	jq -e . "$BATS_TEST_TMPDIR/$2.jsonl" >/dev/null || fail "not JSON"
}

# own NAME: the program's own calls, by name
own() {
	jq -r 'select(.at and .lib == null) | .call' \
		"$BATS_TEST_TMPDIR/$1.jsonl"
}

# looped MODE...: two queue pairs of one node, each MODE a program of its own.
# Their records go to $BATS_TEST_TMPDIR/MODE.jsonl, what they printed and their
# exit statuses to $output, a line each.
looped() {
	local mode

	# shellcheck disable=SC2086 # settings and modes are words
	on server sh -c '
		settings=$1 library=$2 record=$3 loop=$4
		shift 4
		for mode; do
			out=$(env $settings LD_PRELOAD="$library" \
				VERBS_TRACE="$record" "$loop" $mode 2>&1)
			status=$?
			echo "$mode:" $out "($status)"
			echo "== $mode" >>"$record.all"
			cat "$record" >>"$record.all"
		done
		cat "$record.all"
		rm -f "$record" "$record.all"' - "${SETTINGS:-A=}" "$library" "$on_node" "$bin/loop" \
		"$@" >"$BATS_TEST_TMPDIR/all"
	output=$(tr -d "\0" <"$BATS_TEST_TMPDIR/all" | sed "/^== /,\$d")
	mapfile -t lines <<<"$output"
	for mode; do
		tr '\0' '\n' <"$BATS_TEST_TMPDIR/all" |
			sed -n "/^== $mode\$/,/^== /p" | tools/trace/lines \
			>"$BATS_TEST_TMPDIR/$mode.jsonl"
		jq -e . "$BATS_TEST_TMPDIR/$mode.jsonl" >/dev/null ||
			fail "$mode: not JSON"
	done
}

# holds NAME CONDITION: for one of its lines at least
holds() {
	jq -es "any(.[]; $2)" "$BATS_TEST_TMPDIR/$1.jsonl" >/dev/null ||
		fail "$1: no line has $2"
}

# until_true NODE COMMAND: waits for it, ten seconds at most
until_true() {
	on "$1" sh -c "
		for i in \$(seq 200); do
			$2 && exit 0
			sleep 0.05
		done
		exit 1"
}

# ---- real programs --------------------------------------------------------

@test "every call of lessons 01 and 02 is there, in order, and they print the same" {
	local plain recorded at place

	start server plain-server lessons/02-server/server
	wait_line plain-server '^listening on '
	start client plain-client lessons/01-client/client "$ADDR_SERVER"
	finish plain-client
	plain=$output
	finish plain-server
	plain+=$output

	recorded server server lessons/02-server/server
	wait_line server '^listening on '
	recorded client client lessons/01-client/client "$ADDR_SERVER"
	finish client
	assert_equal "$status" 0
	assert_equal "$stderr" ''
	recorded=$output
	finish server
	assert_equal "$status" 0
	recorded+=$output
	# The same but for numbers that differ from run to run.
	assert_equal "$(sed -Ef tests/normalise.sed <<<"$recorded")" \
		"$(sed -Ef tests/normalise.sed <<<"$plain")"

	fetch client client
	fetch server server
	# How often they polled is another matter.
	assert_equal "$(own client | uniq)" "$(printf '%s\n' \
		rdma_getaddrinfo rdma_create_event_channel rdma_create_id \
		rdma_resolve_addr rdma_get_cm_event rdma_ack_cm_event \
		ibv_alloc_pd ibv_reg_mr ibv_create_cq rdma_create_qp \
		rdma_resolve_route rdma_get_cm_event rdma_ack_cm_event \
		rdma_connect rdma_get_cm_event rdma_ack_cm_event \
		ibv_post_send ibv_poll_cq rdma_disconnect rdma_get_cm_event \
		rdma_ack_cm_event rdma_destroy_qp ibv_destroy_cq ibv_dereg_mr \
		ibv_dealloc_pd rdma_destroy_id rdma_destroy_event_channel \
		rdma_freeaddrinfo)"
	assert_equal "$(jq -c 'select(.wcs) | .wcs' \
		"$BATS_TEST_TMPDIR/client.jsonl" |
		sed 's/"qp_num":[0-9]*/"qp_num":N/')" \
		'[{"wr_id":"14","status":0,"status_name":"SUCCESS","qp_num":N,"opcode":"SEND","byte_len":10}]'
	assert_equal "$(jq -r 'select(.wcs) | .wcs[] | "\(.opcode) \(.byte_len)"' \
		"$BATS_TEST_TMPDIR/server.jsonl")" 'RECV 10'
	# What the CM does inside is there, too, and said to be its own.
	assert_equal "$(jq -r 'select(.call == "ibv_modify_qp") |
		"\(.in) \(.lib) \(.state)"' "$BATS_TEST_TMPDIR/client.jsonl" |
		uniq)" "$(printf '%s\n' \
		'rdma_create_qp_ex librdmacm.so.1 INIT' \
		'rdma_get_cm_event librdmacm.so.1 INIT' \
		'rdma_get_cm_event librdmacm.so.1 RTR' \
		'rdma_get_cm_event librdmacm.so.1 RTS' \
		'rdma_disconnect librdmacm.so.1 ERR')"
	# The addresses are those of the calls.
	at=$(jq -r 'select(.call == "ibv_post_send") | .at' \
		"$BATS_TEST_TMPDIR/client.jsonl")
	place=$(addr2line -i -e lessons/01-client/client "$at" |
		grep -o 'lessons/.*')
	sed -n "${place##*:}p" "${place%:*}" | grep -q ibv_post_send
}

@test "under AddressSanitizer, behind its library" {
	PRELOAD=$(gcc -print-file-name=libasan.so):
	recorded server server build/asan-O0/02-server/server
	wait_line server '^listening on '
	recorded client client build/asan-O0/01-client/client "$ADDR_SERVER"
	finish client
	assert_equal "$status" 0
	finish server
	assert_equal "$status" 0
	fetch client client
	assert_equal "$(own client | grep -c ibv_post_send)" 1
}

@test "rping: threads, a completion channel, READ and WRITE" {
	lab/lab capture "$BATS_TEST_TMPDIR/wire.pcap"
	recorded server server rping -s -C 3
	# It says nothing when it listens.
	until_true server "rdma resource show cm_id | grep -q LISTEN"
	recorded client client rping -c -a "$ADDR_SERVER" -C 3
	finish client
	assert_equal "$status" 0
	finish server
	lab/lab capture stop
	fetch server server
	fetch client client
	assert_equal "$(jq -r 'select(.wrs and .qp) | .wrs[].opcode' \
		"$BATS_TEST_TMPDIR/server.jsonl" | grep -v null | sort |
		uniq -c | tr -s ' ')" " 3 RDMA_READ
 3 RDMA_WRITE
 6 SEND"
	assert [ "$(jq -r .thread "$BATS_TEST_TMPDIR/server.jsonl" |
		sort -u | wc -l)" -ge 3 ]
	assert_equal "$(jq -r 'select(.call == "rdma_get_cm_event").event' \
		"$BATS_TEST_TMPDIR/client.jsonl" | head -n 3 | tr '\n' ' ')" \
		'ADDR_RESOLVED ROUTE_RESOLVED ESTABLISHED '
	# And on one time line, as the README has it.
	tools/wire/dissect "$BATS_TEST_TMPDIR/wire.pcap" |
		awk -f tools/wire/json.awk >"$BATS_TEST_TMPDIR/wire.jsonl"
	build/trace/merge --json "$BATS_TEST_TMPDIR/time.jsonl" \
		"$BATS_TEST_TMPDIR"/{client,server,wire}.jsonl >/dev/null
	assert_equal "$(jq -rs -f tests/tools/timeline.jq \
		"$BATS_TEST_TMPDIR/time.jsonl")" ''
	assert_equal "$(jq -rs '(.[1:] | map({key: "\(.n)", value: .}) |
		from_entries) as $at | .[1:][] | select(.event and
			.call == "rdma_get_cm_event" and
			(.event | test("CONNECT_REQ|ESTAB"))) | "\(.event) \([.after[] |
			$at["\(.)"] | select(.side == "wire").name] |
			join(" "))"' "$BATS_TEST_TMPDIR/time.jsonl" | sort)" \
		"$(printf '%s\n' 'CONNECT_REQUEST ConnectRequest' \
		'ESTABLISHED ConnectReply' 'ESTABLISHED ReadyToUse')"
}

@test "ib_write_lat: a queue pair by hand, its WRITEs counted" {
	recorded server server ib_write_lat -d rxe0 -n 50
	# Port 18515, where the two talk first.
	until_true server "grep -q :4853 /proc/net/tcp /proc/net/tcp6"
	recorded client client ib_write_lat -d rxe0 -n 50 "$ADDR_SERVER"
	finish client
	assert_equal "$status" 0
	finish server
	for node in client server; do
		fetch $node $node
		assert_equal "$(jq -r '.wrs[]?.opcode' \
			"$BATS_TEST_TMPDIR/$node.jsonl" | uniq -c | tr -s ' ')" \
			' 50 RDMA_WRITE'
		assert_equal "$(jq -r 'select(.call == "ibv_modify_qp").state' \
			"$BATS_TEST_TMPDIR/$node.jsonl" | tr '\n' ' ')" \
			'INIT RTR RTS '
	done
}

@test "requests of all kinds, and the extended calls" {
	looped plain ex srq window '--threads 4 plain'
	assert_equal "$output" "$(printf '%s\n' 'plain: 0 (0)' 'ex: 0 (0)' \
		'srq: 0 (0)' 'window: 0 (0)' '--threads 4 plain: 0 0 0 0 (0)')"
	# Immediate data, and three of which the second is refused.
	assert_equal "$(jq -c 'select(.call == "ibv_post_send") |
		[.ret, .bad, .error, [.wrs[] | .opcode, .imm, .compare_add]]' \
		"$BATS_TEST_TMPDIR/plain.jsonl")" "$(printf '%s\n' \
		'[0,null,null,["RDMA_WRITE",null,null,"SEND_WITH_IMM","0xc0ffee",null]]' \
		'[0,null,null,["RDMA_READ",null,null]]' \
		'[0,null,null,["ATOMIC_FETCH_AND_ADD",null,"0x5"]]' \
		'[22,1,"EINVAL",["RDMA_WRITE",null,null,"RDMA_WRITE",null,null,"RDMA_WRITE",null,null]]')"
	holds plain '.wcs[]? | .imm == "0xc0ffee" and .wr_id == "100"
		and .opcode == "RECV"'
	# ibv_wr_..() and ibv_start_poll()
	assert_equal "$(jq -c 'select(.call == "ibv_wr_complete") |
		[.ret, [.wrs[] | .wr_id, .opcode, (.sges | length)]]' \
		"$BATS_TEST_TMPDIR/ex.jsonl")" \
		'[0,["1","RDMA_WRITE",1,"2","SEND_WITH_IMM",1,"3","RDMA_READ",1,"4","ATOMIC_FETCH_AND_ADD",1]]'
	holds ex '.call == "ibv_wr_abort" and .wrs[0].opcode == "SEND"'
	assert_equal "$(jq -r '.wcs[]?.wr_id' "$BATS_TEST_TMPDIR/ex.jsonl" |
		sort -n | tr '\n' ' ')" '2 3 4 100 '
	# A shared receive queue, a memory window
	holds srq '.call == "ibv_post_srq_recv" and .wrs[0].wr_id == "100"'
	holds window '.call == "ibv_bind_mw" and .ret == 0'
	# Four threads, each with a context of its own
	assert_equal "$(jq -r 'select(.call == "ibv_open_device").ret' \
		"$BATS_TEST_TMPDIR/--threads 4 plain.jsonl" | sort -u |
		wc -l)" 4
	assert_equal "$(jq -r 'select(.call == "ibv_post_send").thread' \
		"$BATS_TEST_TMPDIR/--threads 4 plain.jsonl" | sort | uniq -c |
		tr -s ' ')" " 4 1
 4 2
 4 3
 4 4"
}

@test "the call that a program hung in, and the one that it crashed in" {
	on server sh -c 'LD_PRELOAD=$0 VERBS_TRACE=$1 rping -s &
		for i in $(seq 200); do
			! grep -aqE "\"call\":\"rdma_listen\".*\"t1\": *[0-9]" "$1" || break
			sleep 0.05
		done
		kill -KILL $!
		wait
		cat "$1"
		rm -f "$1"' "$library" "$on_node" |
		tools/trace/lines >"$BATS_TEST_TMPDIR/server.jsonl"
	assert_equal "$(jq -r 'select(.at and .t1 == null).call' \
		"$BATS_TEST_TMPDIR/server.jsonl")" rdma_get_cm_event
	looped crash
	[[ $output == *'(139)' ]]
	assert_equal "$(jq -r 'select(.at and .t1 == null).call' \
		"$BATS_TEST_TMPDIR/crash.jsonl")" ibv_dereg_mr
}

@test "an lkey for an rkey, and the other way round, fail when they are told apart" {
	# SoftRoCE lets it pass.
	looped lkey-for-rkey rkey-for-lkey
	assert_equal "$output" 'lkey-for-rkey: 0 (0)
rkey-for-lkey: 0 (0)'
	SETTINGS=VERBS_TRACE_LKEY=1
	looped lkey-for-rkey rkey-for-lkey plain ex srq window
	assert_line 'lkey-for-rkey: 10 (0)'
	# LOC_QP_OP, or flushed: kernels differ
	assert_line --regexp '^rkey-for-lkey: [25] \(0\)$'
	assert_equal "$(grep -c ': 0 (0)$' <<<"$output")" 4
	holds plain '.call == "ibv_reg_mr" and .lkey_shown and
		.lkey != .lkey_shown'
}

@test "a buffer that is written to before its completion is noticed" {
	SETTINGS=VERBS_TRACE_DATA=4
	looped no-reuse reuse
	assert_equal "$(jq -r '.wrs[]?.data // empty' \
		"$BATS_TEST_TMPDIR/no-reuse.jsonl" | tr '\n' ' ')" \
		'61616161 62626262 '
	assert_equal "$(jq -c '.wcs[]? | select(.changed)' \
		"$BATS_TEST_TMPDIR/no-reuse.jsonl")" ''
	assert_equal "$(jq -r '.wcs[]?.changed[]?' \
		"$BATS_TEST_TMPDIR/reuse.jsonl")" 1
}

# ---- make trace -----------------------------------------------------------

# timeline LESSON [ARG...]: make trace, and what is wrong with it. With MAY_FAIL the run
# itself need not end well.
timeline() {
	local lesson=$1

	shift
	OUT=$BATS_TEST_TMPDIR/time.jsonl COLUMNS=120 tools/trace/trace \
		"$lesson" -- "$@" >"$BATS_TEST_TMPDIR/time.txt" 2>&3 ||
		[ -n "${MAY_FAIL:-}" ] || return
	jq -rs -f tests/tools/timeline.jq "$BATS_TEST_TMPDIR/time.jsonl"
}

# places REGEX...: where on the time line these come first, by side and words
places() {
	local regex

	for regex; do
		jq -r '"\(.n) \(.side) \(.words)"' <(tail -n +2 \
			"$BATS_TEST_TMPDIR/time.jsonl") |
			grep -E -m 1 "^[0-9]+ $regex" | cut -d' ' -f1 || echo none
	done
}

@test "make trace LESSON=02: each cause before its effect" {
	local found

	run timeline 02 3>/dev/null
	assert_success
	assert_output ''
	found=$(places 'client rdma_connect' 'wire CM ConnectRequest' \
		'server rdma_get_cm_event: CONNECT_REQUEST' \
		'server ibv_post_recv' 'server rdma_accept' \
		'wire CM ConnectReply' 'client rdma_get_cm_event: ESTABLISHED' \
		'client ibv_post_send' 'wire SEND Only 10' 'wire Acknowledge' \
		'client ibv_poll_cq: wr_id 14 SEND SUCCESS' \
		'client rdma_disconnect' 'wire CM DisconnectRequest' \
		'server rdma_get_cm_event: DISCONNECTED' \
		'server rdma_disconnect' 'wire CM DisconnectReply' \
		'client rdma_get_cm_event: DISCONNECTED')
	assert_equal "$found" "$(sort -n <<<"$found")"
	[[ $found != *none* ]]
	found=$(places 'wire SEND Only' 'server ibv_poll_cq: wr_id 12 RECV')
	assert_equal "$found" "$(sort -n <<<"$found")"
	# Every call of the program's own has its line of source.
	assert_equal "$(jq -r 'select(.at and .lib == null and
		.source == null).call' "$BATS_TEST_TMPDIR/time.jsonl")" ''
	grep -q '^clocks: the client.s is .* the server.s, give or take ' \
		"$BATS_TEST_TMPDIR/time.txt"
	# It fits the terminal.
	assert_equal "$(grep -cE '.{121}' "$BATS_TEST_TMPDIR/time.txt")" 0
	# An order that is wrong would be noticed.
	jq -cs '.[0], (.[1:] | sort_by(if .words | startswith("SEND Only")
		then -1 else .n end) | to_entries[] | .value + {n: .key})' \
		"$BATS_TEST_TMPDIR/time.jsonl" >"$BATS_TEST_TMPDIR/wrong.jsonl"
	run jq -rs -f tests/tools/timeline.jq "$BATS_TEST_TMPDIR/wrong.jsonl"
	assert_output --partial 'before its post'
}

# The short runs of all lessons: pages.bats.
@test "make trace of a lesson with many messages" {
	run timeline 05 3>/dev/null
	assert_success
	assert_output ''
	[ "$(jq -s '[.[1:][] | select(.kind == "request")] | length' \
		"$BATS_TEST_TMPDIR/time.jsonl")" -ge 200 ]
	# Each message has its post, each completion its packet.
	assert_equal "$(jq -rs '(.[1:] | map({key: "\(.n)", value: .}) |
		from_entries) as $at | .[1:][] |
		select((.kind == "request" and (.again | not) and
			(.name | test("Middle|Last") | not) and
			([.after[] | $at["\(.)"].wrs | values] == []))
		or (([.wcs[]? | select(.status == 0)] != []) and
			([.after[] | $at["\(.)"] | select(.side == "wire")] == [])))
		| .words' "$BATS_TEST_TMPDIR/time.jsonl")" ''
}

@test "make trace on a wire that loses packets" {
	[ -d lessons/05-ping-pong ] || skip "there is no lesson 05"
	lab/lab impair loss 10%
	# The connection manager asks again after 4 s: see wire.bats.
	MAY_FAIL=1 SERVER_ARGS='-t 60' run timeline 05 --count 20 -t 60 3>/dev/null
	lab/lab impair clear
	assert_success
	assert_output ''
}

@test "a run that fails is shown as far as it went" {
	# Nobody listens there.
	run --separate-stderr env SERVER_ARGS='-t 1' tools/trace/trace 02 -- \
		-p 10122
	assert_failure
	[[ $stderr == *'the run failed'* ]]
	assert_output --partial 'CM ConnectReject'
	assert_output --partial 'rdma_get_cm_event: REJECTED'
}

@test "make trace refuses what it cannot do" {
	local args

	for args in '' '99' '02 03' '--nonsense'; do
		# shellcheck disable=SC2086 # none, one or two words
		run --separate-stderr tools/trace/trace $args
		assert_failure 2
		[[ $stderr == *usage:* ]]
	done
	LAB=native run tools/trace/trace 02
	assert_failure 2
}
