# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=08 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint connects rounds connect "A client gets a connection"
checkpoint first rounds 1 "The bell rings back, and the answer is right"
checkpoint many rounds 2 "Twenty rounds are answered"
checkpoint bell_last rounds 3 "The bell is rung after the answer is written"
checkpoint not_reused rounds 4 "No memory is written to while the card has it"
checkpoint ends rounds 5 "It ends, with status 0"
checkpoint nothing_left rounds cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint jump jump 6 "A ring that is not the next is no question: status 1"
checkpoint mute mute 7 "A client that offers nothing is refused: status 1"
checkpoint small small 7 "So is one that offers too little"
checkpoint no_warnings - warnings "The compiler warns of nothing"

# The recorder notes the bytes of each buffer when it is posted, and looks again
# when it completes.
run_rounds() {
	server=(-t "$t")
	client=(-t "$t" -n 20)
	trace_settings=(VERBS_TRACE_DATA=8)
}

run_asan() {
	run_rounds
	variant=asan
}

run_jump() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n 3 -j 2)
}

run_mute() {
	server=(-t "$t")
	client=(-t "$t" -m)
}

run_small() {
	server=(-t "$t")
	client=(-t "$t" -s)
}

connects() {
	grep -qx connected "$(output peer)" || saw "the client got no connection"
}

# the_client_says: what it printed, but for the good news
the_client_says() {
	# A queue that is full, or lost completions, may end it before.
	[ "$(ask learner 'with_card | .twice')" = 0 ] || fits 4
	# The bell, and no answer yet.
	! grep -q 'sum 0xffffffff; expected' "$(output peer)" || fits 3
	saw "the client says:"
	quote_lines <(grep -av '^connected' "$(output peer)") 3
	return 1
}

first() {
	grep -qE '^([1-9]|20|1[0-9]) of 20 rounds' "$(output peer)" ||
		the_client_says
}

many() {
	grep -qx '20 of 20 rounds were answered' "$(output peer)" ||
		the_client_says
}

# The WRITEs go to two addresses, in turn; which is the bell's is known by what
# the client's request said.
bell_last() {
	local bell order

	bell=$(ask learner '[calls("rdma_get_cm_event")[]
		| select(.event == "CONNECT_REQUEST") | .private_data][0][32:48]')
	order=$(ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_WRITE")
		| .remote_addr[2:] | ("0" * (16 - length) // "") + .
		| if . == $bell then "b" else "a" end] | add // ""' --arg bell "$bell")
	[[ ! $order =~ ^(ab)*$ ]] || return 0
	saw "the WRITEs of the first rounds, a: to the answer, b: to the bell: ${order:0:12}"
}

not_reused() {
	local twice changed

	twice=$(ask learner 'with_card | .twice')
	[ "$twice" = 0 ] ||
		saw "$twice times a WRITE was posted from memory whose last WRITE had not been" \
			"seen to complete" || return
	changed=$(ask learner changed)
	[ "$changed" = 0 ] ||
		saw "$changed times memory had other bytes in it when its WRITE completed than" \
			"when it was posted" || return
	fits_queue
}

ends() {
	exit_status 0
}

# The first round is answered, with two WRITEs; the second is not.
jump() {
	local writes

	connects || return
	writes=$(ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_WRITE")] | length')
	[ "$writes" -le 2 ] ||
		saw "a ring 7, where 2 was next, was answered" || return
	[ "$writes" = 2 ] || saw "the first round was not answered" || return
	exit_status 1 && nothing_left
}

# refused: the client was not let in, and nothing was written
refused() {
	! grep -qx connected "$(output peer)" ||
		saw "the client was let in" || return
	holds learner 'calls("rdma_reject") | good | length > 0' ||
		saw "it was not refused (rdma_reject)" || return
	exit_status 1 && nothing_left
}

mute() {
	refused
}

small() {
	refused
}
