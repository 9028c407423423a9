# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Why this machine has no SoftRoCE, for lab/softroce and tools/doctor.

# in_container: whether this is one, as far as that can be told
in_container() {
	systemd-detect-virt --quiet --container 2>/dev/null ||
		[[ -e /.dockerenv || -e /run/.containerenv ]]
}

# has_module NAME: loaded, or there to be loaded
has_module() {
	[[ -e /sys/module/$1 ]] || modprobe -n -q "$1" 2>/dev/null
}

# why_no_module NAME: which case this is, in $why, and what to do, in $cure
# shellcheck disable=SC2034 # for those who call it
why_no_module() {
	local version
	version=$(uname -r)
	if in_container; then
		why="this is a container, which uses the kernel of its host ($version)"
		cure="modprobe $1 on the host, or use LAB=vm"
	elif [[ $version == *[Mm]icrosoft* ]]; then
		why="WSL2's kernel ($version) is built without it"
		cure="use LAB=vm, which needs no module here"
	elif [[ $version == *cloud* ]]; then
		why="Debian's cloud kernel ($version) is built without it"
		cure="install linux-image-amd64 and boot that, or use LAB=vm"
	elif grep -qs '^ID=ubuntu' /etc/os-release; then
		why="Ubuntu has it in a package of its own"
		cure="sudo apt install linux-modules-extra-$version, or use LAB=vm"
	elif [[ ! -d /lib/modules/$version ]]; then
		why="there are no modules of the running kernel ($version): was it upgraded since the last boot?"
		cure="boot again; if that does not help, install your distribution's full kernel, or use LAB=vm"
	else
		why="this kernel ($version) is built without it"
		cure="install your distribution's full kernel (Debian: linux-image-amd64) and boot it, or use LAB=vm"
	fi
}
