# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the files of this folder share: grading many programs of one exercise in
# one go, and looking at how each did.

# grade_all EXERCISE: its stub, its solution, and each of its wrong answers. The
# results are in $BATS_FILE_TMPDIR/results, a line each: NAME, pass or fail, the
# checkpoint, the hint, seconds.
grade_all() {
	local exercise=$1 work=$BATS_FILE_TMPDIR patch copy

	solutions/make-stubs --to "$work/stubs" "$exercise"
	solutions/make-stubs --solution "$work/solutions" "$exercise"
	{
		printf 'stub %s %s\n' "$exercise" "$work/stubs/$exercise"
		printf 'solution-O0 %s %s -DSOLUTION OPT=-O0\n' \
			"$exercise" "solutions/$exercise"
		printf 'solution-O2 %s %s -DSOLUTION OPT=-O2\n' \
			"$exercise" "solutions/$exercise"
		for patch in "tests/wrong/$exercise"/*.patch; do
			copy=$work/$(basename "$patch" .patch)
			cp -r "$work/solutions/$exercise" "$copy"
			patch -s -F 0 -d "$copy" -p 1 <"$patch" >&2 || return
			# What they do does not depend on it, and it compiles quicker.
			printf '%s %s %s OPT=-O0\n' "${copy##*/}" "$exercise" "$copy"
		done
	} >"$work/list" || return
	exercises/exercise grade "$work/list" >"$work/results"
}

# result NAME: sets $verdict, $checkpoint, $hint; what the check printed is shown
# when the test fails
result() {
	local name

	verdict=none
	# shellcheck disable=SC2034 # for the test
	while read -r name verdict checkpoint hint _; do
		[ "$name" != "$1" ] || break
		verdict=none
	done <"$BATS_FILE_TMPDIR/results"
	printf '== %s\n' "$1"
	cat "$BATS_FILE_TMPDIR/list.$1"
}

stub_fails() {
	local stub

	for stub in "$BATS_FILE_TMPDIR/stubs/$1"/*.c; do
		grep -q SOLUTION "$stub" && fail "$stub: a region is left"
	done
	compiles "$1" "$BATS_FILE_TMPDIR/stubs/$1"
	grep -q TODO "$BATS_FILE_TMPDIR/stubs/$1"/*.c
	result stub
	assert_equal "$verdict" fail
}

solution_passes() {
	result solution-O0
	assert_equal "$verdict" pass
	result solution-O2
	assert_equal "$verdict" pass
	compiles "$1" "$TOP/solutions/$1" -DSOLUTION
}

# compiles EXERCISE SOURCES [FLAG]: both programs of the pair, with either compiler,
# without a warning. gcc sees the most of them at -O2.
compiles() {
	local cc

	for cc in 'gcc OPT=-O2' 'clang OPT=-O0'; do
		# shellcheck disable=SC2086 # two words
		make -s -B -j2 -C "exercises/$1" CC=$cc WERROR=1 SANITIZE="${3:-}" \
			S="$2" O="$BATS_TEST_TMPDIR/${cc%% *}"
	done
}

# Each fails where its header says, and there are at least four. A header may name
# two checkpoints, where it is a race which comes first: "Checkpoint: a or b".
wrong_answers_fail() {
	local patch wanted wanted_hint bad=0 count=0

	for patch in "tests/wrong/$1"/*.patch; do
		count=$((count + 1))
		wanted=$(sed -n 's/^Checkpoint: //p;T;q' "$patch")
		wanted_hint=$(sed -n 's/^Hint: //p;T;q' "$patch")
		result "$(basename "$patch" .patch)" >"$BATS_TEST_TMPDIR/said"
		if [ "$verdict" != fail ] || [ "$hint" != "$wanted_hint" ] ||
			[[ " $wanted " != *" $checkpoint "* ]]; then
			cat "$BATS_TEST_TMPDIR/said"
			printf '^^ expected: %s, hint %s; got: %s %s %s\n' "$wanted" "$wanted_hint" \
				"$verdict" "$checkpoint" "$hint"
			bad=1
		fi
	done
	assert_equal "$bad" 0
	[ "$count" -ge 4 ]
}
