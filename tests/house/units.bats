#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The unit tests of common/: one cmocka program for each file in tests/unit,
# with the sanitizers, against the real libraries.

load ../helpers

setup_file() {
	build unit
}

@test "the unit tests of common/ pass" {
	local source program count=0

	for source in tests/unit/*.c; do
		program=build/unit/$(basename "$source" .c)
		echo "$program"
		timeout 60 "$program" 2>&1
		count=$((count + 1))
	done
	[ "$count" -gt 0 ]
}

# What needs a device (endpoint_*, hub_*) is tested by the lessons on the nodes.
@test "every function of rdma_common.h that needs no device has a unit test" {
	local name missing=''

	while IFS= read -r name; do
		grep -qw "$name" tests/unit/*.c || missing+=" $name"
	done < <(helpers_of_common | grep -Ev "^(endpoint|hub)_")
	assert_equal "$missing" ""
}
