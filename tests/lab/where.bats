#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Where the nodes are: no lab, other kernels, two labs at once, LAB=native and
# LAB=ssh.
#
# shellcheck disable=SC2030,SC2031 # each test has a LAB_DIR of its own

load ../helpers

# For this file, in seconds: some of it boots nodes or compiles on them.
export BATS_TEST_TIMEOUT=300

setup_file() {
	# a LAB_DIR is short, for the sockets in it
	OTHER=$(mktemp -d /tmp/lab-XXXXXX)
	export OTHER
	build gcc-O2/01-client gcc-O2/02-server
}

teardown_file() {
	LAB_DIR=$OTHER lab/lab down
	rm -rf "$OTHER"
}

# nothing_of LAB_DIR: no process and no file of that lab
nothing_of() {
	run pgrep -f "$1/"
	assert_failure 1
	[ ! -e "$1" ]
}

# ---- no lab ---------------------------------------------------------------

@test "nodes that are not up: what is missing, and the fix" {
	local verb

	export LAB_DIR=$OTHER/none
	for verb in 'exec server true' 'addr server' 'log client' 'freeze server' \
		'thaw server' 'kill client' 'impair loss 1%' 'capture a.pcap' \
		'shell server'; do
		# shellcheck disable=SC2086 # a verb and its words
		run --separate-stderr lab/lab $verb
		assert_equal "$verb: $status" "$verb: 125"
		assert_equal "$stderr" 'lab: the nodes are not up: run lab/lab up (or make run, which boots its own)'
	done
	run lab/lab status
	assert_failure 1
	assert_line 'server  down'
	run lab/lab down
	assert_success
	assert_output ''
}

@test "LAB_DIR: a folder of its own, and not too long" {
	mkdir "$OTHER/mine"
	echo precious >"$OTHER/mine/file"
	export LAB_DIR=$OTHER/mine
	run lab/lab up
	assert_failure 125
	assert_output --partial 'holds other files'
	run lab/lab down
	assert_failure 125
	assert_equal "$(<"$OTHER/mine/file")" precious
	LAB_DIR=$OTHER/$(printf 'x%.0s' {1..80}) run lab/lab up
	assert_failure 125
	assert_output --partial 'too long'
	LAB_DIR=/proc/lab run lab/lab up
	assert_failure 125
	assert_output --partial 'set LAB_DIR to a folder that you may write'
}

@test "KERNEL: neither a package nor a folder with a kernel" {
	run lab/kernel now
	assert_failure 2
	KERNEL=/no/such/folder run lab/kernel
	assert_failure 125
	assert_output --partial 'no such folder'
	mkdir "$OTHER/empty"
	KERNEL=$OTHER/empty run lab/kernel
	assert_failure 125
	assert_output --partial 'no kernel that can be read'
	# what was begun for it is gone
	begun=build/kernel/folder-$(stat -c %Y "$OTHER/empty")
	begun+=-$(cksum <<<"$OTHER/empty" | cut -d' ' -f1).new
	[ ! -e "$begun" ]
	KERNEL='linux image' run lab/kernel
	assert_failure 125
	assert_output --partial 'neither'
	KERNEL=linux-image-no-such-thing run lab/kernel
	assert_failure 125
	assert_output --partial 'no package named'
	# and the lab says the same
	export LAB_DIR=$OTHER/lab
	KERNEL=$OTHER/empty run lab/lab up
	assert_failure 125
	assert_output --partial 'no kernel that can be read'
	run lab/lab down
	assert_success
	[ ! -e "$OTHER/lab" ]
}

@test "a node that cannot boot: three tries, the tail of its console, nothing left" {
	local version
	version=$(on server uname -r)
	mkdir -p "$OTHER/broken/boot" "$OTHER/broken/lib/modules/$version"
	kernel=$(lab/kernel | head -n 1)
	cp "${kernel%/*}"/modules/*.ko "$OTHER/broken/lib/modules/$version/"
	echo 'not a kernel' >"$OTHER/broken/boot/vmlinuz-$version"
	export LAB_DIR=$OTHER/lab
	KERNEL=$OTHER/broken run --separate-stderr lab/lab up
	assert_failure 125
	[[ $stderr == *'lab: boot of server ended by itself, attempt 3 of 3; last lines of its console:'* ]]
	[[ $stderr == *'lab: server| qemu'* ]]
	[[ $stderr == *'lab: the nodes did not come up'* ]]
	nothing_of "$OTHER/lab"
}

# ---- a second lab ---------------------------------------------------------

@test "Ctrl-C at any moment of up: no process and no file is left" {
	local pid after signal

	export LAB_DIR=$OTHER/lab
	for after in lock server.pid; do
		for signal in INT TERM; do
			# timeout passes signals on; a job in the background
			# would ignore SIGINT
			timeout --foreground 100 lab/lab up >"$OTHER/up" 2>&1 3>&- &
			pid=$!
			until [ -e "$LAB_DIR/$after" ] || ! kill -0 "$pid"; do
				read -r -t 0.01 <> <(:) || true
			done
			kill -s "$signal" "$pid"
			status=0
			wait "$pid" || status=$?
			[ "$status" = $((128 + $(kill -l "$signal"))) ] ||
				fail "$after $signal: $status, $(<"$OTHER/up")"
			nothing_of "$LAB_DIR"
		done
	done
}

@test "a run without nodes boots its own, of a kernel in a folder, beside a lab that is up" {
	local version kernel job second out=$OTHER/second status=0

	version=$(on server uname -r)
	kernel=$(lab/kernel | head -n 1)
	mkdir -p "$OTHER/kernel/boot" "$OTHER/kernel/usr/lib/modules/$version" \
		"$OTHER/bin/02-server"
	cp "${kernel%/*}"/modules/*.ko "$OTHER/kernel/usr/lib/modules/$version/"
	cp "$kernel" "$OTHER/kernel/boot/vmlinuz-$version"
	# A server that can be held, so that we can look around meanwhile.
	ln -s "$TOP/build/gcc-O2/01-client" "$OTHER/bin/"
	cat >"$OTHER/bin/02-server/server" <<-END
		#!/bin/sh
		echo held
		for i in \$(seq 500); do
			[ ! -e "$OTHER/go" ] || exec "$TOP/build/gcc-O2/02-server/server"
			sleep 0.1
		done
	END
	chmod 755 "$OTHER/bin/02-server/server"
	: >"$out"
	LAB_DIR=$OTHER/none XDG_RUNTIME_DIR=$OTHER KERNEL=$OTHER/kernel \
		BIN=$OTHER/bin timeout --foreground -k 20 250 lab/run 02 \
		>"$out" 2>&1 3>&- &
	job=$!
	timeout 240 tail -s 0.1 -n +1 --pid="$job" -f "$out" 3>&- |
		grep -q -m 1 '^server | held' || fail "$(<"$out")"
	second=$(echo "$OTHER"/rdma-run-*)
	run env LAB_DIR="$second" lab/lab status
	assert_line --regexp "^client  up  10\.10\.10\.2 .* kernel ${version//+/[+]}\$"
	# Each has its own files, and the same addresses on its own wire.
	# shellcheck disable=SC2016 # expanded on the node
	on server sh -c 'echo first >"$0"' "$OTHER/which"
	# shellcheck disable=SC2016
	LAB_DIR=$second on server sh -c 'echo second >"$0"; >"$1"' \
		"$OTHER/which" "$OTHER/go"
	pair 02 >"$OTHER/first"
	wait "$job" || status=$?
	assert_equal "$status" 0
	run on server cat "$OTHER/which"
	assert_output first
	for out in first second; do
		run cat "$OTHER/$out"
		assert_line --regexp '^server \| .*received 10 bytes: HelloWorld'
		assert_line --regexp '^02-server +[a-z].* +ok '
	done
	nothing_of "$second"
	nothing_of "$OTHER/none"
	run on client hostname
	assert_output client
}

# ---- other machines -------------------------------------------------------

@test "LAB=native: the pair on one machine's own device" {
	# A node is a machine with a device. LAB need not be said.
	# shellcheck disable=SC2016 # expanded on the node
	LIMIT=90 run on server sh -c '
		ask() {
			echo "== $*"
			"$@" 2>&1
			echo "status $?"
		}
		ask env -u LAB lab/lab addr -6 server
		export LAB=native
		ask lab/lab status
		ask lab/lab addr client
		ask lab/lab exec client sh -c "hostname; pwd; exit 3"
		ask lab/lab exec --timeout 1 client sleep 50
		ask lab/lab freeze client'
	assert_success
	# The link-local address is all that is not known beforehand.
	assert_equal "$(sed -E 's/fe80::[0-9a-f:]+%/fe80::%/' <<<"$output")" \
		"== env -u LAB lab/lab addr -6 server
fd10::1
status 0
== lab/lab status
native  10.10.10.1 fd10::1 fe80::%link0 rxe0
status 0
== lab/lab addr client
10.10.10.1
status 0
== lab/lab exec client sh -c hostname; pwd; exit 3
server
$TOP
status 3
== lab/lab exec --timeout 1 client sleep 50
lab: client: stopped after 1 s: sleep
status 124
== lab/lab freeze client
lab: freeze needs LAB=vm: this is LAB=native
status 125"
	# It builds as elsewhere, which would take a node long.
	LIMIT=90 run on server env LAB=native PACKAGES_CHECKED=1 BIN=build/gcc-O2 \
		lab/run 02
	assert_success
	assert_line --regexp '^server \| .*received 10 bytes: HelloWorld'
}

@test "LAB=native without a device: what is missing, and the fix" {
	[ ! -e /sys/class/infiniband ] || skip "this machine has a device"
	for verb in up status 'addr server'; do
		# shellcheck disable=SC2086 # a verb and its words
		LAB=native run lab/lab $verb
		assert_failure 125
		assert_output --partial 'LAB=native: this machine has no active RDMA device: make softroce makes one'
	done
}

@test "LAB=ssh: a pair on two machines, copied and built there" {
	local nodes=$LAB_DIR

	# A copy of what it takes. The client is in it as a program, and the server
	# is built there without optimisation: compiling on a node without KVM takes
	# long.
	mkdir -p "$OTHER/course/lessons"
	cp -r lab common "$OTHER/course/"
	cp -r lessons/0[12]-* "$OTHER/course/lessons/"
	sed -i "s/^OPT ?= .*/OPT = -O0/; s/^CFLAGS ?= .*/CFLAGS = /" "$OTHER/course/common/lesson.mk"
	make -s -C "$OTHER/course/lessons/01-client"
	sed -i "s/^PROGRAMS .*/PROGRAMS =/" "$OTHER"/course/lessons/01-client/Makefile
	rm -f "$OTHER"/course/lessons/02-server/server
	cd "$OTHER/course"

	export LAB=ssh LAB_DIR=$OTHER/ssh LAB_SSH_CONFIG=$nodes/ssh.conf
	run lab/lab up
	assert_failure 2
	assert_line 'lab: LAB=ssh needs SERVER=host and CLIENT=host'
	export SERVER=server CLIENT=client
	lab/lab up
	run lab/lab addr client
	assert_output 10.10.10.2
	cd lessons
	run ../lab/lab exec client sh -c 'hostname; pwd; exit 255'
	assert_failure 255
	assert_line --index 0 client
	assert_line --index 1 --regexp '/\.cache/rdma-lab/[0-9]+/lessons$'
	cd /
	run "$OTHER/course/lab/lab" exec client true
	assert_failure 125
	cd "$OTHER/course"
	run lab/lab exec --timeout 1 client sleep 51
	assert_failure 124
	run lab/lab kill client
	assert_failure 125
	assert_output 'lab: kill needs LAB=vm: this is LAB=ssh'
	run lab/lab status
	assert_success
	assert_line --regexp '^server  up  server  10\.10\.10\.1 '
	pair 02 >"$OTHER/pair"
	run cat "$OTHER/pair"
	assert_line --regexp '^server \| .*received 10 bytes: HelloWorld'
	lab/lab down
	[ ! -e "$LAB_DIR" ]
	# their machines are as they were
	LAB=vm LAB_DIR=$nodes run lab/lab status
	assert_success
}

@test "LAB=ssh: a machine that cannot be reached" {
	export LAB=ssh LAB_DIR=$OTHER/ssh
	printf 'Host nowhere\n\tHostName 127.0.0.1\n\tPort 1\n' >"$OTHER/conf"
	LAB_SSH_CONFIG=$OTHER/conf SERVER=nowhere CLIENT=nowhere run lab/lab up
	assert_failure 125
	assert_output --partial 'cannot log in to nowhere: ssh nowhere must work without a question'
	[ ! -e "$LAB_DIR" ]
	SERVER=-oProxyCommand=x CLIENT=nowhere run lab/lab up
	assert_failure 2
	assert_output --partial '-oProxyCommand=x: not the name of a machine'
	[ ! -e "$LAB_DIR/lab" ]
}
