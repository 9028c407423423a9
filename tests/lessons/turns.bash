# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the tests of lessons 05 and 06 share. $server and $client are the lesson's
# programs.

# serve COMMAND...: start a server of any kind as job `peer`, and wait for its
# port.
serve() {
	start server peer "$@"
	wait_line peer '^listening on '
}

# connect [ARG...]: the lesson's client. Sets $status, $output and $stderr.
# shellcheck disable=SC2154 # the test sets it
connect() {
	run --separate-stderr on client "$client" "$@" "$ADDR_SERVER"
}

# finished STATUS: the server must have ended with it.
finished() {
	finish peer
	[ "$status" = "$1" ] && return
	printf 'the server ended with %s: %s\n%s\n' "$status" "$output" "$stderr"
	return 1
}

# What a teardown has to undo.
freeze() {
	frozen=$1
	lab/lab freeze "$1"
}

impair() {
	impaired=1
	lab/lab impair "$@"
}

undo() {
	[ -z "${frozen:-}" ] || lab/lab thaw "$frozen"
	frozen=''
	[ -z "${impaired:-}" ] || lab/lab impair clear
}

# turns FOLDER 'SERVER_FLAGS|CLIENT_FLAGS'...: one pair after the other, with the
# programs of FOLDER. The two nodes are entered once for all of them, and the
# line `listening on` of each server lets the next client go. What turn N (the
# first is 0) printed, errors among it and `status S` at its end, is in
# ${from_server[N]} and ${from_client[N]}.
# shellcheck disable=SC2016 # expanded on the nodes
turns() {
	local folder=$1

	shift
	LIMIT=100 on server sh -c 'for turn; do
			"$0" ${turn%|*} 2>&1
			echo "status $?"
		done' "$folder/server" "$@" </dev/null |
		tee "$BATS_TEST_TMPDIR/turns.server" |
		grep --line-buffered '^listening on ' |
		LIMIT=100 on client sh -c 'address=$1
		shift
		for turn; do
			read -r line || exit
			"$0" ${turn#*|} "$address" 2>&1
			echo "status $?"
		done' "$folder/client" "$ADDR_SERVER" "$@" \
			>"$BATS_TEST_TMPDIR/turns.client"
	split_turns from_server "$BATS_TEST_TMPDIR/turns.server"
	split_turns from_client "$BATS_TEST_TMPDIR/turns.client"
}

split_turns() {
	local -n into=$1
	local line text=''

	into=()
	while IFS= read -r line; do
		text+=$line$'\n'
		[[ $line == 'status '* ]] || continue
		into+=("$text")
		text=''
	done <"$2"
}

# said SIDE N REGEX...: what turn N of SIDE printed must have these lines.
said() {
	local -n all=from_$1
	local regex n=$2

	for regex in "${@:3}"; do
		grep -qxE -- "$regex" <<<"${all[n]:-}" && continue
		printf 'turn %s, %s: no line that matches %s in:\n%s\n' \
			"$n" "$1" "$regex" "${all[n]:-nothing}"
		printf 'the other side:\n%s\n%s\n' "${from_server[n]:-}" \
			"${from_client[n]:-}"
		return 1
	done
}
