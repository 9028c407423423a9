# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # questions to jq; variables of the checker
#
# What make check EXERCISE=01 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects plain connect "It connects"
checkpoint sizes plain 1 "The queues have room for all the messages at once"
checkpoint together plain 2 "All are posted before the first completion is waited for"
checkpoint completions plain 3 "The completion of every message is seen, and is good"
checkpoint messages plain 2 "Every message arrives, in order and unchanged"
checkpoint goodbye plain 4 "It says goodbye, and ends with status 0"
checkpoint cleaned plain 5 "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint refused refused 5 "A server that refuses it: status 1, and nothing left over"
checkpoint no_name nobody 5 "A failure at step 1, where nothing is made yet: status 1"
checkpoint no_address stranger 5 "A failure at step 4, where little is made: status 1, and nothing left over"
checkpoint soon small 6 "A message that does not get through: no wait for what cannot come"
checkpoint bad_status small 3 "Then the status is 1"
checkpoint flushed small 6 "Then too every request is seen again, and nothing is left over"
checkpoint no_warnings - warnings "The compiler warns of nothing"

# As many as the program takes, of different lengths.
texts=()
for ((n = 1; n <= 16; n++)); do
	texts+=("$n $(printf '%*s' $((n * 7)) '' | tr ' ' x)")
done

say_texts() {
	local text

	client=(-t "$t")
	for text in "${texts[@]}"; do
		client+=(-m "$text")
	done
}

run_plain() {
	server=(-t $((t + 1)))
	say_texts
}

run_asan() {
	run_plain
	variant=asan
}

run_refused() {
	server=(-t $((t + 1)) -r)
	client=(-t "$t" -m one -m two)
}

# An address of its own that is no name, so that nothing is asked about it, and one
# that no machine has. The server waits for nobody, and may go when the client has.
run_nobody() {
	server=(-t $((t + 1)))
	client=(-t "$t" -a a..b)
	grace=0.1
}

run_stranger() {
	server=(-t $((t + 1)))
	client=(-t "$t" -a 192.0.2.1)
	grace=0.1
}

# The server has no room for the second message: its SEND fails, and the others are
# flushed.
run_small() {
	server=(-t $((t + 1)) -s 2)
	client=(-t "$t" -m one -m two -m three -m four -m five)
}

connects() {
	grep -qx connected "$(output peer)" ||
		saw "the server saw no connection"
}

sizes() {
	local cqe sends

	cqe=$(ask learner 'calls("ibv_create_cq") | last | .cqe // 0')
	sends=$(ask learner 'calls("rdma_create_qp") | last | .attr.max_send_wr // 0')
	[ "$cqe" -ge 16 ] ||
		saw "with 16 messages the completion queue was made for $cqe" ||
		return
	[ "$sends" -ge 16 ] ||
		saw "with 16 messages the send queue was made for $sends"
}

together() {
	local posts early

	posts=$(ask learner '[calls("ibv_post_send") | good[].wrs[]] | length')
	[ "$posts" -eq 16 ] ||
		saw "there were 16 messages to post, and $posts requests were posted" ||
		return
	early=$(ask learner '(calls("ibv_post_send") | last | .t0) as $last
		| [calls("ibv_poll_cq")[] | select(.t0 < $last) | .wcs[]?]
		| length')
	[ "$early" = 0 ] ||
		saw "$early completions were taken before the last message was posted"
}

completions() {
	local good bad all different

	bad=$(ask learner '[calls("ibv_poll_cq")[].wcs[]? | select(.status != 0)
		| .status_name] | first // empty')
	[ -z "$bad" ] || saw "a completion came with the status $bad" || return
	good=$(ask learner '(calls("rdma_disconnect") | first | .t0 // infinite)
			as $until
		| [calls("ibv_poll_cq")[] | select(.t0 < $until) | .wcs[]?
		   | .wr_id] | unique | length')
	[ "$good" != 16 ] || return 0
	read -r all different < <(ask learner '[calls("ibv_poll_cq")[].wcs[]?.wr_id]
		| "\(length) \(unique | length)"')
	if [ "$all" -ge 16 ] && [ "$different" -lt 16 ]; then
		fits 8
		saw "$all completions were seen, and they had $different different wr_id"
		return
	fi
	saw "of 16 requests, $good (told apart by wr_id) were seen to complete" \
		"before the disconnect"
}

# What it received goes through a filter: there may be anything in it.
messages() {
	local wanted got number=0 text length

	wanted=$(for text in "${texts[@]}"; do
		echo "message $((++number)): ${#text} bytes: $text"
	done)
	got=$(LC_ALL=C grep -aE '^message [0-9]+: [0-9]+ bytes: ' "$(output peer)" |
		LC_ALL=C tr -c '\12\40-\176' '?') || true
	[ "$got" != "$wanted" ] || return 0
	number=$(grep -c . <<<"$got") || true
	if [ "$number" != 16 ]; then
		saw "the server received $number messages of 16"
		return
	fi
	number=0
	while read -r _ _ length _; do
		text=${texts[number++]}
		[ "$length" = "${#text}" ] ||
			saw "message $number came with $length bytes, and has ${#text}" || return
	done <<<"$got"
	saw "the server received other texts than were to be sent; the first:"
	diff <(echo "$got") <(echo "$wanted") |
		sed -n 's/^</    received:/p;s/^>/    expected:/p' |
		cut -c 1-100 | sed -n '1p;/expected/{p;q}'
	return 1
}

goodbye() {
	ended_by_itself || return
	holds learner 'calls("rdma_disconnect") | good | length > 0' ||
		saw "rdma_disconnect was not called" || return
	holds learner 'calls("rdma_get_cm_event")
		| any(.event == "DISCONNECTED")' ||
		saw "the event DISCONNECTED was not taken" || return
	events_acknowledged || return
	exit_status 0 && return
	fits 7
	return 1
}

cleaned() {
	nothing_left
}

refused() {
	grep -qx refused "$(output peer)" ||
		saw "the server was not asked for a connection" || return
	if holds learner 'calls("rdma_disconnect") | length > 0'; then
		fits 4
		saw "rdma_disconnect was called, and there never was a connection"
		return
	fi
	exit_status 1 && events_acknowledged && nothing_left
}

# It fails before there is a connection.
fails_early() {
	fits 5
	exit_status 1 && events_acknowledged && nothing_left
}

no_name() {
	fails_early
}

no_address() {
	fails_early
}

# Polls that found nothing, after the completion of the last request: one or two to
# see that there is nothing more, and not a wait.
soon() {
	local posted vain

	posted=$(ask learner '[calls("ibv_post_send") | good[].wrs[]] | length')
	[ "$posted" = 5 ] ||
		saw "there were 5 messages to post, and $posted requests were posted" || return
	vain=$(ask learner 'reduce calls("ibv_poll_cq")[] as $p ({ seen: 0, vain: 0 };
			if $p.wcs[0]? then .seen += ($p.wcs | length)
			elif .seen >= $posted then .vain += ($p.calls // 1)
			else . end)
		| .vain' --argjson posted "$posted")
	[ "$vain" -lt 10 ] ||
		saw "the completions of all $posted requests had been seen, and then" \
			"ibv_poll_cq was called $vain times for one more"
}

# Whoever goes on to take completions before the goodbye has not looked at the
# status. Whoever does not has looked.
bad_status() {
	local more

	exit_status 1 && return
	more=$(ask learner '(calls("rdma_disconnect") | first | .t0 // infinite)
			as $until
		| [calls("ibv_poll_cq")[] | select(.t0 < $until) | .wcs[]?.status]
		| .[(map(. != 0) | index(true) // length):] | length')
	[ "$how" != exit ] || [ "$more" -gt 1 ] || fits 7
	return 1
}

flushed() {
	local posted seen

	posted=$(ask learner '[calls("ibv_post_send")[].wrs[]] | length')
	seen=$(ask learner '(calls("ibv_dereg_mr", "rdma_destroy_qp") | first
			| .t0 // infinite) as $until
		| [calls("ibv_poll_cq")[] | select(.t0 < $until) | .wcs[]?] | length')
	[ "$posted" = "$seen" ] ||
		saw "$posted requests were posted, and $seen completions (good, failed or" \
			"flushed) were seen before the memory and the QP were given up" ||
		return
	nothing_left
}
