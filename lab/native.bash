# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # mode and lock are the sourcing script's
# LAB=native: both roles on this machine's own RDMA device.
# LAB=ssh: on two other machines. Sourced by lab/lab.

# Prints the IPv4, IPv6 and link-local address of the first active RDMA device
# ($device, or any) and its name; - for an address that it does not have.
# The sh of either machine runs it.
# shellcheck disable=SC2016
find_addresses='
PATH=$PATH:/usr/sbin:/sbin
for d in /sys/class/infiniband/${device:-*}; do
	for port in "$d"/ports/*; do
		case $(cat "$port/state" 2>/dev/null) in
		4:*) ;;
		*) continue ;;
		esac
		card=$(cat "$port/gid_attrs/ndevs/0" 2>/dev/null) ||
			card=$(ls "$d/device/net" 2>/dev/null | head -n 1)
		[ "$card" ] || continue
		first() {
			ip -o "$@" dev "$card" |
				awk "{ sub(\"/.*\", \"\", \$4); print \$4; exit }"
		}
		four=$(first -4 addr show scope global)
		six=$(first -6 addr show scope global)
		local=$(first -6 addr show scope link)
		[ "$four$six$local" ] || continue
		echo "${four:--} ${six:--} ${local:+$local%$card} ${d##*/}"
		exit 0
	done
done
exit 1'

# ---- native ---------------------------------------------------------------

native_addresses() {
	device=${LAB_DEVICE:-} sh -c "$find_addresses"
}

native_up() {
	active_device ||
		die "LAB=native: this machine has no active RDMA device: make softroce makes one (root), or use LAB=vm"
	native_addresses >/dev/null ||
		die "LAB=native: the RDMA device ${LAB_DEVICE:-here} has no address: give its network card one"
}

# ---- ssh ------------------------------------------------------------------

# the folder on the machines, below the home of the user there
ssh_folder() {
	local hash
	hash=$(cksum <<<"$LAB_ROOT")
	echo ".cache/rdma-lab/${hash%% *}"
}

# ssh_host NODE: as in the user's ssh configuration
ssh_host() {
	case $1 in
	server) echo "${SERVER:-}" ;;
	client) echo "${CLIENT:-}" ;;
	esac
}

# ssh_machines: write down how to reach them
ssh_machines() {
	local node host
	for node in server client; do
		host=$(ssh_host "$node")
		if [[ $host ]]; then
			[[ $host != -* ]] || bad_usage "$host: not the name of a machine"
			printf '%s\n' ${LAB_SSH_CONFIG:+-F "$LAB_SSH_CONFIG"} \
				"$host" >"$LAB_DIR/$node.reach"
		elif [[ ! -e $LAB_DIR/$node.reach ]]; then
			bad_usage "LAB=ssh needs SERVER=host and CLIENT=host"
		fi
	done
}

ssh_up() {
	need ssh openssh-client
	(ssh_machines && ssh_prepare server && ssh_prepare client) || {
		local status=$?
		ssh_down
		exit "$status"
	}
	echo ssh >"$LAB_DIR/lab"
}

# ssh_prepare NODE: the connection, the sources there, and its address
ssh_prepare() {
	local node=$1 host reach folder
	folder=$(ssh_folder)
	mapfile -t reach <"$LAB_DIR/$node.reach"
	host=${reach[-1]}
	if ! ssh_master_alive "$node" && ! ssh_master "$node"; then
		cat "$LAB_DIR/$node.sshlog" >&2
		die "cannot log in to $host: ssh $host must work without a question (ssh-copy-id, ssh-agent)"
	fi
	ask "$node" 20 "PATH=\$PATH:/usr/sbin:/sbin
		for tool in tar make cc setsid ip; do
			command -v \$tool >/dev/null ||
				{ echo \"lab: $host has no \$tool\" >&2; exit 1; }
		done
		mkdir -p $folder && cd $folder && pwd" >"$LAB_DIR/$node.root" ||
		die "$host is not ready: it needs make, a C compiler, iproute2, libibverbs-dev and librdmacm-dev"
	say "$host: copying this folder to $(<"$LAB_DIR/$node.root")"
	(cd "$LAB_ROOT" && ssh_files | tar --null -T - -cz |
		(remote "$node" "tar -xz -m -C $folder")) ||
		die "cannot copy this folder to $host"
	ask "$node" 20 "device='${LAB_DEVICE:-}'; $find_addresses" >"$LAB_DIR/$node.addresses" ||
		die "$host has no active RDMA device with an address: make softroce there, as root"
}

# ssh_files: what belongs to the course here, NUL after each
ssh_files() {
	if git rev-parse --git-dir >/dev/null 2>&1; then
		git ls-files -z --cached --others --exclude-standard |
			while IFS= read -r -d '' file; do
				[[ ! -e $file ]] || printf '%s\0' "$file"
			done
	else
		find . -path ./build -prune -o -type f -print0
	fi
}

ssh_down() {
	ssh_master_end server
	ssh_master_end client
	rm -f "$LAB_DIR"/{server,client}.{root,addresses}
	forget_lab
}
