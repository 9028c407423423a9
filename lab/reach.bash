# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # mode and lock are the sourcing script's
# Running a command on a node: over ssh, or here for LAB=native.
# Sourced by lab/lab. The words of the ssh command that reaches NODE are in
# $LAB_DIR/NODE.reach, one a line.

# detach COMMAND...: become COMMAND, in a session of its own and without the files
# that the caller has open: whoever waits for their end must not wait for it.
detach() {
	local fd
	for fd in /proc/"$BASHPID"/fd/*; do
		fd=${fd##*/}
		((fd <= 2)) || exec {fd}>&-
	done
	exec setsid "$@"
}

# ssh_master NODE: open the connection that every later command shares
ssh_master() {
	local reach
	mapfile -t reach <"$LAB_DIR/$1.reach"
	rm -f "$LAB_DIR/$1.ssh"
	(detach ssh -M -N -f -o ControlPath="$LAB_DIR/$1.ssh" -o ControlPersist=yes \
		-o ServerAliveInterval=5 -o ServerAliveCountMax=12 \
		-o BatchMode=yes -o ConnectTimeout=20 "${reach[@]}" \
		</dev/null >"$LAB_DIR/$1.sshlog" 2>&1)
}

# ssh_master_alive NODE
ssh_master_alive() {
	[[ -S $LAB_DIR/$1.ssh ]] &&
		ssh -O check -o ControlPath="$LAB_DIR/$1.ssh" x 2>/dev/null
}

# ssh_master_end NODE
ssh_master_end() {
	[[ ! -S $LAB_DIR/$1.ssh ]] ||
		ssh -O exit -o ControlPath="$LAB_DIR/$1.ssh" x >/dev/null 2>&1 ||
		true
}

# remote NODE SCRIPT: become the sh on NODE that runs SCRIPT. In a session of
# its own: a Ctrl-C here must not reach ssh, it is forwarded to the command.
remote() {
	local reach quoted script=$2
	if [[ $mode == native ]]; then
		exec setsid sh -c "$script"
	fi
	mapfile -t reach <"$LAB_DIR/$1.reach"
	if [[ $mode == ssh ]]; then
		# Who knows which shell is the user's.
		quote "$script"
		script="exec sh -c $quoted"
	fi
	exec setsid ssh -T -o ControlPath="$LAB_DIR/$1.ssh" -o BatchMode=yes \
		-o ConnectTimeout=10 "${reach[@]}" "$script"
}

# ask NODE SECONDS SCRIPT: a short script of the lab's own, bounded
ask() {
	local node=$1 seconds=$2 pid timer status=0
	(remote "$node" "$3") </dev/null &
	pid=$!
	sleep "$seconds" &
	timer=$!
	wait -n "$pid" "$timer" || status=$?
	if kill "$timer" 2>/dev/null; then
		wait "$timer" 2>/dev/null || true
	else
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
		status=255
	fi
	return "$status"
}

# wrapper ID DIRECTORY COMMAND...: the node's side of lab exec. The command
# leads its own process group, whose number is in a file for whoever has to
# stop it. A status of 255 leaves a mark, because ssh uses that number for its
# own troubles. The shell's words on a command that was killed are dropped: the
# status tells.
wrapper() {
	local id=$1 quoted setsid=setsid
	shift
	if [[ $mode == vm ]]; then
		echo "[ ! -e /run/lab/refresh ] || . /run/lab/refresh"
		# not busybox's own, which would run its own ip and ping
		setsid=/usr/bin/setsid
	fi
	quote "$@"
	cat <<-END
		f=\${TMPDIR:-/tmp}/.lab-$id
		set -- $quoted
		cd "\$1" || exit 125
		shift
		exec 3>&2 2>/dev/null
		(
			exec 2>&3 3>&-
			read -r pid rest </proc/self/stat
			echo "\$pid" >"\$f"
			exec $setsid "\$@"
		)
		status=\$?
		rm -f "\$f"
		[ \$status != 255 ] || : >"\$f.255"
		exit \$status
	END
}

# The functions from here to run_on share its variables: node, id, job, status.

# signal_remote SIGNAL: to the process group of the command that runs
signal_remote() {
	ask "$node" 3 "f=\${TMPDIR:-/tmp}/.lab-$id
		for i in 1 2 3 4 5; do [ -s \$f ] || sleep 0.3; done
		read -r pid <\$f && kill -s $1 -- -\$pid" >/dev/null 2>&1
}

# wait_for_end SECONDS: whether the command ended by then
wait_for_end() {
	local timer first=
	sleep "$1" &
	timer=$!
	status=0
	wait -n -p first "$job" "$timer" || status=$?
	kill "$timer" 2>/dev/null || true
	[[ ${first:-} == "$job" ]]
}

# stop_remote SIGNAL: that, and KILL if it is not enough. A node that is frozen
# or dead hears neither.
stop_remote() {
	local signal
	trap '' INT TERM HUP
	for signal in "$1" KILL; do
		[[ $mode != vm || $(vm_state "$node") == up ]] || break
		signal_remote "$signal" || true
		wait_for_end 5 && return
	done
	say "$node does not answer: the command may still be running there"
	kill -KILL "$job" 2>/dev/null || true
	wait "$job" 2>/dev/null || true
	status=125
}

# run_on NODE TIMEOUT COMMAND...: lab exec. TIMEOUT may be empty.
run_on() {
	local node=$1 timeout=$2 id job status=0 first='' timer='' caught='' words directory
	shift 2
	directory=$(directory_on "$node") || exit 125
	id=$$-$SRANDOM
	trap 'caught=INT' INT
	trap 'caught=TERM' TERM
	trap 'caught=HUP' HUP
	(remote "$node" "$(wrapper "$id" "$directory" "$@")") <&0 &
	job=$!
	words=("$job")
	if [[ $timeout ]]; then
		sleep "$timeout" &
		timer=$!
		words+=("$timer")
	fi
	while [[ ! $caught && ! ${first:-} ]]; do
		status=0
		wait -n -p first "${words[@]}" || status=$?
	done
	if [[ ${first:-} && $first == "$timer" ]]; then
		say "$node: stopped after $timeout s: $1"
		stop_remote TERM
		return 124
	fi
	[[ ! $timer ]] || kill "$timer" 2>/dev/null || true
	if [[ $caught && ${first:-} != "$job" ]]; then
		stop_remote "$caught"
	fi
	case $status in
	255)
		[[ $mode == native ]] ||
			ask "$node" 5 "rm \${TMPDIR:-/tmp}/.lab-$id.255" >/dev/null 2>&1 ||
			node_lost "$node" "$1"
		;;
	132 | 134 | 135 | 136 | 139)
		say "$node: $1 was ended by SIG$(kill -l "$status")"
		;;
	esac
	return "$status"
}
