#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Many boots: none fails, nothing stays.

load ../helpers

# For this file, in seconds.
export BATS_TEST_TIMEOUT=3600

@test "fifty labs in a row come up, run a command, and leave nothing behind" {
	local i

	export LAB_DIR=$BATS_TEST_TMPDIR/lab
	for i in $(seq 50); do
		lab/lab up
		on server true
		on client true
		lab/lab down
		[ ! -e "$LAB_DIR" ] || fail "boot $i: $(ls -A "$LAB_DIR") stayed"
		run pgrep -f "$LAB_DIR"
		assert_failure 1
		((i % 10)) || echo "# $i boots" >&3
	done
}
