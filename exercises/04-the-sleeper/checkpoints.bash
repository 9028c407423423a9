# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=04 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint one idle 2 "A message that comes while it sleeps is answered"
checkpoint while_tidying tidying 2 "Messages that come while it tidies up are answered"
checkpoint looks_again tidying 2 "After each arming it looks, until there is nothing, before it sleeps"
checkpoint all_of_burst idle 1 "Of many messages at once, every one is answered"
checkpoint sleeps idle 3 "Where there is nothing to do it sleeps"
checkpoint acknowledged idle 4 "The events of the CQ are acknowledged, and it ends with 0"
checkpoint nothing_left idle cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

# Each burst finds the server asleep.
run_idle() {
	server=(-t "$t")
	client=(-t "$t" -i $((200 * slow)) -b 1 -b 16 -b 7)
}

# The bursts come while the server tidies up. Without the pause before each they
# can come so soon after an answer that the look which found the question finds
# them as well.
run_tidying() {
	server=(-t "$t" -w $((300 * slow)))
	client=(-t "$t" -i $((100 * slow)) -b 1 -b 1 -b 16)
}

run_asan() {
	run_tidying
	variant=asan
}

# answered N: the bursts that the client saw answered whole
answered() {
	grep -cE '^burst of ([0-9]+): \1 answered$' "$(output peer)" || true
}

one() {
	[ "$(answered)" -ge 1 ] || saw "the client got no answer to its first message"
}

# slept [CALLS]: how the first sleep was that should not have been: `blind`, with
# an arming and no look before it, or `full`, with a look before it that found as
# many as it asked for. The sleep is a poll(2), which is not recorded; what
# comes after it is the taking of the event, or one of CALLS.
slept() {
	ask learner '
		reduce calls("ibv_req_notify_cq", "ibv_poll_cq", "ibv_get_cq_event",
				($last | split(" ")[]))[]
			as $c ({ armed: false, full: false, slept: null };
			if $c.call == "ibv_req_notify_cq" then .armed = true
			elif $c.call == "ibv_poll_cq" then
				.armed = false | .full = ($c.ret == $c.max)
			elif .slept then .
			elif .armed then .slept = "blind"
			elif .full then .slept = "full"
			else . end)
		| .slept // empty' --arg last "${1:-}"
}

while_tidying() {
	[ "$(answered)" = 3 ] && return
	# Where it has slept for ever, the client leaves next, or the time is over.
	[ "$(slept "rdma_get_cm_event rdma_disconnect")" != full ] || fits 1
	saw "the client sent 1, 1 and 16 messages:"
	quote_lines <(grep -a '^burst' "$(output peer)") 3
	return 1
}

all_of_burst() {
	[ "$(answered)" = 3 ] && return
	saw "the client sent bursts of 1, 16 and 7 messages:"
	quote_lines <(grep -a '^burst' "$(output peer)") 3
	return 1
}

# Between an arming and the sleep that follows it there has to be a look, and the
# last look must have found less than it asked for.
looks_again() {
	case $(slept rdma_get_cm_event) in
	blind)
		saw "it slept after an arming (ibv_req_notify_cq) without a look" \
			"(ibv_poll_cq) in between"
		;;
	full)
		fits 1
		saw "it slept after a look (ibv_poll_cq) that had found as many as it had" \
			"asked for: there may have been more"
		;;
	esac
}

sleeps() {
	local looks

	holds learner 'calls("ibv_get_cq_event") | good | length > 0' ||
		saw "no event was ever taken from the completion channel" ||
		return
	# What is flushed at the end may take its time: that is no sleep to look at.
	looks=$(ask learner '(calls("rdma_disconnect") | first | .t0 // infinite)
			as $until
		| [calls("ibv_poll_cq")[] | select(.ret == 0 and .t0 < $until)
		   | .calls // 1] | add // 0')
	[ "$looks" -lt 60 ] ||
		saw "the CQ was looked at $looks times in vain: that is not sleeping"
}

acknowledged() {
	local got acked

	ended_by_itself || return
	got=$(ask learner 'calls("ibv_get_cq_event") | good | length')
	acked=$(ask learner '[calls("ibv_ack_cq_events")[].nevents] | add // 0')
	[ "$got" = "$acked" ] ||
		saw "$got events were taken from the completion channel, $acked acknowledged" ||
		return
	exit_status 0
}
