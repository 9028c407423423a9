# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016,SC2034 # questions to jq; variables of the checker
# shellcheck disable=SC2154 # and more of them
#
# What make check EXERCISE=03 looks at. README.md in exercises/ explains how.

learner=server

checkpoint builds - build "It builds"
checkpoint lets_in good connect "A client that speaks the version is let in and served"
checkpoint strangers door 1 "Who sends no hello is refused, and told so"
checkpoint versions door 10 "Who speaks another version is refused, and told so"
checkpoint last_field door 7 "So is one whose last field is not zero, whatever version it says"
checkpoint goes_on door 3 "After that the next client is let in"
checkpoint busy door 5 "A second client meanwhile is told that it is busy, and the first is served"
checkpoint reasons door 11 "Who would not be let in anyway is told why, also meanwhile"
checkpoint destroyed door 4 "Nothing is left over of those who were refused"
checkpoint early slow 3 "Busy also holds while the first is being let in, and the first comes in"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

run_good() {
	server=(-t $((t + 1)))
	client=(-t "$t" -k good)
	learner_env=(GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.perturb=90)
}

# Those whom a server lets in sooner than others come last: that is the end of it.
# All of them knock within one wait of the server's.
run_door() {
	run_good
	server=(-t $((2 * t)))
	limit=$((limit + 1000 * t))
	client=(-t "$t" -k empty -k foreign -k old -k new -k swapped -k late -k odd
		-k crowd)
}

run_slow() {
	run_good
	client=(-t "$t" -k slow)
}

run_asan() {
	run_door
	client+=(-k good)
	variant=asan
}

# Only for a server that refuses whoever is good.
run_turned() {
	run_good
	client=(-t "$t" -k turned -k swapped)
}

# what the server says in a refusal, by hello.h
no_hello=52444d4100010003
version=52444d4100020003
busy=52444d4100030003

# heard WHOM: what this client was told, into $heard: the bytes of a refusal, `in`,
# `silence` when there was nobody who said anything, or anything else
heard() {
	heard=$(sed -n "s/^$1: //p;T;q" "$(output peer)")
	case $heard in
	'let in') heard=in ;;
	'refused, status 28, it says '*) heard=${heard##* } ;;
	esac
	case $heard in
	# The kernel refuses in the name of a program that is not there any more, or
	# that has let the id go. It says nothing.
	0000000000000000 | nothing | 'no answer' | 'refused, status 8, '*)
		heard=silence
		;;
	esac
}

# answer WHOM WANTED: whether this client was let in (`in`), or refused with these
# bytes. Otherwise the hint is by what it was told instead.
answer() {
	local wanted=$2 got

	heard "$1"
	[ "$heard" != "$wanted" ] || return 0
	case $heard in
	silence) was_silent "$1" ;;
	# The right numbers, the wrong way round.
	414d4452* | 52444d410[1-3]00* | 52444d41000[1-3]0300) fits 2 ;;
	"$busy") fits 5 ;;
	"$no_hello" | "$version" | in | '') ;;
	*) fits 9 ;;
	esac
	case $wanted in
	in) wanted='let in' ;;
	*) wanted="refused, status 28, it says $wanted" ;;
	esac
	got=$(grep -m 1 "^$1: " "$(output peer)") || got="$1 got no answer"
	saw "expected:  $1: $wanted"
	saw "the client: $got"
	return 1
}

# was_silent WHOM: the hint for a server that said nothing to this client. The first
# who is refused is told nothing where nothing is said; the others where the server
# has not gone on.
was_silent() {
	local told

	case $1 in
	empty) fits 8 ;;
	*) fits 3 ;;
	esac
	# What it hung in matters more, and that it crashed, unless that was in the
	# refusal: its id was not there any more.
	ended_by_itself >/dev/null || [ "$how" != signal ] || other_hint=
	[ "$how" != signal ] || [ "$(ask learner 'stuck.call')" != rdma_reject ] ||
		fits 8
}

message_came() {
	grep -qx 'message: success' "$(output peer)" ||
		saw "it was let in, and its message did not get through"
}

lets_in() {
	answer good in || {
		[ "$heard" = "$busy" ] || refuses_good
		return 1
	}
	message_came && events_acknowledged && exit_status 0
}

# A server that refuses whoever is good: it lets in those who have their bytes
# the wrong way round, or it has not understood what it was sent.
refuses_good() {
	local run=$run

	ended learner
	if [ "$how" = signal ]; then
		other_hint=
		return
	fi
	fits 6
	execute turned
	run=turned
	! grep -q ': let in$' "$(output peer)" || fits 2
}

strangers() {
	answer empty $no_hello && answer foreign $no_hello
}

versions() {
	answer old $version && answer new $version || return
	answer swapped $version || {
		[ "$heard" != in ] || fits 2
		return 1
	}
}

last_field() {
	answer late $no_hello && answer odd $no_hello
}

goes_on() {
	answer crowd in
}

busy() {
	answer 'meanwhile good' $busy && message_came && exit_status 0
}

reasons() {
	if answer 'meanwhile foreign' $no_hello &&
		answer 'meanwhile odd' $no_hello &&
		answer 'meanwhile old' $version; then
		return
	fi
	[ "$heard" != "$busy" ] || fits 11
	return 1
}

destroyed() {
	events_acknowledged && nothing_left
}

# The client knocks a second time after the server has accepted the first, and
# before the server can know that the first is in.
early() {
	if answer slow in && answer 'meanwhile good' $busy && message_came; then
		exit_status 0 && nothing_left
		return
	fi
	# Whoever goes by something that is only set later lets both in.
	heard 'meanwhile good'
	[ "$heard" != in ] || fits 5
	return 1
}
