# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # questions to jq; variables of the checker
#
# What make check EXERCISE=14 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects ring connect "It connects"
checkpoint first few 5 "Four messages, which need no end, arrive"
checkpoint one_piece ring 1 "A hundred messages arrive, each in one piece"
checkpoint tail_last ring 5 "The tail is written after what it tells of"
checkpoint slow slow 4 "A server that reads slowly is not overrun"
checkpoint ends ring 6 "It ends, with status 0"
checkpoint nothing_left ring cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_few() {
	server=(-t "$t")
	client=(-t "$t" -n 4)
}

run_ring() {
	server=(-t "$t")
	client=(-t "$t" -n 100)
	trace_settings=(VERBS_TRACE_DATA=8)
}

# The server reads when nothing has come for a while, and then a little.
run_slow() {
	server=(-t "$t" -s $((100 * slow)))
	client=(-t "$t" -n 24)
}

run_asan() {
	server=(-t "$t")
	client=(-t "$t" -n 60)
	variant=asan
}

connects() {
	grep -qx connected "$(output peer)" || saw "there was no connection"
}

# came N: the server has N messages, and was content with each. Otherwise what it
# says tells which hint fits.
came() {
	local said

	said=$(grep '^after message ' "$(output peer)" || true)
	if [ -z "$said" ] &&
		grep -qx "$1 messages came, every one in one piece" "$(output peer)"; then
		return 0
	fi
	case $said in
	*'in two pieces' | *'at the beginning') fits 1 ;;
	*'more than a ring ahead' | *'of the message is wrong') fits 4 ;;
	*'not counted' | *'past the tail') fits 3 ;;
	*'that was due') [ "$run" = slow ] || fits 2 ;;
	esac
	# What is not counted shows as this or as that, as time has it.
	[ "$run" != ring ] || [ "$(uncounted)" = 0 ] || fits 3
	[[ $(writes) =~ ^(r+t)*r*$ ]] || fits 5
	saw "the server says:"
	quote_lines <(grep -av '^connected' "$(output peer)") 3
	quote_lines "$(output learner stderr)" 2
	return 1
}

first() {
	came 4
}

one_piece() {
	came 100
}

slow() {
	came 24
}

# A WRITE to the tail word tells of nothing that is written after it: between two
# of them there is at least one WRITE to the ring, and none after the last.
writes() {
	ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_WRITE")
		| if .sges[0].length == 8 and .remote_addr == $tail then "t" else "r" end]
		| add // ""' --arg tail "$(tail_address)"
}

# How many tails are not the end of the last WRITE to the ring.
uncounted() {
	ask learner 'def number: ltrimstr("0x") | explode
			| reduce .[] as $c (0; . * 16 + $c - (if $c > 96 then 87 else 48 end));
		[calls("ibv_post_send") | good[].wrs[] | select(.opcode == "RDMA_WRITE")
			| { to: (.remote_addr | number), length: .sges[0].length,
				tail: (.remote_addr == $tail), data }]
		| (map(select(.tail | not).to) | min) as $ring
		| reduce .[] as $w ({ end: 0, bad: 0 };
			if $w.tail | not then .end = ($w.to - $ring + $w.length) % 1024
			elif ($w.data | number) % 1024 != .end then .bad += 1 else . end)
		| .bad' --arg tail "$(tail_address)"
}

tail_last() {
	local order

	order=$(writes)
	[[ ! $order =~ ^(r+t)+$ ]] || return 0
	saw "the first WRITEs, r: to the ring, t: to the tail word: ${order:0:12}"
}

# The address that eight bytes are written to most often.
tail_address() {
	ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_WRITE" and .sges[0].length == 8) | .remote_addr]
		| group_by(.) | max_by(length) | first // ""'
}

ends() {
	exit_status 0
}
