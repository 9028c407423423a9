# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the tests of lessons 07 and 08 share, beside turns.bash.

# The builds: one with the sanitizers, for the side that a test is about, and one
# without. The programs in them.
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

# well N: both sides of case N have ended with 0.
well() {
	said client "$1" 'status 0'
	said server "$1" 'status 0'
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
# CHECKSUM`, the checksum being that of the text that the server has printed, and
# then what the two had on their stderr, with `! ` before each line.
rounds() {
	local server=$1 client=$3

	shift 4
	# shellcheck disable=SC2016 # expanded on the nodes
	LIMIT=${LIMIT:-90} on server sh -c '
		server=$0 out=$(mktemp -p /dev/shm)
		for arg; do
			{
				$server 2>"$out.err"
				echo "ended $?"
			} | tee "$out" | grep --line-buffered "^listening"
			printf "ended %s %s\n" "$(sed -n "s/^ended //p" "$out")" \
				"$(sed -n "s/^buffer: //p" "$out" | cksum)"
			sed "s/^/! /" "$out.err"
		done
		rm "$out" "$out.err"' "$server" "$@" |
		LIMIT=${LIMIT:-90} on client sh -c '
		client=$0 address=$1 err=$(mktemp -p /dev/shm)
		shift
		while read -r word status rest; do
			case $word in
			listening)
				$client $1 $address >/dev/null 2>"$err" </dev/null
				mine=$?
				;;
			ended)
				echo "$1 $mine $status $rest"
				sed "s/^/! /" "$err"
				shift
				;;
			!) echo "! $status $rest" ;;
			esac
		done
		rm "$err"' "$client" "$ADDR_SERVER" "$@"
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

# rounds_after_loss FILE PERCENT ROUNDS: $output is what rounds has printed, on a bad
# wire. Each round is there, and both sides of it have ended by themselves. A text that
# was printed is right; a round that did not end well says of a cause that after_loss
# takes. Counts in $right those that did.
rounds_after_loss() {
	local word mine theirs sum wanted line='' causes

	[ "$(grep -c '^-s' <<<"$output")" = "$3" ] || {
		printf 'not %s rounds:\n%s\n' "$3" "$output"
		return 1
	}
	causes=$(lost_causes "$2")
	while read -r word mine theirs sum; do
		if [[ $word == ! ]]; then
			[[ ! "$mine $theirs $sum" =~ $causes ]] || line=''
			continue
		fi
		[ -z "$line" ] || break
		[[ "$mine $theirs" == [01]' '[01] ]] || {
			printf 'did not end by itself: %s\n%s\n' \
				"$word $mine $theirs" "$output"
			return 1
		}
		wanted=$(expected_rounds "$1" "${word#-s}")
		# Nothing printed has the sum of nothing.
		[[ $wanted == *" $sum" || $sum == '4294967295 0' ]] || return 1
		line="$word $mine $theirs $sum"
		[ "$line" != "$wanted" ] || {
			right=$((${right:-0} + 1))
			line=''
		}
	done <<<"$output"
	[ -z "$line" ] && return
	printf 'neither well nor lost: %s in\n%s\n' "$line" "$output"
	return 1
}
