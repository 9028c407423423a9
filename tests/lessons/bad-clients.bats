#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What no server may be hurt by, for the servers of lessons 02 to 08 in turn:
# a client that talks rubbish, or leaves early, or sends more than was agreed. The
# servers have the sanitizers in them.
#
# shellcheck disable=SC2016 # expanded on the nodes

load ../helpers

lessons=(02-server 03-event-loop 04-completions 05-ping-pong 06-memory
	07-write-send 08-write-doorbell)

setup_file() {
	build "${lessons[@]/#/asan-O0/}" build/peers/badclient
}

teardown() {
	assert_nothing_left
}

# visit 'LESSON CLIENT_COMMAND'...: that lesson's server, and that client, in
# turn. The nodes are entered once for all. What each server said is in
# $BATS_TEST_TMPDIR/said, behind a line `== LESSON CLIENT_COMMAND`.
visit() {
	LIMIT=110 on server sh -c 'for turn; do
			echo "== $turn"
			build/asan-O0/${turn%% *}/server -t 4 2>/tmp/rdma-said
			status=$?
			sed "s/^/! /" /tmp/rdma-said
			echo "status $status"
		done' sh "$@" </dev/null | tee "$BATS_TEST_TMPDIR/said" |
		grep --line-buffered '^listening on ' |
		LIMIT=110 on client sh -c 'address=$1
		shift
		for turn; do
			read -r line || exit 1
			${turn#* } $address >/dev/null 2>&1 </dev/null || :
		done' sh "$ADDR_SERVER" "$@"
}

# Each has ended with 0, or with 1 and a word of why; no sanitizer found anything.
all_ended_well() {
	local turns=$1

	cat "$BATS_TEST_TMPDIR/said"
	[ "$(grep -c '^status [01]$' "$BATS_TEST_TMPDIR/said")" = "$turns" ]
	refute grep -qE 'Sanitizer|runtime error' "$BATS_TEST_TMPDIR/said"
	refute awk '/^== / { said = "" }
		/^! / { said = 1 }
		/^status 1$/ && !said { bad = 1 }
		END { exit !bad }' "$BATS_TEST_TMPDIR/said"
}

@test "rubbish for private data, and then death" {
	local lesson turns=()

	for lesson in "${lessons[@]}"; do
		turns+=("$lesson build/peers/badclient --private rubbish:56 --at established --do kill")
	done
	visit "${turns[@]}"
	all_ended_well "${#turns[@]}"
}

@test "a client that leaves in the middle of the handshake" {
	local lesson turns=()

	for lesson in "${lessons[@]}"; do
		turns+=("$lesson build/peers/badclient --at request --do leave")
	done
	visit "${turns[@]}"
	all_ended_well "${#turns[@]}"
}

@test "more messages than were agreed, and longer ones" {
	local lesson turns=()

	for lesson in "${lessons[@]}"; do
		turns+=("$lesson build/peers/badclient --messages 9 --size 100000 --rnr-retry 0")
	done
	visit "${turns[@]}"
	all_ended_well "${#turns[@]}"
}
