#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A boot that is kept (lab/booted.bash): who goes on from it is a node of its own, and
# without it the nodes come up all the same.

load ../helpers

export BATS_TEST_TIMEOUT=300

setup_file() {
	OTHER=$(mktemp -d /tmp/lab-XXXXXX)
	export OTHER
}

setup() {
	unset LAB_ACCEL
	[[ $(on server cat /sys/devices/system/clocksource/clocksource0/current_clocksource) != kvm-clock ]] ||
		skip "with KVM a boot is short, and none is kept"
	# A file of its own: nobody else has nodes of this size.
	export LAB_DIR=$OTHER/lab LAB_MEMORY=480
	folder=$(KERNEL=${KERNEL:-linux-image-amd64} lab/kernel | head -n 1)
	folder=${folder%/*}
}

teardown_file() {
	LAB_DIR=$OTHER/lab lab/lab down
	rm -rf "$OTHER"
}

# mine: the file of a boot of this size, with the QEMU that is found now
mine() (
	LAB_ROOT=$TOP
	mapfile -t kernel < <(KERNEL=${KERNEL:-linux-image-amd64} lab/kernel)
	# shellcheck disable=SC2034 # for booted_file
	vmlinux=${kernel[0]} initramfs=${kernel[1]}
	. lab/booted.bash
	booted_file
)

# kept: what is there of it, whole or not
kept() {
	find "$folder" -name "$(basename "$(mine)")*"
}

# up_again: the lab comes up; where the clock of the boot that was to be kept was slow to
# read, so that it was not kept, once more
up_again() {
	run lab/lab up
	while [[ $status == 0 && $output == *'has a slow clock'* ]]; do
		lab/lab down
		run lab/lab up
	done
	assert_success
}

@test "a boot that is kept: interrupted, made, gone on from twice, and damaged" {
	local pid node before ids=()

	rm -f "$(mine)"
	# Ctrl-C in the middle leaves no process and no file.
	timeout --foreground 100 lab/lab up >"$OTHER/up" 2>&1 3>&- &
	pid=$!
	until [ -e "$LAB_DIR/nobody.pid" ] || ! kill -0 "$pid"; do
		read -r -t 0.01 <> <(:) || true
	done
	kill -s INT "$pid"
	status=0
	wait "$pid" || status=$?
	[ "$status" = 130 ] || fail "$status, $(<"$OTHER/up")"
	run pgrep -f "$LAB_DIR/"
	assert_failure 1
	[ ! -e "$LAB_DIR" ]
	assert_equal "$(kept)" ''

	# Two labs, one after the other, from one file.
	for _ in 1 2; do
		up_again
		assert_equal "$(kept | wc -l)" 1
		[ ! -e "$LAB_DIR/nobody.console" ]
		for node in server client; do
			before=$(date +%s)
			# shellcheck disable=SC2016 # expanded on the node
			run on "$node" sh -c '
				hostname
				cat /sys/class/net/link0/address /proc/sys/kernel/random/boot_id
				date +%s
				dmesg | grep -c "crng reseeded due to virtual machine fork"'
			assert_success
			assert_line --index 0 "$node"
			ids+=("${lines[1]}" "${lines[2]}")
			# The time is ours, and not that of the boot.
			((lines[3] >= before - 2 && lines[3] <= $(date +%s) + 2))
			assert_line --index 4 1
		done
		lab/lab down
	done
	assert_equal "${ids[0]} ${ids[2]}" '52:54:00:00:01:01 52:54:00:00:01:02'
	assert_equal "${ids[4]} ${ids[6]}" '52:54:00:00:01:01 52:54:00:00:01:02'
	# Random numbers are nobody else's.
	assert_equal "$(printf '%s\n' "${ids[@]}" | sort -u | wc -l)" 6

	# What cannot be gone on from is thrown away.
	truncate -s 1000000 "$(kept)"
	run lab/lab up
	assert_success
	assert_output --regexp 'lab: boot of (server|client) ended by itself, attempt 1 of 3; last lines'
	assert_equal "$(kept)" ''
	run on client hostname
	assert_output client
	lab/lab down
}

# stand_in LINE...: a QEMU before the real one, which does LINEs first when it boots
# the node without a name
stand_in() {
	mkdir -p "$OTHER/bin"
	{
		printf '#!/bin/bash\nif [[ "$*" == *"-name lab-nobody "* ]]; then\n'
		printf '%s\n' "$@"
		printf 'fi\nexec %q "$@"\n' "$(PATH=${PATH#"$OTHER/bin:"} command -v qemu-system-x86_64)"
	} >"$OTHER/bin/qemu-system-x86_64"
	chmod 755 "$OTHER/bin/qemu-system-x86_64"
	PATH=$OTHER/bin:${PATH#"$OTHER/bin:"}
}

@test "a boot that cannot be kept: it ends by itself, or there is no room for it" {
	stand_in 'echo "no memory for this" >&2; exit 1'
	rm -f "$(mine)"
	run lab/lab up
	assert_success
	assert_line --regexp '^lab: the boot that is to be kept ended by itself; last lines of its console:$'
	assert_line --partial 'no memory for this'
	assert_equal "$(kept)" ''
	run on server hostname
	assert_output server
	lab/lab down

	# No file may be longer than a megabyte: what is kept is longer, the disk is not.
	stand_in 'ulimit -f 1024'
	rm -f "$(mine)"
	run lab/lab up
	assert_success
	assert_line 'lab: QEMU cannot keep a boot (failed): each takes its full time'
	assert_equal "$(kept)" ''
	[ ! -e "$LAB_DIR/nobody.pid" ]
	run on client hostname
	assert_output client
	lab/lab down
}
