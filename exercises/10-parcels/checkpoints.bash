# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=10 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint connects parcels connect "A client gets a connection"
checkpoint first parcels 1 "A parcel is answered, with its own header"
checkpoint signalled parcels 5 "Each answer is signalled, so that its place in the send queue becomes free"
checkpoint many parcels 2 "Forty parcels are answered"
checkpoint sum parcels 3 "The sum of all their bytes is right"
checkpoint receive_first parcels 4 "A receive is posted before each answer"
checkpoint ends parcels 3 "It ends, with status 0"
checkpoint nothing_left parcels cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint far far 6 "A slot that is not there is refused: status 1"
checkpoint too_long long 6 "So is a length that is not what was written"
checkpoint no_write no_write 7 "So is a message that is no WRITE"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_parcels() {
	server=(-t "$t")
	client=(-t "$t" -n 40)
}

run_asan() {
	run_parcels
	variant=asan
}

run_far() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n 4 -f)
}

run_long() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n 4 -l)
}

run_no_write() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n 4 -e)
}

connects() {
	grep -qx connected "$(output peer)" || saw "the client got no connection"
}

# the_client_says: what it printed and what failed on its side
the_client_says() {
	saw "the client says:"
	quote_lines <(grep -av '^connected' "$(output peer)"
		cat "$(output peer stderr)") 3
	return 1
}

# answers: how many SENDs the program has posted
answers() {
	ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode | startswith("SEND"))] | length'
}

first() {
	grep -q '^[0-9]* of [0-9]* parcels were answered$' "$(output peer)" && return
	# Some were, and then it stopped: that is the next checkpoint's.
	! grep -q 'when [1-9][0-9]* of' "$(output peer)" || return 0
	[ "$(answers)" -le 1 ] || return 0
	the_client_says
}

signalled() {
	local without

	without=$(ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.flags | index("SIGNALED") | not)] | length')
	[ "$without" = 0 ] ||
		saw "$without answers were posted without IBV_SEND_SIGNALED: they hold their places" \
			"in the send queue for good"
}

many() {
	grep -qx '40 of 40 parcels were answered' "$(output peer)" ||
		the_client_says
}

sum() {
	grep -q '^the sum is right' "$(output peer)" || the_client_says
}

# At each answer as many receives have to have been posted as messages have come,
# and one for each slot.
receive_first() {
	local bad

	bad=$(ask learner 'reduce (calls("ibv_post_recv", "ibv_post_send") | good[]) as $c
		({ receives: 0, sends: 0, bad: 0 };
		if $c.call == "ibv_post_recv" then .receives += ($c.wrs | length)
		else reduce $c.wrs[] as $wr (.; .sends += 1
			| if .receives < 4 + .sends then .bad += 1 else . end) end)
		| .bad')
	[ "$bad" = 0 ] ||
		saw "$bad answers were posted when there was no receive yet for what they invite"
}

ends() {
	exit_status 0
}

refused() {
	connects || return
	! grep -q '^waited ' "$(output peer stderr)" ||
		saw "the client waited in vain, and was neither answered nor left" || return
	exit_status 1 && nothing_left
}

# Whoever believes in slot 204 may well crash there: the hint is the same.
far() {
	fits 6
	refused
}

too_long() {
	refused
}

no_write() {
	refused
}
