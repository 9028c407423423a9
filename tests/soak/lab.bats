#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Many boots, and many connections on one boot: nothing fails, nothing stays.

load ../helpers

# For this file, in seconds.
export BATS_TEST_TIMEOUT=3600

setup_file() {
	build gcc-O2/01-client gcc-O2/02-server
}

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

@test "three hundred clients in a row are served" {
	local bin=build/gcc-O2 i

	for i in $(seq 300); do
		start server peer $bin/02-server/server
		wait_line peer '^listening on '
		on client $bin/01-client/client -m "number $i" "$ADDR_SERVER" \
			>"$BATS_TEST_TMPDIR/client"
		finish peer
		assert_equal "$status" 0
		assert_line --regexp "received .* bytes: number $i\$"
		((i % 50)) || echo "# $i clients" >&3
	done
	assert_nothing_left
}
