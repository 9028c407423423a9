#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What can be told of the Markdown files without running anything: links, the
# shape of a lesson's README, the course map.

load ../helpers

@test "every link holds: files, headings, and lines of source files" {
	tests/links
}

@test "a link that does not hold is found" {
	cd "$BATS_TEST_TMPDIR"
	printf '%s\n' '/*' ' * Step 1: one' ' */' 'one();' '' \
		'/* Step 2: two */' 'two();' '}' '' '/* help */' 'void help(void)' \
		'{' '}' >a.c
	cat >a.md <<-'END'
		# One `two`
		[step 1](a.c#L1-L4) [step 2](a.c#L6-L7) [`help`](a.c#L10-L13)
		[steps 1 and 2](a.c#L1-L7) [`two();`](a.c#L7) [x](#one-two)
	END
	"$TOP/tests/links" a.md
	local link
	for link in '[step 1](a.c#L1-L5)' '[step 3](a.c#L1)' '[x](b.c)' \
		'[`help`](a.c#L11-L13)' '[`one`](a.c#L7)' '[x](a.c#L7)' \
		'[x](#two)' '[x](a.md#two)' '[`two`](a.c#L900)'; do
		printf '# One\n%s\n' "$link" >b.md
		run "$TOP/tests/links" b.md
		assert_failure 1
		assert_output --partial "b.md:2: $link"
	done
	# And mended, where the right lines can be told.
	printf '[step 1](a.c#L2) [`help`](a.c#L1) [x](a.c)\n' >c.md
	"$TOP/tests/links" --write c.md
	assert_equal "$(<c.md)" \
		'[step 1](a.c#L1-L4) [`help`](a.c#L10-L13) [x](a.c)'
}

@test "the README of every lesson has its nine sections, in order" {
	local folder wanted found bad=0

	wanted=$(printf '%s\n' 'What you will learn' 'The picture' 'The code' \
		'Run it' 'On the wire' 'What can go wrong' 'Try this' \
		'The exercise' 'In the real world')
	for folder in $(lesson_folders); do
		found=$(sed -n 's/^## //p' "$folder/README.md") || true
		if [ "$found" != "$wanted" ]; then
			printf '%s/README.md\n' "$folder"
			diff <(echo "$wanted") <(echo "$found") || true
			bad=1
		fi
	done
	[ "$bad" = 0 ]
}

@test "the README of every lesson has a diagram and a run that is checked" {
	local folder file

	for folder in $(lesson_folders); do
		file=$folder/README.md
		grep -q '^```mermaid' "$file" || fail "$file: no diagram"
		grep -qF "\$ make run LESSON=${folder:8:2}" "$file" ||
			fail "$file: does not show make run LESSON=${folder:8:2}"
	done
}

@test "the course map lists the lessons that are there" {
	local listed there

	listed=$(sed -nE 's,^\| ([0-9]{2}) \| \[([a-z-]+)\]\(lessons/\1-\2/(README.md)?\) \|.*,\1-\2,p' \
		README.md)
	there=$(lesson_folders | sed "s|^lessons/||")
	assert_equal "$listed" "$there"
}

@test "no block of output in a README is left without a language" {
	local file bad=0

	while IFS= read -r file; do
		awk -v file="$file" '
			/^ *```/ {
				if (!inside && $0 ~ /^ *``` *$/) {
					print file ":" FNR ": which language?"
					bad = 1
				}
				inside = !inside
			}
			END { exit bad }' "$file" || bad=1
	done < <(tests/tracked '*.md')
	[ "$bad" = 0 ]
}

# Where gnuplot is another than the one that drew what is committed, it draws it
# otherwise.
@test "what lessons 13 and 15 measured: tables and figures are made of what is in their CSV files" {
	local figure

	FROM=lessons/13-throughput/bench.csv OUT=$BATS_TEST_TMPDIR \
		tools/bench/bench >"$BATS_TEST_TMPDIR/tables"
	FROM=lessons/15-many-clients/throughput.csv OUT=$BATS_TEST_TMPDIR \
		lessons/15-many-clients/measure.sh
	awk '/^```/ { on = 0 } on; /^(test|ladder)/ && !on { on = 1; print }' \
		lessons/13-throughput/README.md >"$BATS_TEST_TMPDIR/shown"
	# The README has the ladder first, and an empty line is between the two.
	assert_equal "$(sort "$BATS_TEST_TMPDIR/shown")" \
		"$(grep . "$BATS_TEST_TMPDIR/tables" | sort)"
	run grep -c ' behind$' "$BATS_TEST_TMPDIR/tables"
	assert_output 0
	for figure in lessons/13-throughput/bench.svg lessons/15-many-clients/throughput.svg; do
		grep -qF "$(grep -o 'Produced by GNUPLOT.*' "$BATS_TEST_TMPDIR/${figure##*/}")" \
			"$figure" || continue
		cmp "$figure" "$BATS_TEST_TMPDIR/${figure##*/}"
	done
}
