# SPDX-License-Identifier: MIT
#
# Checks the links of one Markdown file; called by tests/links. With `write`
# set, the text with the right line numbers goes to the file `new`.

function complain(what) {
	printf "%s:%d: [%s](%s): %s\n", FILENAME, at, text, target, what
	bad = 1
}

function quote(path) {
	gsub(/'/, "'\\''", path)
	return "'" path "'"
}

# Reads a file once: its lines into src[path, 1..count[path]].
function load(path,    line, n) {
	if (path in count)
		return count[path] >= 0
	count[path] = -1
	if (system("test -f " quote(path)))
		return 0
	n = 0
	while ((getline line < path) > 0)
		src[path, ++n] = line
	close(path)
	count[path] = n
	return 1
}

# The anchors of a Markdown file, made from its headings as GitHub does.
function load_anchors(path,    i, line, fenced, base, slug, n) {
	if (anchors_of[path]++)
		return
	fenced = 0
	for (i = 1; i <= count[path]; i++) {
		line = src[path, i]
		if (line ~ /^ *```/)
			fenced = !fenced
		if (fenced || line !~ /^#+ /)
			continue
		sub(/^#+ +/, "", line)
		sub(/ +#* *$/, "", line)
		line = tolower(line)
		gsub(/\]\([^)]*\)/, "", line)
		gsub(/[^a-z0-9 _\200-\377-]/, "", line)
		gsub(/ /, "-", line)
		base = slug = line
		n = 0
		while ((path, slug) in anchor)
			slug = base "-" (++n)
		anchor[path, slug] = 1
	}
}

# ---- regions of a source file; each sets first and last, or returns 0 ------

# The line on which the comment that holds line `i` begins.
function comment_start(path, i) {
	while (i > 1 && src[path, i] !~ /\/\*/)
		i--
	return i
}

function trim_end(path, i) {
	while (i > 1 && src[path, i] ~ /^[ \t]*$/)
		i--
	return i
}

function find_line(path, from, pattern,    i) {
	for (i = from; i <= count[path]; i++)
		if (src[path, i] ~ pattern)
			return i
	return 0
}

# From the comment with "Step A:" to the line before the step after B.
function find_steps(path, a, b,    i, j) {
	i = find_line(path, 1, "Step " a ":")
	j = find_line(path, 1, "Step " b ":")
	if (!i || !j || j < i)
		return 0
	first = comment_start(path, i)
	for (last = j + 1; last <= count[path]; last++)
		if (src[path, last] ~ /Step [0-9]+[a-z]?:/) {
			last = comment_start(path, last)
			break
		} else if (src[path, last] ~ /^}/) {
			break
		}
	last = trim_end(path, last - 1)
	return 1
}

# A function, struct, enum, table or macro of that name, with its comment.
function find_definition(path, name,    i, line, word) {
	word = "(^|[^A-Za-z0-9_])" name
	for (i = 1; i <= count[path]; i++) {
		line = src[path, i]
		if (line ~ ("^#define " name "([^A-Za-z0-9_]|$)")) {
			for (last = i; src[path, last] ~ /\\$/;)
				last++
			break
		}
		if (line !~ /^[A-Za-z_]/)
			continue
		if (line ~ ("^(struct|union|enum) " name " *{")) {
			last = find_line(path, i, "^}")
			break
		}
		if (line ~ (word "(\\[[^]]*\\])* *=")) {
			last = line ~ /;$/ ? i : find_line(path, i, "^}")
			break
		}
		if (line ~ (word "\\(")) {
			last = find_line(path, i, "(;|{)$")
			if (!last || src[path, last] ~ /;$/)
				continue
			last = find_line(path, last, "^}")
			break
		}
	}
	if (i > count[path] || !last)
		return 0
	first = i
	if (i > 1 && src[path, i - 1] ~ /\*\/ *$/)
		first = comment_start(path, i - 1)
	else
		while (first > 2 && src[path, first - 1] ~ /^# /)
			first--
	return 1
}

# The pieces in `backticks` of the link's text must stand in the lines.
function holds(path, from, to,    rest, piece, i, found) {
	rest = text
	while (match(rest, /`[^`]+`/)) {
		piece = substr(rest, RSTART + 1, RLENGTH - 2)
		rest = substr(rest, RSTART + RLENGTH)
		sub(/\(\)$/, "", piece)
		found = 0
		for (i = from; i <= to && !found; i++)
			found = index(src[path, i], piece) > 0
		if (!found)
			return 0
	}
	return 1
}

# The one line that has the piece in backticks; 0 if there is none, or two.
function only_line(path,    i, found) {
	for (i = 1; i <= count[path]; i++)
		if (holds(path, i, i)) {
			if (found)
				return 0
			found = i
		}
	return found
}

# A link into a source file. Returns the anchor that it should have.
function check_lines(path, fragment,    parts, from, to, a, b, name, n) {
	n = split(fragment, parts, "-")
	from = substr(parts[1], 2) + 0
	to = n > 1 ? substr(parts[2], 2) + 0 : from
	if (match(text, /[Ss]teps? [0-9]+[a-z]?/)) {
		a = substr(text, RSTART, RLENGTH)
		sub(/^[^ ]+ /, "", a)
		b = substr(text, RSTART + RLENGTH)
		if (b ~ /^ (to|and) [0-9]+[a-z]?/) {
			sub(/^ (to|and) /, "", b)
			match(b, /^[0-9]+[a-z]?/)
			b = substr(b, 1, RLENGTH)
		} else {
			b = a
		}
		if (!find_steps(path, a, b)) {
			complain("no such step in the file")
			return fragment
		}
	} else if (match(text, /`((struct|union|enum) )?[A-Za-z_][A-Za-z0-9_]*(\(\))?`/) &&
		   (name = substr(text, RSTART + 1, RLENGTH - 2)) != "" &&
		   sub(/\(\)$|$/, "", name) + sub(/^.* /, "", name) &&
		   find_definition(path, name)) {
		;
	} else if (text ~ /`/) {
		first = from
		last = to
		if (write && !holds(path, from, to))
			first = last = only_line(path)
	} else {
		complain("name a step or something in `backticks`")
		return fragment
	}
	if (!first || last > count[path] || !holds(path, first, last)) {
		complain("what the text names is not in these lines")
		return fragment
	}
	return "L" first (last > first ? "-L" last : "")
}

function check(    path, fragment, i, right) {
	if (target ~ /^[a-z]+:/)
		return target # another site: not ours to check
	i = index(target, "#")
	path = i ? substr(target, 1, i - 1) : target
	fragment = i ? substr(target, i + 1) : ""
	if (path == "")
		path = FILENAME
	else if (path ~ /^\//)
		path = "." path
	else
		path = folder path
	if (system("test -e " quote(path))) {
		complain("no such file")
	} else if (fragment == "") {
		;
	} else if (!load(path)) {
		complain("not a file with anchors")
	} else if (path ~ /\.md$/) {
		load_anchors(path)
		if (!((path, fragment) in anchor))
			complain("no such heading")
	} else if (fragment !~ /^L[0-9]+(-L[0-9]+)?$/) {
		complain("lines are written #L10-L20")
	} else {
		right = check_lines(path, fragment)
		if (right != fragment && !write)
			complain("these are lines " right)
		return substr(target, 1, i) right
	}
	return target
}

# Text that is no prose is blotted out, its length kept: code has brackets too.
function blot(s) {
	gsub(/[^\n]/, "x", s)
	return s
}

# ``Code`` in two backticks may hold a link that is none.
function without_code(line) {
	while (match(line, /``([^`]|`[^`])+``/))
		line = substr(line, 1, RSTART - 1) \
		       blot(substr(line, RSTART, RLENGTH)) \
		       substr(line, RSTART + RLENGTH)
	return line
}

BEGIN {
	ORS = ""
}

FNR == 1 {
	folder = FILENAME
	if (!sub(/[^\/]*$/, "", folder))
		folder = ""
}

{
	whole = whole $0 "\n"
	if ($0 ~ /^ *```/) {
		fenced = !fenced
		seen = seen blot($0) "\n"
	} else {
		seen = seen (fenced ? blot($0) : without_code($0)) "\n"
	}
}

END {
	done = 1 # how far the text is looked at
	out = ""
	while (match(substr(seen, done),
		     /\[[^][]*(\[[^][]*\][^][]*)*\]\([^() \t\n]+\)/)) {
		start = done + RSTART - 1
		length_all = RLENGTH
		link = substr(seen, start, length_all)
		out = out substr(whole, done, start - done)
		done = start + length_all
		before = substr(seen, 1, start - 1)
		at = gsub(/\n/, "\n", before) + 1
		split_at = 0
		for (i = length(link); i > 1; i--)
			if (substr(link, i - 1, 2) == "](") {
				split_at = i
				break
			}
		text = substr(link, 2, split_at - 3)
		gsub(/[\n\t ]+/, " ", text)
		target = substr(link, split_at + 1, length(link) - split_at - 1)
		# Inside of `code` it is no link.
		sub(/.*\n\n/, "", before)
		if (gsub(/`/, "`", before) % 2)
			out = out link
		else
			out = out substr(link, 1, split_at) check() ")"
	}
	if (write)
		print out substr(whole, done) > new
	exit bad
}
