# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # vm.bash has the rest of each variable
# A boot that is kept. Without KVM three quarters of a boot are the kernel's own start
# and its modules, and those come out the same each time. So a node without a name is
# booted once, and its memory is kept in a file: both nodes, of this lab and of the
# next, go on from there. It is QEMU's migration to a file. Sourced by lab/lab.

# booted_file: where it is kept. What it depends on is in its name: the kernel, QEMU
# and how it is started, and the processor, whose clock the kernel has measured.
booted_file() {
	local hash
	hash=$({
		echo "$vmlinux $initramfs ${LAB_MEMORY:-} ${LAB_CPUS:-}"
		stat -L -c '%Y %s' "$vmlinux" "$initramfs" "$(command -v qemu-system-x86_64)"
		cat "$LAB_ROOT/lab/vm.bash" /proc/sys/kernel/random/boot_id
	} | cksum)
	echo "${vmlinux%/*}/booted-${hash%% *}"
}

# resume_from FILE: the words that make QEMU go on from there, in $resume. With nothing
# to read it would wait for ever, so then it is ended.
resume_from() {
	local quoted
	quote "$1"
	resume=(-incoming "exec:cat $quoted || kill \$PPID")
}

# keep_boot: make $booted, unless it is there. Whoever comes second waits. Where it fails
# the nodes boot as they would without. Runs in a process of its own.
keep_boot() {
	local dir=${booted%/*} file why qemu tail=
	# shellcheck disable=SC2046 # process numbers
	trap 'kill -KILL $tail $(jobs -p) 2>/dev/null; wait; rm -f "$booted.$$"; exit 1' TERM
	exec {file}>"$dir/lock"
	flock -w 300 "$file" &
	wait $! || return
	[[ ! -s $booted ]] || return 0
	find "$dir" -name 'booted-*' -mmin +60 -delete
	boot_nobody && save_nobody
}

# boot_nobody: up to where it waits for its name
boot_nobody() {
	truncate -s 10240 "$LAB_DIR/nobody.disk"
	start_qemu nobody "$TCG"
	if wait_console nobody "$BOOT_SECONDS" 'waiting for a name'; then
		# not one with a clock that is slow to read, for everybody to come
		grep -q '^lab: the clock is' "$LAB_DIR/nobody.console" || return 0
		say "the boot that was to be kept has a slow clock: none is kept this time"
		end_nobody
		return
	fi
	say "the boot that is to be kept $why; last lines of its console:"
	console_tail nobody
	end_nobody
}

# end_nobody: always fails
end_nobody() {
	kill -KILL "$qemu" 2>/dev/null || true
	wait "$qemu" 2>/dev/null || true
	rm -f "$LAB_DIR"/nobody.*
	return 1
}

# save_nobody: its memory, and what its devices hold
save_nobody() {
	local quoted state=active started=$SECONDS
	quote "$booted.$$"
	qmp nobody migrate "{\"uri\":$(json "exec:cat >$quoted")}" >/dev/null || state=refused
	while [[ $state =~ ^(setup|active|device)$ ]] && ((SECONDS < started + 30)); do
		state=$(qmp nobody query-migrate |
			sed -n 's/.*"status": "\([a-z-]*\)".*/\1/p') || true
	done
	if [[ $state == completed ]]; then
		mv "$booted.$$" "$booted"
	else
		say "QEMU cannot keep a boot (${state:-no answer}): each takes its full time"
		rm -f "$booted.$$"
	fi
	end_nobody || true
}
