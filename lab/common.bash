# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the scripts of the lab share. Source it, do not run it.

LAB_ROOT=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
export PATH

say() {
	printf 'lab: %s\n' "$*" >&2
}

# Trouble of the lab itself: always status 125, so that nobody takes it for
# the status of a command that ran on a node.
die() {
	say "$@"
	exit 125
}

# bad_usage WORDS: what is wrong, how it should be, status 2
bad_usage() {
	say "$@"
	usage >&2
	exit 2
}

# need TOOL PACKAGE
need() {
	command -v "$1" >/dev/null ||
		die "$1 is missing: install the package $2 (lab/packages run does)"
}

# quote WORD...: each word quoted for any POSIX shell, in $quoted.
# ${word@Q} will not do: its $'..' is not understood by a node's sh.
quote() {
	local word
	quoted=
	for word; do
		quoted+=" '${word//\'/\'\\\'\'}'"
	done
	quoted=${quoted# }
}

# progress WORDS: says them after two seconds and then every five, with the
# time; to be run in the background. It waits on a pipe that stays silent:
# killing it leaves no sleep behind.
progress() {
	local started=$SECONDS silent step=2
	exec {silent}<> <(:)
	while ! read -r -t "$step" -u "$silent"; do
		say "$* ($((SECONDS - started)) s)"
		step=5
	done
}

# ---- where the lab is -----------------------------------------------------

# find_lab_dir: the folder with the state of this lab, in $LAB_DIR
find_lab_dir() {
	local hash
	if [[ ! ${LAB_DIR:-} ]]; then
		hash=$(cksum <<<"$LAB_ROOT")
		LAB_DIR=${XDG_RUNTIME_DIR:-/tmp}/rdma-lab-$UID-${hash%% *}
	fi
	[[ $LAB_DIR == /* ]] || LAB_DIR=$PWD/$LAB_DIR
	LAB_DIR=${LAB_DIR%/}
	# A unix socket's path has 107 bytes at most.
	((${#LAB_DIR} <= 80)) ||
		die "LAB_DIR=$LAB_DIR is too long for the sockets in it: 80 characters at most"
	export LAB_DIR
}

# find_mode: vm, native or ssh, in $mode
find_mode() {
	local up=
	[[ ! -e $LAB_DIR/lab ]] || up=$(<"$LAB_DIR/lab")
	case ${LAB:-} in
	'')
		mode=$up
		[[ $mode ]] || { active_device && mode=native; } || mode=vm
		;;
	vm | native | ssh) mode=$LAB ;;
	*) bad_usage "LAB=$LAB: vm, native or ssh" ;;
	esac
	[[ ! $up || $up == "$mode" || $mode == native ]] ||
		die "LAB=$mode, but the lab that is up is LAB=$up: lab/lab down first"
}

# active_device: whether this machine has one
active_device() {
	grep -q -s '^4:' /sys/class/infiniband/*/ports/*/state
}
