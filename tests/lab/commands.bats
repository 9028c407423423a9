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

@test "bad usage: the usage on stderr, status 2" {
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
}

@test "help is on stdout" {
	run --separate-stderr lab/lab help
	assert_success
	assert_line --partial 'exec [--timeout SECONDS] NODE COMMAND'
	assert_equal "$stderr" ''
}

@test "stdout, stderr and the status of a command come back" {
	run --separate-stderr on server sh -c 'echo out; echo err >&2; exit 7'
	assert_failure 7
	assert_output out
	assert_equal "$stderr" err
}

@test "a status of 255 is the command's own, and so is 125" {
	run --separate-stderr on client sh -c 'exit 255'
	assert_failure 255
	assert_equal "$stderr" ''
	run --separate-stderr on client sh -c 'exit 125'
	assert_failure 125
	assert_equal "$stderr" ''
}

@test "no such command, no such folder" {
	run -127 --separate-stderr on server no-such-command
	[[ $stderr == *no-such-command* ]]
	cd /proc/self
	run --separate-stderr "$TOP/lab/lab" exec server true
	assert_failure 125
}

@test "a program that crashes: the status of its signal, and a word on it" {
	run --separate-stderr on server sh -c 'kill -SEGV $$'
	assert_failure 139
	assert_equal "$stderr" 'lab: server: sh was ended by SIGSEGV'
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
		run on "$node" rdma link show
		assert_output --partial 'link rxe0/1 state ACTIVE'
		assert_output --partial 'netdev link0'
		run on "$node" ip -o address show dev link0
		assert_output --partial "$(lab/lab addr "$node")/24"
		assert_output --partial "$(lab/lab addr -6 "$node")/64"
		refute_output --partial tentative
		run on "$node" getent ahosts server
		assert_output --partial "$ADDR_SERVER"
		run on "$node" cat /sys/class/net/link0/mtu
		assert_output 1500
		run on "$node" sh -c 'stat -c %a /dev/infiniband/*'
		refute_line --regexp '^[^6]|^6[^6]|^66[^6]'
	done
	assert_equal "$(lab/lab addr server)" 10.10.10.1
	assert_equal "$(lab/lab addr -6 client)" fd10::2
	run getent hosts no-such-host
	assert_failure
}

@test "what is rebuilt here is seen there at once" {
	local i

	cd "$WORK"
	for i in 1 2 3; do
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
	assert_failure
	run on server grep scribble lab/lab
	assert_failure
	# and back to what it was
	on client sh -c 'cat >lab/lab' <lab/lab
}

@test "--timeout: status 124, and every process of the command is gone" {
	local before=$SECONDS

	run --separate-stderr lab/lab exec --timeout 1 server \
		sh -c 'trap "" TERM; sleep 76 & sleep 77'
	assert_failure 124
	[[ $stderr == 'lab: server: stopped after 1 s: sh'* ]]
	[ $((SECONDS - before)) -lt 20 ]
	run on server pgrep -f 'sleep 7[67]'
	assert_failure 1
	run --separate-stderr lab/lab exec --timeout=0.5 server sleep 78
	assert_failure 124
	run --separate-stderr lab/lab exec --timeout 30 server sh -c 'exit 3'
	assert_failure 3
}

@test "SIGTERM and SIGINT of lab exec reach the command" {
	local signal

	for signal in TERM INT; do
		start server job sh -c '
			trap "echo got TERM; exit 9" TERM
			trap "echo got INT; exit 9" INT
			echo ready; while :; do sleep 0.1; done'
		wait_line job ready
		kill -s "$signal" "${job_pid[job]}"
		finish job
		assert_equal "$status" 9
		assert_equal "${lines[1]}" "got $signal"
	done
}

@test "a command that ignores SIGTERM is killed" {
	# not by start, whose own limit would be quicker on a busy machine
	lab/lab exec server sh -c 'trap "" TERM; echo ready; sleep 79; sleep 79' \
		>"$BATS_TEST_TMPDIR/job.out" 2>"$BATS_TEST_TMPDIR/job.err" 3>&- &
	# shellcheck disable=SC2034 # read by the helpers
	job_pid[job]=$! job_node[job]=server
	wait_line job ready
	kill -TERM "${job_pid[job]}"
	finish job
	assert_equal "$status" 137
	run on server pgrep -f 'sleep 7[9]'
	assert_failure 1
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

@test "rping runs between the nodes, over IPv4 and IPv6" {
	local address

	for address in "$ADDR_SERVER" "$ADDR6_SERVER"; do
		start server rping rping -s -a "$address" -C 20 -v
		# it says nothing when it listens
		run on client sh -c 'for i in $(seq 50); do
			rping -c -a "$0" -C 20 -v && exit; sleep 0.1; done; exit 1' "$address"
		assert_success
		assert_line --partial 'ping data: rdma-ping-19:'
		finish rping
		assert_equal "$status" 0
	done
}

@test "ucmatose runs between the nodes" {
	start server ucmatose ucmatose -c 5 -C 20
	run on client sh -c 'for i in $(seq 50); do
		ucmatose -c 5 -C 20 -s "$0" && exit; sleep 0.1; done; exit 1' "$ADDR_SERVER"
	assert_success
	assert_line --partial 'return status 0'
	finish ucmatose
	assert_equal "$status" 0
	[[ $output == *'return status 0'* ]]
}
