# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the bats files share. Each begins with: load ../helpers
# tests/README.md has an example.

bats_require_minimum_version 1.8.0
bats_load_library bats-support
bats_load_library bats-assert

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$TOP" || exit 1

# tests/run has asked the lab; these are for a bats file that is run by hand.
export ADDR_SERVER=${ADDR_SERVER:-10.10.10.1}
export ADDR_CLIENT=${ADDR_CLIENT:-10.10.10.2}
export ADDR6_SERVER=${ADDR6_SERVER:-fd10::1}

# on NODE CMD...: run CMD on a node, for LIMIT (30) seconds at the most.
on() {
	local node=$1

	shift
	lab/lab exec --timeout "${LIMIT:-30}" "$node" "$@"
}

# ---- jobs: commands that run on a node while the test goes on -------------

declare -gA job_pid=() job_node=() job_file=()
declare -g job_count=0

# start NODE NAME CMD...: run CMD on a node in the background, for LIMIT (60)
# seconds at the most. Its output goes to $BATS_TEST_TMPDIR/NAME.out and .err.
start() {
	local node=$1 name=$2 limit=${LIMIT:-60}

	shift 2
	job_count=$((job_count + 1))
	job_file[$name]=/tmp/rdma-test.$BATS_ROOT_PID.${BATS_SUITE_TEST_NUMBER:-0}.$job_count
	: >"$BATS_TEST_TMPDIR/$name.out"
	: >"$BATS_TEST_TMPDIR/$name.err"
	# The shell becomes CMD, so the number that it notes is CMD's. bats
	# waits for whoever holds its descriptor 3.
	# The 20 s are for lab exec to end the command on the node, TERM then KILL.
	timeout --foreground -k 20 "$((limit + 10))" \
		lab/lab exec --timeout "$limit" "$node" \
		sh -c 'echo $$ >"$0"; exec "$@"' "${job_file[$name]}" "$@" \
		</dev/null >"$BATS_TEST_TMPDIR/$name.out" \
		2>"$BATS_TEST_TMPDIR/$name.err" 3>&- &
	job_pid[$name]=$!
	job_node[$name]=$node
}

# show_job NAME: what the job has printed, for a failing test's report.
show_job() {
	local stream

	for stream in out err; do
		sed "s/^/$1.$stream: /" "$BATS_TEST_TMPDIR/$1.$stream"
	done
}

# wait_line NAME REGEX [SECONDS]: wait until job NAME has printed a line that
# matches. Fails when the job has ended without it, and after SECONDS (20).
# The line is left in $line.
wait_line() {
	local name=$1 regex=$2 seconds=${3:-20} out found='' tail_pid fd
	local deadline=$((${EPOCHREALTIME//[!0-9]/} / 1000 + seconds * 1000)) left

	out=$BATS_TEST_TMPDIR/$name.out
	# tail ends by itself when the job does.
	exec {fd}< <(exec tail -n +1 -s 0.05 -f --pid="${job_pid[$name]}" \
		"$out" 2>/dev/null 3>&-)
	tail_pid=$!
	while :; do
		left=$((deadline - ${EPOCHREALTIME//[!0-9]/} / 1000))
		[ $left -gt 0 ] || break
		IFS= read -r -t "$((left / 1000)).$(printf %03d $((left % 1000)))" \
			line <&"$fd" || break
		if [[ $line =~ $regex ]]; then
			found=1
			break
		fi
	done
	kill "$tail_pid" 2>/dev/null || true
	exec {fd}<&-
	[ -n "$found" ] && return
	printf 'job %s printed no line that matches %s in %s s:\n' \
		"$name" "$regex" "$seconds"
	show_job "$name"
	return 1
}

# finish NAME: wait for the job to end. Sets $status, $output and $lines (its
# stdout) and $stderr, as `run` does.
# shellcheck disable=SC2034 # the variables are for the test
finish() {
	local name=$1

	status=0
	wait "${job_pid[$name]}" || status=$?
	unset "job_pid[$name]"
	output=$(<"$BATS_TEST_TMPDIR/$name.out")
	stderr=$(<"$BATS_TEST_TMPDIR/$name.err")
	mapfile -t lines <<<"$output"
}

# signal_job NAME SIGNAL: send the job's process on the node a signal.
signal_job() {
	# The number is there once the shell on the node has started.
	on "${job_node[$1]}" sh -c '
		for i in $(seq 500); do
			[ ! -s "$1" ] || break
			sleep 0.02
		done
		kill -s "$0" "$(cat "$1")"' "$2" "${job_file[$1]}"
}

# End what a test has left behind: on the node, then here; all at the same time.
stop_jobs() {
	local name pids=() killers=()

	for name in "${!job_pid[@]}"; do
		kill -0 "${job_pid[$name]}" 2>/dev/null || continue
		pids+=("${job_pid[$name]}")
		LIMIT=10 signal_job "$name" KILL >/dev/null 2>&1 3>&- &
		killers+=($!)
	done
	[ ${#pids[@]} = 0 ] || wait "${killers[@]}" || true
	for name in "${pids[@]}"; do
		kill -TERM "$name" 2>/dev/null || true
	done
	for name in "${pids[@]}"; do
		wait "$name" 2>/dev/null || true
	done
	job_pid=()
}

# ---- pairs and what they leave --------------------------------------------

# pair LESSON [CLIENT_ARG...]: run a lesson as `make run LESSON=..` does.
pair() {
	local lesson=$1

	shift
	lab/run "$lesson" -- "$@"
}

# Prints what processes on this node own of RDMA, if it is still there after five
# seconds: the kernel needs a moment to clean up after a process that died. A
# context (ctx) is what every process with a QP, CQ, MR or PD has. A cm_id that
# listens on every address belongs to no device and is in no sum; lines without
# a pid are the kernel's own. It is asked after each test, so it starts no program
# but rdma, once.
readonly list_owned='
	owned() {
		out=$(rdma -b - <<-END
			resource
			resource show cm_id
		END
		) || return 0
		while read -r line; do
			case $line in
			*" pid "[0-9]*) return 0 ;;
			*": pd "*"cm_id 0 mr 0 ctx 0"*) ;;
			*": pd "*) return 0 ;;
			esac
		done <<-END
			$out
		END
		return 1
	}
	uptime() {
		read -r up rest </proc/uptime
		echo "${up%.*}"
	}
	owned || exit 0
	end=$(($(uptime) + 5))
	while [ "$(uptime)" -lt "$end" ]; do
		sleep 0.05
		owned || exit 0
	done
	rdma resource
	for what in qp cq mr pd cm_id; do
		rdma resource show "$what" | grep " pid [0-9]" |
			sed "s/^/$what /"
	done
	exit 1'

# Ends the test's jobs, then checks that no process has a QP, CQ, MR, PD or
# cm_id on either node. To be called from teardown.
assert_nothing_left() {
	local node failed='' pids=()

	stop_jobs
	for node in server client; do
		on "$node" sh -c "$list_owned" \
			>"$BATS_TEST_TMPDIR/left.$node" 2>&1 3>&- &
		pids+=($!)
	done
	for node in server client; do
		wait "${pids[0]}" || failed+=" $node"
		pids=("${pids[@]:1}")
	done
	[ -z "$failed" ] && return
	for node in $failed; do
		printf 'left on the %s:\n' "$node"
		sed 's/^/  /' "$BATS_TEST_TMPDIR/left.$node"
	done
	return 1
}

# ---- builds ---------------------------------------------------------------

# build TARGET...: gcc-O0, gcc-O2, clang-O0, clang-O2, asan-O0 or asan-O2 puts
# every lesson's programs into build/TARGET/NN-slug; peers makes build/peers.
build() {
	make -s -j2 -f tests/variants.mk "$@"
}

# The names of the functions in common/rdma_common.h.
helpers_of_common() {
	sed -nE 's/^static inline .*[ *]([a-z_0-9]+)\(.*/\1/p' \
		common/rdma_common.h
}

# The folders of the lessons, as git has them: lessons/NN-slug
lesson_folders() {
	tests/tracked 'lessons/*/Makefile' | sed 's|/Makefile$||'
}

# in_a_row COUNT SERVER CLIENT [ARG...]: one pair after the other, COUNT times, each
# with programs of its own; the client gets ARGs. The line `listening on` of each
# server lets the next client go. What they print is in
# $BATS_TEST_TMPDIR/row.server and row.client.
in_a_row() {
	local server client

	on server sh -c 'for i in $(seq "$0"); do "$1" || exit 1; done' \
		"$1" "$2" </dev/null | tee "$BATS_TEST_TMPDIR/row.server" |
		grep --line-buffered '^listening on ' |
		on client sh -c 'while read -r line; do
			"$0" "$@" || exit 1
		done' "${@:3}" "$ADDR_SERVER" >"$BATS_TEST_TMPDIR/row.client"
	server=${PIPESTATUS[0]} client=${PIPESTATUS[3]}
	[ "$server$client" = 00 ] && return
	printf 'server: status %s; client: status %s\n' "$server" "$client"
	tail -n 5 "$BATS_TEST_TMPDIR"/row.*
	return 1
}
