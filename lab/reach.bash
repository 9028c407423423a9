# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Running a command on a node: over ssh, or here for LAB=native.
# Sourced by lab/lab.

# ssh_master NODE: open the connection that every later command shares
ssh_master() {
	local reach
	mapfile -t reach <"$LAB_DIR/$1.reach"
	rm -f "$LAB_DIR/$1.ssh"
	setsid ssh -M -N -f -o ControlPath="$LAB_DIR/$1.ssh" -o ControlPersist=yes \
		-o ServerAliveInterval=5 -o ServerAliveCountMax=12 \
		-o ConnectTimeout=20 "${reach[@]}" \
		</dev/null >>"$LAB_DIR/$1.sshlog" 2>&1 {lock}>&-
}

# remote NODE SCRIPT: become the sh on NODE that runs SCRIPT
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
		wait "$pid" || status=$?
	else
		kill "$pid"
		status=255
	fi
	return "$status"
}

# The node's side of lab exec. The command leads its own process group, whose
# number is in a file for whoever has to stop it. A status of 255 leaves a
# mark, because ssh uses that number for its own troubles. The shell's own
# words on a command that was killed are dropped: the status tells.
wrapper() {
	local id=$1 directory=$2 quoted
	shift 2
	# What was built on the host since then must be seen: forget what the
	# shared root looked like.
	[[ $mode != vm ]] || echo 'echo 2 >/proc/sys/vm/drop_caches'
	quote "$directory" "$@"
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
			exec setsid "\$@"
		)
		status=\$?
		rm -f "\$f"
		[ \$status != 255 ] || : >"\$f.255"
		exit \$status
	END
}

# signal_remote SIGNAL: to the process group of the command that runs
signal_remote() {
	ask "$node" 3 "f=\${TMPDIR:-/tmp}/.lab-$id; [ -s \$f ] || sleep 0.3
		read -r pid <\$f && kill -s $1 -- -\$pid" >/dev/null 2>&1
}

# wait_for_end SECONDS: whether the command that runs ended by then
wait_for_end() {
	local timer first=
	sleep "$1" &
	timer=$!
	wait -n -p first "$job" "$timer" || status=$?
	kill "$timer" 2>/dev/null || true
	[[ $first == "$job" ]]
}

# stop_remote SIGNAL: that, and KILL if it is not enough
stop_remote() {
	trap '' INT TERM HUP
	signal_remote "$1" || true
	wait_for_end 2 && return
	signal_remote KILL || true
	wait_for_end 2 && return
	kill -KILL "$job" 2>/dev/null || true
	wait "$job" 2>/dev/null || true
	status=125
}

# run_on NODE TIMEOUT COMMAND...: lab exec. TIMEOUT may be empty.
run_on() {
	local node=$1 timeout=$2 id job status=0 first='' timer='' caught=''
	shift 2
	id=$$-$SRANDOM
	(remote "$node" "$(wrapper "$id" "$(directory_on "$node")" "$@")") <&0 &
	job=$!
	trap 'caught=INT' INT
	trap 'caught=TERM' TERM
	trap 'caught=HUP' HUP
	if [[ $timeout ]]; then
		sleep "$timeout" &
		timer=$!
	fi
	while :; do
		status=0
		wait -n -p first "$job" $timer || status=$?
		if [[ $caught ]]; then
			[[ ! $timer ]] || kill "$timer" 2>/dev/null
			stop_remote "$caught"
			break
		elif [[ $first == "$job" ]]; then
			[[ ! $timer ]] || kill "$timer" 2>/dev/null
			break
		elif [[ $first == "$timer" ]]; then
			say "$node: stopped after $timeout s: $1"
			stop_remote TERM
			status=124
			break
		fi
	done
	if ((status == 255)) && [[ $mode != native ]]; then
		ask "$node" 5 "rm \${TMPDIR:-/tmp}/.lab-$id.255" >/dev/null 2>&1 ||
			node_lost "$node" "$1"
	fi
	return "$status"
}
