# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=13 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects bursts connect "It connects"
checkpoint delivered bursts 3 "Every item of twelve bursts is delivered, in order"
checkpoint few_calls bursts 1 "Items that are there together go out together"
checkpoint few_signals bursts 2 "Few of the requests ask for a completion"
checkpoint in_depth bursts 3 "Never more requests are out than the queue was made for"
checkpoint not_reused bursts 3 "No slot is written to while the card has it"
checkpoint ends bursts 5 "It ends, with status 0"
checkpoint nothing_left bursts cleanup "Nothing is left over"
checkpoint many many 3 "Forty bursts are delivered as well"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

# 3 + 5 + 2 + 6 + 7 + 100 + 1 + 16 + 40 + 9 + 64 + 23
items=276

# The recorder notes the bytes of each slot when it is posted, and looks again
# when it completes.
run_bursts() {
	server=(-t "$t")
	client=(-t "$t" -n 12)
	trace_settings=(VERBS_TRACE_DATA=32)
}

run_many() {
	server=(-t "$t")
	client=(-t "$t" -n 40)
}

run_asan() {
	server=(-t "$t")
	client=(-t "$t" -n 12)
	variant=asan
}

connects() {
	grep -qx connected "$(output peer)" || saw "there was no connection"
}

posted() {
	ask learner '[calls("ibv_post_send") | good[].wrs[]] | length'
}

# What is out at the end, and that nobody will tell of.
silent() {
	ask learner 'with_card.now
		| if any(.[]; .signaled) then 0 else length end'
}

# all_came ITEMS BURSTS: the server has seen them. Otherwise: why not?
all_came() {
	local out

	grep -qx "$1 items came, $2 bursts were whole" "$(output peer)" && return
	saw "the server says:"
	quote_lines <(grep -av '^connected' "$(output peer)") 3
	out=$(silent)
	if [ "$(posted)" -lt 8 ]; then
		fits 4
		saw "$(posted) items were posted, and the first bursts have more"
	elif [ "$out" -gt 8 ]; then
		fits 2
		saw "$out requests were out at the end, and none of them was signalled: who" \
			"would have told of them?"
	fi
	return 1
}

delivered() {
	all_came $items 12
}

many() {
	all_came 844 40
}

few_calls() {
	local calls largest

	calls=$(ask learner 'calls("ibv_post_send") | good | length')
	[ "$calls" -gt 0 ] || saw "no call of ibv_post_send was seen" || return
	[ "$calls" -gt $((items / 3)) ] || return 0
	saw "$items items went out in $calls calls of ibv_post_send"
	# Batches there are, and then room for one at a time.
	largest=$(ask learner '[calls("ibv_post_send") | good[].wrs | length] | max')
	if [ "$largest" -gt 1 ] && [ "$(signals)" = "$items" ]; then
		fits 2
		saw "($largest at a time at most: each completion made room for one more, which then went out alone)"
	fi
	return 1
}

signals() {
	ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.flags | index("SIGNALED"))] | length'
}

few_signals() {
	[ "$(signals)" -le $((items / 3)) ] ||
		saw "of $items requests $(signals) were signalled"
}

in_depth() {
	local most size

	most=$(ask learner 'with_card | .most')
	size=$(ask learner 'calls("rdma_create_qp") | last | .attr.max_send_wr')
	[ "$most" -le "$size" ] ||
		saw "the send queue was made for $size requests, and $most were posted before the" \
			"completion of any of them was seen"
}

not_reused() {
	local twice changed

	twice=$(ask learner 'with_card | .twice')
	[ "$twice" = 0 ] ||
		saw "$twice times an item was posted from a slot whose last item was not yet" \
			"known to be done" || return
	changed=$(ask learner changed)
	[ "$changed" = 0 ] ||
		saw "$changed times a slot had other bytes in it when its request completed than" \
			"when it was posted"
}

ends() {
	exit_status 0
}
