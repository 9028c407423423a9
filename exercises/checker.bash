# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# How a check works: build, run on the nodes, and go through the checkpoints.
# Sourced by exercises/exercise. README.md explains how to write checkpoints.
#
# shellcheck disable=SC2154,SC2034 # these are set, and read, by exercises/exercise:
# exercise, built, learner, peer, sources, learner_flags, work, runs, fits, told, hung

# ---- building --------------------------------------------------------------

sanitizers='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
sanitizers+=' -fno-omit-frame-pointer'

# build_variant FOLDER SOURCES VARIANT PROGRAM [FLAGS]: one program into
# FOLDER/VARIANT/PROGRAM, what the compiler says into FOLDER/VARIANT/PROGRAM.log
build_variant() {
	local folder=$1 sources=$2 variant=$3 program=$4 flags=${5:-} opt

	opt=${OPT:--O2}
	[ "$variant" = plain ] || flags+=" $sanitizers"
	[ "$variant" = plain ] || opt=${OPT:--O1}
	mkdir -p "$folder/$variant"
	MAKEFLAGS='' LC_ALL=C timeout -k 5 60 make -s -B -C "exercises/$exercise" \
		S="$(realpath "$sources")" O="$(realpath "$folder/$variant")" \
		OPT="$opt" SANITIZE="$flags" \
		"$(realpath "$folder/$variant")/$program" \
		>"$folder/$variant/$program.log" 2>&1 || {
		rm -f "$folder/$variant/$program"
		return 1
	}
}

# The agent, the trace library, and the peer from the solution.
build_ours() {
	local lock

	mkdir -p build/exercises
	# Two checks at the same time build these one after the other.
	exec {lock}>build/exercises/lock
	flock "$lock"
	build_agent_and_recorder
	exec {lock}>&-
	if [ ! -x "$built/peer/plain/$peer" ] ||
		[ -n "$(find "solutions/$exercise" common -newer "$built/peer/plain/$peer")" ]; then
		build_variant "$built/peer" "solutions/$exercise" plain "$peer" \
			-DSOLUTION || {
			cat "$built/peer/plain/$peer.log" >&2
			trouble "the peer of exercise $exercise does not build"
		}
	fi
}

build_agent_and_recorder() {
	local source=exercises/agent.c agent=build/exercises/agent

	if [ ! -x $agent ] || [ $source -nt $agent ]; then
		gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra \
			-o $agent.new $source && mv $agent.new $agent
	fi
	MAKEFLAGS='' make -s -C tools/trace >&2 || trouble "tools/trace does not build"
	trace_library=build/trace/libverbstrace.so
}

# The learner's program, plain. With the sanitizers it is built in the
# background meanwhile, or not before it is asked for when a check may end early.
build_learner() {
	rm -rf "$built/learner"
	asan_job=
	if [ -z "$to_first" ]; then
		build_asan &
		asan_job=$!
	fi
	build_variant "$built/learner" "$sources" plain "$learner" \
		"$learner_flags" || true
}

build_asan() {
	build_variant "$built/learner" "$sources" asan "$learner" \
		"$learner_flags" || true
}

need_asan() {
	if [ -n "$asan_job" ]; then
		wait "$asan_job" || true
		asan_job=
	elif [ ! -e "$built/learner/asan/$learner.log" ]; then
		build_asan
	fi
	[ -x "$built/learner/asan/$learner" ] || {
		cat "$built/learner/asan/$learner.log" >&2
		trouble "it builds, but not with the sanitizers"
	}
}

# ---- the nodes -------------------------------------------------------------

trouble() {
	printf 'check: %s\n' "$*" >&2
	exit 125
}

# Sets $slow: how much longer everything takes than on a quiet machine. The nodes
# have no more of the processors than is left.
measure_slowness() {
	local load

	read -r load _ </proc/loadavg || load=0
	load=${load%.*}
	slow=$((load / ($(nproc) + 1) + 1))
	[ "$slow" -le 6 ] || slow=6
}

# Boots two nodes of our own where none are up.
start_nodes() {
	[ -z "$nodes_ready" ] || return 0
	if ! lab/lab status >/dev/null 2>&1; then
		private=$(mktemp -d "${XDG_RUNTIME_DIR:-/tmp}/rdma-check-XXXXXX")
		export LAB_DIR=$private
		lab/lab up || exit 125
	fi
	# Asked for once; the agents stay for all that is to be graded.
	address=$(lab/lab addr server) || exit 125
	start_agent server
	start_agent client
	nodes_ready=1
}

start_agent() {
	local node=$1 in out word=

	mkfifo "$work/$node.in" "$work/$node.out"
	lab/lab exec "$node" build/exercises/agent \
		<"$work/$node.in" >"$work/$node.out" 2>"$work/$node.err" &
	jobs+=($!)
	exec {in}>"$work/$node.in" {out}<"$work/$node.out"
	agent_in["$node"]=$in
	agent_out["$node"]=$out
	IFS=' ' read -r -t 90 word folder_on["$node"] <&"$out" || true
	[ "$word" = ready ] || lost "$node"
}

# Told to end they do at once; whoever does not hear it is killed, which takes
# longer.
stop_agents() {
	local fd timer

	for fd in "${agent_in[@]}"; do
		echo quit >&"$fd" || true
	done
	sleep 2 &
	timer=$!
	for fd in "${jobs[@]}"; do
		wait -n "${jobs[@]}" $timer || true
	done
	kill -KILL $timer || true
	kill "${jobs[@]}" || true
	wait "${jobs[@]}" $timer || true
} 2>/dev/null

lost() {
	sed "s/^/$1: /" "$work/$1.err" >&2
	trouble "the $1 node does not answer: see lab/lab log $1"
}

tell() {
	local node=$1

	shift
	printf '%s\n' "$@" >&"${agent_in[$node]}" || lost "$node"
}

# send NODE FILE NAME: a file to the agent, unless it has it already
send() {
	local node=$1 file=$2 name=$3 size sum

	sum=$(cksum <"$file")
	[ "${sent[$node/$name]:-}" != "$sum" ] || return 0
	size=$(stat -c %s "$file")
	tell "$node" "file $name $size"
	cat "$file" >&"${agent_in[$node]}" || lost "$node"
	sent["$node/$name"]=$sum
}

# take_results NODE PREFIX: after `ended`, the files of a run into PREFIX.NAME
take_results() {
	local node=$1 prefix=$2 word name size fd=${agent_out[$1]}

	while IFS=' ' read -r -t 60 word name size <&"$fd"; do
		case $word in
		done) return 0 ;;
		file) head -c "$size" <&"$fd" >"$prefix.$name" ;;
		esac
	done
	lost "$node"
}

# wait_ended NODE PREFIX SECONDS: true when the program there has ended by then
wait_ended() {
	local node=$1 prefix=$2 line

	while IFS= read -r -t "$3" line <&"${agent_out[$node]}"; do
		[[ $line == ended\ * ]] || continue
		printf '%s\n' "${line#ended }" >"$prefix.end"
		take_results "$node" "$prefix"
		return 0
	done
	return 1
}

# ---- one run ---------------------------------------------------------------

# fetch NODE SIDE: what is needed there to run the side's program
fetch() {
	local node=$1 side=$2

	if [ "$side" = "$learner" ]; then
		send "$node" "$built/learner/$variant/$side" "$side-$variant"
	else
		send "$node" "$built/peer/plain/$side" "peer-$exercise"
	fi
	send "$node" "$trace_library" trace.so
}

# launch NODE SIDE: start the side's program there
launch() {
	local node=$1 side=$2 who=peer program=peer-$exercise
	local word words=() env=()

	if [ "$side" = "$learner" ]; then
		who=learner
		program=$side-$variant
	fi
	[ $who = peer ] || env+=("${learner_env[@]}")
	if [ $who = learner ] && [ "$variant" = asan ]; then
		env+=("ASAN_OPTIONS=exitcode=99:detect_stack_use_after_return=1"
			"UBSAN_OPTIONS=print_stacktrace=1"
			"LSAN_OPTIONS=exitcode=99")
	elif [ -n "${traced[$who]:-}" ]; then
		env+=("LD_PRELOAD=${folder_on[$node]}/trace.so"
			"VERBS_TRACE=${folder_on[$node]}/work/trace"
			"VERBS_TRACE_MAX=7" "${trace_settings[@]}")
	fi
	env+=(PATH=/usr/bin:/bin)
	for word in "${env[@]}"; do
		words+=("env $word")
	done
	words+=("arg $program")
	if [ "$side" = server ]; then
		for word in "${server[@]}"; do words+=("arg $word"); done
	else
		for word in "${client[@]}" "$address"; do words+=("arg $word"); done
	fi
	tell "$node" "${words[@]}" "run $limit"
}

# execute RUN: both sides, as run_RUN says. The results are in $runs/RUN/.
execute() {
	local name=$1 results=$runs/$1 side line listening=''
	local server=() client=() variant=plain t limit grace slow
	local learner_env=() trace_settings=() server_who=peer client_who=peer
	local -A traced=([learner]=1 [peer]='')

	# How long a program of either side may wait, and when it is killed. What
	# ends by itself ends long before.
	measure_slowness
	t=$((2 * slow)) grace=$((2 * slow))
	limit=$((5 * slow * 1000))
	"run_$name"
	[ "$variant" = plain ] || need_asan
	doing "running your $learner ($name)"
	start_nodes
	rm -rf "$results"
	mkdir -p "$results"
	[ "$learner" = server ] && server_who=learner || client_who=learner
	fetch server server
	fetch client client
	launch server server
	while IFS= read -r -t $((t + 60)) line <&"${agent_out[server]}"; do
		case $line in
		listening)
			listening=1
			break
			;;
		ended\ *)
			printf '%s\n' "${line#ended }" >"$results/$server_who.end"
			take_results server "$results/$server_who"
			break
			;;
		esac
	done
	if [ -n "$listening" ]; then
		launch client client
		wait_ended client "$results/$client_who" \
			$((limit / 1000 + 20 * slow)) || lost client
		# The server has a moment to see that the client has gone. When it
		# is the learner's it has its whole time.
		[ $server_who = peer ] || grace=$((limit / 1000 + 20 * slow))
		if ! wait_ended server "$results/server_who" $grace; then
			tell server stop
			wait_ended server "$results/server_who" $((20 * slow)) || lost server
		fi
		for side in "$results/server_who".*; do
			mv "$side" "$results/$server_who.${side##*.}"
		done
	elif [ ! -e "$results/$server_who.end" ]; then
		lost server
	fi
	[ -e "$results/learner.end" ] || echo 'never 0 0 -' >"$results/learner.end"
	[ -e "$results/peer.end" ] || echo 'never 0 0 -' >"$results/peer.end"
	for side in learner peer; do
		for line in stdout stderr; do
			[ -e "$results/$side.$line" ] || : >"$results/$side.$line"
		done
		# A trace ends with what was reserved and never written.
		if [ -s "$results/$side.trace" ]; then
			tools/trace/lines "$results/$side.trace" |
				jq -cs . >"$results/$side.json"
		else
			echo '[]' >"$results/$side.json"
		fi
	done
}

# ---- checkpoints -----------------------------------------------------------

# checkpoint NAME RUN HINT TITLE: one more, in the order of the calls. NAME is the
# function that looks, at what the run RUN has left (- for none). It returns
# whether the checkpoint holds, and prints what it saw where it does not. HINT is
# a section of the exercise's hints.md, or of exercises/hints.md.
checkpoint() {
	checkpoint_names+=("$1")
	checkpoint_runs+=("$2")
	checkpoint_hints+=("$3")
	checkpoint_titles+=("$4")
}

# look I: does checkpoint I hold? 0 yes, 1 no, 3 not looked at. What it says is
# in $work/said.
look() {
	run=${checkpoint_runs[$1]}
	if [ "$run" != - ] && [ ! -e "$runs/$run" ]; then
		[ -z "$failed_at" ] || return 3
		execute "$run"
	fi
	"${checkpoint_names[$1]}" >"$work/said"
}

# saw WORDS: what to tell the learner; always fails
saw() {
	printf '%s\n' "$*"
	return 1
}

# ended WHO: sets $how (exit, signal, time, stop, never), $number, $ms, $flags
ended() {
	IFS=' ' read -r how number ms flags <"$runs/$run/$1.end"
}

# output WHO [STREAM]: the path of what it printed
output() {
	printf '%s' "$runs/$run/$1.${2:-stdout}"
}

# ask WHO EXPRESSION [JQ_OPTION...]: the answer of judge.jq to a question about
# the trace. A question that jq does not understand would have no answer, and so
# find nothing wrong: it is noted, and ends the check.
ask() {
	local who=$1 expression=$2 status=0

	shift 2
	jq -r -L exercises "$@" 'include "judge"; '"$expression" \
		"$runs/$run/$who.json" || status=$?
	# 2: usage or no file, 3: the program does not compile (jq(1))
	case $status in
	2 | 3) printf '%s\n' "$expression" >"$work/not-understood" ;;
	esac
	return $status
}

# holds WHO EXPRESSION: whether the answer is true
holds() {
	[ "$(ask "$@")" = true ]
}

# quote_lines FILE [LINES]: the end of a text, indented, and harmless
quote_lines() {
	tail -n "${2:-6}" "$1" | cut -c 1-300 | LC_ALL=C tr -cd '\11\12\40-\176' |
		sed 's/^/    | /'
}

# where RECORD: "rdma_destroy_id, called in client.c:420" for a record of the trace; and
# from where, as far as the compiler has put one function into the other
where() {
	local call at line

	IFS=' ' read -r call at < <(jq -r '"\(.call) \(.at)"' <<<"$1")
	line=$(addr2line -i -s -e "$built/learner/plain/$learner" "$at" 2>/dev/null |
		sed 's/ (discriminator.*//; /^verbs\.h:/d' | head -n 3 |
		paste -s -d '>' | sed 's/>/, from /g') || line=
	case $line in
	'' | '??'*) printf '%s' "$call" ;;
	*) printf '%s, called in %s' "$call" "$line" ;;
	esac
}

# ---- questions that many exercises ask -------------------------------------

# compiler_said KIND: its first words of that kind, `error` or `warning`
compiler_said() {
	local log=$built/learner/plain/$learner.log

	saw "the compiler said:"
	if grep -q "$1:" "$log"; then
		quote_lines <(grep -A 2 "$1:" "$log" | sed 's|^[^ :]*/||' | head -n 8) 8
	else
		quote_lines "$log" 8
	fi
	return 1
}

builds() {
	[ -x "$built/learner/plain/$learner" ] || compiler_said error
}

no_warnings() {
	[ -x "$built/learner/plain/$learner" ] || return 3
	! grep -q 'warning:' "$built/learner/plain/$learner.log" ||
		compiler_said warning
}

# last_words LINES [WHO]: the end of what the learner's program, or its peer, said on
# stderr, if it said anything. What a sanitizer says there is told in another way.
last_words() {
	local words

	words=$(quote_lines <(LC_ALL=C sed -E \
		'/^=+$|^==[0-9]+==|: runtime error: /,$d' "$(output "${2:-learner}" stderr)") "$1")
	[ -z "$words" ] || printf 'on stderr it said:\n%s\n' "$words"
}

# ended_by_itself: neither hung nor crashed nor had to be stopped
ended_by_itself() {
	local stuck last

	ended learner
	# Whoever says here how it ended has said it.
	[ "$how" = exit ] || told=1
	case $how in
	exit) ;;
	signal)
		saw "your $learner was killed by $(signal_name "$number")"
		stuck=$(ask learner 'stuck // empty | tojson')
		[ -z "$stuck" ] || saw "it was inside $(where "$stuck")"
		last_words 4
		return 1
		;;
	time)
		saw "your $learner was still running after $((ms / 1000)) s and was stopped"
		stuck=$(ask learner 'stuck // empty | tojson')
		if [ -n "$stuck" ]; then
			saw "it was inside $(where "$stuck")"
		else
			last=$(ask learner 'last_call // empty | tojson')
			[ -z "$last" ] || saw "its last call was $(where "$last")$(jq -r \
				'.calls // 1 | if . > 1 then ", \(.) times in vain" else "" end' \
				<<<"$last")"
		fi
		last_words 4
		case $stuck in
		*'"rdma_destroy_id"'* | *'"ibv_destroy_cq"'*) fits ack ;;
		esac
		return 1
		;;
	stop)
		[[ $flags != *flood* ]] ||
			saw "your $learner printed more than 128 KiB and was stopped"
		return 1
		;;
	never)
		saw "your $learner was not even started: the server did not listen"
		last_words 4 peer
		return 1
		;;
	esac
	[[ $flags != *orphans* ]] || {
		told=1
		saw "your $learner left other processes behind"
	}
}

signal_name() {
	local name

	name=$(kill -l "$1" 2>/dev/null) || name=$1
	case $name in
	SEGV) echo "SIGSEGV: it used memory that is not its own" ;;
	ABRT) echo "SIGABRT: it was ended by a check of the C library's, as of memory given back twice" ;;
	KILL) echo "SIGKILL: did it use all of the memory?" ;;
	XFSZ) echo "SIGXFSZ: it wrote a file of more than 8 MiB" ;;
	*) echo "SIG$name" ;;
	esac
}

# exit_status NUMBER
exit_status() {
	ended_by_itself || return 1
	[ "$number" = "$1" ] && return
	told=1
	saw "your $learner's exit status was $number, and $1 was expected"
	last_words 4
	return 1
}

# Everything that was made was destroyed, and nothing refused to be.
nothing_left() {
	local left failed

	ended_by_itself || return 1
	failed=$(ask learner 'failed_to_take | first // empty | tojson')
	[ -z "$failed" ] ||
		saw "$(where "$failed") failed: $(jq -r .error <<<"$failed")" ||
		return 1
	left=$(ask learner 'left_over | group_by(.) | map("\(length) \(.[0])")
		| join(", ")')
	[ -z "$left" ] || saw "still there at the end: $left"
}

# No more requests were with the card at a time than the send queue was made for.
# The queue may be larger than was asked, so a card takes more than it should, or
# finds, later, that it is full.
fits_queue() {
	local most size full

	size=$(ask learner 'calls("rdma_create_qp") | last | .attr.max_send_wr')
	full=$(ask learner '[calls("ibv_post_send")[] | select(.error == "ENOMEM")]
		| length')
	[ "$full" = 0 ] ||
		saw "the send queue, made for $size requests, was full: ibv_post_send failed" \
			"with ENOMEM" || return
	most=$(ask learner 'with_card | .most')
	[ "$most" -le "$size" ] ||
		saw "the send queue was made for $size requests, and $most were posted before the" \
			"completion of any of them was seen"
}

# Every event of the CM was acknowledged.
events_acknowledged() {
	local got acked

	got=$(ask learner 'calls("rdma_get_cm_event") | good | length')
	acked=$(ask learner 'calls("rdma_ack_cm_event") | length')
	[ "$got" = "$acked" ] ||
		saw "$got events were taken from the CM, $acked acknowledged"
}

# What AddressSanitizer, LeakSanitizer and UBSan say of the run.
no_sanitizer_report() {
	local report line

	report=$(output learner stderr)
	if grep -aqE 'ERROR: (Address|Leak)Sanitizer|runtime error:' "$report"; then
		told=1
		line=$(grep -aE -m 1 'ERROR: (Address|Leak)Sanitizer|runtime error:' \
			"$report" | sed 's/^==[0-9]*==//; s/ on address.*//' |
			sed 's/^[^ ]*\/\([a-z]*\.c:\)/\1/')
		saw "the sanitizer says: $line"
		grep -aoE "in [a-z_0-9]+ [^ ]*/$learner\.c:[0-9]+" "$report" |
			sed 's|[^ ]*/||; s/^/    /' | head -n 3
		return 1
	fi
	ended_by_itself
}

# ---- what goes with a checkpoint that failed -------------------------------

# add_circumstances: a program that crashed, hung or flooded is told of, whatever
# the checkpoint was about, unless the checkpoint has told it
add_circumstances() {
	local hint=$other_hint

	[ "$run" != - ] && [ -z "$told" ] || return 0
	ended_by_itself >"$work/circumstances" || true
	ended learner
	if [ "$how" = exit ] && [ "$number" != 0 ]; then
		echo "your $learner ended with status $number"
		last_words 3
	fi >>"$work/circumstances"
	other_hint=$hint
	cat "$work/circumstances" >>"$work/said"
}

# no_circumstances: how the program ended has nothing to do with what was seen
no_circumstances() {
	told=1
}

# fitting_hint I: the hint for checkpoint I, in $fits; or what matters more
fitting_hint() {
	fits=${other_hint:-${checkpoint_hints[$1]}}
	[ "$run" != - ] || return 0
	ended learner
	case $how in
	signal) fits=${other_hint:-crash} ;;
	time)
		hung=1
		[ "$fits" != connect ] || fits=hang
		;;
	stop) [[ $flags != *flood* ]] || fits=${other_hint:-flood} ;;
	esac
	[[ $flags != *orphans* ]] || fits=fork
}

# fits HINT: another hint than the checkpoint's own, for what it has seen
fits() {
	other_hint=$1
}
