# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the checker
#
# What make check EXERCISE=12 looks at. README.md in exercises/ explains how.

learner=client

checkpoint builds - build "It builds"
checkpoint connects troubles connect "It connects"
checkpoint tries_again troubles 1 "After a trouble that passes it tries again"
checkpoint in_turn troubles 3 "No letter comes twice, and none is left out"
checkpoint all_there troubles 1 "All letters arrive, through four troubles"
checkpoint ends troubles 5 "It ends, with status 0"
checkpoint nothing_left troubles cleanup "Nothing is left over"
checkpoint no_sanitizer_report asan sanitizer "The sanitizers find nothing"
checkpoint long_way slow 4 "It goes on as long as letters get through"
checkpoint small small 2 "It gives up at once where the receives are too small"
checkpoint closed closed 6 "It gives up at once when it is told so"
checkpoint strange strange 7 "It gives up when the welcome is none"
checkpoint not_for_ever busy 4 "It gives up after some attempts that bring nothing"
checkpoint no_warnings - warnings "The compiler warns of nothing"

# The server ends when nobody has come for a while: a second, which a busy machine
# may need to come back in.
run_troubles() {
	server=(-t "$t" -i $((1000 * slow)) -m busy -m rnr -m leave -m silent)
	client=(-t "$t" -n 24)
}

run_asan() {
	run_troubles
	variant=asan
}

run_slow() {
	server=(-t "$t" -i $((1000 * slow)) -m rnr -e)
	client=(-t "$t" -n 30)
}

run_small() {
	server=(-t "$t" -i $((1000 * slow)) -m small -e)
	client=(-t "$t" -n 20)
}

run_closed() {
	server=(-t "$t" -i $((1000 * slow)) -m closed -e)
	client=(-t "$t" -n 20)
}

run_strange() {
	server=(-t "$t" -i $((1000 * slow)) -m strange -e)
	client=(-t "$t" -n 20)
}

run_busy() {
	server=(-t "$t" -i $((1000 * slow)) -m busy -e)
	client=(-t "$t" -n 20)
}

# Sets $connections and $letters: what the server counted.
summary() {
	local rest

	IFS=' ' read -r connections rest < <(grep -E '^[0-9]+ connections, ' \
		"$(output peer)") || true
	letters=${rest#*letters 1 to }
	letters=${letters%%,*}
	[ -n "${connections:-}" ] || {
		connections=$(grep -c '^connection ' "$(output peer)") || true
		letters=0
	}
}

the_server_says() {
	saw "the server says:"
	quote_lines "$(output peer)" 8
	return 1
}

connects() {
	summary
	[ "$connections" -gt 0 ] || saw "nobody came to the server"
}

tries_again() {
	summary
	[ "$connections" -gt 1 ] || the_server_says
}

in_turn() {
	! grep -q 'and .* was next$' "$(output peer)" || the_server_says
}

all_there() {
	summary
	[ "$letters" = 24 ] || the_server_says
}

ends() {
	exit_status 0
}

long_way() {
	summary
	[ "$letters" = 30 ] || the_server_says || return
	exit_status 0
}

# gives_up: it came once, and said that it failed
gives_up() {
	summary
	[ "$connections" = 1 ] ||
		saw "it connected $connections times" || return
	exit_status 1 && nothing_left
}

small() {
	gives_up
}

closed() {
	gives_up
}

strange() {
	gives_up
}

not_for_ever() {
	fits 4
	summary
	[ "$connections" -ge 3 ] ||
		saw "the server was busy, and it came $connections times and no more" ||
		return
	[ "$connections" -le 8 ] ||
		saw "the server was busy for ever, and it came $connections times" ||
		return
	exit_status 1 && nothing_left
}
