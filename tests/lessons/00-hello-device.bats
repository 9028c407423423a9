#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 00: what the devices are, and what is said where there is none.

load ../helpers
load bare

program=00-hello-device/devices

setup_file() {
	build {gcc,asan}-{O0,O2}/00-hello-device
}

setup() {
	devices=build/asan-O0/$program
	broken=
}

teardown() {
	[ -z "$broken" ] || restore client
	assert_nothing_left
}

@test "make run shows the device of each node" {
	run pair 00
	assert_success
	assert_line 'server | device rxe0'
	assert_line 'client | device rxe0'
	assert_line --regexp '^server \|     GID [0-9]+: RoCE v2, ::ffff:10.10.10.1 \(IPv4 10.10.10.1\), on link0$'
	assert_line --regexp '^client \|   10.10.10.2, on link0: yes: rxe0 port 1, GID [0-9]+$'
}

@test "every build says the same, the sanitizers among them" {
	local variant first=''

	for variant in gcc-O0 gcc-O2 asan-O0 asan-O2; do
		run --separate-stderr on client build/$variant/$program
		assert_success
		assert_equal "$stderr" ''
		first=${first:-$output}
		assert_equal "$output" "$first"
	done
}

@test "the limits are those that ibv_devinfo shows" {
	local name info

	info=$(on client ibv_devinfo -v)
	run on client "$devices"
	for name in max_qp_wr max_sge max_cqe max_qp_rd_atom; do
		assert_line --regexp "^ +$name $(awk -v n="$name:" \
			'$1 == n { print $2 }' <<<"$info"): "
	done
	assert_line --regexp '^ +max_inline_data [1-9][0-9]*: '
	assert_line --regexp '^ +atomics: among requests to this device only$'
}

@test "of this machine's addresses, RDMA reaches those of the card" {
	run --separate-stderr on client "$devices"
	assert_success
	assert_line '  127.0.0.1, on lo: no: rdma_resolve_route: No such device'
	assert_line '  ::1, on lo: no: rdma_resolve_route: No such device'
	assert_line '  10.0.2.15, on host0: no: rdma_resolve_addr: No such device'
	assert_line --regexp '^  10\.10\.10\.2, on link0: yes: rxe0 port 1, GID [0-9]+$'
	assert_line --regexp '^  fd10::2, on link0: yes: rxe0 port 1, GID [0-9]+$'
	assert_line --regexp '^  fe80::.*%link0, on link0: yes: rxe0 port 1, GID [0-9]+$'
	# The GID that is named is the one that holds the address.
	local gid
	gid=$(sed -nE 's/^  10\.10\.10\.2, .*GID ([0-9]+)$/\1/p' <<<"$output")
	assert_line --regexp "^    GID $gid: RoCE v2, .*\(IPv4 10.10.10.2\)"
}

@test "a second address of the card has a GID of its own" {
	run on client sh -c "ip address add 10.10.10.99/24 dev link0
		'$devices'; status=\$?
		ip address delete 10.10.10.99/24 dev link0; exit \$status"
	assert_success
	local gid
	gid=$(sed -nE 's/^    GID ([0-9]+): .*\(IPv4 10\.10\.10\.99\).*/\1/p' <<<"$output")
	assert_line "  10.10.10.99, on link0: yes: rxe0 port 1, GID $gid"
}

@test "the card's MTU decides active_mtu" {
	local mtu

	run on client "$devices"
	assert_line "    active_mtu 1024, max_mtu 4096; the card's own MTU is 1500"
	for mtu in 2300:2048 4200:4096; do
		run on client sh -c "ip link set link0 mtu ${mtu%:*}
			'$devices'; status=\$?
			ip link set link0 mtu 1500; exit \$status"
		assert_success
		assert_line "    active_mtu ${mtu#*:}, max_mtu 4096; the card's own MTU is ${mtu%:*}"
	done
}

@test "a card that is down shows, with the way to mend it" {
	run on client sh -c "ip link set link0 down
		'$devices'; status=\$?
		ip link set link0 up
		ip addr replace fd10::2/64 dev link0; exit \$status"
	assert_success
	assert_line '  port 1: down, link layer Ethernet, network card link0'
	assert_line '    nothing goes through it like this; try: ip link set link0 up'
}

@test "no device: it says so, and what to do" {
	broken=1
	on client rdma link delete rxe0
	run --separate-stderr on client "$devices"
	assert_failure 1
	assert_output ''
	assert_equal "$stderr" 'ibv_get_device_list: no RDMA device: put SoftRoCE on a network card with make softroce, or use LAB=vm'
}

@test "a device whose file is missing, as in a container" {
	broken=1
	on client mv /dev/infiniband/uverbs0 /tmp/uverbs0
	run --separate-stderr on client "$devices"
	assert_failure 1
	assert_equal "$stderr" 'ibv_get_device_list: no RDMA device, though the kernel has rxe0: there is no /dev/infiniband/uverbs* for it; a container has to be given them (--device /dev/infiniband)'
}

@test "a device that the library has no driver for" {
	run --separate-stderr on client unshare -m sh -c \
		"mount -t tmpfs none /etc/libibverbs.d; $devices"
	assert_failure 1
	assert_equal "$stderr" 'ibv_get_device_list: no RDMA device, though the kernel has rxe0: the library has no driver for it; install ibverbs-providers'
}

@test "a device that we may not open" {
	broken=1
	on client chmod 600 /dev/infiniband/uverbs0
	run --separate-stderr as_nobody client "$devices"
	assert_failure 1
	assert_equal "$stderr" 'ibv_open_device: No such file or directory: its file /dev/infiniband/uverbs* cannot be opened: see ls -l for who may'
}

@test "a connection manager that we may not open" {
	broken=1
	on client chmod 600 /dev/infiniband/rdma_cm
	run --separate-stderr as_nobody client "$devices"
	assert_failure 1
	assert_line 'device rxe0'
	assert_equal "$stderr" 'rdma_create_event_channel: No such file or directory: /dev/infiniband/rdma_cm cannot be opened: run modprobe rdma_ucm; if it is there, see ls -l for who may'
}

@test "usage: wrong words are refused, and --help is not" {
	refused_usage "$devices" rxe0
	refused_usage "$devices" -t 0
	refused_usage "$devices" -t 3601
	refused_usage "$devices" -t 1x
	refused_usage "$devices" --nonsense
	helps "$devices"
}
