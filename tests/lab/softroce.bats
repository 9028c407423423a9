#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# make softroce, on a node that has its device taken away and given back.

load ../helpers

softroce() {
	on client env CARD=link0 "$@" lab/softroce
}

# The node's own module files, as the lab has unpacked them for its kernel.
module() {
	local release file

	release=$(on client uname -r)
	for file in build/kernel/*/modules/"$1".ko; do
		[[ $(/sbin/modinfo -F vermagic "$file") != "$release "* ]] ||
			echo "$file"
	done | head -n 1
}

teardown() {
	on client sh -c '[ -e /sys/module/rdma_rxe ] || /sbin/insmod "$0"
		CARD=link0 lab/softroce' "$(module rdma_rxe)" >/dev/null
	assert_nothing_left
}

@test "softroce: where it is already, nothing happens" {
	run -0 softroce
	assert_line 'softroce: rxe0 is on link0 already'
	assert_line 'softroce: rxe0 is ready. Its addresses:'
	assert_line --regexp "^link0 .* $ADDR_CLIENT/"
}

@test "softroce: taken off, and put on again, and a pair runs on it" {
	run -0 softroce REMOVE=1
	assert_output 'softroce: rdma link delete rxe0'
	run -0 softroce REMOVE=1
	assert_output 'softroce: there is no SoftRoCE on link0'
	run -0 on client ls /sys/class/infiniband
	assert_output ''
	run -0 softroce
	assert_line 'softroce: rdma link add rxe0 type rxe netdev link0'
	run -0 pair 01
}

@test "softroce: finds the card by the route to a peer" {
	run -0 on client env PEER="$ADDR_SERVER" lab/softroce
	assert_line 'softroce: rxe0 is on link0 already'
	run -1 on client env PEER=203.0.113.1 lab/softroce
	assert_output 'softroce: there is no route to 203.0.113.1: see ip route'
}

@test "softroce: a card that is down is said to be" {
	on client ip link set link0 down
	run -1 softroce
	on client sh -c 'ip link set link0 up
		ip -6 address replace fd10::2/64 dev link0 nodad'
	assert_output --partial 'its port is down: ip link set link0 up'
}

@test "softroce: no such card, and the loopback, are refused" {
	run -1 on client env CARD=nosuch lab/softroce
	assert_output 'softroce: no network card nosuch; ip -brief link lists them'
	run -1 on client env CARD=lo lab/softroce
	assert_output --partial 'lo is no network card'
	run -1 on client lab/softroce
	assert_output --partial 'say which one with CARD=name'
}

@test "softroce: without root it says what to type" {
	run -1 on client env CARD=link0 /usr/bin/setpriv --reuid 1000 lab/softroce
	assert_output 'softroce: this needs root (it loads kernel modules): sudo make softroce'
}

@test "softroce: a kernel without the module is explained" {
	run -0 on client sh -c 'CARD=link0 REMOVE=1 lab/softroce; /sbin/rmmod rdma_rxe'
	run -1 softroce
	assert_output --partial 'this machine has no module rdma_rxe: '
	assert_output --partial 'LAB=vm'
}

@test "softroce: arguments are refused" {
	run -2 on client lab/softroce eth0
	assert_line 'usage: lab/softroce'
}
