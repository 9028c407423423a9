# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the tests of lessons 00 to 04 share: many programs at the same time, on a
# node that is entered once for all of them. See the file crowd.

# crowd NODE NAME [-1] [-l] COMMAND...: as job NAME. A COMMAND has its port in $p.
crowd() {
	LIMIT=${LIMIT:-100} start "$1" "$2" tests/lessons/crowd "${@:3}"
}

# crowded NAME: it has ended, and not because its time was over.
crowded() {
	finish "$1"
	[ "$status" = 0 ] && return
	printf 'crowd %s ended with status %s: %s\n' "$1" "$status" "$stderr"
	show_job "$1" | cut -c 1-300
	return 1
}

# run_each NODE [-1] COMMAND...: a crowd, to its end. Then `member NODE N`.
run_each() {
	crowd "$1" "$1" "${@:2}"
	crowded "$1"
}

# listening NAME N...: wait until these commands of a crowd with -l have said so.
listening() {
	local n line

	for n in "${@:2}"; do
		line="^listening on .*[: ]$((10120 + n))\$"
		grep -q "$line" "$BATS_TEST_TMPDIR/$1.out" ||
			wait_line "$1" "$line" 40
	done
}

# serve_all COMMAND...: the crowd `server`. All of them listen then, but `:` does
# not.
serve_all() {
	local n

	crowd server server -l "$@"
	for ((n = 1; n <= $#; n++)); do
		[ "${!n}" = : ] || listening server "$n"
	done
}

# persist COMMAND...: the crowd `persistent` of bad clients that try again until
# there is a server; each has tried once then. Such a client is there when its
# server begins to listen, so the server may be impatient.
persist() {
	local command n=0 numbers=() all=()

	for command; do
		n=$((n + 1))
		all+=("$command")
		[ "$command" != : ] || continue
		all[n - 1]="when 'SAY@at request' -- $command"
		numbers+=("$n")
	done
	crowd client persistent -l "${all[@]}"
	listening persistent "${numbers[@]}"
}

# pairs [-1] SERVER CLIENT...: all servers at the same time, then all clients, with
# -1 one after the other. Where one of the two is `:`, there is none. What stalls
# is ended when the other side has ended. Then `member server N` and
# `member client N`.
pairs() {
	local servers=() clients=() last=server

	if [ "$1" = -1 ]; then
		clients=(-1)
		shift
	fi
	while [ $# != 0 ]; do
		servers+=("$1")
		clients+=("$2")
		[[ $2 != *stall* ]] || last=client
		shift 2
	done
	serve_all "${servers[@]}"
	crowd client client "${clients[@]}"
	if [ $last = client ]; then
		crowded server
	else
		crowded client
	fi
	[[ ${servers[*]}${clients[*]} != *stall* ]] || end_stalling $last
	crowded $last
}

# end_stalling NODE: the peers of the tests that are there.
end_stalling() {
	# shellcheck disable=SC2016 # expanded on the node
	on "$1" sh -c 'for i in $(pidof badclient badserver); do
			kill $i 2>/dev/null || true
		done'
}

# restore NODE: its device as the lab made it.
restore() {
	LIMIT=20 on "$1" tests/lessons/crowd restore
}

# member NAME N: what command N of the crowd printed and how it ended: $status,
# $output, $lines and $stderr.
# shellcheck disable=SC2034 # for the test
member() {
	local line

	status='' output='' stderr=''
	while IFS= read -r line; do
		case $line in
		"$2| "*) output+=${line#* }$'\n' ;;
		"$2! "*) stderr+=${line#* }$'\n' ;;
		"$2. "*) status=${line#* } ;;
		esac
	done <"$BATS_TEST_TMPDIR/$1.out"
	output=${output%$'\n'} stderr=${stderr%$'\n'}
	mapfile -t lines <<<"$output"
}

# ended NAME N STATUS [REGEX]: so did that command, and what it printed on stderr
# is this; without REGEX, nothing.
ended() {
	local job

	member "$1" "$2"
	if [ "$status" = "$3" ] && [[ $stderr =~ ^(${4:-})$ ]]; then
		return
	fi
	printf 'command %s of %s: not status %s and %s\n' "$2" "$1" "$3" \
		"${4:-nothing on stderr}"
	for job in server client; do
		[ ! -e "$BATS_TEST_TMPDIR/$job.out" ] ||
			grep -a "^$2[|!.] " "$BATS_TEST_TMPDIR/$job.out" |
			cut -c 1-300 | sed "s/^/$job /"
	done
	return 1
}

# ended_saying NAME N STATUS TEXT: the same, word by word.
ended_saying() {
	member "$1" "$2"
	assert_equal "$status: $stderr" "$3: $4"
}

# Ends what the crowds of a failed test still run.
stop_crowds() {
	local name

	for name in "${!job_pid[@]}"; do
		kill -0 "${job_pid[$name]}" 2>/dev/null || continue
		# shellcheck disable=SC2016 # expanded on the node
		LIMIT=10 on "${job_node[$name]}" sh -c \
			'kill -s KILL -- "-$(cat "$0")"' "${job_file[$name]}" \
			>/dev/null 2>&1 || true
	done
}
