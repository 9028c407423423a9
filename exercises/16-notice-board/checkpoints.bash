# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
#
# What make check EXERCISE=16 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects one connect "It gets a connection"
checkpoint reads one 1 "It fetches the notice by RDMA READ"
checkpoint first one 2 "The first notice is reported rightly"
checkpoint all all 3 "All four notices are reported rightly"
checkpoint lasts busy 5 "It goes on while they change"
checkpoint whole busy 4 "No report is of two pieces while they change"
checkpoint ends busy 5 "It ends, with status 0"
checkpoint nothing_left busy cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_one() {
	server=(-t "$t")
	client=(-t "$t")
}

run_all() {
	server=(-t "$t")
	client=(-t "$t" -n 20)
}

run_busy() {
	server=(-t "$t" -b)
	client=(-t "$t" -n 60)
}

run_asan() {
	server=(-t "$t" -b)
	client=(-t "$t" -n 20)
	variant=asan
}

connects() {
	grep -qx connected "$(output peer)" || saw "the server got no connection"
}

reads() {
	holds learner '[calls("ibv_post_send") | good[] | .wrs[]
		| select(.opcode == "RDMA_READ")] | length > 0' && return
	saw "no RDMA READ was posted"
}

# reports N: the server got that many, and all are right
reports() {
	grep -q "^$1 reports right, 0 of two pieces, 0 older than the one before, 0 wrong" \
		"$(output peer)" && return
	saw "the server says:"
	quote_lines <(grep -av '^connected\|^listening' "$(output peer)") 3
	return 1
}

first() {
	reports 1
}

all() {
	reports 20
}

# As many reports as were asked for, whatever is in them.
lasts() {
	local n

	n=$(awk '/reports right/ { print $1 + $4 + $8 + $14 }' "$(output peer)")
	[ "${n:-0}" = 60 ] || saw "of 60 notices ${n:-0} were reported"
}

whole() {
	reports 60
}

ends() {
	exit_status 0
}
