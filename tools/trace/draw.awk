# SPDX-License-Identifier: MIT
#
# A time line as a picture: the client's calls on the left, the server's on the
# right, the packets between them. Columns: time in ms, side, from, kind, call,
# words, whether it failed. One picture for light and dark.

function escape(text) {
	gsub(/&/, "\\&amp;", text)
	gsub(/</, "\\&lt;", text)
	gsub(/>/, "\\&gt;", text)
	return text
}

# shorten(TEXT): addresses and keys are long, and other numbers in each run
function shorten(text) {
	gsub(/ at 0x[0-9a-f]+ rkey 0x[0-9a-f]+/, "", text)
	gsub(/ at 0x[0-9a-f]+, rkey (0x[0-9a-f]+|none)/, "", text)
	gsub(/,? ?wr_id 0x[0-9a-f]+/, "", text)
	gsub(/  +/, " ", text)
	return length(text) > 46 ? substr(text, 1, 44) ".." : text
}

BEGIN {
	FS = "\t"
}

{
	n++
	time[n] = $1
	side[n] = $2
	from[n] = $3
	kind[n] = $4
	call[n] = $5
	words[n] = shorten($6)
	failed[n] = $7 == "true"
}

function style() {
	print "<style>"
	print "text { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, " \
	      "Consolas, monospace; fill: #1f2328 }"
	print ".time { font-size: 10px; fill: #59636e }"
	print ".head { font: 600 15px system-ui, -apple-system, 'Segoe UI', " \
	      "sans-serif }"
	print ".packet { font: 12px system-ui, -apple-system, 'Segoe UI', " \
	      "sans-serif }"
	print ".back { fill: #ffffff; stroke: #d1d9e0 }"
	print ".life { stroke: #818b98; stroke-width: 1.5 }"
	print ".cm { stroke: #6e7781; fill: #6e7781 }"
	print ".request { stroke: #0969da; fill: #0969da }"
	print ".response, .ack { stroke: #1a7f37; fill: #1a7f37 }"
	print ".client { fill: #0969da }"
	print ".server { fill: #8250df }"
	print ".no { stroke: #cf222e; fill: #cf222e }"
	print "text.no { stroke: none }"
	print "line.ack { stroke-dasharray: 5 3 }"
	print "@media (prefers-color-scheme: dark) {"
	print "text { fill: #f0f6fc }"
	print ".time { fill: #9198a1 }"
	print ".back { fill: #0d1117; stroke: #3d444d }"
	print ".life { stroke: #656c76 }"
	print ".cm { stroke: #9198a1; fill: #9198a1 }"
	print ".request { stroke: #4493f8; fill: #4493f8 }"
	print ".response, .ack { stroke: #3fb950; fill: #3fb950 }"
	print ".client { fill: #4493f8 }"
	print ".server { fill: #ab7df8 }"
	print ".no { stroke: #f85149; fill: #f85149 }"
	print "}"
	print "</style>"
}

function packet(i, y,    class, x1, x2) {
	class = failed[i] ? "no" : kind[i] == "CM" ? "cm" : kind[i]
	x1 = from[i] == "server" ? right : left
	x2 = from[i] == "server" ? left : right
	printf "<line class=\"%s\" stroke-width=\"1.6\" x1=\"%d\" y1=\"%d\" " \
	       "x2=\"%d\" y2=\"%d\"/>\n", class, x1, y, x2 + (x2 > x1 ? -4 : 4), y
	printf "<path class=\"%s\" stroke=\"none\" d=\"M%d %d l%d -4 v8 z\"/>\n", \
	       class, x2, y, (x2 > x1 ? -9 : 9)
	printf "<text class=\"packet\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">" \
	       "%s</text>\n", (left + right) / 2, y - 5, escape(words[i])
}

function row(i, y,    client) {
	printf "<text class=\"time\" x=\"58\" y=\"%d\" text-anchor=\"end\">" \
	       "%.1f ms</text>\n", y + 4, time[i]
	if (side[i] == "wire") {
		packet(i, y)
		return
	}
	client = side[i] == "client"
	printf "<circle class=\"%s\" cx=\"%d\" cy=\"%d\" r=\"3.5\"/>\n", side[i], \
	       (client ? left : right), y
	printf "<text%s x=\"%d\" y=\"%d\"%s>%s</text>\n", \
	       (failed[i] ? " class=\"no\"" : ""), \
	       (client ? left - 11 : right + 11), y + 4, \
	       (client ? " text-anchor=\"end\"" : ""), escape(words[i])
}

END {
	left = 414
	right = 654
	width = 1010
	# What is too long for a picture is cut in the middle.
	first = n
	rest = n
	if (n > 90) {
		first = 60
		rest = n - 28
	}
	height = 72
	for (i = 1; i <= n; i++)
		if (i <= first || i > rest)
			height += side[i] == "wire" ? 28 : 20
	if (rest > first)
		height += 26
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" " \
	       "width=\"%d\" height=\"%d\" role=\"img\" " \
	       "aria-labelledby=\"title desc\">\n", width, height, width, height
	print "<title id=\"title\">" escape(title) ": calls and packets</title>"
	print "<desc id=\"desc\">Calls of both sides and the packets between " \
	      "them, in order:"
	for (i = 1; i <= n; i++)
		if (i <= first || i > rest)
			print (i > 1 ? "; " : "") (side[i] == "wire" ? \
				"packet from the " from[i] : side[i]) ": " \
				escape(words[i])
	print "</desc>"
	style()
	printf "<rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"%d\" " \
	       "height=\"%d\" rx=\"8\"/>\n", width - 1, height - 1
	printf "<text class=\"head\" x=\"%d\" y=\"28\" text-anchor=\"end\">" \
	       "client</text>\n", left
	printf "<text class=\"head\" x=\"%d\" y=\"28\">server</text>\n", right
	for (x = left; x <= right; x += right - left)
		printf "<line class=\"life\" x1=\"%d\" y1=\"38\" x2=\"%d\" " \
		       "y2=\"%d\"/>\n", x, x, height - 14
	y = 56
	for (i = 1; i <= n; i++) {
		if (i <= first || i > rest) {
			if (side[i] == "wire")
				y += 8
			row(i, y)
			y += 20
		} else if (i == first + 1) {
			printf "<text class=\"time\" x=\"%d\" y=\"%d\" " \
			       "text-anchor=\"middle\">... %d more ...</text>\n", \
				(left + right) / 2, y + 4, rest - first
			y += 26
		}
	}
	print "</svg>"
}
