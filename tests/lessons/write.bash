# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the tests of lessons 07 and 08 share.
#
# shellcheck disable=SC2086 # the programs are words without blanks

# The builds: one with the sanitizers, one without. The programs in them.
export asan=build/asan-O0 plain=build/gcc-O2
export server07=07-write-send/server client07=07-write-send/client
export server08=08-write-doorbell/server client08=08-write-doorbell/client
export foreign=build/peers/foreign badclient=build/peers/badclient
export badserver=build/peers/badserver

build_both() {
	local variant lesson targets=()

	for variant in asan-O0 asan-O2 gcc-O0 gcc-O2; do
		for lesson in 07-write-send 08-write-doorbell; do
			targets+=("$variant/$lesson")
		done
	done
	build "${targets[@]}" $foreign $badclient $badserver
}

# serve CMD...: start a server as job `server`, and wait until it listens.
serve() {
	start server server "$@"
	wait_line server '^listening on '
}

# client CMD...: run a client against it. Sets $status, $output, $stderr.
client() {
	run --separate-stderr on client "$@" "$ADDR_SERVER"
}

# both SERVER_CMD.. -- CLIENT_CMD..: a pair that does what it should. The
# server's output is left in $output.
both() {
	local words=() status

	while [ "$1" != -- ]; do
		words+=("$1")
		shift
	done
	shift
	serve "${words[@]}"
	client "$@"
	if [ "$status" != 0 ]; then
		printf '%s -- %s: status %s\n%s\n%s\n' "${server[*]}" "$*" \
			"$status" "$output" "$stderr"
		return 1
	fi
	finish server
	[ "$status" = 0 ] || show_job_end "${words[*]} -- $*"
}

show_job_end() {
	printf '%s: status %s\n%s\n%s\n' "$1" "$status" "$output" "$stderr"
	return 1
}

# letters SEED BYTES: the text that the clients write: a letter for each byte,
# which depends on the message's number and on the place, without the NUL.
letters() {
	awk -v seed="$1" -v bytes="$2" 'BEGIN {
		for (a = 0; a < 16; a++)
			for (b = 0; b < 16; b++) {
				x = 0
				for (bit = 1; bit < 16; bit *= 2)
					x += bit * (int(a / bit) % 2 != int(b / bit) % 2)
				xor[a, b] = x
			}
		start = seed * 2654435761 % 4294967296
		for (i = 0; i < bytes - 1; i++) {
			x = (start + i * 40503) % 4294967296
			a = int(x / 8192) % 256
			b = int(x / 8) % 256
			byte = 16 * xor[int(a / 16), int(b / 16)] + xor[a % 16, b % 16]
			printf "%c", 97 + byte % 26
		}
	}'
}

# rounds SERVER_CMD -- CLIENT_CMD -- ARG...: the pair once for each ARG, which
# the client gets as its last flag. Each round begins when the server of that
# round listens, whose output the client's node reads; the two nodes are entered
# once for all of them. Prints for each round `ARG CLIENT_STATUS SERVER_STATUS
# CHECKSUM`, the checksum being that of the text that the server has printed.
rounds() {
	local server=$1 client=$3

	shift 4
	# shellcheck disable=SC2016 # expanded on the nodes
	LIMIT=${LIMIT:-90} on server sh -c '
		server=$0 out=$(mktemp)
		for arg; do
			{
				$server 2>&1
				echo "ended $?"
			} | tee "$out" | grep --line-buffered "^listening"
			printf "ended %s %s\n" "$(sed -n "s/^ended //p" "$out")" \
				"$(sed -n "s/^buffer: //p" "$out" | cksum)"
		done
		rm "$out"' "$server" "$@" |
		LIMIT=${LIMIT:-90} on client sh -c '
		client=$0 address=$1
		shift
		while read -r word status rest; do
			case $word in
			listening)
				$client $1 $address >/dev/null </dev/null
				mine=$?
				;;
			ended)
				echo "$1 $mine $status $rest"
				shift
				;;
			esac
		done' "$client" "$ADDR_SERVER" "$@"
}

# expected_rounds FILE SIZE...: what rounds prints when all went well and the
# text was the first SIZE - 1 bytes of FILE.
expected_rounds() {
	local file=$1 size

	shift
	for size; do
		printf -- '-s%s 0 0 %s\n' "$size" "$({
			head -c $((size > 0 ? size - 1 : 0)) "$file"
			echo
		} | cksum)"
	done
}

# finish_after_loss CLIENT_STATUS CLIENT_STDERR: on a bad wire either both sides
# were content, or one of them has said what no card could cure; in no case has
# the server found a wrong byte.
finish_after_loss() {
	finish server
	[[ $stderr != *"should be"* ]]
	[ "$1 $status" = "0 0" ] ||
		[[ $2$stderr == *"status 12, "* ||
			$2$stderr == *"waited 30 s for "* ]]
}

# impair WORDS.., freeze NODE, thaw NODE: as lab/lab has them. mend, in teardown,
# undoes what a test has left.
impaired='' frozen=''

impair() {
	impaired=1
	lab/lab impair "$@"
}

freeze() {
	frozen=$1
	lab/lab freeze "$1"
}

thaw() {
	frozen=''
	lab/lab thaw "$1"
}

mend() {
	[ -z "$impaired" ] || lab/lab impair clear
	[ -z "$frozen" ] || lab/lab thaw "$frozen"
}
