# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the tests of many lessons share: pairs, one after the other or all at the same
# time, and their ends. $server and $client are the lesson's
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

thaw() {
	lab/lab thaw "$frozen"
	frozen=''
}

impair() {
	impaired=1
	lab/lab impair "$@"
}

undo() {
	[ -z "${frozen:-}" ] || lab/lab thaw "$frozen"
	frozen=''
	if [ -n "${cases:-}" ]; then
		signal_cases server KILL
		signal_cases client KILL
		cases=''
	fi
	[ -z "${impaired:-}" ] || lab/lab impair clear
}

# said SIDE N REGEX...: what case N of SIDE printed must have these lines.
said() {
	local -n all=from_$1
	local regex n=$2

	for regex in "${@:3}"; do
		grep -qxE -- "$regex" <<<"${all[n]:-}" && continue
		printf 'case %s, %s: no line that matches %s in:\n%s\n' \
			"$n" "$1" "$regex" "${all[n]:-nothing}"
		printf 'the other side:\n%s\n%s\n' "${from_server[n]:-}" \
			"${from_client[n]:-}"
		return 1
	done
}

# ---- pairs of any two programs --------------------------------------------

# A case is 'SERVER_COMMAND|CLIENT_COMMAND', each as a shell would take it; the
# client's gets the server's address behind it. 'SERVER|CLIENT|ADDRESS' has
# another address. The two nodes are entered once for all the cases. What case N
# (the first is 0) printed is in ${from_server[N]} and ${from_client[N]}: its
# stdout, its stderr with `! ` before each line, and at the end `status S`.

# one_by_one CASE...: one after the other, on the same port. Each server must
# end by itself.
one_by_one() {
	begin_cases in_turn "$@"
	finish_cases
}

# turns FOLDER 'SERVER_FLAGS|CLIENT_FLAGS'...: the same with the two programs of FOLDER.
turns() {
	local folder=$1 flags pairs=()

	shift
	for flags; do
		pairs+=("$folder/server ${flags%|*}|$folder/client ${flags#*|}")
	done
	one_by_one "${pairs[@]}"
}

# all_at_once SIDE CASE...: all at the same time, case N on port 10130 + N. The
# programs of SIDE end by themselves; what is left of the others is then ended.
all_at_once() {
	local n

	begin_cases at_once "${@:2}"
	for n in $(seq 0 $(($# - 2))); do
		wait_case "$1" "$n" 'status '
	done
	if [ "$1" = server ]; then
		signal_cases client TERM
	else
		signal_cases server TERM
	fi
	finish_cases
}

# one MODE NUMBER COMMAND: runs it, each line of the output with its number.
# shellcheck disable=SC2016 # expanded on the nodes
readonly one_case='
	errors=$(mktemp -p /dev/shm)
	mkfifo "$errors.next"
	exec 3<>"$errors.next"
	one() {
		{
			{
				if [ "$1" = in_turn ]; then
					(eval "exec $3") 2>&1 >&4 4>&-
				else
					sh -c "echo pid \$\$; exec $3" 2>&1 >&4 4>&-
				fi
				echo "status $?" >"$errors.$2"
			} | while IFS= read -r line; do
				printf "! %s\n" "$line"
			done
			read -r line <"$errors.$2"
			echo "$line"
		} 4>&1 | while IFS= read -r line; do
			printf "%s %s\n" "$2" "$line"
			case $line in
			"listening on "* | "status "*) echo >&3 ;;
			esac
		done
	}'

# begin_cases in_turn|at_once CASE...: starts them and does not wait. Each client
# is started when its server listens, and then the next server: whatever the
# number of cases, no server waits long for its client.
# shellcheck disable=SC2016 # expanded on the nodes
begin_cases() {
	local mode=$1 case port=10129 servers=() clients=() server client to flag=''
	local files=$BATS_TEST_TMPDIR/cases

	shift
	for case; do
		IFS='|' read -r server client to <<<"$case"
		if [ "$mode" = at_once ]; then
			port=$((port + 1))
			flag=" -p $port"
		fi
		servers+=("$server$flag")
		clients+=("$client$flag ${to:-$ADDR_SERVER}")
	done
	: >"$files.server"
	: >"$files.client"
	{
		LIMIT=${LIMIT:-100} on server sh -c "$one_case"'
			i=0
			for command; do
				if [ "$0" = in_turn ]; then
					one "$0" $i "$command"
				else
					one "$0" $i "$command" &
					read -r _ <&3
				fi
				i=$((i + 1))
			done
			wait
			rm -f "$errors"*' "$mode" "${servers[@]}" </dev/null |
			tee "$files.server" |
			grep --line-buffered -E '^[0-9]+ listening on ' |
			LIMIT=${LIMIT:-100} on client sh -c "$one_case"'
			while read -r i rest; do
				eval "command=\${$((i + 1))}"
				if [ "$0" = in_turn ]; then
					one "$0" $i "$command" </dev/null
				else
					one "$0" $i "$command" </dev/null &
				fi
			done
			wait
			rm -f "$errors"*' "$mode" "${clients[@]}" >"$files.client"
	} 3>&- &
	cases=$!
}

# wait_case SIDE N REGEX [SECONDS]: wait until case N has printed a line that
# begins with REGEX on that side. Fails when it has ended without it, and after
# SECONDS (60).
wait_case() {
	local file=$BATS_TEST_TMPDIR/cases.$1 end=$((SECONDS + ${4:-60}))

	while ! grep -qE "^$2 $3" "$file"; do
		if grep -q "^$2 status " "$file" || [ $SECONDS -ge $end ] ||
			! kill -0 "$cases" 2>/dev/null; then
			grep -qE "^$2 $3" "$file" && return
			printf 'case %s, %s: no line that begins with %s:\n' \
				"$2" "$1" "$3"
			grep "^$2 " "$BATS_TEST_TMPDIR"/cases.* || true
			return 1
		fi
		sleep 0.1
	done
}

# signal_cases SIDE SIGNAL [N...]: a signal to those (or all) that still run.
signal_cases() {
	local side=$1 signal=$2 file=$BATS_TEST_TMPDIR/cases.$1 n pid pids=()

	shift 2
	# shellcheck disable=SC2046 # numbers
	[ $# != 0 ] || set -- $(sed -n "s/ pid .*//p" "$file")
	for n; do
		pid=$(sed -n "s/^$n pid //p" "$file")
		[ -z "$pid" ] || grep -q "^$n status " "$file" || pids+=("$pid")
	done
	[ ${#pids[@]} = 0 ] || # some may end at this moment
		on "$side" sh -c 'kill -s "$@" 2>/dev/null || true' - "$signal" "${pids[@]}"
}

# finish_cases: wait for the end of all of them.
finish_cases() {
	local side line number

	wait "$cases" || true
	cases=''
	from_server=() from_client=()
	for side in server client; do
		# shellcheck disable=SC2178 # the name of one
		local -n into=from_$side
		while IFS= read -r line; do
			number=${line%% *} line=${line#* }
			[[ $line == 'pid '* ]] || into[number]+=$line$'\n'
		done <"$BATS_TEST_TMPDIR/cases.$side"
	done
	# A sanitizer ends a program with the same status as a failure.
	! grep -E "Sanitizer|runtime error" "$BATS_TEST_TMPDIR"/cases.*
}

# erred SIDE N TEXT: case N has failed, and TEXT is all that it said of that.
erred() {
	local -n all=from_$1
	local errors

	errors=$(sed -n 's/^! //p' <<<"${all[$2]:-}")
	[ "$errors" = "$3" ] && [[ ${all[$2]} == *$'\nstatus 1\n' ]] && return
	printf 'case %s, %s: should have failed with\n%s\nand said:\n%s\n' \
		"$2" "$1" "$3" "${all[$2]:-nothing}"
	printf 'the two sides:\n%s\n%s\n' "${from_server[$2]:-}" \
		"${from_client[$2]:-}"
	return 1
}

# lost_causes PERCENT: what may be said when a bad wire has taken too much: of one
# packet in a hundred, that the last message of the handshake was lost. The client
# works and leaves then before the server has been told that it is there (the CM
# would tell it 4 s later). Of five, status 12 as well.
lost_causes() {
	printf 'waited for RDMA_CM_EVENT_ESTABLISHED, got RDMA_CM_EVENT_DISCONNECTED'
	[ "$1" = 1 ] || printf '|, status 12, |waited 30 s for '
}

# after_loss N PERCENT REGEX...: on a bad wire both sides of case N have ended
# well, and the server has said what it should; then $right is 1 more. Or one of
# them names a cause that no card can cure, and both end by themselves all the same.
after_loss() {
	local n=$1

	if [[ ${from_server[n]} == *$'\nstatus 0\n' &&
		${from_client[n]} == *$'\nstatus 0\n' ]]; then
		said server "$n" "${@:3}"
		right=$((${right:-0} + 1))
		return
	fi
	grep -qx 'status [01]' <<<"${from_server[n]}" &&
		grep -qx 'status [01]' <<<"${from_client[n]}" &&
		grep -qE "^! .*($(lost_causes "$2"))" \
			<<<"${from_server[n]}${from_client[n]}" && return
	printf 'case %s: neither well nor lost:\n%s\n%s\n' "$n" \
		"${from_server[n]}" "${from_client[n]}"
	return 1
}
