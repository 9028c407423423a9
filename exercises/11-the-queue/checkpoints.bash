# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # questions to jq; variables of the checker
#
# What make check EXERCISE=11 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects turns connect "It gets a connection"
checkpoint tickets turns 1 "It draws tickets"
checkpoint waits turns 2 "It touches the value only when it is its turn"
checkpoint called turns 3 "It calls the next"
checkpoint value turns 4 "The value is right"
checkpoint order turns 5 "The value is written before the next is called"
checkpoint ends turns 3 "It ends, with status 0"
checkpoint nothing_left turns cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint stuck stuck 6 "Of a lock that is never given back it says so: status 1"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_turns() {
	server=(-t "$t")
	client=(-t "$t" -n 3)
}

run_asan() {
	run_turns
	variant=asan
}

# The server stays, so that only a deadline of its own ends the client.
run_stuck() {
	server=(-t 60 -s)
	client=(-t "$t" -n 1)
}

connects() {
	grep -qx connected "$(output peer)" ||
		saw "the server got no connection"
}

the_server_says() {
	saw "the server says:"
	quote_lines <(grep -av '^connected\|^listening' "$(output peer)") 3
	return 1
}

# ends_at NAME: a number of the last line but one
ends_at() {
	sed -n "s/.*\<$1 is \([0-9]*\).*/\1/p" "$(output peer)" | head -n 1
}

tickets() {
	local next

	next=$(ends_at next)
	if grep -q '^too early' "$(output peer)"; then
		holds learner '[calls("ibv_post_send") | good[].wrs[]
			| select(.opcode == "ATOMIC_FETCH_AND_ADD")] | length > 0' ||
			the_server_says
		return
	fi
	[ "${next:-0}" -gt 2 ] || the_server_says
}

waits() {
	! grep -q '^too early' "$(output peer)" || the_server_says || return
	[ "$(ends_at next)" = "$(ends_at serving)" ] && return
	# It never believed that it was its turn.
	holds learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_WRITE")] | length > 0' || the_server_says
}

called() {
	[ "$(ends_at next) $(ends_at serving)" = "5 5" ] || the_server_says
}

value() {
	grep -q '^the value is right' "$(output peer)" || the_server_says
}

# The last request of all calls the next, be it by an atomic or by a WRITE to
# another address than the value's.
order() {
	local last places

	last=$(ask learner '[calls("ibv_post_send") | good[].wrs[].opcode] | last')
	places=$(ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_WRITE") | .remote_addr] | unique | length')
	[ "$last" != RDMA_WRITE ] || [ "$places" -gt 1 ] ||
		saw "the last request was the WRITE of the value, after the next was called"
}

ends() {
	exit_status 0
}

stuck() {
	ended peer
	[ "$how" = exit ] ||
		saw "it waited for its turn until the server was gone" || return
	exit_status 1 || return
	nothing_left || return
	holds learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_WRITE")] | length == 0' ||
		saw "it wrote, though it never was its turn"
}
