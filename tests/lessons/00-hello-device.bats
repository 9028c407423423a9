#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 00: what the devices are, and what is said where there is none.

load ../helpers
load bare
load crowd

program=00-hello-device/devices

setup_file() {
	build {gcc,asan}-{O0,O2}/00-hello-device
}

setup() {
	devices=build/asan-O0/$program
	broken='' untouched=''
}

teardown() {
	[ -z "$untouched" ] || return 0
	stop_crowds
	[ -z "$broken" ] || restore client
	assert_nothing_left
}

# failed N TEXT: so did that command, with this on stderr.
failed() {
	ended_saying client "$1" 1 "$2"
}

@test "make run shows the device of each node" {
	run pair 00
	assert_success
	assert_line 'server | device rxe0'
	assert_line 'client | device rxe0'
	assert_line --regexp '^server \|     GID [0-9]+: RoCE v2, ::ffff:10.10.10.1 \(IPv4 10.10.10.1\), on link0$'
	assert_line --regexp '^client \|   10.10.10.2, on link0: yes: rxe0 port 1, GID [0-9]+$'
}

@test "every build says the same: limits as ibv_devinfo has them, and which addresses RDMA reaches" {
	local n name info first='' gid

	run_each client -1 build/{gcc,asan}-{O0,O2}/$program 'ibv_devinfo -v'
	member client 5
	info=$output
	for n in 1 2 3 4; do
		ended client $n 0
		first=${first:-$output}
		assert_equal "$output" "$first"
	done
	for name in max_qp_wr max_sge max_cqe max_qp_rd_atom; do
		assert_line --regexp "^ +$name $(awk -v n="$name:" \
			'$1 == n { print $2 }' <<<"$info"): "
	done
	assert_line --regexp '^ +max_inline_data [1-9][0-9]*: '
	assert_line --regexp '^ +atomics: among requests to this device only$'

	assert_line '  127.0.0.1, on lo: no: rdma_resolve_route: No such device'
	assert_line '  ::1, on lo: no: rdma_resolve_route: No such device'
	assert_line '  10.0.2.15, on host0: no: rdma_resolve_addr: No such device'
	assert_line --regexp '^  10\.10\.10\.2, on link0: yes: rxe0 port 1, GID [0-9]+$'
	assert_line --regexp '^  fd10::2, on link0: yes: rxe0 port 1, GID [0-9]+$'
	assert_line --regexp '^  fe80::.*%link0, on link0: yes: rxe0 port 1, GID [0-9]+$'
	# The GID that is named is the one that holds the address.
	gid=$(sed -nE 's/^  10\.10\.10\.2, .*GID ([0-9]+)$/\1/p' <<<"$output")
	assert_line --regexp "^    GID $gid: RoCE v2, .*\(IPv4 10.10.10.2\)"
}

@test "the card decides: a second address has a GID of its own, the MTU, a card that is down" {
	local gid

	broken=1
	run_each client -1 "ip address add 10.10.10.99/24 dev link0
			await_gid :ffff:0a0a:0a63
			$devices; status=\$?
			ip address delete 10.10.10.99/24 dev link0; exit \$status" \
		"$devices" \
		"ip link set link0 mtu 2300; $devices; status=\$?
			ip link set link0 mtu 1500; exit \$status" \
		"ip link set link0 mtu 4200; $devices; status=\$?
			ip link set link0 mtu 1500; exit \$status" \
		"ip link set link0 down; $devices; status=\$?
			ip link set link0 up
			ip addr replace fd10::2/64 dev link0; restore
			exit \$status"
	ended client 1 0
	gid=$(sed -nE 's/^    GID ([0-9]+): .*\(IPv4 10\.10\.10\.99\).*/\1/p' <<<"$output")
	assert_line "  10.10.10.99, on link0: yes: rxe0 port 1, GID $gid"

	ended client 2 0
	assert_line "    active_mtu 1024, max_mtu 4096; the card's own MTU is 1500"
	ended client 3 0
	assert_line "    active_mtu 2048, max_mtu 4096; the card's own MTU is 2300"
	ended client 4 0
	assert_line "    active_mtu 4096, max_mtu 4096; the card's own MTU is 4200"

	ended client 5 0
	assert_line '  port 1: down, link layer Ethernet, network card link0'
	assert_line '    nothing goes through it like this; try: ip link set link0 up'
}

@test "no device, none that may be opened, no driver: it says so, and what to do" {
	broken=1
	run_each client -1 \
		"mv /dev/infiniband/uverbs0 /tmp/uverbs0; $devices
			status=\$?; restore; exit \$status" \
		"unshare -m sh -c 'mount -t tmpfs none /etc/libibverbs.d; $devices'" \
		"chmod 600 /dev/infiniband/uverbs0; as_nobody $devices
			status=\$?; restore; exit \$status" \
		"chmod 600 /dev/infiniband/rdma_cm; as_nobody $devices
			status=\$?; restore; exit \$status" \
		"rdma link delete rxe0; $devices
			status=\$?; restore; exit \$status"
	# As in a container.
	failed 1 'ibv_get_device_list: no RDMA device, though the kernel has rxe0: there is no /dev/infiniband/uverbs* for it; a container has to be given them (--device /dev/infiniband)'
	failed 2 'ibv_get_device_list: no RDMA device, though the kernel has rxe0: the library has no driver for it; install ibverbs-providers'
	failed 3 'ibv_open_device: No such file or directory: its file /dev/infiniband/uverbs* cannot be opened: see ls -l for who may'
	failed 4 'rdma_create_event_channel: No such file or directory: /dev/infiniband/rdma_cm cannot be opened: run modprobe rdma_ucm; if it is there, see ls -l for who may'
	assert_line 'device rxe0'
	failed 5 'ibv_get_device_list: no RDMA device: put SoftRoCE on a network card with make softroce, or use LAB=vm'
	assert_output ''
}

@test "usage: wrong words are refused, and --help is not" {
	untouched=1
	refused_usage "$devices" rxe0
	refused_usage "$devices" -t 0
	refused_usage "$devices" -t 3601
	refused_usage "$devices" -t 1x
	refused_usage "$devices" --nonsense
	helps "$devices"
}
