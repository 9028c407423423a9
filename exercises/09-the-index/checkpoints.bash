# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=09 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects read connect "It gets a connection"
checkpoint asks read 1 "It asks for the READs that it is going to make"
checkpoint index_read read 2 "It reads the index"
checkpoint sums read 3 "The sums of all records are right"
checkpoint together read 4 "Several READs are under way at a time"
checkpoint fits_queue read 4 "And no more than the send queue was made for"
checkpoint rights read 5 "Its memory has the right that it needs, and no other"
checkpoint ends read 3 "It ends, with status 0"
checkpoint nothing_left read cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint lie lie 6 "A record that goes past the end is not asked for: status 1"
checkpoint big big 6 "Nor is one that has no room in its place: status 1"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_read() {
	server=(-t "$t")
	client=(-t "$t")
}

run_asan() {
	run_read
	variant=asan
}

run_lie() {
	server=(-t "$t" -l)
	client=(-t "$t")
}

run_big() {
	server=(-t "$t" -b)
	client=(-t "$t")
}

connects() {
	grep -q '^connected' "$(output peer)" ||
		saw "the server got no connection"
}

asks() {
	local made

	made=$(ask learner 'calls("rdma_connect") | last
		| "\(.initiator_depth) \(.responder_resources)"')
	[ "${made% *}" -ge 1 ] 2>/dev/null || saw "rdma_connect said: initiator_depth" \
		"${made% *}, responder_resources ${made#* }"
}

# completed_reads: how many READs were seen to complete well
completed_reads() {
	ask learner '[calls("ibv_poll_cq") | good[].wcs[]?
		| select(.opcode == "RDMA_READ" and .status == 0)] | length'
}

index_read() {
	local posted

	[ "$(completed_reads)" = 0 ] || return 0
	posted=$(ask learner '[calls("ibv_post_send") | good[].wrs[]
		| select(.opcode == "RDMA_READ")] | length')
	[ "$posted" = 0 ] || fits 5
	saw "$posted READs were posted, and none was seen to complete"
	quote_lines "$(output learner stderr)" 2
	return 1
}

sums() {
	local early

	early=$(ask learner 'with_card | .early')
	[ "$early" = 0 ] ||
		saw "the sums were sent before all READs had been seen to complete" || return
	grep -qx '12 of 12 sums are right' "$(output peer)" && return
	[ "$(completed_reads)" -gt 1 ] || fits 2
	saw "the server says:"
	quote_lines <(grep -av '^connected\|^listening' "$(output peer)") 2
	return 1
}

together() {
	local most

	most=$(ask learner 'with_card | .most')
	[ "$most" -ge 2 ] || saw "no more than $most was under way at any time"
}

# The place where the READs arrive.
rights() {
	local access

	access=$(ask learner '[calls("ibv_post_send") | good[].wrs[]
			| select(.opcode == "RDMA_READ") | .sges[0].lkey] as $keys
		| calls("ibv_reg_mr", "ibv_reg_mr_iova2") | good
		| map(select(.lkey | IN($keys[]))) | map(.access | join(", "))
		| unique | join("; ")')
	[ "$access" = LOCAL_WRITE ] || saw "the region that is read into has: $access"
}

ends() {
	exit_status 0
}

# refused: it has seen for itself, and asked for nothing that is not there
refused() {
	connects || return
	if grep -q ' sums are right' "$(output peer)"; then
		saw "it sent sums all the same"
		return 1
	fi
	holds learner '[calls("ibv_poll_cq") | good[].wcs[]?
		| select(.status == 10)] | length == 0' ||
		saw "it asked for bytes past the end of the region, and the server's card refused" ||
		return
	exit_status 1 && nothing_left
}

lie() {
	refused
}

big() {
	refused
}
