#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Every program builds without a warning, in each way in which it is tested.
# The tests of the lessons run what is built here.

load ../helpers

@test "every lesson builds with gcc -O0" {
	build gcc-O0
}

@test "every lesson builds with gcc -O2" {
	build gcc-O2
}

@test "every lesson builds with clang -O0" {
	build clang-O0
}

@test "every lesson builds with clang -O2" {
	build clang-O2
}

@test "every lesson builds with AddressSanitizer and UBSan, -O0" {
	build asan-O0
}

@test "every lesson builds with AddressSanitizer and UBSan, -O2" {
	build asan-O2
}

@test "the peers and the unit tests build" {
	build peers unit
}

@test "a lesson's folder builds alone, with common/ beside it" {
	local folder copy=$BATS_TEST_TMPDIR/copy file

	while IFS= read -r file; do
		install -D "$file" "$copy/$file"
	done < <(tests/tracked common)
	for folder in $(lesson_folders); do
		while IFS= read -r file; do
			install -D "$file" "$copy/$file"
		done < <(tests/tracked "$folder")
		(cd "$copy/$folder" && make -s -j2 WERROR=1 && make -s clean)
		# One lesson does not lean on another.
		rm -r "${copy:?}/$folder"
	done
}

@test "what clean leaves of a lesson's folder is what git has" {
	local copy=$BATS_TEST_TMPDIR/copy file before

	while IFS= read -r file; do
		install -D "$file" "$copy/$file"
	done < <(tests/tracked common lessons Makefile)
	cd "$copy"
	before=$(find . -type f | sort)
	make -s -j2 build
	make -s clean
	assert_equal "$(find . -type f | sort)" "$before"
}

@test "the pair of every lesson names programs that its folders build" {
	local folder shown key value program

	for folder in $(lesson_folders); do
		shown=$(make -s -C "$folder" show-pair)
		grep -q '^shows=..' <<<"$shown" ||
			fail "$folder: SHOWS is empty"
		while IFS='=' read -r key value; do
			case $key in
			server | client | each)
				[ -n "$value" ] || continue
				program=build/gcc-O2/${value#lessons/}
				[ -x "$program" ] ||
					fail "$folder: $key=$value is not built"
				;;
			esac
		done <<<"$shown"
		grep -qE '^(each|client)=.' <<<"$shown" ||
			fail "$folder has neither a pair nor EACH"
	done
}
