#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Every program builds without a warning, in each way in which it is tested.
# The tests of the lessons run what is built here.

load ../helpers

# For this file, in seconds: a busy machine compiles for a while.
export BATS_TEST_TIMEOUT=600

# copy_tracked FOLDER PATH...: what git has of these, in the same places there
copy_tracked() {
	local into=$1 file

	shift
	while IFS= read -r file; do
		install -D "$file" "$into/$file"
	done < <(tests/tracked "$@")
}

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

@test "a lesson's folder builds alone, with common/ beside it, and cleans up" {
	local folder copy=$BATS_TEST_TMPDIR/copy before

	copy_tracked "$copy" common
	for folder in $(lesson_folders); do
		copy_tracked "$copy" "$folder"
		before=$(find "$copy/$folder" | sort)
		(cd "$copy/$folder" && make -s -j2 OPT=-O0 WERROR=1)
		(cd "$copy/$folder" && make -s clean)
		assert_equal "$(find "$copy/$folder" | sort)" "$before"
		# One lesson does not lean on another.
		rm -r "${copy:?}/$folder"
	done
}

@test "make build and make clean leave what git has" {
	local copy=$BATS_TEST_TMPDIR/copy before

	copy_tracked "$copy" Makefile common lab/packages lessons/01-client lessons/02-server
	cd "$copy"
	before=$(find . | sort)
	make -s build
	[ -x lessons/01-client/client ]
	[ -x lessons/02-server/server ]
	mkdir -p build/kernel build/asan-O0
	make -s clean
	assert_equal "$(ls build)" kernel
	make -s distclean
	assert_equal "$(find . | sort)" "$before"
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
