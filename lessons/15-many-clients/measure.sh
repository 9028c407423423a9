#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# How many requests a second the server answers, for 1, 2, 4 .. 64 clients: the
# median of ROUNDS (5) rounds, each of which goes through all the numbers. Writes
# throughput.csv and throughput.svg beside this script, or into the folder OUT. It
# takes two nodes that are up (lab/lab up), a quiet machine, and gnuplot. With
# FROM=FILE.csv it measures nothing, and draws that.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(cd "${OUT:-$here}" && pwd)
from=${FROM:+$(readlink -f "$FROM")}
cd "$here/../.."
rounds=${ROUNDS:-5}
requests=${REQUESTS:-1600}
folder=lessons/15-many-clients
command -v gnuplot >/dev/null || {
	echo 'measure: gnuplot is missing: install the package gnuplot-nox' >&2
	exit 1
}
work=$(mktemp -d "${TMPDIR:-/tmp}/measure.XXXXXX")
trap 'rm -rf "$work"' EXIT

# measure: lines `CLIENTS REQUESTS_A_SECOND`. The server runs once for each line of
# the client; its `listening on` lets the client go. Both nodes are entered once.
# shellcheck disable=SC2016 # expanded on the nodes
measure() {
	make -s -C $folder
	lab/lab exec server sh -c '
		for i in $(seq "$1"); do
			"$0" --once -t 60 || exit 1
		done' $folder/server $((rounds * 7)) </dev/null |
		grep --line-buffered '^listening on ' |
		lab/lab exec client sh -c '
		for round in $(seq "$2"); do
			for n in 1 2 4 8 16 32 64; do
				read -r line || exit 1
				printf "%s " "$n"
				"$0" -t 60 --clients "$n" -n $(($3 / n)) "$1" |
					grep "answered"
			done
		done' $folder/client "$(lab/lab addr server)" "$rounds" "$requests" |
		tee /dev/stderr |
		sed -nE 's/^([0-9]+) .* ([0-9]+) a second$/\1 \2/p'
}

# medians: what is kept of them
medians() {
	echo 'clients,requests_per_second_least,median,most'
	sort -k1,1n -k2,2n | awk '
		function flush() {
			if (n)
				print clients "," all[1] "," all[int((n + 1) / 2)] "," all[n]
			n = 0
		}
		$1 != clients { flush(); clients = $1 }
		{ all[++n] = $2 }
		END { flush() }'
}

draw() {
	gnuplot <<-END
		set terminal svg size 640,360 font "sans-serif,12" background "#ffffff"
		set output "$out/throughput.svg"
		set datafile separator ","
		set logscale x 2
		set xtics (1,2,4,8,16,32,64)
		set xrange [0.9:72]
		set yrange [0:*]
		set xlabel "clients, each with 4 requests under way"
		set ylabel "requests a second"
		set grid ytics
		unset key
		plot "$1" every ::1 using 1:3:2:4 with yerrorlines pt 7 lw 2 \
			notitle
	END
}

if [[ ! $from ]]; then
	from=$out/throughput.csv
	measure >"$work/lines"
	medians <"$work/lines" >"$from"
	cat "$from"
fi
draw "$from"
