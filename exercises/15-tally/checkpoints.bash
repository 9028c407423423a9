# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=15 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint connects one connect "A customer gets a connection"
checkpoint first one 1 "The first number gets the right sum"
checkpoint many many 2 "Forty numbers through eight slots get their sums"
checkpoint each_own crowd 3 "Each of four customers gets sums of its own"
checkpoint ends crowd 6 "It ends when they have left, with status 0"
checkpoint rubbish rubbish 4 "Nine who send rubbish are sent away, and cost no slot"
checkpoint deaf deaf 5 "Five who leave with answers on the way cost no slot"
checkpoint ends_after deaf 6 "It ends when all of these have left, with status 0"
checkpoint nothing_left deaf cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_one() {
	server=(-t "$t")
	client=(-t "$t")
}

run_many() {
	server=(-t "$t")
	client=(-t "$t" -n 40)
}

run_crowd() {
	server=(-t "$t" -c 4)
	client=(-t "$t" -c 4 -n 10)
}

run_rubbish() {
	server=(-t "$t" -c 11)
	client=(-t "$t" -c 2 -n 4 -r 9)
}

run_deaf() {
	server=(-t "$t" -c 7)
	client=(-t "$t" -c 2 -n 4 -d 5)
}

run_asan() {
	server=(-t "$t" -c 5)
	client=(-t "$t" -c 2 -n 4 -r 2 -d 1)
	variant=asan
}

connects() {
	grep -qx connected "$(output peer)" || saw "the client got no connection"
}

# sums N: the client has that many, and all are right
sums() {
	grep -qx "$1 sums right, 0 wrong" "$(output peer)" && return
	saw "the client says:"
	quote_lines <(grep -av '^connected' "$(output peer)") 4
	quote_lines "$(output peer stderr)" 2
	return 1
}

first() {
	sums 1
}

many() {
	sums 40
}

each_own() {
	sums 40
}

rubbish() {
	! grep -q '^rubbish was answered' "$(output peer)" ||
		saw "a message of 5 bytes was answered" || return
	sums 8
}

deaf() {
	sums 8
}

ends() {
	exit_status 0
}

ends_after() {
	exit_status 0
}
