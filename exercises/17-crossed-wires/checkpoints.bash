# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=17 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint gid plain 1 "Its packets come from the address that the server knows"
checkpoint psn plain 2 "Both sides count from the same numbers"
checkpoint arrives plain connect "The text arrives, and the doorbell rings"
checkpoint answered plain 3 "The server can write its answer"
checkpoint small small 4 "It works with a server whose packets are smaller"
checkpoint ends plain 3 "It ends, with status 0"
checkpoint nothing_left plain cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_plain() {
	server=(-t $((t + 1)))
	client=(-t "$t")
}

run_asan() {
	run_plain
	variant=asan
}

run_small() {
	server=(-t $((t + 1)) --mtu 256)
	client=(-t "$t")
}

# given FIELD: what the learner's program has last given to ibv_modify_qp
given() {
	ask learner "[calls(\"ibv_modify_qp\")[] | .$1 // empty] | last // \"nothing\""
}

# The peer's GID tells which family it is; the row that was found is the one whose
# address TCP uses. Row 0 of a node's table is the link-local address.
gid() {
	local row

	row=$(ask learner '[calls("ibv_modify_qp")[] | .ah_attr.sgid_index // empty] | last // "none"')
	[[ $row != 0 && $row != none ]] ||
		saw "sgid_index was $row, and that row is not the address that the server was told"
}

psn() {
	local ours theirs rq sq

	read -r theirs ours < <(sed -nE \
		's/^connected: our first PSN is ([0-9]+), the client.s ([0-9]+)$/\1 \2/p' \
		"$(output peer)") || true
	rq=$(given rq_psn)
	sq=$(given sq_psn)
	[ "${ours:-}" ] || saw "the server saw no connection" || return
	[ "$rq" = "$theirs" ] ||
		saw "the server's first packet has the number $theirs, and rq_psn is $rq" || return
	[ "$sq" = "$ours" ] ||
		saw "the server was told that your first packet has the number $ours, and sq_psn is $sq"
}

arrives() {
	grep -qx 'the doorbell has rung, 5000 bytes: right' "$(output peer)" ||
		saw "the server says: $(tail -n 1 "$(output peer)")"
}

answered() {
	grep -qx 'the WRITE of the answer has status 0' "$(output peer)" && return
	saw "the server says:"
	quote_lines <(grep -a 'the answer' "$(output peer)") 2
	return 1
}

small() {
	grep -qx 'the doorbell has rung, 5000 bytes: right' "$(output peer)" ||
		saw "with packets of 256 bytes the server says: $(tail -n 1 "$(output peer)")"
}

ends() {
	exit_status 0
}
