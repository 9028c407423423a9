# SPDX-License-Identifier: MIT
#
# The tables of make bench, from its CSV: for each test and size the median of
# perftest and of lesson 13, and the median of their ratios, round by round; for
# each rung of the ladder its median, and its ratio to the rung before in the same
# way. lessons/13-throughput/README.md shows them.
# Writes what is drawn into the folder PLOT: ratios.dat and ladder.dat.

BEGIN { FS = "," }

function median(list, n,    i, j, t) {
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && list[j - 1] > list[j]; j--) {
			t = list[j]
			list[j] = list[j - 1]
			list[j - 1] = t
		}
	return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}

# The median of what WHO had.
function collect(key, who,    n, round, list) {
	n = 0
	for (round = 1; round <= rounds; round++)
		if ((key, round, who) in result)
			list[++n] = result[key, round, who]
	return n ? median(list, n) : 0
}

# The median of the ratios of the one to the other; sets LOW and HIGH.
function ratio(key, who, other_key, other,    n, round, list) {
	n = 0
	for (round = 1; round <= rounds; round++)
		if ((key, round, who) in result && (other_key, round, other) in result)
			list[++n] = result[key, round, who] / result[other_key, round, other]
	if (!n)
		return 0
	middle = median(list, n)
	low = list[1]
	high = list[n]
	return middle
}

# One rung by WRITE or SEND, as text.
function climbed(test, k,    text) {
	text = sprintf("%6.0f/s", value[test, names[k]])
	if (k == 1)
		return text sprintf("%21s", "")
	ratio(test SUBSEP names[k], "lesson", test SUBSEP names[k - 1], "lesson")
	return text sprintf(" %4.2f (%4.2f to %4.2f)", middle, low, high)
}

NR > 1 {
	key = $1 SUBSEP $2
	if (!(key in seen)) {
		seen[key] = 1
		keys[++count] = key
	}
	result[key, $3, $4] = $5
	if ($3 > rounds)
		rounds = $3
}

END {
	ratios = plot "/ratios.dat"
	rungs = plot "/ladder.dat"
	for (k = 1; k <= count; k++) {
		split(keys[k], part, SUBSEP)
		test = part[1]
		size = part[2]
		if (test ~ /^ladder/) {
			value[test, size] = collect(keys[k], "lesson")
			if (!(size in rung)) {
				rung[size] = 1
				names[++named] = size
			}
			continue
		}
		if (!header++)
			printf "%-9s %8s  %12s %12s  %s\n", "test", "bytes", \
				"perftest", "lesson 13", "ratio (lowest to highest)"
		r = ratio(keys[k], "lesson", keys[k], "perftest")
		unit = test ~ /_lat$/ ? "us" : "/s"
		good = test ~ /_lat$/ ? r <= 1 : r >= 1
		printf "%-9s %8d  %9.1f %s %9.1f %s  %.2f (%.2f to %.2f)%s\n", \
			test, size, collect(keys[k], "perftest"), unit, \
			collect(keys[k], "lesson"), unit, r, low, high, \
			good ? "" : " behind"
		if (test != last)
			printf "\n\n# %s\n", test >ratios
		last = test
		printf "%d %.3f %.3f %.3f\n", size, r, low, high >ratios
	}
	if (named)
		printf "\n%-22s %-29s  %s\n", "ladder, 64 bytes", \
			"by WRITE, to the rung before", "by SEND, to the rung before"
	for (k = 1; k <= named; k++) {
		line = sprintf("%-22s %s  %s", names[k], \
			climbed("ladder write", k), climbed("ladder send", k))
		sub(/ +$/, "", line)
		print line
		printf "\"%s\" %.1f %.1f\n", names[k], \
			value["ladder write", names[k]], value["ladder send", names[k]] >rungs
	}
}
