# SPDX-License-Identifier: MIT
#
# The packets as a ladder for the terminal. Needs rows.awk before it.

function dashes(count,    text) {
	while (count-- > 0)
		text = text "-"
	return text
}

END {
	finish_rows()
	width = 38
	for (i = 1; i <= n; i++)
		if (length(names[i]) + 6 > width)
			width = length(names[i]) + 6
	printf "%13s%-" (width - 2) "s%s\n", "", "client", "server"
	for (i = 1; i <= n; i++) {
		if (from[i] == "client")
			arrow = "|-- " names[i] " " \
				dashes(width - length(names[i]) - 5) ">|"
		else if (from[i] == "server")
			arrow = "|<" dashes(width - length(names[i]) - 5) " " \
				names[i] " --|"
		else
			arrow = "|   " names[i] " from " from[i]
		printf "%9.3f ms %s%s\n", times[i], arrow, \
			(details[i] == "" ? "" : "  " details[i])
	}
}
