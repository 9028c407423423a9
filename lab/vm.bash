# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # mode and lock are the sourcing script's
# LAB=vm: two QEMU nodes. Sourced by lab/lab.

# How long a boot may take; on a busy machine up to three times that, until it
# has had a third of it in processor time.
BOOT_SECONDS=${LAB_BOOT_SECONDS:-60}

KVM_BOOT_SECONDS=15
TCG=tcg,thread=multi,tb-size=256
BOOT_TRIES=3

# ---- starting one node ----------------------------------------------------

# kvm_works: whether /dev/kvm can be opened. Whether a node runs with it is
# seen at the first boot; that it does not is remembered in this file until the
# machine is restarted.
kvm_works() {
	case ${LAB_ACCEL:-} in
	kvm) return 0 ;;
	tcg) return 1 ;;
	esac
	[[ ! -e $(no_kvm_mark) ]] && { : <>/dev/kvm; } 2>/dev/null
}

no_kvm_mark() {
	echo "$LAB_ROOT/build/kernel/no-kvm-$(</proc/sys/kernel/random/boot_id)"
}

# write_disk NODE: what it is told on a disk: its name and its keys
write_disk() {
	echo "$1" >"$LAB_DIR/$1.name"
	tar -c -f "$LAB_DIR/$1.disk" --transform 's/.*name$/name/' \
		-C "$LAB_DIR" "$1.name" -C "$LAB_DIR/keys" host user.pub
}

# start_qemu NODE ACCEL [ARGUMENT...]: its process is in $qemu. Both nodes, and the one
# that is booted to be kept, are the same machine but for what is on their disk.
start_qemu() {
	local node=$1 accel=$2 peer append cpu=max link
	local share=local,security_model=none,readonly=on,multidevs=remap
	shift 2
	case $node in
	server) peer=client ;;
	client) peer=server ;;
	*) peer=none ;;
	esac
	rm -f "$LAB_DIR/$node".{pid,qmp,link,console,qemu,ssh,frozen,killed}
	append="console=ttyS0 quiet loglevel=3 panic=-1"
	# What makes a boot shorter. norandmaps also makes every program start
	# four times as quick: the emulator translates code by its address, and
	# can use what it has translated again.
	append+=" norandmaps nokaslr mitigations=off no_timer_check tsc=reliable"
	append+=" audit=0 cryptomgr.notests rcupdate.rcu_expedited=1"
	append+=" random.trust_cpu=on 8250.nr_uarts=1"
	append+=" rodata=off"
	# What the emulator is slow at and a kernel can do without: copying by
	# bytes (erms, fsrm), a check at each access to a program's memory (smap),
	# a fifth level of page tables (la57).
	[[ $accel == kvm ]] || cpu=max,erms=off,fsrm=off,smap=off,la57=off
	# Packets in pages of their own, on the card that SoftRoCE is on: virtio_net
	# does so without merged buffers, if the MTU may be over 1500. With
	# a pool of pages kernel 7.2 deadlocks: docs/softroce-and-real-nics.md.
	link=mrg_rxbuf=off,host_mtu=9000
	detach qemu-system-x86_64 -name "lab-$node" -M q35 -accel "$accel" -cpu "$cpu" \
		-m "${LAB_MEMORY:-512}" -smp "${LAB_CPUS:-1}" \
		-nodefaults -display none -no-reboot \
		-kernel "$vmlinux" -initrd "$initramfs" -append "$append" \
		-serial "file:${LAB_DIR//,/,,}/$node.console" \
		-qmp "unix:${LAB_DIR//,/,,}/$node.qmp,server=on,wait=off" \
		-virtfs "$share,path=/,mount_tag=live" \
		-virtfs "$share,path=/usr,mount_tag=usr" \
		-netdev user,id=host,restrict=on,hostfwd=tcp:127.0.0.1:0-:22 \
		-device virtio-net-pci,netdev=host,romfile=,mac=52:54:00:00:02:00 \
		-netdev "dgram,id=link,local.type=unix,local.path=${LAB_DIR//,/,,}/$node.link,remote.type=unix,remote.path=${LAB_DIR//,/,,}/$peer.link" \
		-device virtio-net-pci,netdev=link,romfile=,mac=52:54:00:00:01:00,$link \
		-drive "file=${LAB_DIR//,/,,}/$node.disk,format=raw,if=virtio,readonly=on" \
		-device vmgenid,guid=auto "$@" \
		</dev/null >"$LAB_DIR/$node.qemu" 2>&1 &
	qemu=$!
	echo "$qemu" >"$LAB_DIR/$node.pid"
}

# cpu_seconds PROCESS: the processor time that it has had
cpu_seconds() {
	local fields
	read -r -a fields <"/proc/$1/stat" || return
	echo $(((fields[13] + fields[14]) / $(getconf CLK_TCK)))
} 2>/dev/null

# boot_timer SECONDS: ends when a boot has to be called hung. On a busy machine
# it may take longer, until it has had enough of the processor.
boot_timer() {
	local seconds=$1 silent used
	exec {silent}<> <(:)
	read -r -t "$seconds" -u "$silent" || true
	while ((seconds < 3 * BOOT_SECONDS)); do
		used=$(cpu_seconds "$qemu") || return
		((used < BOOT_SECONDS / 3)) || return
		read -r -t 5 -u "$silent" || true
		((seconds += 5))
	done
}

# wait_console NODE SECONDS WORDS: until its console says `lab: WORDS`; otherwise why
# it does not in $why
wait_console() {
	local node=$1 look timer first='' started=$SECONDS own=$BASHPID
	: >>"$LAB_DIR/$node.console"
	exec {console}< <(exec tail -s 0.5 --pid="$own" -n +1 -f \
		"$LAB_DIR/$node.console" 2>/dev/null)
	tail=$!
	grep -q -m 1 -E "^lab: ($3|failed)" <&"$console" &
	look=$!
	boot_timer "$2" &
	timer=$!
	wait -n -p first "$qemu" "$look" "$timer" || true
	kill "$tail" "$look" "$timer" 2>/dev/null || true
	wait "$tail" "$look" "$timer" 2>/dev/null || true
	exec {console}<&-
	case ${first:-} in
	"$qemu") why="ended by itself" ;;
	"$timer") why="hung after $((SECONDS - started)) s" ;;
	*) why=$(tr -d '\r' <"$LAB_DIR/$node.console" |
		sed -n 's/^lab: \(failed: .*\)/\1/p') ;;
	esac
	[[ ! $why ]]
}

# console_tail NODE: the end of what its QEMU and its console said
console_tail() {
	local text
	text=$(cat "$LAB_DIR/$1.qemu" "$LAB_DIR/$1.console" 2>/dev/null |
		tr -d '\r' | grep -v '^$' | tail -n 15) || true
	printf '%s\n' "${text:-(nothing)}" | sed "s/^/lab: $1| /" >&2
}

# boot_node NODE: bounded, and tried again where it hangs. Runs in a process
# of its own.
boot_node() {
	local node=$1 try why qemu accel seconds resume tail=
	# shellcheck disable=SC2046 # process numbers
	trap 'kill -KILL $tail $(jobs -p) 2>/dev/null; wait; exit 1' TERM
	write_disk "$node"
	for ((try = 1; try <= BOOT_TRIES; try++)); do
		accel=$TCG seconds=$BOOT_SECONDS resume=()
		if kvm_works && ((try == 1)); then
			accel=kvm
			[[ ${LAB_ACCEL:-} ]] || seconds=$KVM_BOOT_SECONDS
		elif [[ $booted && -s $booted ]] && ((try == 1)); then
			resume_from "$booted"
		fi
		start_qemu "$node" "$accel" "${resume[@]}"
		if wait_console "$node" "$seconds" ready && connect "$node"; then
			[[ $try == 1 || ! -e $LAB_DIR/$node.no-kvm ]] ||
				touch "$(no_kvm_mark)"
			return
		fi
		kill -KILL "$qemu" 2>/dev/null || true
		wait "$qemu" 2>/dev/null || true
		if [[ $accel == kvm && ! ${LAB_ACCEL:-} ]]; then
			say "$node: /dev/kvm is there, but no node boots with it ($why): trying software emulation"
			touch "$LAB_DIR/$node.no-kvm"
			continue
		fi
		[[ ! ${resume[*]} ]] || rm -f "$booted"
		say "boot of $node $why, attempt $try of $BOOT_TRIES; last lines of its console:"
		console_tail "$node"
	done
	return 1
}

# connect NODE: the connection that every later command shares
connect() {
	local node=$1 port
	port=$(qmp "$node" human-monitor-command '{"command-line":"info usernet"}' |
		grep -o 'HOST_FORWARD[^\\]*' | awk '{ print $4 }') || true
	why="cannot be reached"
	[[ $port ]] || return 1
	cat >"$LAB_DIR/$node.host" <<-END
		Host $node
			HostName 127.0.0.1
			Port $port
	END
	ssh_master "$node" && why=
}

# ---- both of them ---------------------------------------------------------

vm_ssh_config() {
	local node
	cat >"$LAB_DIR/ssh.conf" <<-END
		# ssh -F THIS-FILE server (or client)
		Include "$LAB_DIR/server.host"
		Include "$LAB_DIR/client.host"
		Host *
			User root
			IdentityFile "$LAB_DIR/keys/user"
			IdentitiesOnly yes
			IdentityAgent none
			HostKeyAlias node
			UserKnownHostsFile "$LAB_DIR/keys/known_hosts"
			GlobalKnownHostsFile none
			StrictHostKeyChecking yes
			KexAlgorithms curve25519-sha256
			Ciphers aes128-ctr,chacha20-poly1305@openssh.com
			LogLevel ERROR
	END
	for node in server client; do
		printf '%s\n' -F "$LAB_DIR/ssh.conf" "$node" >"$LAB_DIR/$node.reach"
	done
}

# vm_keys: who may log in to the nodes, which listen on 127.0.0.1 only. Made
# once for a checkout.
vm_keys() {
	local keys=$LAB_ROOT/build/kernel/keys new
	if [[ ! -s $keys/known_hosts ]]; then
		new=$(mktemp -d "$keys.XXXXXX")
		ssh-keygen -q -t ed25519 -N '' -C lab -f "$new/user"
		dropbearkey -t ed25519 -f "$new/host" 2>/dev/null |
			awk '/^ssh-ed25519/ { print "node", $1, $2 }' >"$new/known_hosts"
		# another lab may have been quicker
		mv -T "$new" "$keys" 2>/dev/null || rm -rf "$new"
	fi
	rm -rf "$LAB_DIR/keys"
	cp -r "$keys" "$LAB_DIR/keys"
}

vm_up() {
	local kernel node boots=() missing=() started=$SECONDS failed=0 vmlinux initramfs
	local booted='' progress
	for node in server client; do
		if ! node_alive "$node"; then
			missing+=("$node")
			continue
		fi
		[[ ! -e $LAB_DIR/$node.frozen ]] || thaw "$node"
		ssh_master_alive "$node" || ssh_master "$node" ||
			die "$node runs, but cannot be reached: lab/lab down, then up"
	done
	if ((${#missing[@]} < 2)) && [[ ${KERNEL:-$(<"$LAB_DIR/kernel")} != "$(<"$LAB_DIR/kernel")" ]]; then
		die "the nodes that are up run KERNEL=$(<"$LAB_DIR/kernel"): lab/lab down first"
	fi
	if ((${#missing[@]} == 0)); then
		say "the nodes are up"
		return
	fi
	case ${LAB_ACCEL:-} in
	'' | kvm | tcg) ;;
	*) bad_usage "LAB_ACCEL=$LAB_ACCEL: kvm or tcg" ;;
	esac
	need qemu-system-x86_64 qemu-system-x86
	need socat socat
	need ssh openssh-client
	need dropbearkey dropbear-bin
	need rdma iproute2
	[[ ! -e $LAB_DIR/kernel ]] || KERNEL=$(<"$LAB_DIR/kernel")
	KERNEL=${KERNEL:-linux-image-amd64}
	kernel=$(KERNEL=$KERNEL "$LAB_ROOT/lab/kernel") || exit 125
	mapfile -t kernel <<<"$kernel"
	vmlinux=${kernel[0]} initramfs=${kernel[1]}
	if ((${#missing[@]} == 2)); then
		vm_keys
		vm_ssh_config
		echo "$KERNEL" >"$LAB_DIR/kernel"
		cp "${vmlinux%/*}/version" "$LAB_DIR/version"
		echo vm >"$LAB_DIR/lab"
	fi
	progress "booting ${missing[*]}" &
	progress=$!
	if ! kvm_works; then
		booted=$(booted_file)
		keep_boot &
		wait $! || true
	fi
	for node in "${missing[@]}"; do
		boot_node "$node" &
		boots+=($!)
	done
	for node in "${boots[@]}"; do
		wait "$node" || failed=1
	done
	kill "$progress" 2>/dev/null || true
	if ((failed)); then
		vm_down
		die "the nodes did not come up"
	fi
	say "${missing[*]}: up after $((SECONDS - started)) s, kernel $(<"$LAB_DIR/version")"
}

vm_stop() {
	local node pid i
	for node in server client nobody; do
		node_pid "$node" || continue
		kill -KILL "$pid" 2>/dev/null || true
		for ((i = 0; i < 500; i++)); do
			node_pid "$node" || break
			read -r -t 0.01 <> <(:) || true
		done
	done
}

vm_down() {
	ssh_master_end server
	ssh_master_end client
	vm_stop
	rm -f "$LAB_DIR"/{server,client}.{frozen,killed,host,no-kvm,name}
	rm -f "$LAB_DIR"/{server,client,nobody}.{pid,qmp,link,console,qemu,disk}
	rm -f "$LAB_DIR"/{ssh.conf,kernel,version,capture,impair}
	rm -rf "$LAB_DIR/keys"
	forget_lab
}

# ---- a running node -------------------------------------------------------

# node_pid NODE: the process of this lab's node, in $pid
node_pid() {
	local words
	pid=$(cat "$LAB_DIR/$1.pid" 2>/dev/null) || return 1
	{ mapfile -d '' -t words <"/proc/$pid/cmdline"; } 2>/dev/null || return 1
	[[ " ${words[*]} " == *" -qmp unix:${LAB_DIR//,/,,}/$1.qmp,"* ]]
}

node_alive() {
	local pid
	node_pid "$1"
}

# vm_state NODE: up, frozen, killed, died or down
vm_state() {
	if node_alive "$1"; then
		[[ -e $LAB_DIR/$1.frozen ]] && echo frozen || echo up
	elif [[ -e $LAB_DIR/$1.killed ]]; then
		echo killed
	elif [[ -e $LAB_DIR/$1.pid ]]; then
		echo died
	else
		echo down
	fi
}

# need_node NODE: it must be up, and not frozen
need_node() {
	case $(vm_state "$1") in
	up) ;;
	frozen) die "$1 is frozen (lab/lab freeze): lab/lab thaw $1 first" ;;
	killed) die "$1 was killed (lab/lab kill): lab/lab up boots it again" ;;
	died)
		say "$1 has died; last lines of its console:"
		console_tail "$1"
		die "lab/lab up boots it again"
		;;
	*) need_up ;;
	esac
}

# qmp NODE COMMAND [ARGUMENTS]: prints what QEMU answers
qmp() {
	local node=$1 line='' input output pid
	coproc SOCAT { exec socat - "UNIX-CONNECT:$LAB_DIR/$node.qmp" 2>/dev/null; }
	pid=$SOCAT_PID input=${SOCAT[1]} output=${SOCAT[0]}
	printf '{"execute":"qmp_capabilities"}\n{"execute":"%s"%s,"id":"lab"}\n' \
		"$2" "${3:+,\"arguments\":$3}" 1>&"$input" || true
	while IFS= read -r -t 10 line <&"$output"; do
		[[ $line != *'"id": "lab"'* ]] || break
	done
	# Not TERM: socat notes that and may go on to wait for its next byte.
	kill -KILL "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	printf '%s\n' "$line"
	[[ $line == *'"return"'* ]]
}

# qmp_or_die NODE COMMAND [ARGUMENTS]
qmp_or_die() {
	local answer
	answer=$(qmp "$@") ||
		die "QEMU of $1 refuses $2: ${answer:-no answer}"
}

# A stopped QEMU does not read its end of the link. The socket would fill up and
# hold the other node's packets back, where those of a machine that hangs are
# lost; and SoftRoCE cannot destroy a QP whose packets are still in the card (it
# waits, or crashes its kernel). So the socket's name is taken away meanwhile.
freeze() {
	qmp_or_die "$1" stop
	mv "$LAB_DIR/$1.link" "$LAB_DIR/$1.frozen"
}

# thaw NODE: the connection to it may have been given up meanwhile
thaw() {
	mv "$LAB_DIR/$1.frozen" "$LAB_DIR/$1.link"
	qmp_or_die "$1" cont
	ssh_master_alive "$1" || ssh_master "$1" ||
		die "$1 does not answer any more: lab/lab kill $1, then up"
}

kill_node() {
	local pid
	if node_pid "$1"; then
		kill -KILL "$pid"
	fi
	ssh_master_end "$1"
	rm -f "$LAB_DIR/$1.frozen"
	touch "$LAB_DIR/$1.killed"
}

# json TEXT: as a string
json() {
	local text=${1//\\/\\\\}
	printf '"%s"' "${text//\"/\\\"}"
}

capture_start() {
	local file=$1
	[[ ! -e $LAB_DIR/capture ]] ||
		die "$(<"$LAB_DIR/capture") is being written: lab/lab capture stop first"
	[[ $file == /* ]] || file=$PWD/$file
	: 2>/dev/null >"$file" || die "cannot write $file"
	# Before it begins: whoever is interrupted here can stop it.
	echo "$file" >"$LAB_DIR/capture"
	(qmp_or_die server object-add \
		"{\"qom-type\":\"filter-dump\",\"id\":\"capture\",\"netdev\":\"link\",\"file\":$(json "$file")}") || {
		rm -f "$LAB_DIR/capture"
		exit 125
	}
}

capture_stop() {
	[[ -e $LAB_DIR/capture ]] || die "no capture is running"
	rm -f "$LAB_DIR/capture"
	qmp_or_die server object-del '{"id":"capture"}'
}

# impair WORDS...: both directions. Nothing is changed when tc refuses the
# words.
impair() {
	local node script quoted before=
	local clear='/usr/sbin/tc qdisc del dev link0 root 2>/dev/null || :'
	need_node server
	need_node client
	[[ ! -e $LAB_DIR/impair ]] || before=$(<"$LAB_DIR/impair")
	quote "$@"
	script="exec /usr/sbin/tc qdisc replace dev link0 root netem $quoted"
	if [[ $* == clear ]]; then
		script=$clear
		rm -f "$LAB_DIR/impair"
	else
		echo "$*" >"$LAB_DIR/impair"
	fi
	for node in server client; do
		ask "$node" 10 "$script" && continue
		rm -f "$LAB_DIR/impair"
		script=$clear
		if [[ $before ]]; then
			echo "$before" >"$LAB_DIR/impair"
			script="exec /usr/sbin/tc qdisc replace dev link0 root netem $before"
		fi
		# What the other one has taken already is taken back.
		[[ $node == server ]] || ask server 10 "$script" || true
		bad_usage "impair $*: not understood by tc (man tc-netem)"
	done
}
