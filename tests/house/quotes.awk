# SPDX-License-Identifier: MIT
#
# Makes regular expressions of the texts that a program may print: each literal
# of a C source is one, with what printf(3) fills in as .*
#
#	awk -f tests/house/quotes.awk FILE.c... >patterns
#	awk -v pieces=1 -f .. FILE.c... >pieces
#
# With pieces each literal is taken apart at colons, commas and semicolons first.
#
# A literal with less than 16 fixed characters says too little, and is left out.

function flush(text,    n, i, parts) {
	if (!pieces) {
		show(text)
		return
	}
	n = split(text, parts, /[:,;] /)
	for (i = 1; i <= n; i++)
		show(parts[i])
}

function show(text,    fixed, pattern) {
	sub(/\\n$/, "", text)
	gsub(/\\"/, "\"", text)
	fixed = text
	gsub(/%[-+ #0-9.]*(hh|h|ll|l|z)?[diuxXcsp]/, "", fixed)
	if (length(fixed) < 16)
		return
	gsub(/%[-+ #0-9.]*(hh|h|ll|l|z)?[diuxXcsp]/, "\001", text)
	gsub(/%%/, "%", text)
	pattern = text
	gsub(/[][\\.*^$()+?{}|]/, "\\\\&", pattern)
	gsub(/\001/, ".*", pattern)
	print "^" pattern "$"
}

# Literals with nothing but white space, a comment or a macro between them are one.
{
	line = $0
	while (line != "") {
		if (inside) {
			if (match(line, /^([^"\\]|\\.)*"/)) {
				text = text substr(line, 1, RLENGTH - 1)
				line = substr(line, RLENGTH + 1)
				inside = 0
				after = 1
			} else {
				line = ""
			}
		} else if (match(line, /^[ \t]+/)) {
			line = substr(line, RLENGTH + 1)
		} else if (substr(line, 1, 1) == "\"") {
			inside = 1
			line = substr(line, 2)
		} else if (substr(line, 1, 2) == "/*" || substr(line, 1, 3) == "'\"'") {
			line = substr(line, 3)
		} else {
			if (after) {
				flush(text)
				text = ""
				after = 0
			}
			line = substr(line, 2)
		}
	}
}
END { flush(text) }
