#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# docs/troubleshooting.md quotes what the programs say, and refers to what the
# doctor looks at. Both are held against the sources.

load ../helpers

page=docs/troubleshooting.md

# The lines of the blocks that are fenced as `message`.
quoted() {
	awk '/^```message$/ { on = 1; next } /^```/ { on = 0 } on' "$1"
}

# What differs from run to run.
alike() {
	sed -E 's/wr_id [0-9]+/wr_id N/; s/syndrome 0x[0-9a-f]+/syndrome N/;
		s/^(server|client) [|!] //; s/^ +//'
}

# Texts that the sources can print, as regular expressions: whole ones, or
# with an argument their parts between colons and the like.
patterns() {
	tests/tracked 'common/*.h' 'lessons/*.c' 'tools/doctor/*.[ch]' |
		xargs -d '\n' awk -v pieces="${1:-}" -f tests/house/quotes.awk | sed 's/^^ */^/' | sort -u
}

# The checks that the doctor has.
doctor_checks() {
	{
		grep -ohE 'found (OK|WARN|FAIL|\$level) [a-z0-9-]+' tools/doctor/doctor |
			sed 's/.* //'
		cat tools/doctor/*.c | tr -d '\n\t' | grep -oE 'finding\([^;]*' |
			sed -nE 's/^[^"]*"([a-z0-9-]+)".*/\1/p'
	} | sort -u
}

# unknown FILE: the lines that it quotes and nothing prints
unknown() {
	local line

	quoted "$1" | alike | grep -vxFf "$BATS_FILE_TMPDIR/messages" |
		while IFS= read -r line; do
			if ! grep -qEf "$BATS_FILE_TMPDIR/patterns" <<<"$line"; then
				echo "$line"
				continue
			fi
			# What was filled in has to be a text of ours as well.
			awk -F "[:,;] " "{ for (i = 1; i <= NF; i++) if (length(\$i) >= 28) print \$i }" <<<"$line" |
				grep -qvEf "$BATS_FILE_TMPDIR/pieces" || continue
			echo "$line"
		done || true
}

setup_file() {
	gcc -std=gnu11 -D_GNU_SOURCE -DLESSON=99 -Wall -Wextra -Werror -Icommon \
		-o "$BATS_FILE_TMPDIR/show" tests/house/messages.c \
		-lrdmacm -libverbs
	"$BATS_FILE_TMPDIR/show" | alike | sort -u >"$BATS_FILE_TMPDIR/messages"
	patterns >"$BATS_FILE_TMPDIR/patterns"
	patterns pieces >"$BATS_FILE_TMPDIR/pieces"
}

@test "every message in troubleshooting is one that a program prints" {
	[ "$(quoted $page | wc -l)" -ge 30 ]
	assert_equal "$(unknown $page)" ''
}

@test "a message that no program prints is found" {
	{
		echo '```message'
		quoted $page | sed -n 's/need LOCAL_WRITE/need no LOCAL_WRITE/p
			s/the library has no driver/the kernel has no driver/p
			s/status 13/status 12/p
			s/is the peer frozen/is the peer asleep/p'
		echo 'ibv_reg_mr: Cannot allocate memory'
		echo '```'
	} >"$BATS_TEST_TMPDIR/page.md"
	[ "$(quoted "$BATS_TEST_TMPDIR/page.md" | wc -l)" -ge 5 ]
	run unknown "$BATS_TEST_TMPDIR/page.md"
	assert_equal "${#lines[@]}" "$(quoted "$BATS_TEST_TMPDIR/page.md" | wc -l)"
}

@test "every check of the doctor is in its list, and none that it has not" {
	local listed

	listed=$(sed -n '/^## make doctor/,/^## /s/^| `\([a-z0-9-]*\)` |.*/\1/p' \
		tools/README.md | sort)
	assert_equal "$listed" "$(doctor_checks)"
}

@test "troubleshooting refers to every check of the doctor that can fail" {
	local named

	named=$(grep -E '^\*\*See\*\* doctor:' $page | sed 's/;.*//' |
		grep -oE '`[a-z0-9-]+`' | tr -d '`' | sort -u)
	# Not trouble of RDMA: the compiler, the lab, and the other half of a pair.
	assert_equal "$(comm -23 <(doctor_checks) <(echo "$named") | paste -sd' ')" \
		'build kvm lab libraries serve'
	assert_equal "$(comm -13 <(doctor_checks) <(echo "$named"))" ''
}
