# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=02 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint connects plain connect "A client gets a connection"
checkpoint receive_first plain 1 "A receive is posted before the client can send"
checkpoint message plain 1 "The message of a client that does not wait gets through"
checkpoint name reused 2 "The client is welcomed by its own name"
checkpoint ends plain 3 "It ends, with status 0"
checkpoint nothing_left plain cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint silent silent 3 "A client that leaves without a message: status 1, nothing left"
checkpoint rude rude rude "A client that does not say who it is: refused, status 1"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_plain() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n "Grace Hopper" -m "Good evening")
}

# Memory that was given back is overwritten: whoever still reads it reads that.
run_reused() {
	run_plain
	learner_env=(GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.perturb=90)
}

run_asan() {
	variant=asan
	run_plain
}

run_silent() {
	server=(-t $((t + 1)))
	client=(-t "$t" -s)
}

run_rude() {
	server=(-t $((t + 1)))
	client=(-t "$t" -r)
}

connects() {
	grep -q '^welcome: ' "$(output peer)" && return
	saw "the client got no connection"
	last_words 3 peer
	return 1
}

receive_first() {
	holds learner '(calls("rdma_accept") | first | .t0) as $accept
		| calls("ibv_post_recv") | good | any(.t0 < $accept)' && return
	no_circumstances
	saw "when rdma_accept was called, no receive was posted"
}

message() {
	local came

	grep -qx 'message: success' "$(output peer)" && return
	came=$(sed -n 's/^message: //p;T;q' "$(output peer)")
	saw "the client sent at once, and its card tries once;" \
		"${came:+its completion said: }${came:-it has seen no completion}"
}

name() {
	grep -qx 'welcome: Grace Hopper' "$(output peer)" && return
	# A crash is the same mistake.
	fits 2
	saw "the client said that it is Grace Hopper"
	if grep -q '^welcome: ' "$(output peer)"; then
		printf 'it was told:\n'
		quote_lines <(grep -a '^welcome: ' "$(output peer)") 1
	else
		printf 'no welcome came\n'
		last_words 2 peer
	fi
	return 1
}

ends() {
	ended_by_itself && events_acknowledged && exit_status 0
}

silent() {
	connects || return
	ended_by_itself && events_acknowledged && exit_status 1 && nothing_left
}

rude() {
	! grep -q '^welcome: ' "$(output peer)" ||
		saw "it was let in" || return
	grep -q 'RDMA_CM_EVENT_REJECTED, status 28' "$(output peer stderr)" ||
		saw "the client was not refused by your server" || return
	exit_status 1 && events_acknowledged && nothing_left
}
