#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What programs can tell about the sources without running them.

load ../helpers

# For this file, in seconds: a busy machine compiles for a while.
export BATS_TEST_TIMEOUT=600

setup() {
	mapfile -t c_files < <(tests/tracked '*.c' '*.h')
	mapfile -t all_files < <(tests/tracked)
}

# Every shell script, by its name or by its first line.
scripts() {
	local file first

	for file in "${all_files[@]}"; do
		IFS= read -r first <"$file" || true
		if [[ $file == *.bash || $file == *.bats ||
			$first =~ ^#!.*(sh|bats)( |$) ]]; then
			printf '%s\n' "$file"
		fi
	done 2>/dev/null
}

@test "shellcheck finds nothing in any script" {
	scripts | xargs -d '\n' shellcheck -x
}

# The style is the one that clang-format 14 produces: other versions break some
# lines elsewhere. Where there is only another one, the test says so and is
# counted as skipped. Debian 12 and Ubuntu 22.04 and 24.04 have version 14.
@test "clang-format 14 would change no line" {
	local format=clang-format-14

	command -v "$format" >/dev/null || format=clang-format
	[[ $("$format" --version) =~ version\ 14\. ]] ||
		skip "it is checked with version 14, and this is $("$format" --version)"
	"$format" --dry-run -Werror "${c_files[@]}"
}

@test "cppcheck finds nothing" {
	cppcheck --quiet -j2 --std=c11 --enable=warning,performance,portability \
		--inline-suppr --suppress=missingIncludeSystem \
		--suppress=normalCheckLevelMaxBranches \
		--suppress=unknownMacro -D_GNU_SOURCE -DLESSON=99 \
		-I common --error-exitcode=1 "${c_files[@]}"
}

@test "the licence stands first in every source file" {
	local file first second bad=0

	for file in "${all_files[@]}"; do
		case $file in
		LICENSE | *.md | *.svg | *.png | *.csv | *.json | *.jsonl | *.patch)
			continue
			;;
		esac
		{
			IFS= read -r first || true
			IFS= read -r second || true
		} <"$file"
		# A script's first line names its interpreter.
		[[ $first != '#!'* ]] || first=$second
		[[ $first != *'SPDX-License-Identifier: MIT'* ]] || continue
		printf '%s: no SPDX-License-Identifier: MIT\n' "$file"
		bad=1
	done
	[ "$bad" = 0 ]
}

@test "no Python" {
	local file first bad=0

	for file in "${all_files[@]}"; do
		IFS= read -r first <"$file" || true
		if [[ $file == *.py || $first == '#!'*python* ]]; then
			printf '%s\n' "$file"
			bad=1
		fi
	done 2>/dev/null
	[ "$bad" = 0 ]
}

@test "nothing is committed that was built" {
	local found

	found=$(file --mime-encoding -- "${all_files[@]}" |
		grep -v '\.png:' | grep -E ': *binary$' || true)
	assert_equal "$found" ""
}

@test "every script can be executed, and nothing else" {
	local file first bad=0

	for file in "${all_files[@]}"; do
		IFS= read -r first <"$file" || true
		case $file in
		*.bats) continue ;;
		esac
		if [[ $first == '#!/usr'* || $first == '#!/bin'* ]]; then
			[ -x "$file" ] || { echo "$file: not executable"; bad=1; }
		else
			[ ! -x "$file" ] || { echo "$file: executable"; bad=1; }
		fi
	done 2>/dev/null
	[ "$bad" = 0 ]
}
