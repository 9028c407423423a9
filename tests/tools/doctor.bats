#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# make doctor: a node is broken in each of the ways that it knows, and it says so.
# Several things are broken at a time, since each run of it takes a while.

load ../helpers

doctor=tools/doctor/doctor

setup_file() {
	make -s -C tools/doctor WERROR=1
	make -s -C tools/doctor WERROR=1 O=../../build/doctor-asan OPT=-O1 \
		SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
	build gcc-O2/02-server build/peers/badserver
}

# Both nodes as the lab has made them.
mend='
	PATH=$PATH:/usr/sbin:/sbin
	me=$(hostname | sed "s/server/1/; s/client/2/")
	[ ! -e /sys/class/infiniband/rxe1 ] || rdma link delete rxe1
	[ -e /sys/module/crc32_generic ] || [ -z "$0" ] || insmod "$0" || true
	[ -e /sys/module/rdma_rxe ] || insmod "$1"
	[ ! -e /tmp/socat ] || mv /tmp/socat /usr/bin/socat
	[ ! -e /tmp/uverbs0 ] || mv /tmp/uverbs0 /dev/infiniband/uverbs0
	[ ! -e /tmp/rdma_cm ] || mv /tmp/rdma_cm /dev/infiniband/rdma_cm
	rm -rf /dev/kvm /tmp/fake
	ip address del 10.10.10.77/24 dev host0 2>/dev/null
	ip link set link0 up mtu 1500
	ip address flush dev link0 scope global
	ip address add 10.10.10.$me/24 dev link0
	ip -6 address replace fd10::$me/64 dev link0 nodad
	ip rule list | grep -q 4791 && {
		ip rule add pref 0 table local
		ip rule del pref 5
		ip rule del pref 10
	}
	[ -e /sys/class/infiniband/rxe0 ] ||
		rdma link add rxe0 type rxe netdev link0
	chmod 666 /dev/infiniband/*'

# The node's own module files, as the lab has unpacked them for its kernel.
module() {
	local release file

	release=$(on client uname -r)
	for file in build/kernel/*/modules/"$1".ko; do
		[[ $(/sbin/modinfo -F vermagic "$file") != "$release "* ]] ||
			echo "$file"
	done | head -n 1
}

broken=

# breaks NODE...: what a test has to say before it breaks one
breaks() {
	broken=$*
	rxe=$(module rdma_rxe)
	crc=$(module crc32_generic)
}

teardown() {
	local node

	for node in $broken; do
		on "$node" sh -c "$mend" "$crc" "$rxe" || true
	done
	assert_nothing_left
}

# says LEVEL CHECK REGEX: is there such a line in $output?
says() {
	grep -qE "^$1 +$2 +$3" <<<"$output" && return
	printf 'no line: %s %s %s\nin:\n%s\n' "$1" "$2" "$3" "$output"
	return 1
}

# part NAME: makes $output what stands between `== NAME` and the next `==`
part() {
	output=$(awk -v name="== $1" '/^== / { on = $0 == name; next } on' \
		<<<"$whole")
	mapfile -t lines <<<"$output"
}

# on_client SCRIPT [ARG...]: a script with several runs of the doctor, which
# prints `== NAME` before each. What it printed is in $whole.
on_client() {
	whole=$(LIMIT=90 on client sh -c 'doctor=tools/doctor/doctor
		run() {
			name=$1
			shift
			echo "== $name"
			"$@" 2>&1
			echo "status $?"
		}
		fake() {
			mkdir -p /tmp/fake
			cat >/tmp/fake/$1
			chmod 755 /tmp/fake /tmp/fake/$1
		}
		'"$1" sh "${@:2}" 2>&1)
}

@test "doctor: on a healthy node nothing fails, and it changes nothing" {
	local state='ip address; ip route; ip rule; rdma link; ls /sys/module; ls -l /dev/infiniband'
	local before after

	before=$(on client sh -c "$state" | grep -v valid_lft)
	run on client $doctor --peer "$ADDR_SERVER"
	refute_line --regexp "^FAIL"
	assert_success
	after=$(on client sh -c "$state" | grep -v valid_lft)
	assert_equal "$after" "$before"
	says OK kernel '[0-9]'
	says OK module 'rdma_rxe is loaded$'
	says OK tools 'the program rdma is there$'
	says OK device 'rxe0: SoftRoCE$'
	says OK port 'rxe0 port 1, on link0: active$'
	says OK gid 'rxe0: each address of link0 has its RoCE v2 GID: 10.10.10.2 is GID [0-9]+$'
	says OK mtu 'rxe0: active_mtu 1024, MTU of link0 1500$'
	says OK memory 'rxe0: 2048 KiB were registered'
	says OK cm "the connection manager of this machine answers at $ADDR_CLIENT$"
	says OK subnet 'no two cards'
	says OK firewall 'no rule'
	says OK lab 'what make run LAB=vm needs is there$'
	says OK peer-route "the way to $ADDR_SERVER is by link0, on which rxe0 sits$"
	says OK peer-ping "$ADDR_SERVER answers$"
	says OK peer-udp "UDP port 4791 of $ADDR_SERVER takes our packets"
	says OK peer-cm "$ADDR_SERVER, port 10120: REJECTED, status 8: it answers, and nobody listens there$"
	assert_line --partial 'itself (LAB=native)? yes.'
}

@test "doctor: --json says the same, and is JSON" {
	run -0 on client make -s doctor JSON=1 PEER="$ADDR_SERVER"
	assert_equal "$(jq -r '.findings[] | select(.check == "cm") | .level' <<<"$output")" OK
	assert_equal "$(jq -r '[.fail, .native] | @csv' <<<"$output")" '0,true'
	assert_equal "$(jq '[.findings[] | keys] | unique == [["check","fix","level","seen"]]' <<<"$output")" true
	# Quotes, backslashes and control characters of what was seen.
	run -1 $doctor --json --peer $'x"\\\t\ny'
	jq -e '.fail > 0' <<<"$output"
}

@test "doctor: old kernel, MTU, two cards in one subnet, the name, the firewall" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		echo "$1" | fake nft
		ip link set link0 mtu 300
		ip address add 10.10.10.77/24 dev host0
		echo "127.0.1.1 client" >/tmp/hosts
		run many unshare -m sh -c "mount --bind /tmp/hosts /etc/hosts
			PATH=/tmp/fake:\$PATH setarch -R --uname-2.6 $doctor"
		ip address del 10.10.10.77/24 dev host0
		ip link set link0 mtu 1500
		echo "$2" | fake nft
		rdma link add rxe1 type rxe netdev host0
		run more env PATH=/tmp/fake:$PATH $doctor
		rdma link delete rxe1' \
		'#!/bin/sh
		echo "	chain input {
			type filter hook input priority filter; policy accept;
			udp dport 4791 drop"' \
		'#!/bin/sh
		echo "	chain input {
			type filter hook input priority filter; policy drop;
			tcp dport 22 accept"'
	part many
	says WARN kernel '2\.6\..*before 5.15.10$'
	says FAIL mtu 'rxe0: active_mtu 256 makes packets of 316 bytes, and the MTU of link0 is 300$'
	says WARN subnet 'two cards in one subnet: 10.10.10.0/24 on'
	says WARN name 'the name of this machine, client, is 127.0.1.1 here'
	says FAIL firewall 'a rule shuts UDP port 4791: udp dport 4791 drop$'
	assert_line 'status 1'
	part more
	says WARN firewall 'what comes in is dropped unless a rule accepts it, and no rule names UDP port 4791$'
	says WARN nat 'host0 has the address 10.0.2.15'
	says OK device 'rxe1: SoftRoCE$'
	assert_line 'status 0'
}

@test "doctor: what a user may not do, and memory that may not be locked" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
		chmod 600 /dev/infiniband/rdma_cm
		mknod /dev/kvm c 10 232
		chmod 600 /dev/kvm
		run memory prlimit --memlock=65536 $nobody $doctor
		chmod 666 /dev/infiniband/rdma_cm
		rm /dev/kvm
		chmod 600 /dev/infiniband/uverbs0
		run open $nobody env DOCTOR_BUILD=build/doctor-asan $doctor
		chmod 666 /dev/infiniband/uverbs0
		mv /dev/infiniband/rdma_cm /tmp/rdma_cm
		run cm $doctor
		mv /tmp/rdma_cm /dev/infiniband/rdma_cm'
	part memory
	says FAIL memory 'rxe0: ibv_reg_mr of 2048 KiB: Cannot allocate memory; ulimit -l says 64 KiB$'
	says FAIL cm '/dev/infiniband/rdma_cm cannot be opened: its mode is 0600, its owner user 0$'
	says OK firewall 'no firewall is on, as far as a user can tell'
	says WARN kvm '/dev/kvm is there and cannot be opened'
	assert_line --partial 'itself (LAB=native)? no.'
	part open
	says FAIL open 'rxe0: /dev/infiniband/uverbs0 cannot be opened: its mode is 0600, its owner user 0$'
	says WARN kvm 'no /dev/kvm'
	part cm
	says FAIL cm 'there is no /dev/infiniband/rdma_cm$'
}

@test "doctor: no address, an address without GID, a port that is down" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		ip address flush dev link0 scope global
		run local $doctor
		for i in $(seq 0 1100); do
			echo "address add 10.9.$((i / 200)).$((i % 200 + 1))/32 dev link0"
		done | ip -batch -
		run gid $doctor
		ip link set link0 down
		run port $doctor
		ip link set link0 up'
	part local
	says WARN gid 'rxe0: link-local only: link0 has no IPv4 or global IPv6 address$'
	part gid
	says FAIL gid 'rxe0: no RoCE v2 GID for 10\.9\.[0-9.]+, an address of link0'
	part port
	says FAIL port 'rxe0 port 1, on link0: '
	assert_line --partial 'fix: sudo ip link set link0 up'
}

@test "doctor: no device, no driver, no files, no module, no libraries" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		run driver unshare -m sh -c "mount -t tmpfs none /etc/libibverbs.d; $doctor"
		mv /dev/infiniband/uverbs0 /tmp/uverbs0
		run files $doctor
		mv /tmp/uverbs0 /dev/infiniband/uverbs0
		echo "not a library" >/tmp/library
		run libraries unshare -m sh -c "mount --bind /tmp/library \
			\$(readlink -f /usr/lib/*/librdmacm.so.1); $doctor"
		rdma link delete rxe0
		run device $doctor
		printf "#!/bin/sh\necho Usage: rdma link show\n" | fake rdma
		rmmod rdma_rxe
		mv /usr/bin/socat /tmp/socat
		run module env "PATH=/tmp/fake:$PATH" $doctor
		mv /tmp/socat /usr/bin/socat'
	part driver
	says FAIL device 'the kernel has rxe0, and the library has no driver for it$'
	assert_line --partial 'fix: sudo apt install ibverbs-providers'
	part files
	says FAIL device 'the kernel has rxe0, and there is no /dev/infiniband/uverbs\*'
	part libraries
	says FAIL libraries "the doctor's C half ended with status 127: "
	part device
	says OK module 'rdma_rxe is loaded$'
	says FAIL device 'no RDMA device$'
	assert_line 'status 1'
	assert_line --partial 'itself (LAB=native)? no.'
	assert_line 'On two virtual machines (LAB=vm)? yes.'
	part module
	says FAIL module 'no module rdma_rxe: '
	says FAIL device 'no RDMA device$'
	says WARN tools 'the program rdma is too old for rdma link add$'
	says FAIL lab 'for make run LAB=vm is missing: socat$'
	assert_line --partial '(LAB=vm)? no.'
}

@test "doctor: why there is no module, as the machine is" {
	local kernel

	breaks client
	on client rdma link delete rxe0
	on client rmmod rdma_rxe
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		rm -f /.dockerenv /run/.containerenv
		kernel() {
			printf "#!/bin/sh\necho %s\n" "$1" | fake uname
		}
		PATH=/tmp/fake:$PATH
		ask="$doctor --json"
		kernel 5.15.90.1-microsoft-standard-WSL2
		run wsl $ask
		kernel 6.1.0-20-cloud-amd64
		run cloud $ask
		kernel 6.8.0-31-generic
		echo ID=ubuntu >/tmp/os-release
		run ubuntu unshare -m sh -c "mount --bind /tmp/os-release /etc/os-release; $ask"
		run upgraded $ask
		mkdir -p /lib/modules/6.8.0-31-generic
		run other $ask
		rm -r /lib/modules/6.8.0-31-generic /tmp/fake
		touch /run/.containerenv
		run container $ask
		rm /run/.containerenv
		rmmod crc32_generic || true
		printf "#!/bin/sh\n[ \"\$3\" = rdma_rxe ]\n" | fake modprobe
		printf "#!/bin/sh\necho 6.1.0\n" | fake uname
		run crc32 $ask'
	for kernel in wsl:"WSL2's kernel" cloud:"Debian's cloud kernel" \
		ubuntu:'sudo apt install linux-modules-extra-6.8.0-31-generic' \
		upgraded:'no modules of the running kernel' \
		other:'this kernel (6.8.0-31-generic) is built without it' \
		container:'this is a container, which uses the kernel of its host' \
		crc32:'the kernel has no crc32'; do
		part "${kernel%%:*}"
		jq -r '.findings[] | select(.level == "FAIL") | .seen, .fix' \
			<<<"${output%status*}" | grep -qF "${kernel#*:}" ||
			fail "${kernel%%:*}: $output"
	done
}

@test "doctor: ways that lead to no peer" {
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		run route $doctor --peer 203.0.113.1
		run lo $doctor --peer 127.0.0.1
		run card $doctor --peer 10.0.2.2
		run nobody $doctor --peer 10.10.10.99
		run name $doctor --peer nosuch.example'
	part route
	says FAIL peer-route 'no route to 203.0.113.1: '
	part lo
	says FAIL peer-route '127.0.0.1 is this machine itself, by way of lo$'
	part card
	says FAIL peer-route 'the way to 10.0.2.2 is by host0, and no RDMA device sits on that$'
	part nobody
	says WARN peer-ping '10.10.10.99 does not answer ping$'
	says FAIL peer-cm '10.10.10.99: RDMA_CM_EVENT_ADDR_ERROR, status -110'
	part name
	says FAIL peer-route 'nosuch.example is no name or address that is known here$'
}

@test "doctor: a peer whose firewall drops, and one without SoftRoCE" {
	breaks server
	on server sh -c 'ip rule add pref 10 table local
		ip rule add pref 5 iif link0 ipproto udp dport 4791 type blackhole
		ip rule del pref 0'
	run -1 on client $doctor --peer "$ADDR_SERVER"
	says OK peer-ping "$ADDR_SERVER answers$"
	says FAIL peer-udp "UDP port 4791 of $ADDR_SERVER stays silent"
	says FAIL peer-cm "$ADDR_SERVER: no answer to a connection request in 10 s$"
	on server sh -c "$mend; rdma link delete rxe0; rmmod rdma_rxe" "$crc" "$rxe"
	run -1 on client $doctor --peer "$ADDR_SERVER"
	says FAIL peer-udp "$ADDR_SERVER says that nobody has UDP port 4791"
}

@test "doctor: a peer that listens, a doctor there, and one that cannot take a message" {
	breaks server client
	start server lesson build/gcc-O2/02-server/server -t 60
	wait_line lesson '^listening on '
	run -0 on client $doctor --peer "$ADDR_SERVER" --port 10121
	says OK peer-cm "$ADDR_SERVER, port 10121: it accepts$"
	finish lesson

	start server served env DOCTOR_BUILD=build/doctor-asan $doctor --serve
	wait_line served '^waiting for a minute'
	run -0 on client env DOCTOR_BUILD=build/doctor-asan $doctor --peer "$ADDR_SERVER"
	says OK peer-data 'a SEND of 16384 bytes arrived and was acknowledged$'
	finish served
	assert_equal "$status" 0
	says OK serve 'a connection came, and 16384 bytes on it$'

	# It greets as a doctor does, and has no receive.
	start server bad build/peers/badserver -p 10120 --receives 0 \
		--private hex:444f43544f523031 --at established --do stall
	wait_line bad "^listening on "
	run -1 on client $doctor --peer "$ADDR_SERVER"
	says FAIL peer-data "a SEND of 16384 bytes: RNR retry counter exceeded, status 13$"
	stop_jobs
}

@test "doctor: without a compiler it says what to install" {
	run -1 env DOCTOR_BUILD="$BATS_TEST_TMPDIR/build" CC=no-such-compiler $doctor
	says FAIL build 'tools/doctor does not build: .*no-such-compiler'
	assert_line --partial 'fix: lab/packages run'
	assert_line --partial '(LAB=vm)? no.'
}

@test "doctor: words that it does not know are refused" {
	local words

	for words in nonsense --peer '--port 0' '--port 65536' '--port x' \
		'--serve --peer 10.0.0.1'; do
		# shellcheck disable=SC2086 # several words
		run --separate-stderr $doctor $words
		assert_equal "$status" 2
		assert_output ''
		[[ $stderr == *usage:* ]]
	done
	run -0 $doctor --help
	assert_line --partial 'usage: tools/doctor/doctor'
}
