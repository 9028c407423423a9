#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# make softroce, on a node that has its device taken away and given back.
#
# shellcheck disable=SC2016 # expanded on the node

load ../helpers

# on_client SCRIPT [ARG...]: a script that asks make softroce several times; what
# it printed is in $whole. In it, `ask NAME CMD...` is one question, and
# $softroce leads a command that means the node's card.
on_client() {
	whole=$(LIMIT=90 on client sh -c 'softroce="env CARD=link0"
		PATH=$PATH:/usr/sbin:/sbin
		ask() {
			echo "== $1"
			shift
			"$@" 2>&1
			echo "status $?"
		}
		'"$1" sh "${@:2}" 2>&1)
}

# part NAME STATUS: makes $output what that question printed
part() {
	run -0 awk -v name="== $1" '/^== / { on = $0 == name; next } on' \
		<<<"$whole"
	assert_line --index $((${#lines[@]} - 1)) "status $2"
	unset "lines[-1]"
	output=$(sed '$d' <<<"$output")
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

@test "softroce: taken off, and put on again, and a pair runs on it" {
	# A second time changes nothing, of either.
	on_client '
		ask off $softroce REMOVE=1 lab/softroce
		ask off-already $softroce REMOVE=1 lab/softroce
		ask devices ls /sys/class/infiniband
		ask on $softroce lab/softroce
		ask on-already $softroce lab/softroce
		ask peer env PEER="$1" lab/softroce' "$ADDR_SERVER"
	part off 0
	assert_output 'softroce: rdma link delete rxe0'
	part off-already 0
	assert_output 'softroce: there is no SoftRoCE on link0'
	part devices 0
	assert_output ''
	part on 0
	assert_line 'softroce: rdma link add rxe0 type rxe netdev link0'
	part on-already 0
	assert_line 'softroce: rxe0 is on link0 already'
	assert_line 'softroce: rxe0 is ready. Its addresses:'
	assert_line --regexp "^link0 .* $ADDR_CLIENT/"
	# The card is found by the route to a peer, too.
	part peer 0
	assert_line 'softroce: rxe0 is on link0 already'
	run -0 pair 01
}

@test "softroce: a card that is down is said to be, and a kernel without the module" {
	on_client '
		ip link set link0 down
		ask down $softroce lab/softroce
		ip link set link0 up
		ip -6 address replace fd10::2/64 dev link0 nodad
		$softroce REMOVE=1 lab/softroce >/dev/null
		rmmod rdma_rxe
		ask module $softroce lab/softroce'
	part down 1
	assert_output --partial 'its port is down: ip link set link0 up'
	part module 1
	assert_output --partial 'this machine has no module rdma_rxe: '
	assert_output --partial 'LAB=vm'
}

@test "softroce: no route, no such card, the loopback, a user, arguments: refused, with the reason" {
	on_client '
		ask route env PEER=203.0.113.1 lab/softroce
		ask card env CARD=nosuch lab/softroce
		ask lo env CARD=lo lab/softroce
		ask none lab/softroce
		ask user env CARD=link0 /usr/bin/setpriv --reuid 1000 lab/softroce
		ask words lab/softroce eth0'
	part route 1
	assert_output 'softroce: there is no route to 203.0.113.1: see ip route'
	part card 1
	assert_output 'softroce: no network card nosuch; ip -brief link lists them'
	part lo 1
	assert_output --partial 'lo is no network card'
	part none 1
	assert_output --partial 'say which one with CARD=name'
	part user 1
	assert_output 'softroce: this needs root (it loads kernel modules): sudo make softroce'
	part words 2
	assert_line 'usage: lab/softroce'
}
