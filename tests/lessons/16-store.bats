#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Lesson 16: a store that is read without its server, and what of that can go
# wrong.

load ../helpers
load turns

# For this file, in seconds.
export BATS_TEST_TIMEOUT=180

setup_file() {
	build asan-O0/16-store gcc-O0/16-store gcc-O2/16-store \
		clang-O2/16-store build/peers/badclient build/peers/badserver \
		history
}

setup() {
	server=build/asan-O0/16-store/server
	client=build/asan-O0/16-store/client
	plain=build/gcc-O2/16-store
	bad=build/peers/badclient
	linear=build/history/linear
}

teardown() {
	undo
	assert_nothing_left
}

# worked ARG..: clients at work, with a history, which the checker judges on the
# node. Sets $status and $output: of the clients, and `linear STATUS` at the end.
worked() {
	run on client sh -c '
		linear=$0
		rm -f /tmp/history.*
		"$@" --history /tmp/history 2>&1
		echo "clients $?"
		"$linear" /tmp/history.*
		echo "linear $?"
		rm -f /tmp/history.*' "$linear" "$@" "$ADDR_SERVER"
}

@test "the pair runs, as make run shows it" {
	run pair 16
	assert_success
	assert_line 'client | PUT colour: done'
	assert_line 'client | GET colour: blue'
	assert_line 'client | DELETE colour: done'
	assert_line 'client | GET colour: not found'
	# The server's program sleeps through all of the GETs.
	assert_line --regexp '^client \| 100 GETs: .* and took 0 messages$'
	assert_line --regexp '^client \| 100 PUTs: .* and took 100 messages$'
	assert_line 'server | 1 clients came; 102 PUTs, 1 DELETEs, 0 bad requests; GETs: nobody knows'
}

@test "what is put is got, in the other builds, over IPv6 too" {
	local n build cases=()

	for build in gcc-O0 clang-O2; do
		build=build/$build/16-store
		cases+=("$build/server --once|$build/client --put a=1 --put a=22 --put b= --get a --get b --get c --delete c")
	done
	one_by_one "${cases[@]}" \
		"$plain/server --once|$plain/client --put a=1 --get a|$ADDR6_SERVER"
	for n in 0 1; do
		said client $n 'GET a: 22' 'GET b: ' 'GET c: not found' \
			'DELETE c: not found' 'status 0'
		said server $n 'status 0'
	done
	said client 2 'GET a: 1' 'status 0'
	said server 2 'status 0'
}

@test "a full table, keys and values of every length, and bad requests get a reply" {
	local key value

	key=$(printf 'k%.0s' {1..32})
	value=$(printf 'v%.0s' {1..456})
	turns build/asan-O0/16-store \
		'--once --entries 8|--put k1=1 --put k2=2 --put k3=3 --put k4=4 --put k5=5 --put k6=6 --put k7=7 --put k8=8 --put k9=9 --put k5=again --delete k3 --get k8 --put k9=nine --get k9 --get k3 --get k1 --get k5' \
		"--once|--put $key=$value --get $key --put k$key=1 --put a=v$value --put =1 --get $key" \
		'--once|--put a=1 --bad op --bad key --bad value --bad length --get a --put a=2 --get a'
	said server 0 'status 0'
	said server 1 'status 0'
	# A place that was given up is used again.
	said client 0 'PUT k8: done' 'PUT k9: no room for that key' \
		'GET k8: 8' 'PUT k9: done' 'GET k9: nine' 'GET k3: not found' \
		'GET k1: 1' 'GET k5: again' 'status 0'
	# As long as it may be, and one byte more.
	said client 1 "PUT $key: done" "GET $key: $value" \
		"PUT k$key: a key has 1 to 32 bytes" \
		'PUT a: a value has 456 bytes at most' \
		'PUT : a key has 1 to 32 bytes' 'status 0'
	# And the connection goes on.
	said client 2 'bad op: the server says: no such operation' \
		'bad key: the server says: a key has 1 to 32 bytes' \
		'bad value: the server says: a value has 456 bytes at most' \
		'bad length: the server says: that is no request: wrong length' \
		'GET a: 1' 'GET a: 2' 'status 0'
	said server 2 '1 clients came; 2 PUTs, 0 DELETEs, 4 bad requests; .*' 'status 0'
}

@test "nobody writes to the table, or past the end of its place" {
	local what refused

	serve "$server"
	run on client sh -c '
		for what in "--put a=1" "--bad write" "--bad past" "--get a"; do
			echo "== $what"
			"$0" $what "$1" 2>&1
			echo "status $?"
		done' "$client" "$ADDR_SERVER"
	for what in write past; do
		refused=$(sed -n "/^== --bad $what/,/^status/p" <<<"$output")
		[[ $refused == *$'\ncompletion of the RDMA WRITE '*'remote access error, status 10, '*$'\nstatus 1' ]] ||
			fail "$what: $output"
	done
	assert_equal "$(sed -n '/^== --get a/,$p' <<<"$output")" $'== --get a\nGET a: 1\nstatus 0'
	signal_job peer TERM
	finished 0
}

@test "eight clients at a time: linearizable, key by key" {
	serve "$plain/server" --once
	worked "$client" -t 30 --work 30 --clients 8 --keys 3
	assert_line '8 clients are connected'
	assert_line 'clients 0'
	assert_line --regexp '^linearizable: 240 requests on 3 keys, up to [2-8] at the same time on one$'
	assert_line 'linear 0'
	finished 0
}

@test "torn entries are noticed and read again, and nothing is wrong" {
	serve "$server" --once --slow-write 20000 -t 60
	worked "$plain/client" -t 30 --work 40 --clients 6 --keys 2
	assert_line 'clients 0'
	assert_line 'linear 0'
	[[ $output =~ READs,\ ([0-9]+)\ of\ them\ torn ]]
	[ "${BASH_REMATCH[1]}" -ge 5 ]
	assert_line --partial '; 0 values were of two pieces'
	finished 0
}

# The same without the check: this is what the check is for, and the checker
# of histories sees it.
@test "without the check, torn entries are taken for values" {
	serve "$server" --once --slow-write 5000 -t 60
	worked "$plain/client" -t 30 --work 40 --clients 6 --keys 1 --no-check
	assert_line 'clients 1'
	[[ $output =~ ([0-9]+)\ values\ were\ of\ two\ pieces ]]
	[ "${BASH_REMATCH[1]}" -ge 1 ]
	assert_line --regexp "^key0: not linearizable: nothing explains .get key0 mixed. of client"
	assert_line 'linear 1'
	finished 0
}

@test "sixteen clients come at once, with packets lost: linearizable" {
	impair loss 1%
	serve "$plain/server" --once
	worked "$plain/client" -t 30 --work 10 --clients 16 --keys 4
	assert_line 'clients 0'
	assert_line 'linear 0'
	finished 0
}

@test "bad clients harm nobody, and one that died in a PUT has put it or not" {
	serve "$server" -t 5
	LIMIT=40 start client bad sh -c '
		bad=$0 to=$1
		ask() { "$bad" "$@" "$to" & }
		ask --at established --do stall -t 30
		ask --at request --do stall -t 30
		ask --text rubbish --receives 1 --echo
		ask --size 0 --receives 1 --echo
		ask --size 65
		ask --text rubbish --messages 3 --rnr-retry 7 --at sent --do stall -t 30
		ask --text rubbish --messages 2 --at sent --do kill
		echo all are there
		wait' "$bad" "$ADDR_SERVER"
	wait_line bad '^all are there'
	worked "$plain/client" -t 30 --work 30 --clients 4 --keys 2
	assert_line 'clients 0'
	assert_line 'linear 0'
	signal_job peer TERM
	finished 0
	refute grep -qvE '^(dropped |rdma_|$)' <<<"$stderr"
	on client pkill -KILL -x badclient || true # those that stall on
	stop_jobs

	# A server that hears of a client that only GETs for a minute.
	serve "$server"
	run on client sh -c '
		tests/lessons/when KILL "PUT big*" "$0" --put big=big --measure 1000000 "$1"
		"$0" --get measured --get big "$1"' "$plain/client" "$ADDR_SERVER"
	assert_line --regexp '^GET measured: '
	assert_line 'GET big: big'
	signal_job peer TERM
	finished 0
}

@test "the server goes, is killed, or is another: the client says so" {
	local n

	begin_cases at_once "$server|$client --put a=1 --measure 1000000" \
		"$plain/server|$client --put a=1 --measure 1000000" \
		"build/peers/badserver --at established --do stall|$client --get a"
	wait_case client 2 '! '
	wait_case client 0 'PUT a'
	wait_case client 1 'PUT a'
	signal_cases server TERM 0 2
	signal_cases server KILL 1
	finish_cases
	said server 0 'Terminated: 1 clients to say goodbye to' 'status 0'
	for n in 0 1; do
		said client $n '! (.*the server ended the connection.*|.*, status .*)' 'status 1'
	done
	said client 2 "! the server's private data does not begin with LESSON16: is it the server of this lesson\?" 'status 1'
}

@test "the checker of histories tells right from wrong" {
	local file=$BATS_TEST_TMPDIR/h

	judge() {
		printf '%s\n' "$@" >"$file"
		run "$linear" "$file"
	}
	judge '0 put a v1 1 10' '1 get a - 2 3' '2 get a v1 4 5' \
		'0 delete a found 11 12' '1 delete a - 12 14' '1 get b - 1 2'
	assert_success
	assert_output 'linearizable: 6 requests on 2 keys, up to 2 at the same time on one'
	# Seen and gone again; an old value; a value from nowhere; deleted twice;
	# there and not deleted; two who see two puts in another order.
	judge '0 put a v1 1 10' '1 get a v1 2 3' '2 get a - 4 5'
	assert_failure 1
	judge '0 put a v1 1 2' '1 put a v2 3 4' '2 get a v1 5 6'
	assert_failure 1
	judge '0 put a v1 1 2' '1 get a mixed 3 4'
	assert_failure 1
	judge '0 put a v1 1 2' '1 delete a found 3 5' '2 delete a found 4 6'
	assert_failure 1
	judge '0 put a v1 1 2' '1 delete a - 3 4'
	assert_failure 1
	judge '0 put a v1 1 9' '1 put a v2 1 9' '2 get a v1 10 11' \
		'3 get a v2 12 13'
	assert_failure 1
	assert_output --partial 'a: not linearizable: nothing explains `get a v'
	judge 'nonsense'
	assert_failure 2
}

@test "what is asked wrongly is answered with the usage, and nothing starts" {
	local args program

	for args in '' '--put a x' '--bad it x' '--measure 0 x' '--work 0 x' \
		'--clients 65 x' '--keys 0 x' '--gets 101 x' '-s 31 x' \
		'--work 1 --get a x' 'one two'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$client" $args
		assert_failure 2
		[[ $stderr == *'usage: client '* && -z $output ]]
	done
	for args in more '--entries 7' '--entries 65537' '--slow-write 100001' \
		'-t 0' '-p 0'; do
		# shellcheck disable=SC2086 # several arguments
		run --separate-stderr "$server" $args
		assert_failure 2
		[[ $stderr == *'usage: server '* && -z $output ]]
	done
	for program in "$client" "$server"; do
		run --separate-stderr "$program" --help
		assert_success
		assert_line --partial 'usage: '
	done
}
