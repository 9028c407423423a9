#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The wire between the nodes, and nodes that go silent or die.

load ../helpers

setup_file() {
	build gcc-O2/01-client gcc-O2/02-server
}

setup() {
	bin=build/gcc-O2
}

teardown() {
	lab/lab impair clear 2>/dev/null || true
	lab/lab capture stop 2>/dev/null || true
	lab/lab thaw server 2>/dev/null || true
	lab/lab thaw client 2>/dev/null || true
	assert_nothing_left
}

@test "capture writes the RoCE packets of a pair, and stops" {
	local file=$BATS_TEST_TMPDIR/a.pcap size

	lab/lab capture "$file"
	run lab/lab capture "$file.2.pcap"
	assert_failure 125
	run lab/lab status
	assert_line "capture $file"
	start server peer "$bin"/02-server/server
	wait_line peer '^listening on '
	on client "$bin"/01-client/client "$ADDR_SERVER"
	finish peer
	lab/lab capture stop
	run tshark -r "$file" -Y infiniband.bth.opcode -T fields -e infiniband.bth.opcode
	assert_line 4
	size=$(stat -c %s "$file")
	run on client "$bin"/01-client/client -p 10999 "$ADDR_SERVER"
	assert_failure 1
	assert_equal "$(stat -c %s "$file")" "$size"
	run lab/lab capture stop
	assert_failure 125
	assert_output 'lab: no capture is running'
	run lab/lab capture /no/such/folder/a.pcap
	assert_failure 125
	assert_output --partial 'cannot write'
}

@test "impair: on both sides, several at once, and clear; what tc does not understand changes nothing" {
	local node before took

	lab/lab impair delay 200ms loss 0.1%
	run lab/lab impair loss twenty
	assert_failure 2
	assert_output --partial 'not understood by tc'
	for node in server client; do
		run on "$node" tc qdisc show dev link0
		assert_output --partial 'delay 200ms loss 0.1%'
	done
	run lab/lab status
	assert_line 'wire    delay 200ms loss 0.1%'
	before=${EPOCHREALTIME/[.,]/}
	# Nobody listens: the refusal has to come back.
	run on client "$bin"/01-client/client -p 10999 "$ADDR_SERVER"
	assert_failure 1
	took=$(((${EPOCHREALTIME/[.,]/} - before) / 1000))
	[ "$took" -ge 400 ] || fail "only $took ms"
	lab/lab impair clear
	run lab/lab impair loss twenty
	assert_failure 2
	for node in server client; do
		run on "$node" tc qdisc show dev link0
		refute_output --partial netem
	done
	run lab/lab status
	refute_line --partial wire
}

@test "a frozen node runs nothing: a command ends at its time limit, another goes on after thaw" {
	local before=$SECONDS

	start client stays sh -c 'rm -f /tmp/thawed
		echo before
		until [ -e /tmp/thawed ]; do sleep 0.1; done
		echo after'
	wait_line stays before
	LIMIT=4 start client limited sh -c 'echo ready; sleep 60'
	wait_line limited ready
	lab/lab freeze client
	lab/lab freeze client
	run lab/lab exec client true
	assert_failure 125
	assert_output 'lab: client is frozen (lab/lab freeze): lab/lab thaw client first'
	run lab/lab status
	assert_failure 1
	assert_line --partial 'client  frozen'
	finish limited
	assert_equal "$status" 124
	# It did not wait for its command.
	[ $((SECONDS - before)) -lt 60 ]
	run grep after "$BATS_TEST_TMPDIR/stays.out"
	assert_failure 1
	lab/lab thaw client
	lab/lab thaw client
	on client touch /tmp/thawed
	finish stays
	assert_equal "$status" 0
	[[ $output == *after* ]]
	# Nobody could tell the command to stop.
	on client pkill -f 'sleep 6[0]' || true
	run on client hostname
	assert_output client
}

@test "nodes that die: who waits is told, the others say so, and up boots what is missing" {
	local boot

	start client client_job sh -c 'echo ready; exec sleep 50'
	wait_line client_job ready
	boot=$(on server cat /proc/sys/kernel/random/boot_id)
	lab/lab kill client
	finish client_job
	assert_equal "$status" 125
	[[ $stderr == *'lab: client was lost while it ran sh; last lines of its console:'* ]]
	run lab/lab exec client true
	assert_failure 125
	assert_output 'lab: client was killed (lab/lab kill): lab/lab up boots it again'
	run lab/lab status
	assert_failure 1
	assert_line 'client  killed'
	assert_line --partial 'server  up  '
	lab/lab up
	assert_equal "$(on server cat /proc/sys/kernel/random/boot_id)" "$boot"

	boot=$(on client cat /proc/sys/kernel/random/boot_id)
	start server server_job sh -c 'echo ready; exec sleep 50'
	wait_line server_job ready
	kill -KILL "$(cat "$LAB_DIR/server.pid")"
	finish server_job
	assert_equal "$status" 125
	[[ $stderr == *'lab: server was lost while it ran sh'*'lab: server| lab: ready'* ]]
	run lab/lab exec server true
	assert_failure 125
	assert_line 'lab: server has died; last lines of its console:'
	assert_line 'lab: lab/lab up boots it again'
	run lab/lab status
	assert_failure 1
	assert_line 'server  died'
	lab/lab up
	assert_equal "$(on client cat /proc/sys/kernel/random/boot_id)" "$boot"
	pair 02 >/dev/null
}
