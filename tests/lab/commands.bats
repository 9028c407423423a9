#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The verbs of lab/lab: commands on the nodes, their time limits, what they see.
#
# shellcheck disable=SC2016 # expanded on the node

load ../helpers

setup_file() {
	# What is rebuilt while the nodes are up.
	export WORK=$BATS_FILE_TMPDIR
}

teardown() {
	cd "$TOP" || return
	assert_nothing_left
}

# say_program FILE WORD: build a program that prints WORD, and stays when told
say_program() {
	gcc -x c -o "$1" - <<-END
		#include <stdio.h>
		#include <unistd.h>
		int main(int argc, char **argv)
		{
			puts("$2");
			fflush(stdout);
			if (argc > 1)
				sleep(60);
			return argv[0] == NULL;
		}
	END
}

@test "bad usage: the usage on stderr, status 2; help: on stdout" {
	local words

	while IFS= read -r words; do
		# shellcheck disable=SC2086 # the words of the command
		run --separate-stderr lab/lab $words
		assert_equal "$words: $status" "$words: 2"
		assert_equal "$output" ''
		[[ $stderr == 'lab: '*'usage: lab/lab VERB'* ]] || fail "$words: $stderr"
	done <<-'END'
		
		bogus
		up now
		down now
		status now
		exec
		exec server
		exec mars true
		exec --timeout
		exec --timeout x server true
		exec --timeout= server true
		exec --nonsense server true
		addr
		addr mars
		addr server client
		addr -6
		capture
		capture packets
		capture a.pcap b.pcap
		impair
		impair loss
		impair bogus 5%
		impair loss $(reboot)
		impair clear everything
		freeze
		freeze mars
		thaw
		kill
		kill server client
		log
		log mars
		shell
	END
	LAB=moon run lab/lab status
	assert_failure 2
	# what was asked for is on stdout
	run --separate-stderr lab/lab help
	assert_success
	assert_line --partial 'exec [--timeout SECONDS] NODE COMMAND'
	assert_equal "$stderr" ''
}

@test "stdout, stderr and the status of a command come back, be it 255 or 125" {
	local status_there

	for status_there in 7 125 255; do
		run --separate-stderr on server sh -c 'echo out; echo err >&2; exit "$0"' \
			"$status_there"
		assert_failure "$status_there"
		assert_output out
		assert_equal "$stderr" err
	done
}

@test "no such command, no such folder, and a program that crashes" {
	run -127 --separate-stderr on server no-such-command
	[[ $stderr == *no-such-command* ]]
	# the status of its signal, and a word on it
	run --separate-stderr on server sh -c 'kill -SEGV $$'
	assert_failure 139
	assert_equal "$stderr" 'lab: server: sh was ended by SIGSEGV'
	cd /proc/self
	run --separate-stderr "$TOP/lab/lab" exec server true
	assert_failure 125
}

@test "arguments arrive as they are" {
	local words=('a  b' "it's" '"$HOME"' '*' '' $'two\nlines' 'back\slash' '-x' ';reboot' 'ü')

	run on server printf '<%s>' "${words[@]}"
	assert_success
	assert_output "$(printf '<%s>' "${words[@]}")"
}

@test "stdin arrives byte for byte, and the output comes back so" {
	head -c 1000000 /dev/urandom >"$WORK/bytes"
	on server cat <"$WORK/bytes" >"$WORK/back"
	cmp "$WORK/back" "$WORK/bytes"
	# and where nobody reads it
	run on server true <"$WORK/bytes"
	assert_success
}

@test "a command runs as root, in this folder, with the machine's own tools" {
	cd lessons
	run "$TOP/lab/lab" exec client sh -c 'id -u; pwd; hostname; command -v ip'
	assert_success
	assert_line --index 0 0
	assert_line --index 1 "$TOP/lessons"
	assert_line --index 2 client
	assert_line --index 3 --regexp '/ip$'
	run "$TOP/lab/lab" exec client ip -V
	assert_output --partial iproute2
}

@test "the nodes have an active device, both addresses, and each other's name" {
	local node

	for node in server client; do
		run on "$node" sh -c 'rdma link show
			ip -o address show dev link0
			getent ahosts server
			echo "mtu $(cat /sys/class/net/link0/mtu)"
			stat -c "mode %a" /dev/infiniband/*'
		assert_success
		assert_line --regexp 'link rxe0/1 state ACTIVE.* netdev link0'
		assert_line --regexp " $(lab/lab addr "$node")/24 "
		assert_line --regexp " $(lab/lab addr -6 "$node")/64 "
		refute_output --partial tentative
		assert_line --regexp "^$ADDR_SERVER +STREAM"
		assert_line 'mtu 1500'
		assert_line 'mode 666'
		refute_line --regexp '^mode ([^6]|6[^6]|66[^6])'
		run on "$node" getent hosts no-such-host
		assert_failure 2
	done
	assert_equal "$(lab/lab addr server)" 10.10.10.1
	assert_equal "$(lab/lab addr -6 client)" fd10::2
}

@test "what is rebuilt here is seen there at once" {
	local i

	cd "$WORK"
	for i in 1 2; do
		say_program ./say "word $i"
		run "$TOP/lab/lab" exec server ./say
		assert_output "word $i"
		# same length, same second
		echo "text $i" >text
		run "$TOP/lab/lab" exec server cat text
		assert_output "text $i"
	done
	rm text
	run "$TOP/lab/lab" exec server cat text
	assert_failure 1
	run "$TOP/lab/lab" exec server ls
	refute_line text
	mkdir folder && echo new >folder/file
	run "$TOP/lab/lab" exec server cat folder/file
	assert_output new
	rm -r folder && mkdir folder && echo newer >folder/other
	run "$TOP/lab/lab" exec server ls folder
	assert_output other
}

@test "what is rebuilt while the old one runs is seen there at once" {
	local i

	cd "$WORK"
	say_program ./say "old word"
	cd "$TOP"
	start server old "$WORK/say" stay
	wait_line old 'old word'
	for i in 1 2; do
		say_program "$WORK/say" "new word $i"
		run on server "$WORK/say"
		assert_output "new word $i"
		run on server sh -c "exec $WORK/say"
		assert_output "new word $i"
	done
	signal_job old TERM
	finish old
	say_program "$WORK/say" "last word"
	run on server "$WORK/say"
	assert_output "last word"
}

@test "a node writes to memory of its own, never to this machine" {
	on client sh -c 'echo scribble >"$0"; echo scribble >>lab/lab' "$WORK/scribble"
	run on client cat "$WORK/scribble"
	assert_output scribble
	[ ! -e "$WORK/scribble" ]
	run grep scribble lab/lab
	assert_failure 1
	run on server grep scribble lab/lab
	assert_failure 1
	# and back to what it was
	on client sh -c 'cat >lab/lab' <lab/lab
}

# command_job NAME ARGUMENT...: lab exec with these, as a job for the helpers. Not by
# `start`, whose own limit might be quicker on a busy machine.
command_job() {
	local name=$1

	shift
	lab/lab exec "$@" </dev/null >"$BATS_TEST_TMPDIR/$name.out" \
		2>"$BATS_TEST_TMPDIR/$name.err" 3>&- &
	# shellcheck disable=SC2004,SC2034 # read by the helpers
	job_pid[$name]=$! job_node[$name]=server
}

# The waiting of the three is one.
@test "--timeout and SIGTERM end a command, and every process of it, even one that ignores SIGTERM" {
	local before=$SECONDS

	command_job stubborn --timeout 3 server sh -c 'trap "" TERM; sleep 76 & sleep 77'
	command_job quick --timeout=2.5 server sleep 78
	command_job ignores server \
		sh -c 'trap "" TERM; echo ready; sleep 79; sleep 79'
	run --separate-stderr lab/lab exec --timeout 60 server sh -c 'exit 3'
	assert_failure 3
	wait_line ignores ready
	kill -TERM "${job_pid[ignores]}"
	finish stubborn
	assert_equal "$status" 124
	[[ $stderr == 'lab: server: stopped after 3 s: sh'* ]]
	finish quick
	assert_equal "$status" 124
	[[ $stderr == 'lab: server: stopped after 2.5 s: sleep'* ]]
	finish ignores
	assert_equal "$status" 137
	# They did not end by themselves.
	[ $((SECONDS - before)) -lt 70 ]
	run on server pgrep -f 'sleep 7[6-9]'
	assert_failure 1
}

@test "SIGTERM and SIGINT of lab exec reach the command" {
	local signal

	for signal in TERM INT; do
		start server $signal sh -c '
			trap "echo got TERM; exit 9" TERM
			trap "echo got INT; exit 9" INT
			echo ready; while :; do sleep 0.1; done'
	done
	for signal in TERM INT; do
		wait_line $signal ready
		kill -s "$signal" "${job_pid[$signal]}"
	done
	for signal in TERM INT; do
		finish $signal
		assert_equal "$status" 9
		assert_equal "${lines[1]}" "got $signal"
	done
}

@test "status and log" {
	run lab/lab status
	assert_success
	assert_line --regexp '^server  up  10\.10\.10\.1  fd10::1  kernel [67]\.'
	assert_line --regexp '^client  up  10\.10\.10\.2  fd10::2  kernel [67]\.'
	run lab/lab log server
	assert_success
	assert_line 'lab: ready'
}

@test "up finds the nodes that are up" {
	local pid

	pid=$(on server cat /proc/sys/kernel/random/boot_id)
	run lab/lab up
	assert_success
	assert_equal "$(on server cat /proc/sys/kernel/random/boot_id)" "$pid"
	KERNEL=linux-image-other run lab/lab up
	assert_failure 125
	assert_output --partial 'lab/lab down first'
}

@test "rping, over IPv4 and IPv6, and ucmatose run between the nodes" {
	local name

	start server rping4 rping -s -a "$ADDR_SERVER" -C 20 -v
	start server rping6 rping -s -a "$ADDR6_SERVER" -p 7175 -C 20 -v
	start server ucmatose ucmatose -c 5 -C 20
	# They say nothing when they listen.
	run on client sh -c '
		again() {
			for i in $(seq 50); do
				"$@" && return
				sleep 0.1
			done
			exit 1
		}
		again rping -c -a "$0" -C 20 -v
		echo "== IPv6"
		again rping -c -a "$1" -p 7175 -C 20 -v
		again ucmatose -c 5 -C 20 -s "$0"' "$ADDR_SERVER" "$ADDR6_SERVER"
	assert_success
	[[ $output == *'ping data: rdma-ping-19:'*'== IPv6'*'ping data: rdma-ping-19:'*'return status 0'* ]]
	for name in rping4 rping6 ucmatose; do
		finish $name
		assert_equal "$name: $status" "$name: 0"
	done
	[[ $output == *'return status 0'* ]]
}
