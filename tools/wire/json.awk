# SPDX-License-Identifier: MIT
#
# The packets (columns: dissect.awk) as JSON, one object a line; the format is
# described in tools/README.md.

BEGIN {
	FS = "\t"
}

# The time of the first packet, in nanoseconds, is too long for a number.
NR == 1 {
	realtime = $19
	sub(/[.]/, "", realtime)
	print "{\"packet\":0,\"format\":1,\"realtime\":\"" realtime "\"}"
}

function number(key, value) {
	if (value != "-")
		printf ",\"%s\":%s", key, value
}

function text(key, value) {
	if (value == "-")
		return
	gsub(/\\/, "\\\\", value)
	gsub(/"/, "\\\"", value)
	printf ",\"%s\":\"%s\"", key, value
}

{
	printf "{\"packet\":%d,\"t0\":%s", $1, $2
	text("from", $3)
	text("to", $4)
	text("kind", $5)
	text("name", $6)
	number("connection", $20)
	number("local_qp", $21)
	number("psn", $7)
	number("qp", $8)
	number("length", $9)
	printf ",\"ack_wanted\":%s", $10 ? "true" : "false"
	text("addr", $11)
	text("rkey", $12)
	number("total", $13)
	text("also", $14)
	printf ",\"again\":%s", $15 ? "true" : "false"
	number("opcode", $16)
	text("imm", $17)
	text("data", $18)
	print "}"
}
