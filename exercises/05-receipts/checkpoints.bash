# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=05 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint connects one connect "A client gets a connection"
checkpoint first one 1 "The first message gets the right receipt"
checkpoint many many 2 "Each of forty messages, one after the other, gets its receipt"
checkpoint room_first window 3 "There is room for the next message before the receipt goes out"
checkpoint window window 3 "Four messages at a time get their receipts"
checkpoint narrow narrow 4 "With a single receipt to send from, messages wait for it"
checkpoint room_first narrow 3 "There too is room made before the receipt goes out"
checkpoint not_reused narrow 4 "No memory is given away that the card still has"
checkpoint ends narrow 5 "It ends, with status 0"
checkpoint nothing_left narrow cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_one() {
	server=(-t $((t + 1)))
	client=(-t "$t" -n 1)
}

run_many() {
	server=(-t $((t + 1)) -s 4 -r 4)
	client=(-t "$t" -n 40)
}

run_window() {
	server=(-t $((t + 1)) -s 4 -r 4)
	client=(-t "$t" -n 60 -w 4)
}

run_narrow() {
	server=(-t $((t + 1)) -s 4 -r 1)
	client=(-t "$t" -n 60 -w 4)
}

run_asan() {
	run_narrow
	variant=asan
}

connects() {
	grep -qx connected "$(output peer)" || saw "the client got no connection"
}

# receipts N: the client has that many, and all are right
receipts() {
	grep -qx "$1 receipts for $1 of $1 messages" "$(output peer)" && return
	saw "the client says:"
	quote_lines <(grep -av '^connected' "$(output peer)") 3
	# What its card told it is more than what it waited for.
	! grep -q '^failed: RNR' "$(output peer)" ||
		saw "(RNR: a message came, and no receive was posted for it)"
	return 1
}

first() {
	receipts 1
}

many() {
	receipts 40
}

# Where acknowledgements come late, there is no free receipt here already. The
# receipt of another message was written over, or given to the wrong one.
window() {
	! grep -q "^receipt [0-9]* is wrong" "$(output peer)" || fits 4
	receipts 60
}

narrow() {
	receipts 60
}

# Before receipt N goes out, N receives beyond the first four have been posted.
room_first() {
	local late

	connects || return
	late=$(ask learner '
		reduce (calls("ibv_post_recv", "ibv_post_send") | good[]) as $c
			({ room: 0, sent: 0, late: null };
			if $c.call == "ibv_post_recv" then
				.room += ($c.wrs | length)
			else
				.sent += ($c.wrs | length)
				| if .late == null and .room < .sent + 4 then
					.late = .sent
				  else . end
			end)
		| .late // empty')
	[ -z "$late" ] ||
		saw "when receipt $late was posted, no receive had been posted in place of the" \
			"message that it is for"
}

# Between the posting of a request and its completion its memory is not posted
# a second time.
not_reused() {
	local twice

	twice=$(ask learner '
		reduce (calls("ibv_post_recv", "ibv_post_send", "ibv_poll_cq")
			| good[]) as $c
			({ with_card: [], twice: null };
			if $c.wcs then
				reduce $c.wcs[] as $wc (.;
					(.with_card | map(.wr_id == $wc.wr_id
						and (.send == ($wc.opcode == "SEND")))
					 | index(true)) as $i
					| if $i == null then .
					  else .with_card |= del(.[$i]) end)
			elif $c.wrs then
				reduce $c.wrs[] as $wr (.;
					{ addr: $wr.sges[0].addr, wr_id: $wr.wr_id,
					  send: ($c.call == "ibv_post_send") } as $new
					| if .twice == null and
						any(.with_card[]; .addr == $new.addr) then
						.twice = (if $new.send then "a receipt"
							else "a message slot" end)
					  else . end
					| .with_card += [$new])
			else . end)
		| .twice // empty')
	[ -z "$twice" ] ||
		saw "$twice was posted again before its completion was seen"
}

ends() {
	exit_status 0
}
