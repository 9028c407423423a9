# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=07 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects plain connect "It connects"
checkpoint not_reused plain 1 "No buffer is written to while the card has it"
checkpoint queue plain 2 "There are never more requests than the queue was made for"
checkpoint right plain 5 "The server finds what was to be written"
checkpoint both plain 4 "Both buffers are under way at the same time"
checkpoint ends plain 5 "It ends, with status 0"
checkpoint nothing_left plain cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint too_small small 3 "Nothing is written past the end of what is offered: status 1"
checkpoint no_warnings - warnings "The compiler warns of nothing"

# The recorder notes the bytes of each buffer when it is posted, and looks again
# when it completes. (SoftRoCE copies them early, so the server would often find
# nothing wrong.)
run_plain() {
	server=(-t $((t + 1)))
	client=(-t "$t" -s 20000)
	trace_settings=(VERBS_TRACE_DATA=8)
}

run_asan() {
	run_plain
	variant=asan
}

run_small() {
	server=(-t $((t + 1)) -o 10000)
	client=(-t "$t" -s 20000)
}

connects() {
	grep -qx connected "$(output peer)" || saw "the server saw no connection"
}

right() {
	grep -qx 'the client says that it wrote 20000 bytes: right' \
		"$(output peer)" && return
	saw "the server says:"
	quote_lines <(grep -av '^listening\|^connected' "$(output peer)") 2
	return 1
}

not_reused() {
	local twice changed

	twice=$(ask learner 'with_card | .twice')
	[ "$twice" = 0 ] ||
		saw "$twice times a block was posted from a buffer whose last block had not" \
			"been seen to complete" || return
	changed=$(ask learner changed)
	[ "$changed" = 0 ] ||
		saw "$changed times a buffer had other bytes in it when its request completed" \
			"than when it was posted"
}

queue() {
	fits_queue
}

both() {
	local most

	most=$(ask learner 'with_card | .writes')
	[ "$most" -ge 2 ] ||
		saw "there never was more than one WRITE on its way"
}

ends() {
	exit_status 0
}

too_small() {
	local past

	connects || return
	past=$(ask learner '[calls("ibv_post_send")[].wrs[]
		| select(.opcode == "RDMA_WRITE")] | length')
	if [ "$past" -gt 9 ]; then
		saw "the server offered 10000 bytes, and $past blocks of 1024 were posted"
		return 1
	fi
	exit_status 1 && nothing_left
}
