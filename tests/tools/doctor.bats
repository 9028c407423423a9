#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# make doctor: a node is broken in each of the ways that it knows, and it says so.
# The script is some forty small programs, which takes a node seconds: so
# several things are broken at a time, and where one question to its C half
# (verbs) is all that matters, that is asked alone.

load ../helpers

doctor=tools/doctor/doctor

setup_file() {
	local folder

	unpacked=
	# The node's own module files, as the lab has unpacked them for its kernel.
	release=$(on client uname -r)
	for folder in build/kernel/*/; do
		[[ ! -e $folder/spare/order || $(<"$folder/version") != "$release" ]] ||
			unpacked=${folder%/}
	done
	[[ $unpacked ]] || fail "no modules of $release in build/kernel"
	export release unpacked
	make -s -C tools/doctor WERROR=1
	make -s -C tools/doctor WERROR=1 O=../../build/doctor-asan OPT=-O1 \
		SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
	build gcc-O2/02-server build/peers/badserver
}

# Both nodes as the lab has made them.
mend='
	PATH=$PATH:/usr/sbin:/sbin
	me=$(hostname | sed "s/server/1/; s/client/2/")
	modules=$0/modules
	[ ! -e /tmp/rdma ] || mv /tmp/rdma /usr/bin/rdma
	[ ! -e /sys/class/infiniband/rxe1 ] || rdma link delete rxe1
	[ ! -e /tmp/nft ] || mv /tmp/nft /usr/sbin/nft
	[ ! -e /sys/module/nf_tables ] || nft flush ruleset
	[ -e /sys/module/crc32_generic ] || [ ! -e $modules/crc32_generic.ko ] ||
		insmod $modules/crc32_generic.ko
	[ -e /sys/module/rdma_rxe ] || insmod $modules/rdma_rxe.ko
	[ ! -e /tmp/socat ] || mv /tmp/socat /usr/bin/socat
	[ ! -e /tmp/uverbs0 ] || mv /tmp/uverbs0 /dev/infiniband/uverbs0
	[ ! -e /tmp/rdma_cm ] || mv /tmp/rdma_cm /dev/infiniband/rdma_cm
	rm -rf /dev/kvm /tmp/fake build/kernel/no-kvm-*
	for address in 10.10.10.77/24 10.9.0.1/24 10.9.0.1/32; do
		ip address del $address dev host0 2>/dev/null
	done
	echo 1000 >/proc/sys/net/ipv4/icmp_ratelimit
	ip link set link0 up mtu 1500
	ip address flush dev link0 scope global
	ip address add 10.10.10.$me/24 dev link0
	ip -6 address replace fd10::$me/64 dev link0 nodad
	[ -e /sys/class/infiniband/rxe0 ] ||
		rdma link add rxe0 type rxe netdev link0
	chmod 666 /dev/infiniband/*'

# firewall FOLDER, on a node: takes rules for nftables from stdin. The kernel modules
# for that are in FOLDER.
firewall='
	PATH=$PATH:/usr/sbin:/sbin
	firewall() {
		[ -e /sys/module/nf_tables ] || while read -r file; do
			insmod "$1/$file"
		done <"$1/order"
		nft -f -
	}'

broken=

# breaks NODE...: what a test has to say before it breaks one
breaks() {
	broken=$*
}

teardown() {
	local node

	for node in $broken; do
		on "$node" sh -c "$mend" "$unpacked" || true
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

# on_client SCRIPT [ARG...]: a script with several runs of the doctor. What it
# printed is in $whole, each run after a line `== NAME`.
#	run NAME CMD...	runs it and prints that
#	half NAME CMD..	the same for the C half, in the words of the doctor
#	firewall FOLDER	see above
#	fake NAME	a program in /tmp/fake, from stdin: a stand-in for what a node cannot have
on_client() {
	whole=$(LIMIT=90 on client sh -c "$firewall"'
		doctor=tools/doctor/doctor verbs=build/doctor/verbs
		run() {
			echo "== $1"
			shift
			"$@" 2>&1
			echo "status $?"
		}
		half() {
			run "$@" | sed "s/\t\([^\t]*\)\$/\n fix: \1/; s/\t/ /g"
		}
		fake() {
			mkdir -p /tmp/fake
			cat >/tmp/fake/$1
			chmod 755 /tmp/fake /tmp/fake/$1
		}
		'"$1" sh "${@:2}" 2>&1)
}

@test "doctor: on a healthy node nothing fails, and it changes nothing" {
	local before

	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		state="ip address | grep -v valid_lft; ip route; ip rule; rdma link
			ls /sys/module; ls -l /dev/infiniband"
		# What a firewall needs is there to be loaded.
		here=/lib/modules/$(uname -r)
		[ -e "$here" ] || {
			mkdir -p "$here"
			cp "$2"/*.ko "$here"
			depmod 2>/dev/null
			made=1
		}
		run before sh -c "$state"
		run healthy $doctor --peer "$1"
		run after sh -c "$state"
		[ -z "$made" ] || rm -r "$here"' "$ADDR_SERVER" "$unpacked/spare"
	part before
	before=$output
	assert_line --partial 'link rxe0/1 state ACTIVE'
	part after
	assert_equal "$output" "$before"
	part healthy
	refute_line --regexp "^FAIL"
	assert_line 'status 0'
	says OK kernel '[0-9]'
	says OK module 'rdma_rxe is loaded$'
	says OK tools 'the program rdma is there$'
	says OK device 'rxe0: SoftRoCE$'
	says OK port 'rxe0 port 1, on link0: active$'
	says OK gid 'rxe0: each address of link0 has its RoCE v2 GID: 10.10.10.2 is GID [0-9]+$'
	says OK mtu 'rxe0: active_mtu 1024, MTU of link0 1500$'
	says OK memory 'rxe0: 8192 KiB were registered'
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

@test "doctor: --json says the same, and is JSON; a lesson's server takes its call" {
	start server lesson build/gcc-O2/02-server/server -t 60
	wait_line lesson '^listening on '
	LIMIT=90 run -0 on client make -s doctor JSON=1 PEER="$ADDR_SERVER" PORT=10121
	assert_equal "$(jq -r '.findings[] | select(.check == "cm") | .level' <<<"$output")" OK
	assert_equal "$(jq -r '[.fail, .native] | @csv' <<<"$output")" '0,true'
	assert_equal "$(jq '[.findings[] | keys] | unique == [["check","fix","level","seen"]]' <<<"$output")" true
	assert_equal "$(jq -r '.findings[] | select(.check == "peer-cm") |
		"\(.level) \(.seen)"' <<<"$output")" \
		"OK $ADDR_SERVER, port 10121: it accepts"
	finish lesson
	# Quotes, backslashes and control characters of what was seen.
	run -1 $doctor --json --peer $'x"\\\t\ny'
	jq -e '.fail > 0' <<<"$output"
	assert_equal "$(jq -r '.findings[] | select(.check == "peer-route") |
		"\(.level) \(.seen)"' <<<"$output")" \
		'FAIL x"\  y is no name or address that is known here'
}

@test "doctor: warnings alone: no address, a guest's address; a firewall that may be shut, or is" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		firewall "$1" <<-END
			table inet filter {
				chain input {
					type filter hook input priority filter; policy drop;
					tcp dport 22 accept
				}
			}
			END
		ip address flush dev link0 scope global
		rdma link add rxe1 type rxe netdev host0
		# There is no KVM in a node: a file that can be opened, as the lab would find it.
		mknod /dev/kvm c 1 3
		: >build/kernel/no-kvm-$(cat /proc/sys/kernel/random/boot_id)
		run warnings $doctor
		# A machine that has iptables alone.
		nft flush ruleset
		iptables -A INPUT -i host0 -j ACCEPT
		iptables -P INPUT DROP
		mv /usr/sbin/nft /tmp/nft
		# The one kernel that locks up on a card like host0, and not on link0.
		printf "#!/bin/sh\necho 7.2.13+deb14-amd64\n" | fake uname
		PATH=/tmp/fake:$PATH
		run policy $doctor
		iptables -A INPUT -p udp --dport 4791 -j DROP
		iptables -P INPUT ACCEPT
		rdma link delete rxe1
		run rule $doctor' "$unpacked/spare"
	part warnings
	says WARN firewall 'what comes in is dropped unless a rule accepts it, and no rule names UDP port 4791$'
	says WARN nat 'host0 has the address 10.0.2.15'
	says WARN gid 'rxe0: link-local only: link0 has no IPv4 or global IPv6 address$'
	says OK device 'rxe1: SoftRoCE$'
	says WARN kvm '/dev/kvm can be opened, and no node has booted with it'
	assert_line 'status 0'
	part policy
	says WARN kernel '7.2.13.*: SoftRoCE on host0, a virtio card, may lock this machine up'
	says WARN firewall 'what comes in is dropped unless a rule accepts it, and no rule names UDP port 4791$'
	assert_line --partial 'fix: sudo iptables -I INPUT -p udp --dport 4791 -j ACCEPT'
	part rule
	says OK kernel '7.2.13'
	says FAIL firewall 'a rule shuts UDP port 4791: -A INPUT -p udp -m udp --dport 4791 -j DROP$'
	assert_line 'status 1'
}

@test "doctor: what a user may not do, memory that may not be locked, two cards in one subnet" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		rdma link add rxe1 type rxe netdev host0
		ip address add 10.10.10.77/24 dev host0
		chmod 666 /dev/infiniband/*
		chmod 600 /dev/infiniband/rdma_cm /dev/infiniband/uverbs0
		mknod /dev/kvm c 10 232
		chmod 600 /dev/kvm
		run user prlimit --memlock=65536 \
			setpriv --reuid=65534 --regid=65534 --clear-groups \
			env DOCTOR_BUILD=build/doctor-asan \
			$doctor --peer 203.0.113.1'
	part user
	says FAIL open 'rxe0: /dev/infiniband/uverbs0 cannot be opened: its mode is 0600, its owner user 0$'
	says FAIL memory 'rxe1: ibv_reg_mr of 8192 KiB: Cannot allocate memory; ulimit -l says 64 KiB$'
	says FAIL cm '/dev/infiniband/rdma_cm cannot be opened: its mode is 0600, its owner user 0$'
	says WARN subnet 'two cards in one subnet: 10.10.10.0/24 on'
	says OK firewall 'no firewall is on, as far as a user can tell'
	says WARN kvm '/dev/kvm is there and cannot be opened'
	says FAIL peer-route 'no route to 203.0.113.1: '
	assert_line --partial 'itself (LAB=native)? no.'
	assert_line 'status 1'
}

@test "doctor: no driver, no files; the limits of a control group; a port that is down, an address without GID" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		half driver unshare -m sh -c \
			"mount -t tmpfs none /etc/libibverbs.d; $verbs"
		half name $verbs peer nobody.invalid 10120
		# The kernel answers EIO to one of the first questions, whichever it is.
		half eio sh -c "
			for n in 3 4 5 6 7 8 9; do
				strace -o /dev/null -e trace=ioctl \
					-e inject=ioctl:error=EIO:when=\$n $verbs
			done"
		# A control group that allows no device, no object, or a few.
		mkdir /tmp/groups
		mount -t cgroup2 none /tmp/groups
		echo +rdma >/tmp/groups/cgroup.subtree_control
		mkdir /tmp/groups/small
		for limit in hca_handle=0 "hca_handle=max hca_object=0" hca_object=2; do
			echo "rxe0 $limit" >/tmp/groups/small/rdma.max
			half "group ${limit##*_}" sh -c "
				echo \$\$ >/tmp/groups/small/cgroup.procs
				$verbs"
		done
		rmdir /tmp/groups/small
		umount /tmp/groups
		rmdir /tmp/groups
		half zone $verbs peer fe80::1 10120
		mv /dev/infiniband/uverbs0 /tmp/uverbs0
		mv /usr/bin/rdma /tmp/rdma
		mv /usr/bin/socat /tmp/socat
		# A node has no systemd to ask.
		printf "#!/bin/sh\n[ \$3 = nftables ]\n" | fake systemctl
		run files setpriv --reuid=65534 --regid=65534 --clear-groups \
			env "PATH=/tmp/fake:$PATH" $doctor --peer 10.0.2.2
		mv /tmp/rdma /usr/bin/rdma
		mv /tmp/uverbs0 /dev/infiniband/uverbs0

		# Two of the same address: with the one goes the GID of both.
		gids() {
			cat /sys/class/infiniband/rxe1/ports/1/gids/[0-9] 2>/dev/null |
				grep -c ffff:0a09:0001
		}
		until_gids() {
			for i in $(seq 200); do
				[ "$(gids)" != "$1" ] || return 0
				sleep 0.05
			done
			echo "10.9.0.1 has $(gids) GIDs"
		}
		rdma link add rxe1 type rxe netdev host0
		ip address add 10.9.0.1/24 dev host0
		ip address add 10.9.0.1/32 dev host0
		until_gids 1
		ip address del 10.9.0.1/32 dev host0
		until_gids 0
		ip link set link0 down
		mv /dev/infiniband/rdma_cm /tmp/rdma_cm
		half port $verbs'
	part driver
	says FAIL device 'the kernel has rxe0, and the library has no driver for it$'
	assert_line --partial 'fix: sudo apt install ibverbs-providers'
	part eio
	says FAIL open 'rxe0 does not answer$'
	says FAIL port 'rxe0: ibv_query_port: Input/output error$'
	assert_line --partial 'fix: see dmesg'
	part "group handle=0"
	says FAIL open "rxe0: /dev/infiniband/uverbs0 cannot be opened: Resource temporarily unavailable$"
	assert_line --partial "fix: the limit of a control group: raise rdma.max"
	part "group object=0"
	says FAIL memory "rxe0: ibv_reg_mr of 8192 KiB: Resource temporarily unavailable; "
	assert_line --partial "fix: the limit of a control group: raise rdma.max"
	part "group object=2"
	says OK memory "rxe0: "
	says FAIL cm "a connection to ourselves, at $ADDR_CLIENT: rdma_create_qp: Resource temporarily unavailable$"
	assert_line --partial "fix: the limit of a control group: raise rdma.max"
	part files
	says FAIL device 'the kernel has rxe0, and there is no /dev/infiniband/uverbs\*'
	says FAIL peer-route 'the way to 10.0.2.2 is by host0, and no RDMA device sits on that$'
	says WARN kvm 'no /dev/kvm'
	says WARN tools 'there is no program rdma'
	says WARN firewall 'nftables is on, and only root may see its rules'
	says WARN lab 'for make run LAB=vm is missing: socat$'
	part name
	says FAIL peer-cm 'nobody.invalid is no name or address that is known here$'
	part zone
	says FAIL peer-cm 'a link-local address needs its zone$'
	part port
	says FAIL port 'rxe0 port 1, on link0: '
	assert_line --partial 'fix: sudo ip link set link0 up'
	says FAIL gid 'rxe1: no RoCE v2 GID for 10\.9\.0\.1, an address of host0'
	says FAIL cm 'there is no /dev/infiniband/rdma_cm$'
}

@test "doctor: no device, no checksum; no module, no libraries, and an old kernel" {
	breaks client
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		rm -f /.dockerenv /run/.containerenv
		rdma link delete rxe0
		rmmod crc32_generic || true
		# A newer kernel has it built in, and is to take itself for an old one.
		[ -e "$1/../modules/crc32_generic.ko" ] ||
			printf "#!/bin/sh\necho 6.1.0\n" | fake uname
		firewall "$1" <<-END
			table inet filter {
				chain input {
					type filter hook input priority filter; policy drop;
					tcp dport 22 accept
					udp dport 4791 accept
				}
			}
			END
		# The host may have modules of the same kernel.
		run device unshare -m sh -c "
			[ ! -e /lib/modules ] || mount -t tmpfs none /lib/modules
			PATH=/tmp/fake:\$PATH $doctor"
		rm -rf /tmp/fake

		rmmod rdma_rxe
		mv /usr/bin/socat /tmp/socat
		echo "not a library" >/tmp/library
		echo "127.0.1.1 client" >/tmp/hosts
		# No Debian that is still served has an rdma so old, and no node a kernel so
		# old: setarch lets it say that it is.
		printf "#!/bin/sh\necho Usage: rdma link show\n" | fake rdma
		firewall "$1" <<-END
			flush ruleset
			table inet filter {
				chain input {
					type filter hook input priority filter; policy accept;
					udp dport 4791 drop
				}
			}
			END
		run module unshare -m sh -c "mount --bind /tmp/hosts /etc/hosts
			mount --bind /tmp/library \
				\$(readlink -f /usr/lib/*/librdmacm.so.1)
			PATH=/tmp/fake:\$PATH setarch -R --uname-2.6 $doctor"' "$unpacked/spare"
	part device
	says OK module 'rdma_rxe is loaded$'
	says FAIL crc32 'the kernel has no crc32'
	says OK firewall 'no rule that shuts UDP port 4791$'
	says FAIL device 'no RDMA device$'
	assert_line 'status 1'
	assert_line --partial 'itself (LAB=native)? no.'
	assert_line 'On two virtual machines (LAB=vm)? yes.'
	part module
	says WARN kernel '2\.6\..*before 5.15.10$'
	says FAIL module 'no module rdma_rxe: there are no modules of the running kernel \(2\.6\.'
	assert_line --partial 'fix: boot again; '
	says WARN tools 'the program rdma is too old for rdma link add$'
	says FAIL libraries "the doctor's C half ended with status 127: "
	says WARN name 'the name of this machine, client, is 127.0.1.1 here'
	says FAIL firewall 'a rule shuts UDP port 4791: udp dport 4791 drop$'
	says FAIL lab 'for make run LAB=vm is missing: socat$'
	assert_line 'status 1'
	assert_line --partial '(LAB=vm)? no.'
}

@test "doctor: why there is no module, as the machine is" {
	local kernel

	# The doctor and make softroce ask the same function.
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		why() {
			run "$1" unshare -m bash -c "
				[ ! -e /tmp/os-release ] ||
					mount --bind /tmp/os-release /etc/os-release
				mount -t tmpfs none /lib/modules
				$2
				. lab/module.bash
				why_no_module rdma_rxe
				echo \"\$why\"
				echo \"\$cure\""
		}
		mkdir -p /lib/modules
		rm -f /.dockerenv /run/.containerenv
		why upgraded
		why other "mkdir /lib/modules/$(uname -r)"
		echo ID=ubuntu >/tmp/os-release
		why ubuntu
		rm /tmp/os-release
		touch /run/.containerenv
		why container
		rm /run/.containerenv
		# Neither of these kernels could be a node that is to have SoftRoCE.
		PATH=/tmp/fake:$PATH
		printf "#!/bin/sh\necho 5.15.90.1-microsoft-standard-WSL2\n" | fake uname
		why wsl
		printf "#!/bin/sh\necho 6.1.0-20-cloud-amd64\n" | fake uname
		why cloud
		rm -r /tmp/fake'
	for kernel in wsl:"WSL2's kernel" cloud:"Debian's cloud kernel" \
		ubuntu:"sudo apt install linux-modules-extra-$release" \
		upgraded:"no modules of the running kernel ($release)" \
		other:"this kernel ($release) is built without it" \
		container:'this is a container, which uses the kernel of its host'; do
		part "${kernel%%:*}"
		[[ $output == *"${kernel#*:}"* && ${lines[2]} == 'status 0' ]] ||
			fail "${kernel%%:*}: $output"
	done
}

@test "doctor: a peer without SoftRoCE, firewalls that drop and reject, an MTU too small, and nobody" {
	breaks server client
	# The server without its device, and two more addresses of it, with
	# a firewall each.
	on server sh -c "$firewall"'
		rdma link delete rxe0
		rmmod rdma_rxe
		# No ICMP error is held back for the one before.
		echo 0 >/proc/sys/net/ipv4/icmp_ratelimit
		ip address add 10.10.10.71/32 dev link0
		ip address add 10.10.10.72/32 dev link0
		firewall "$0" <<-END
			table ip filter {
				chain input {
					type filter hook input priority filter; policy accept;
					ip daddr 10.10.10.71 udp dport 4791 drop
					ip daddr 10.10.10.72 udp dport 4791 reject with icmp type admin-prohibited
				}
			}
			END' "$unpacked/spare"
	# They wait at the same time.
	# shellcheck disable=SC2016 # expanded on the node
	on_client '
		ip link set link0 mtu 300
		half mtu $verbs
		ip link set link0 mtu 1500
		half none $verbs peer 10.10.10.1 10120 >/tmp/none &
		half drop $verbs peer 10.10.10.71 10120 >/tmp/drop &
		half reject $verbs peer 10.10.10.72 10120 >/tmp/reject &
		half serve $verbs serve 10124 1 >/tmp/serve &
		run nobody $doctor --peer 10.10.10.99
		wait
		cat /tmp/none /tmp/drop /tmp/reject /tmp/serve'
	part none
	says FAIL peer-udp '10.10.10.1 says that nobody has UDP port 4791 \(Connection refused\)$'
	assert_line --partial 'fix: make softroce on the other machine'
	says FAIL peer-cm '10.10.10.1: no answer to a connection request in 10 s$'
	part drop
	says FAIL peer-udp 'UDP port 4791 of 10.10.10.71 stays silent'
	says FAIL peer-cm '10.10.10.71: no answer to a connection request in 10 s$'
	part reject
	says FAIL peer-udp 'UDP port 4791 of 10.10.10.72: No route to host$'
	part serve
	says FAIL serve 'no doctor came, or its connection failed$'
	part mtu
	says FAIL mtu 'rxe0: active_mtu 256 makes packets of 316 bytes, and the MTU of link0 is 300$'
	part nobody
	says WARN peer-ping '10.10.10.99 does not answer ping$'
	says FAIL peer-cm '10.10.10.99: RDMA_CM_EVENT_ADDR_ERROR, status -110'
	assert_line 'status 1'
}

@test "doctor: a doctor over there, a peer that cannot take a message, long packets that are lost" {
	breaks server
	on server sh -c "$firewall"'
		ip address add 10.10.10.73/32 dev link0
		firewall "$0" <<-END
			table ip filter {
				chain input {
					type filter hook input priority filter; policy accept;
					ip daddr 10.10.10.73 udp dport 4791 udp length > 600 drop
				}
			}
			END' "$unpacked/spare"
	start server far build/doctor/verbs serve 10123 30
	start server served env DOCTOR_BUILD=build/doctor-asan $doctor --serve
	# It greets as a doctor does, and has no receive.
	start server bad build/peers/badserver -p 10122 --receives 0 \
		--private hex:444f43544f523031 --at established --do stall
	wait_line bad "^listening on "
	wait_line far '^listening on '
	start client long build/doctor/verbs peer 10.10.10.73 10123
	start client probe build/doctor/verbs peer "$ADDR_SERVER" 10122
	wait_line served '^waiting for a minute'
	run -0 on client build/doctor-asan/verbs peer "$ADDR_SERVER" 10120
	assert_line --partial $'OK\tpeer-data\ta SEND of 16384 bytes arrived and was acknowledged\t'
	finish served
	assert_equal "$status" 0
	says OK serve 'a connection came, and 16384 bytes on it$'

	wait_line probe $'^FAIL\tpeer-data\ta SEND of 16384 bytes: RNR retry counter exceeded, status 13\t'
	# It waits for the other side's goodbye.
	signal_job bad KILL
	finish probe
	assert_equal "$status" 0

	finish long
	assert_line --partial $'FAIL\tpeer-data\tthe connection is there, and a SEND of 16384 bytes gets no answer (status 12): long packets are lost on the way\t'
	finish far
	assert_line --partial $'FAIL\tserve\ta connection came, and no whole message on it\t'
}

@test "doctor: without a compiler it says what to install; a peer that is this machine" {
	run -1 env DOCTOR_BUILD="$BATS_TEST_TMPDIR/build" CC=no-such-compiler \
		$doctor --peer 127.0.0.1
	says FAIL build 'tools/doctor does not build: .*no-such-compiler'
	assert_line --partial 'fix: lab/packages run'
	assert_line --partial '(LAB=vm)? no.'
	says FAIL peer-route '127.0.0.1 is this machine itself, by way of lo$'
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
