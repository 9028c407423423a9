# SPDX-License-Identifier: MIT
#
# The packets as a picture. Needs rows.awk before it; -v title=.. -v
# sequence_file=.. (what sequence.awk makes: it is put into the picture, so that
# another run can be compared with it).
#
# One picture for light and dark: the colours follow the reader's setting.

function escape(text) {
	gsub(/&/, "\\&amp;", text)
	gsub(/</, "\\&lt;", text)
	gsub(/>/, "\\&gt;", text)
	return text
}

function class_of(i) {
	if (names[i] ~ /NAK|Reject/)
		return "no"
	return kinds[i] == "CM" ? "cm" : kinds[i] == "ack" ? "ack" : \
	       kinds[i] == "response" ? "response" : "request"
}

function style() {
	print "<style>"
	print "text { font: 13px system-ui, -apple-system, 'Segoe UI', " \
	      "sans-serif; fill: #1f2328 }"
	print ".time, .also { font: 11px ui-monospace, 'DejaVu Sans Mono', " \
	      "Menlo, Consolas, monospace; fill: #59636e }"
	print ".head { font-weight: 600; font-size: 15px }"
	print ".back { fill: #ffffff; stroke: #d1d9e0 }"
	print ".life { stroke: #818b98; stroke-width: 1.5 }"
	print ".cm { stroke: #6e7781; fill: #6e7781 }"
	print ".request { stroke: #0969da; fill: #0969da }"
	print ".response { stroke: #1a7f37; fill: #1a7f37 }"
	print ".ack { stroke: #1a7f37; fill: #1a7f37 }"
	print ".no { stroke: #cf222e; fill: #cf222e }"
	print "line.ack { stroke-dasharray: 5 3 }"
	print "line { stroke-width: 1.6 }"
	print "@media (prefers-color-scheme: dark) {"
	print "text { fill: #f0f6fc }"
	print ".time, .also { fill: #9198a1 }"
	print ".back { fill: #0d1117; stroke: #3d444d }"
	print ".life { stroke: #656c76 }"
	print ".cm { stroke: #9198a1; fill: #9198a1 }"
	print ".request { stroke: #4493f8; fill: #4493f8 }"
	print ".response, .ack { stroke: #3fb950; fill: #3fb950 }"
	print ".no { stroke: #f85149; fill: #f85149 }"
	print "}"
	print "</style>"
}

# head_of_arrow(X, Y, DIRECTION): a small triangle; its point is at X, Y
function head_of_arrow(x, y, direction, class) {
	printf "<path class=\"%s\" stroke=\"none\" d=\"M%d %d l%d -4 v8 z\"/>\n", \
		class, x, y, (direction > 0 ? -9 : 9)
}

function row(i, y,    class, x1, x2, anchor, x) {
	class = class_of(i)
	printf "<text class=\"time\" x=\"88\" y=\"%d\" text-anchor=\"end\">" \
		"%.1f ms</text>\n", y + 4, times[i]
	if (from[i] == "server") {
		x1 = right
		x2 = left
	} else {
		x1 = left
		x2 = right
	}
	printf "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", \
		class, x1, y, x2 + (x2 > x1 ? -4 : 4), y
	head_of_arrow(x2, y, x2 - x1, class)
	printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", \
		(left + right) / 2, y - 6, escape(names[i])
	if (details[i] != "")
		printf "<text class=\"also\" x=\"%d\" y=\"%d\">%s</text>\n", \
			right + 14, y + 4, escape(details[i])
}

END {
	finish_rows()
	left = 104
	right = 404
	step = 34
	# What is too long for a picture is cut in the middle.
	first = n
	if (n > 44) {
		first = 28
		rest = n - 12
	}
	longest = 20
	for (i = 1; i <= n; i++)
		if (length(details[i]) > longest)
			longest = length(details[i])
	width = right + 30 + int(longest * 6.8)
	shown = n > 44 ? 41 : n
	height = 84 + step * shown
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" " \
	       "width=\"%d\" height=\"%d\" role=\"img\" " \
	       "aria-labelledby=\"title desc\">\n", width, height, width, height
	print "<title id=\"title\">" escape(title) "</title>"
	print "<desc id=\"desc\">The packets between client and server, in order:"
	for (i = 1; i <= n; i++)
		if (i <= first || i > rest)
			print (i > 1 ? "; " : "") from[i] ": " escape(names[i])
	print "</desc>"
	print "<metadata>"
	while ((getline line < sequence_file) > 0)
		print escape(line)
	print "</metadata>"
	style()
	printf "<rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"%d\" " \
	       "height=\"%d\" rx=\"8\"/>\n", width - 1, height - 1
	printf "<text class=\"head\" x=\"%d\" y=\"30\" text-anchor=\"middle\">" \
	       "client</text>\n", left
	printf "<text class=\"head\" x=\"%d\" y=\"30\" text-anchor=\"middle\">" \
	       "server</text>\n", right
	for (x = left; x <= right; x += right - left)
		printf "<line class=\"life\" x1=\"%d\" y1=\"40\" x2=\"%d\" " \
		       "y2=\"%d\"/>\n", x, x, height - 16
	y = 76
	for (i = 1; i <= n; i++) {
		if (i <= first || i > rest) {
			row(i, y)
			y += step
		} else if (i == first + 1) {
			printf "<text class=\"also\" x=\"%d\" y=\"%d\" " \
			       "text-anchor=\"middle\">... %d more ...</text>\n", \
				(left + right) / 2, y, rest - first
			y += step
		}
	}
	print "</svg>"
}
