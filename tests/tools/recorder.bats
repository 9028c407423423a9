#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The recorder of verbs calls, by itself: what becomes of its record when the
# program is treated badly, and what it costs. No device is needed.

load ../helpers

setup_file() {
	make -s -C tests/tools
}

setup() {
	trace=$BATS_TEST_TMPDIR/trace.jsonl
	bin=build/tests-tools
}

# traced MODE...: the recorder without a device. Sets $status and $records.
traced() {
	rm -f "$trace"*
	status=0
	VERBS_TRACE=$trace "$bin/${traced:-traced}" "$@" \
		>"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" || status=$?
	records=$(tools/trace/lines "$trace")
	jq -e . <<<"$records" >/dev/null || fail "not JSON"
}

# posts WHERE: how many sends a record has
posts() {
	tools/trace/lines "$1" | grep -c '"ibv_post_send"'
}

@test "numbers and strings are written as they are read back" {
	ASAN_OPTIONS=detect_leaks=0 "$bin/text"
}

@test "a record is one JSON object a line, from trace_start to trace_end" {
	traced posts 10
	assert_equal "$status" 0
	assert_equal "$(grep -c . "$trace")" 12
	assert_equal "$(jq -r .call <<<"$records" | sort | uniq -c | tr -s ' ')" \
		" 10 ibv_post_send
 1 trace_end
 1 trace_start"
	assert_equal "$(jq -c 'select(.wrs) | .wrs[0]' <<<"$records" | head -n 1)" \
		'{"wr_id":"0","opcode":"RDMA_WRITE","flags":["SIGNALED"],"num_sge":1,"sges":[{"addr":"0x7ffff3a3e010","length":64,"lkey":"0x7"}],"remote_addr":"0x7ffff3a3e010","rkey":"0xabc"}'
}

@test "lines of eight threads do not mix, and none is lost" {
	traced threads
	assert_equal "$status" 0
	assert_equal "$(posts "$trace")" 8000
	assert_equal "$(jq -r 'select(.wrs) | .wrs[0].wr_id' <<<"$records" |
		sort -u | wc -l)" 8000
}

# And wherever they are at that moment: in the middle of a line too.
@test "a program may exit while its threads go on" {
	for _ in {1..6}; do
		for traced in traced traced-asan; do
			traced exit-busy
			assert_equal "$status" 0
		done
	done
}

@test "nothing is lost when the program is killed" {
	local signal

	for signal in 9 15 6 11; do
		# The shell's word on the signal is of no interest.
		{ traced signal "$signal"; } 2>/dev/null
		assert_equal "$status" $((128 + signal))
		assert_equal "$(posts "$trace")" 10
		grep -q trace_end <<<"$records" && fail "it did not exit"
	done
	traced _exit
	assert_equal "$(posts "$trace")" 10
}

@test "a child records into a file of its own" {
	local child

	traced fork
	assert_equal "$status" 0
	child=$(<"$BATS_TEST_TMPDIR/out")
	assert_equal "$(posts "$trace")" 13
	assert_equal "$(posts "$trace.$child")" 5
}

@test "two processes with the same file do not write into each other's" {
	local files file pids

	rm -f "$trace"*
	VERBS_TRACE=$trace "$bin/traced" posts 4000 &
	pids=($!)
	VERBS_TRACE=$trace "$bin/traced" posts 4000 &
	pids+=($!)
	wait "${pids[@]}"
	files=("$trace"*)
	for file in "${files[@]}"; do
		tools/trace/lines "$file" | jq -e . >/dev/null
		# One may have been over before the other began.
		assert_equal "$(posts "$file")" 4000
	done
}

@test "%p in the file's name is the process number" {
	VERBS_TRACE=$trace.%p "$bin/traced" posts 2 &
	wait $!
	assert_equal "$(posts "$trace.$!")" 2
}

@test "a program that closes all descriptors keeps its own files, and its record" {
	traced closed "$BATS_TEST_TMPDIR/own"
	assert_equal "$status" 0
	assert_equal "$(posts "$trace")" 8001
	assert_equal "$(stat -c %s "$BATS_TEST_TMPDIR/own")" 0
}

@test "a full record counts what it has no room for" {
	export VERBS_TRACE_MAX=1
	traced posts 6000
	assert_equal "$status" 0
	assert_equal "$(($(posts "$trace") + $(jq 'select(.call == "trace_full")
		| .lost' <<<"$records")))" 6001 # and trace_end
	assert [ "$(stat -c %s "$trace")" -le $((1 << 20)) ]
}

@test "a limit on the size of files does not kill the program" {
	traced small-files
	assert_equal "$status" 0
	grep -q trace_full <<<"$records"
}

@test "a file that cannot be written is said once, and the program runs on" {
	trace=/proc/nonsense
	status=0
	VERBS_TRACE=$trace "$bin/traced" posts 10 2>"$BATS_TEST_TMPDIR/err" ||
		status=$?
	assert_equal "$status" 0
	assert_equal "$(grep -c . "$BATS_TEST_TMPDIR/err")" 1
	grep -q '^verbstrace: /proc/nonsense: open: ' "$BATS_TEST_TMPDIR/err"
}

@test "errno stays as the program left it" {
	for traced in traced traced-asan; do
		traced errno
		assert_equal "$status" 0
	done
}

@test "lists that are empty, endless or wrong are recorded as far as they can be" {
	for traced in traced traced-asan; do
		traced odd-lists
		assert_equal "$(<"$BATS_TEST_TMPDIR/err")" ''
		assert_equal "$status" 0
		# The endless one is cut off.
		assert_equal "$(jq -c 'select(.wrs) | .wrs | length' \
			<<<"$records" | tr '\n' ' ')" '0 1 1 1 1 1024 1024 1 '
	done
}

@test "without VERBS_TRACE nothing is recorded" {
	"$bin/traced" posts 10
	assert_equal "$(ls -A "$BATS_TEST_TMPDIR")" ''
}

# On a slower machine: not more than the C library takes for such a line and half
# as much again.
@test "a call costs less than a microsecond" {
	local line limit

	VERBS_TRACE=/dev/shm/trace-bench.$$ "$bin/traced" bench \
		>"$BATS_TEST_TMPDIR/out"
	rm -f "/dev/shm/trace-bench.$$"
	cat "$BATS_TEST_TMPDIR/out"
	limit=$(awk '/snprintf/ { print int($(NF - 1) * 1.5) }' "$BATS_TEST_TMPDIR/out")
	[ "$limit" -gt 1000 ] || limit=1000
	while IFS= read -r line; do
		[[ $line =~ \ ([0-9]+)\ ns$ ]]
		assert [ "${BASH_REMATCH[1]}" -lt "$limit" ]
	done < <(grep -v snprintf "$BATS_TEST_TMPDIR/out")
}

