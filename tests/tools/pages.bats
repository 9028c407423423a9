#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The pages that step through a lesson's run, and the book: in a real browser.

load ../helpers

# Every lesson runs once, and is looked at step by step.
export BATS_TEST_TIMEOUT=600

setup_file() {
	export BOOK_OUT=$BATS_FILE_TMPDIR/book
	# Those of another kernel are others.
	RUNS_DIR=$TOP/build/runs/$(on client uname -r)
	export RUNS_DIR BOOK_RUNS=$RUNS_DIR
	tools/book/book >"$BATS_FILE_TMPDIR/out" 2>&1 3>&- || {
		cat "$BATS_FILE_TMPDIR/out"
		return 1
	}
}

teardown() {
	assert_nothing_left
}

# The runs of the lessons as they are now.
runs() {
	local folder

	for folder in $(lesson_folders); do
		printf '%s\n' "$RUNS_DIR/${folder#lessons/}.$1"
	done
}

@test "the runs of all lessons: each cause before its effect, each call with its line" {
	local file

	for file in $(runs jsonl); do
		[ -e "$file" ] || fail "$file: not recorded: $(<"$BATS_FILE_TMPDIR/out")"
		assert_equal "$(jq -rs -f tests/tools/timeline.jq "$file")" ''
		assert_equal "$(jq -r 'select(.at and .lib == null and
			.source == null).call' "$file")" ''
	done
}

@test "the pages of all lessons step forward and back, by keyboard, mouse and finger" {
	local files

	mapfile -t files < <(runs html)
	run --separate-stderr node tests/tools/browse.mjs page "${files[@]}"
	assert_output ''
	assert_success
}

@test "the book: links, diagrams, search, previous and next, also on a phone" {
	local folder

	run --separate-stderr node tests/tools/browse.mjs book "$BOOK_OUT"
	assert_output ''
	assert_success
	for folder in $(lesson_folders); do
		[ -s "$BOOK_OUT/$folder/run.html" ] || fail "$folder: no run.html"
	done
	refute grep -h 'leads nowhere' "$BATS_FILE_TMPDIR/out"
}

@test "a page holds all that it needs, and what was recorded cannot end its script" {
	local file=$BATS_TEST_TMPDIR/time.jsonl

	jq -c 'if .words then .words += "</script><b>" else .title = "<i>&" end' \
		"$RUNS_DIR/02-server.jsonl" >"$file"
	run tools/page/page "$file"
	assert_success
	assert_equal "$(grep -c '</script>' <<<"$output")" 3
	assert_line '<title>&lt;i&gt;&amp;</title>'
	assert_line --partial '"lessons/02-server/server.c":'
	assert_equal "$(grep -oE '(src|href)="[^"]*"' <<<"$output")" \
		'href="data:,"'
	printf '{"packet":0}\n' >"$file"
	run tools/page/page "$file"
	assert_failure 2
	assert_output --partial 'is no time line'
}

@test "the time line as a picture" {
	run tools/trace/draw "$RUNS_DIR/08-write-doorbell.jsonl"
	assert_success
	assert_line --index 0 --regexp '^<svg .*role="img"'
	assert_line --partial 'prefers-color-scheme: dark'
	assert_line --regexp '^<text class="packet".*>RDMA WRITE Only 29</text>$'
	assert_line --regexp '^<text x="[0-9]+" y="[0-9]+" text-anchor="end">ibv_post_send: RDMA WRITE 29 bytes</text>$'
	assert_equal "${lines[-1]}" '</svg>'
	assert_equal "$(grep -o '<text' <<<"$output" | wc -l)" \
		"$(grep -o '</text>' <<<"$output" | wc -l)"
}

# story FILE.svg SIDE: what a picture says of one side, without what depends on
# how quick the other is
story() {
	sed -n '/^<desc/,/^<\/desc>/{//!p;}' "$1" | sed -E 's/^; //; s/QP [0-9]+/QP/' |
		grep "^$2:" | grep -vE \
		'Acknowledge|MsgRcptAck|\(again\)|ibv_(req_notify_cq|get_cq_event|ack_cq_events)'
}

@test "the time lines in the lessons are of what runs today" {
	local file folder side

	for file in $(tests/tracked 'lessons/*/time.svg'); do
		folder=${file%/time.svg}
		tools/trace/draw "$RUNS_DIR/${folder#lessons/}.jsonl" \
			>"$BATS_TEST_TMPDIR/time.svg"
		for side in client server 'packet from the client' \
			'packet from the server'; do
			assert_equal "$(story "$file" "$side")" \
				"$(story "$BATS_TEST_TMPDIR/time.svg" "$side")"
		done
	done
}

@test "the versions of the packages are fixed, and no server is named" {
	jq -e '[.dependencies[] | test("^[0-9.]+$")] | all' tools/book/package.json
	assert_equal "$(jq '[.packages[] | select(.resolved)] | length' \
		tools/book/package-lock.json)" 0
	assert_equal "$(jq '[.packages | del(.[""])[] | select(.integrity == null)] |
		length' tools/book/package-lock.json)" 0
}

@test "make book refuses what it does not know" {
	run --separate-stderr tools/book/book nonsense
	assert_failure 2
	[[ $stderr == *usage:* ]]
	RUNS=perhaps run tools/book/book
	assert_failure 2
}
