# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=03 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint lets_in good 2 "A client that speaks the version is let in and served"
checkpoint strangers door 1 "Who sends no hello is refused, and told so"
checkpoint versions door 2 "Who speaks another version is refused, and told so"
checkpoint goes_on door 3 "After that the next client is let in and served"
checkpoint destroyed door 4 "Nothing is left over of those who were refused"
checkpoint busy crowd 5 "A second client meanwhile is told that it is busy"
checkpoint early slow 3 "So is one who comes while the first is being let in, and the first comes in"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_good() {
	server=(-t "$t")
	client=(-t "$t" -k good)
	learner_env=(GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.perturb=90)
}

run_door() {
	run_good
	client=(-t "$t" -k empty -k foreign -k old -k new -k swapped -k good)
}

run_crowd() {
	run_good
	client=(-t "$t" -k crowd)
}

run_slow() {
	run_good
	client=(-t "$t" -k slow)
}

run_asan() {
	run_door
	client+=(-k good)
	variant=asan
}

# answer KIND WANTED: what the client of this kind was told, by hello.h
answer() {
	local got

	got=$(grep -m 1 "^$1: " "$(output peer)") || true
	[ "$got" != "$1: $2" ] || return 0
	saw "expected:  $1: $2"
	saw "the client: ${got:-$1 got no answer}"
	return 1
}

lets_in() {
	answer good "let in" || return
	grep -qx 'message: success' "$(output peer)" ||
		saw "it was let in, and its message did not get through" || return
	events_acknowledged && exit_status 0
}

strangers() {
	# The right numbers, the wrong way round.
	! grep -q 'says \(414d4452\|52444d410100\)' "$(output peer)" || fits 2
	answer empty "refused, status 28, it says 52444d4100010003" || return
	# Nobody is there any more, or whoever was there has just ended: then the
	# kernel refuses in that program's name, and says nothing.
	! grep -qE '^foreign: refused, status (8|28, it says 0+$)' \
		"$(output peer)" || fits 3
	answer foreign "refused, status 28, it says 52444d4100010003"
}

versions() {
	answer old "refused, status 28, it says 52444d4100020003" &&
		answer new "refused, status 28, it says 52444d4100020003" &&
		answer swapped "refused, status 28, it says 52444d4100020003"
}

goes_on() {
	lets_in
}

destroyed() {
	events_acknowledged && nothing_left
}

# both_answered KIND: the first client, of this kind, was let in, the other told
# that it is busy
both_answered() {
	answer "$1" "let in" &&
		answer good "refused, status 28, it says 52444d4100030003"
}

first_is_served() {
	grep -qx "message: success" "$(output peer)" ||
		saw "the first client's message did not get through" || return
	exit_status 0 && nothing_left
}

busy() {
	both_answered crowd && first_is_served
}

# The client knocks a second time after the server has accepted the first, and
# before the server can know that the first is in.
early() {
	# Whoever goes by something that is only set later lets both in.
	! grep -qx "good: let in" "$(output peer)" || fits 5
	both_answered slow && first_is_served
}
