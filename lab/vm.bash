# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# LAB=vm: two QEMU nodes. Sourced by lab/lab.

BOOT_SECONDS=${LAB_BOOT_SECONDS:-60}
BOOT_TRIES=3

# ---- starting one node ----------------------------------------------------

# kvm_works: whether /dev/kvm can be opened. That a node really runs with it is
# seen at the first boot, and remembered until this machine is restarted.
kvm_works() {
	case ${LAB_ACCEL:-} in
	kvm) return 0 ;;
	tcg) return 1 ;;
	'') ;;
	*) die "LAB_ACCEL=$LAB_ACCEL: kvm or tcg" ;;
	esac
	[[ ! -e $(no_kvm_mark) ]] && { : <>/dev/kvm; } 2>/dev/null
}

no_kvm_mark() {
	echo "$LAB_ROOT/build/kernel/no-kvm-$(</proc/sys/kernel/random/boot_id)"
}

# percent TEXT: everything but plain characters as %XX, for the command line
# of the node's kernel
percent() {
	local text=$1 LC_ALL=C i c
	for ((i = 0; i < ${#text}; i++)); do
		c=${text:i:1}
		case $c in
		[A-Za-z0-9/._-]) printf %s "$c" ;;
		*) printf '%%%02X' "'$c" ;;
		esac
	done
}

# start_qemu NODE ACCEL: sets $qemu
start_qemu() {
	local node=$1 accel=$2 me peer append
	local share=local,security_model=none,readonly=on,multidevs=remap
	case $node in
	server) me=1 peer=client ;;
	client) me=2 peer=server ;;
	esac
	rm -f "$LAB_DIR/$node".{pid,qmp,link,console,qemu,ssh,frozen,killed}
	append="console=ttyS0 quiet loglevel=3 panic=-1 lab.role=$node"
	append+=" lab.dir=$(percent "$LAB_DIR") mitigations=off no_timer_check"
	append+=" norandmaps nokaslr tsc=reliable audit=0 cryptomgr.notests"
	append+=" rcupdate.rcu_expedited=1 random.trust_cpu=on 8250.nr_uarts=1"
	setsid qemu-system-x86_64 -name "lab-$node" -M q35 -accel "$accel" -cpu max \
		-m "${LAB_MEMORY:-512}" -smp "${LAB_CPUS:-1}" \
		-nodefaults -display none -no-reboot \
		-kernel "$vmlinux" -initrd "$initramfs" -append "$append" \
		-serial "file:$LAB_DIR/$node.console" \
		-qmp "unix:$LAB_DIR/$node.qmp,server=on,wait=off" \
		-virtfs "$share,path=/,mount_tag=live" \
		-virtfs "$share,path=/usr,mount_tag=usr" \
		-netdev user,id=host,restrict=on,hostfwd=tcp:127.0.0.1:0-:22 \
		-device virtio-net-pci,netdev=host,romfile=,mac=52:54:00:00:02:0$me \
		-netdev "dgram,id=link,local.type=unix,local.path=$LAB_DIR/$node.link,remote.type=unix,remote.path=$LAB_DIR/$peer.link" \
		-device virtio-net-pci,netdev=link,romfile=,mac=52:54:00:00:01:0$me \
		</dev/null >"$LAB_DIR/$node.qemu" 2>&1 {lock}>&- &
	qemu=$!
	echo "$qemu" >"$LAB_DIR/$node.pid"
}

# wait_ready NODE SECONDS: until its console says so. Sets $why when it does not.
wait_ready() {
	local node=$1 fd tail look timer first=''
	: >>"$LAB_DIR/$node.console"
	exec {fd}< <(exec tail -n +1 -f "$LAB_DIR/$node.console" 2>/dev/null)
	tail=$!
	grep -q -m 1 -E '^lab: (ready|failed)' <&"$fd" &
	look=$!
	sleep "$2" &
	timer=$!
	wait -n -p first "$qemu" "$look" "$timer" || true
	kill "$tail" "$look" "$timer" 2>/dev/null || true
	wait "$tail" "$look" "$timer" 2>/dev/null || true
	exec {fd}<&-
	case $first in
	"$qemu") why="ended by itself" ;;
	"$timer") why="hung after $2 s" ;;
	*) why=$(tr -d '\r' <"$LAB_DIR/$node.console" | sed -n 's/^lab: \(failed: .*\)/\1/p') ;;
	esac
	[[ ! $why ]]
}

# console_tail NODE: the end of what its console and its QEMU said
console_tail() {
	local text
	text=$(cat "$LAB_DIR/$1.qemu" "$LAB_DIR/$1.console" 2>/dev/null |
		tr -d '\r' | grep -v '^$' | tail -n 15) || true
	sed "s/^/lab: $1| /" <<<"${text:-(its console is empty)}" >&2
}

# boot_node NODE: bounded, and tried again where it hangs
boot_node() {
	local node=$1 try why qemu accel seconds
	trap 'kill $(jobs -p) 2>/dev/null; exit 1' TERM
	for ((try = 1; try <= BOOT_TRIES; try++)); do
		accel=tcg,thread=multi seconds=$BOOT_SECONDS
		if kvm_works; then
			accel=kvm
			[[ ${LAB_ACCEL:-} ]] || seconds=10
		fi
		start_qemu "$node" "$accel"
		if wait_ready "$node" "$seconds" && connect "$node"; then
			return
		fi
		kill -KILL "$qemu" 2>/dev/null || true
		wait "$qemu" 2>/dev/null || true
		if [[ $accel == kvm && ! ${LAB_ACCEL:-} ]]; then
			say "$node: /dev/kvm is here but does not run a node ($why): software emulation from now on"
			touch "$(no_kvm_mark)"
			((try--)) || true
			continue
		fi
		say "boot of $node $why, attempt $try of $BOOT_TRIES; last lines of its console:"
		console_tail "$node"
	done
	return 1
}

# connect NODE: the connection that every later command shares
connect() {
	local node=$1 port
	port=$(qmp "$node" human-monitor-command '{"command-line":"info usernet"}' |
		grep -o 'HOST_FORWARD[^\\]*' | awk '{ print $4 }')
	why="cannot be reached"
	[[ $port ]] || return 1
	cat >"$LAB_DIR/$node.host" <<-END
		Host $node
			HostName 127.0.0.1
			Port $port
	END
	ssh_master "$node"
}

vm_ssh_config() {
	local node
	cat >"$LAB_DIR/ssh.conf" <<-END
		# ssh -F this-file server (or client)
		Include "$LAB_DIR/server.host" "$LAB_DIR/client.host"
		Host *
			User root
			IdentityFile "$LAB_DIR/keys/user"
			IdentitiesOnly yes
			IdentityAgent none
			HostKeyAlias node
			UserKnownHostsFile "$LAB_DIR/keys/known_hosts"
			StrictHostKeyChecking yes
			KexAlgorithms curve25519-sha256
			Ciphers aes128-ctr,chacha20-poly1305@openssh.com
			LogLevel ERROR
	END
	for node in server client; do
		printf '%s\n' -F "$LAB_DIR/ssh.conf" "$node" >"$LAB_DIR/$node.reach"
	done
}

# vm_keys: who may log in. Made once for the checkout, the nodes listen on
# 127.0.0.1 only.
vm_keys() {
	local keys=$LAB_ROOT/build/kernel/keys
	if [[ ! -s $keys/known_hosts ]]; then
		rm -rf "$keys.new"
		(umask 077 && mkdir -p "$keys.new")
		ssh-keygen -q -t ed25519 -N '' -C lab -f "$keys.new/user"
		dropbearkey -t ed25519 -f "$keys.new/host" 2>/dev/null |
			awk '/^ssh-ed25519/ { print "node", $1, $2 }' >"$keys.new/known_hosts"
		rm -rf "$keys"
		mv "$keys.new" "$keys"
	fi
	rm -rf "$LAB_DIR/keys"
	cp -r "$keys" "$LAB_DIR/keys"
}

vm_up() {
	local kernel node boots=() started failed=0
	need qemu-system-x86_64 qemu-system-x86
	need socat socat
	need ssh openssh-client
	need dropbear dropbear-bin
	need rdma iproute2
	kernel=$("$LAB_ROOT/lab/kernel") || exit 125
	read -r vmlinux initramfs <<<"$kernel"
	vm_keys
	vm_ssh_config
	echo vm >"$LAB_DIR/lab"
	for node in server client; do
		if node_alive "$node"; then
			continue
		fi
		boot_node "$node" &
		boots+=($!)
	done
	((${#boots[@]})) || return 0
	started=$SECONDS
	progress "booting the nodes" &
	for node in "${boots[@]}"; do
		wait "$node" || failed=1
	done
	kill %progress 2>/dev/null || true
	if ((failed)); then
		lab_down
		die "the nodes did not come up"
	fi
}

# ---- a running node -------------------------------------------------------

# node_pid NODE: the process of this lab's node, in $pid
node_pid() {
	local words
	pid=$(cat "$LAB_DIR/$1.pid" 2>/dev/null) || return 1
	{ mapfile -d '' -t words <"/proc/$pid/cmdline"; } 2>/dev/null || return 1
	[[ " ${words[*]} " == *" unix:$LAB_DIR/$1.qmp,"* ]]
}

node_alive() {
	local pid
	node_pid "$1"
}

# qmp NODE COMMAND [ARGUMENTS]: prints what QEMU answers
qmp() {
	local node=$1 line input output pid
	coproc SOCAT { exec socat - "UNIX-CONNECT:$LAB_DIR/$node.qmp" 2>/dev/null; }
	pid=$SOCAT_PID input=${SOCAT[1]} output=${SOCAT[0]}
	printf '{"execute":"qmp_capabilities"}\n{"execute":"%s"%s,"id":"lab"}\n' \
		"$2" "${3:+,\"arguments\":$3}" >&"$input"
	while IFS= read -r -t 10 line <&"$output"; do
		[[ $line == *'"id": "lab"'* ]] && break
	done
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	printf '%s\n' "$line"
	[[ $line == *'"return"'* ]]
}
