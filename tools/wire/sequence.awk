# SPDX-License-Identifier: MIT
#
# What has to be the same in two runs of the same programs, from the packets
# (columns: dissect.awk). Time, numbers and keys differ; so does how the two
# directions interleave, how many acknowledgements there are (one may stand for
# several requests) and what was sent again. What is left:
#
#	CM ..		each message of the connection manager, how many of them
#	client ..	for each queue pair that is sent to: the requests and the
#			responses in their order, with their payload's length
#	..		which refusals came, and whether the last request of
#			all was acknowledged
#
# Either side may say goodbye first, and both may: "CM Disconnect" is one line.

BEGIN {
	FS = "\t"
}

# stream(): the packets from one side to one queue pair of the other
function stream(    key) {
	key = $3 SUBSEP $8
	if (!(key in known)) {
		known[key] = ++streams
		side[streams] = $3
	}
	return known[key]
}

function end_run(s) {
	if (runs[s] > 1)
		text[s] = text[s] " x " runs[s]
	runs[s] = 0
}

$5 == "CM" {
	if ($6 ~ /^Disconnect/)
		disconnect = 1
	else if (!$15 && $6 != "MsgRcptAck") {
		key = $3 " " $6
		if (!(key in cm))
			cm_order[++cms] = key
		cm[key]++
	}
	next
}

$5 == "ack" {
	# A packet that is missing is a matter of the wire.
	if ($14 == "PSN sequence error")
		next
	if ($6 != "Acknowledge") {
		key = $3 " " $6 ($6 == "NAK" ? " " $14 : "")
		if (!(key in refused))
			refused_order[++refusals] = key
		refused[key] = 1
	} else {
		acks[$3, ++n_acks[$3]] = $7
	}
	next
}

$15 {
	next
}

{
	s = stream()
	if ($5 == "request" && $16 < 96) {
		asked[s] = $7
		has_asked[$3] = 1
	}
	if ($5 == "response")
		acks[$3, ++n_acks[$3]] = $7
	what = $6 ($6 ~ /^RDMA READ Request/ ? " " $13 : " " $9)
	if (what == last[s]) {
		runs[s]++
		next
	}
	end_run(s)
	runs[s] = 1
	last[s] = what
	text[s] = text[s] "\n" side[s] " " what
}

# answered(SIDE, PEER): whether the last request of each of SIDE's streams was
# acknowledged, or answered with data. PSNs have 24 bits and start again at
# zero; an answer to a READ has a PSN for each of its packets.
function answered(who, peer,    s, i, found) {
	for (s = 1; s <= streams; s++) {
		if (side[s] != who || !(s in asked))
			continue
		found = 0
		for (i = n_acks[peer]; i > 0 && !found; i--)
			found = (acks[peer, i] - asked[s] + 16777216) % \
				16777216 < 65536
		if (!found)
			return "no"
	}
	return "all"
}

END {
	for (i = 1; i <= cms; i++)
		print "CM " cm_order[i] (cm[cm_order[i]] > 1 ? \
			" x " cm[cm_order[i]] : "")
	if (disconnect)
		print "CM Disconnect"
	for (s = 1; s <= streams; s++) {
		end_run(s)
		print substr(text[s], 2)
	}
	for (i = 1; i <= refusals; i++)
		print refused_order[i]
	if (has_asked["client"])
		print "server acknowledged: " answered("client", "server")
	if (has_asked["server"])
		print "client acknowledged: " answered("server", "client")
}
