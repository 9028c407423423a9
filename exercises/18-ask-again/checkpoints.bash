# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=18 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint finds plain connect "It finds the server"
checkpoint one one 1 "One question is asked, and its answer understood"
checkpoint receives plain 4 "A receive is posted again for each datagram"
checkpoint again plain 2 "A question that is lost is asked again"
checkpoint right plain 3 "No other question's answer is taken for this one's"
checkpoint ends plain 3 "It ends, with status 0"
checkpoint not_too_often plain 5 "No question is asked more often than it has to be"
checkpoint nothing_left plain cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint gives_up silent 2 "Where no answer comes it gives up: status 1"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_plain() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n 20)
}

run_one() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n 1)
}

run_asan() {
	run_plain
	variant=asan
}

# The server is not there to answer any more: it takes the questions and is silent.
run_silent() {
	server=(-t $((t + 1)) --silent)
	client=(-t "$t" -n 20)
}

finds() {
	grep -qx connected "$(output peer)" || saw "the server was not found"
}

one() {
	if grep -qx 'what came is no question' "$(output peer)"; then
		saw "the server got a datagram that is no question"
		return 1
	fi
	if ! grep -qx 'wrong answers that came back: 0' "$(output peer)" ||
		! grep -qx 'goodbye: yes' "$(output peer)"; then
		saw "the answer that came back with the next question is not the one that the server gave"
		return 1
	fi
}

# datagrams: how many receives the learner's program has seen completed
datagrams() {
	ask learner '[calls("ibv_poll_cq")[] | .wcs[]? | select(.opcode == "RECV")] | length'
}

receives() {
	local posted taken

	taken=$(datagrams)
	posted=$(ask learner '[calls("ibv_post_recv")[].wrs[]] | length')
	[ "$posted" -ge "$taken" ] || saw "$taken datagrams have come, and $posted receives were posted"
	[ "$taken" -lt 4 ] || [ "$posted" -gt 4 ] ||
		saw "4 receives were posted at the beginning, and none after that"
}

again() {
	grep -q '^20 of 20 questions came' "$(output peer)" && return
	saw "the server says:"
	quote_lines <(grep -a 'questions came' "$(output peer)") 2
	return 1
}

right() {
	grep -qx 'wrong answers that came back: 0' "$(output peer)" && return
	saw "the server says:"
	quote_lines <(grep -a 'wrong answers' "$(output peer)") 2
	return 1
}

ends() {
	exit_status 0
}

# 20 questions; six of them are lost once, and four twice: 34 in all.
# Somebody who is delayed asks a little more often.
not_too_often() {
	local times

	times=$(sed -nE 's/.*asked ([0-9]+) times in all$/\1/p' "$(output peer)")
	[ "${times:-0}" -le 60 ] || saw "20 questions were asked $times times"
}

gives_up() {
	local asked

	exit_status 1 && nothing_left || return
	asked=$(ask learner '[calls("ibv_post_send") | good[].wrs[]] | length')
	[ "$asked" -ge 5 ] ||
		saw "the question was asked $asked times, and then it gave up"
}
