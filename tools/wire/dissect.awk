# SPDX-License-Identifier: MIT
#
# From tshark's fields (see dissect) to one line for each packet:
#
#	 1 number    2 nanoseconds since the first packet
#	 3 from      4 to: server, client, or an address that is neither's
#	 5 kind      CM, request, response, ack, or other
#	 6 name      as in the specification: SEND Only, RDMA WRITE First, ...
#	 7 PSN       8 the destination's queue pair    9 bytes of payload
#	10 1: an acknowledgement is asked for
#	11 address  12 rkey  13 length of the whole operation (WRITE, READ, atomic)
#	14 what else there is to say
#	15 1: the same packet was there before
#	16 opcode   17 immediate data  18 the first bytes of the payload
#	19 seconds of the first packet since 1970, with fraction
#	20 number of the connection, of CM packets
#	21 the queue pair of the sender, where the packet names it
#
# Empty columns are "-".

BEGIN {
	FS = OFS = "\t"
	split("SEND First|SEND Middle|SEND Last|SEND Last with Immediate|" \
	      "SEND Only|SEND Only with Immediate|RDMA WRITE First|" \
	      "RDMA WRITE Middle|RDMA WRITE Last|" \
	      "RDMA WRITE Last with Immediate|RDMA WRITE Only|" \
	      "RDMA WRITE Only with Immediate|RDMA READ Request|" \
	      "RDMA READ Response First|RDMA READ Response Middle|" \
	      "RDMA READ Response Last|RDMA READ Response Only|Acknowledge|" \
	      "ATOMIC Acknowledge|CmpSwap|FetchAdd|reserved|" \
	      "SEND Last with Invalidate|SEND Only with Invalidate|" \
	      "FLUSH|ATOMIC WRITE", names, "|")
	split("ConnectRequest|MsgRcptAck|ConnectReject|ConnectReply|" \
	      "ReadyToUse|DisconnectRequest|DisconnectReply|ServiceIDResReq|" \
	      "ServiceIDResReqResp|LoadAlternatePath|AlternatePathResponse",
	      cm_names, "|")
	split("PSN sequence error|invalid request|remote access error|" \
	      "remote operational error|invalid RD request", nak_names, "|")
	# Milliseconds that an RNR NAK asks for, by its timer's code.
	split("655.36 0.01 0.02 0.03 0.04 0.06 0.08 0.12 0.16 0.24 0.32 0.48 " \
	      "0.64 0.96 1.28 1.92 2.56 3.84 5.12 7.68 10.24 15.36 20.48 " \
	      "30.72 40.96 61.44 81.92 122.88 163.84 245.76 327.68 491.52",
	      rnr_ms, " ")
	reject[8] = "nobody listens (invalid service id)"
	reject[10] = "stale connection"
	reject[28] = "the program said no (consumer reject)"
	for (i = 0; i < 16; i++)
		value[substr("0123456789abcdef", i + 1, 1)] = i
}

# hex(TEXT): of up to 48 bits; 0x in front is passed over
function hex(text,    i, sum) {
	sub(/^0x/, "", text)
	for (i = 1; i <= length(text); i++)
		sum = sum * 16 + value[substr(text, i, 1)]
	return sum + 0
}

# bytes(FIRST, COUNT): of the UDP payload, in hexadecimal
function bytes(first, count) {
	return substr(payload, first * 2 + 1, count * 2)
}

# short(HEX): with 0x, without leading zeros
function short(text) {
	sub(/^0+/, "", text)
	return "0x" (text == "" ? "0" : text)
}

# number(FIELD): tshark writes some in decimal, some in hexadecimal
function number(text) {
	return text ~ /^0x/ ? hex(text) : text + 0
}

function side(address) {
	if (address == server || address == server6)
		return "server"
	return address
}

function seconds_since_first(    now) {
	split($1, now, ".")
	if (first_epoch == "") {
		first_epoch = $1
		split($1, zero, ".")
	}
	return (now[1] - zero[1]) * 1e9 + substr(now[2] "000000000", 1, 9) - \
	       substr(zero[2] "000000000", 1, 9)
}

# private(FIRST, COUNT): private data; it always fills its place, with zeros
function private(first, count,    text) {
	text = bytes(first, count)
	sub(/(00)+$/, "", text)
	if (length(text) % 2)
		text = text "0"
	return text == "" ? "-" : text
}

# connection_of(LOCAL, REMOTE): each side has a number of its own for it
function connection_of(local, remote,    which) {
	if (!((from, local) in connections)) {
		which = (to, remote) in connections ? \
			connections[to, remote] : ++n_connections
		connections[from, local] = which
	}
	return connections[from, local]
}

function communication_management(    attribute) {
	attribute = hex($13)
	kind = "other"
	name = "MAD"
	if (number($12) != 7 || !((attribute - 15) in cm_names))
		return
	kind = "CM"
	name = cm_names[attribute - 15]
	psn = qp = len = "-"
	connection = connection_of(bytes(44, 4), bytes(48, 4))
	key = name $14
	if (name == "ConnectRequest") {
		local_qp = number($15)
		data = private(220, 56)
		also = sprintf("QP %d, PSN from %d, retry %d, rnr_retry %d",
			       number($15), number($16), $17, $18)
	}
	if (name == "ConnectRequest" && $19 != "")
		also = "port " number($19) ", " also
	if (name == "ConnectReply") {
		local_qp = number($20)
		data = private(80, 196)
		also = sprintf("QP %d, PSN from %d", number($20), number($21))
	}
	if (name == "ConnectReject") {
		data = private(128, 148)
		also = "reason " number($22)
		if (number($22) in reject)
			also = also ": " reject[number($22)]
	}
}

function acknowledgement(at,    syndrome, type, low) {
	syndrome = hex(bytes(at, 1))
	type = int(syndrome / 32)
	low = syndrome % 32
	if (type == 1) {
		name = "RNR NAK"
		also = "not ready: wait " rnr_ms[low + 1] " ms"
	} else if (type == 3) {
		name = "NAK"
		also = (low + 1) in nak_names ? nak_names[low + 1] : "code " low
	}
}

function transport(    base, at) {
	base = opcode % 32
	name = (base + 1) in names ? names[base + 1] : "opcode " opcode
	kind = base >= 13 && base <= 16 || base == 18 ? "response" : \
	       base == 17 ? "ack" : "request"
	key = opcode "," psn "," qp
	at = 12
	# Datagrams name the sender's queue pair, and a key.
	if (opcode >= 96) {
		local_qp = hex(bytes(at + 5, 3))
		also = "from QP " local_qp
		at += 8
	}
	if (base == 6 || base == 10 || base == 11 || base == 12) {
		va = short(bytes(at, 8))
		rkey = short(bytes(at + 8, 4))
		dmalen = sprintf("%.0f", hex(bytes(at + 12, 4)))
		at += 16
	} else if (base == 19 || base == 20) {
		va = short(bytes(at, 8))
		rkey = short(bytes(at + 8, 4))
		dmalen = 8
		also = base == 20 ? "add " short(bytes(at + 12, 8)) : \
		       "swap " short(bytes(at + 12, 8)) " for " \
		       short(bytes(at + 20, 8))
		at += 28
	} else if (base == 13 || base == 15 || base == 16 || base == 17) {
		if (base == 17)
			acknowledgement(at)
		at += 4
	} else if (base == 18) {
		also = "was " short(bytes(at + 4, 8))
		at += 12
	}
	if (base == 3 || base == 5 || base == 9 || base == 11) {
		imm = short(bytes(at, 4))
		at += 4
	}
	if (base == 22 || base == 23) {
		also = "invalidates rkey " short(bytes(at, 4))
		at += 4
	}
	len = length(payload) / 2 - at - padding - 4
	if (len > 0)
		data = bytes(at, len > 64 ? 64 : len)
	if (len < 0 || base == 17 || base == 18)
		len = 0
}

{
	from = side($2 != "" ? $2 : $3)
	to = side($4 != "" ? $4 : $5)
	# Whoever talks with the server is the client.
	if (from == "server" && to != "server" && to !~ /^(22[4-9]|23|ff)/)
		to = "client"
	else if (from != "server" && to == "server" || to ~ /^(22[4-9]|23|ff)/)
		if (from != "server")
			from = "client"
	payload = $6
	opcode = number($7)
	psn = number($8)
	qp = number($9)
	padding = number($10)
	ask = number($11)
	va = rkey = dmalen = imm = data = also = connection = local_qp = "-"
	if (qp == 1)
		communication_management()
	else
		transport()
	again = kind != "ack" && ((from "," key) in seen)
	seen[from "," key] = 1
	print ++count, sprintf("%.0f", seconds_since_first()), from, to, kind, name, psn, qp, \
		len, ask, va, rkey, dmalen, also, again, opcode, imm, data, \
		first_epoch, connection, local_qp
}
