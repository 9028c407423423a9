# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=06 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint connects strict connect "A client gets a connection and an offer"
checkpoint addresses strict 1 "The addresses that it is told are those of the regions"
checkpoint keys strict 2 "The keys that it is told are those for peers"
checkpoint rights strict 3 "A peer may write to both regions"
checkpoint no_more strict 4 "And it may do nothing else"
checkpoint written strict 5 "What the client writes is found there"
checkpoint ends strict 5 "It ends, with status 0"
checkpoint nothing_left strict cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

# SoftRoCE gives a region one number for both of its keys. Here the program sees
# another lkey than the card has, as on a device that makes two.
run_strict() {
	server=(-t $((t + 1)))
	client=(-t "$t")
	trace_settings=(VERBS_TRACE_LKEY=1)
}

run_asan() {
	run_strict
	variant=asan
}

# told FIELD: what the client was told of the two regions, a line each
told() {
	sed -n "s/^region [01]: .*\<$1 \(0x[0-9a-f]*\|[0-9]*\).*/\1/p" \
		"$(output peer)"
}

# regions FIELD: the same of the regions that the program registered, by size.
# ibv_reg_mr() is a macro: where the access flags are no constant for the compiler
# (-O0), it calls ibv_reg_mr_iova2().
regions() {
	ask learner 'calls("ibv_reg_mr", "ibv_reg_mr_iova2") | good
		| map(select(.length == 1000 or .length == 5000))
		| sort_by(.length)[] | .'"$1"
}

connects() {
	grep -qx connected "$(output peer)" ||
		saw "the client got no connection" || return
	[ "$(told address | wc -l)" = 2 ] && return
	saw "the client was told of no two regions:"
	quote_lines "$(output peer)" 3
	return 1
}

# same WHAT WANTED TOLD
same() {
	[ "$2" != "$3" ] || return 0
	saw "the $1 of the two regions:"
	paste <(echo "$2") <(echo "$3") | sed 's/\t/, and the client was told: /; s/^/    /'
	return 1
}

addresses() {
	same "address and then the size" \
		"$(regions addr; regions length)" "$(told address; told size)"
}

keys() {
	same rkey "$(regions rkey)" "$(told rkey)"
}

rights() {
	local lacking

	lacking=$(ask learner 'calls("ibv_reg_mr", "ibv_reg_mr_iova2") | good
		| map(select((.length == 1000 or .length == 5000)
			and ((["LOCAL_WRITE", "REMOTE_WRITE"] - .access) | length > 0)))
		| map("the region of \(.length) bytes has: \(.access | join(", "))")
		| .[]')
	[ -z "$lacking" ] || saw "$lacking"
}

no_more() {
	local more

	more=$(ask learner 'calls("ibv_reg_mr", "ibv_reg_mr_iova2") | good
		| map(((if .length == 1000 or .length == 5000
			then ["LOCAL_WRITE", "REMOTE_WRITE"] else ["LOCAL_WRITE"] end)
			as $may | select(.access - $may | length > 0)))
		| map("the region of \(.length) bytes has: \(.access | join(", "))")
		| .[]')
	[ -z "$more" ] || saw "$more"
}

written() {
	local found

	found=$(grep -c 'the server found what we wrote$' "$(output peer)") || true
	[ "$found" = 2 ] && return
	saw "the client says:"
	quote_lines <(grep -av '^connected' "$(output peer)") 4
	return 1
}

ends() {
	exit_status 0
}
