# SPDX-License-Identifier: MIT
#
# Shared by ladder.awk and svg.awk: reads the packets (columns: dissect.awk) and
# makes rows of them. The middle packets of a long message become one row.

BEGIN {
	FS = "\t"
}

# detail(): what stands beside the arrow
function detail(    text) {
	if ($5 == "CM" || $5 == "other")
		return $14 == "-" ? "" : $14
	text = "PSN " $7
	if ($5 == "ack")
		return text ($14 == "-" ? "" : ", " $14)
	if ($6 ~ /^RDMA READ Request/)
		text = text ", " $13 " bytes from " $11 " rkey " $12
	else if ($6 ~ /^(CmpSwap|FetchAdd)/)
		text = text ", at " $11 " rkey " $12
	else if ($6 !~ /^ATOMIC/)
		text = text ", " $9 ($9 == 1 ? " byte" : " bytes")
	if ($6 ~ /^RDMA WRITE/ && $11 != "-") {
		if ($13 != $9)
			text = text " of " $13
		text = text " to " $11 " rkey " $12
	}
	if ($17 != "-")
		text = text ", immediate " $17
	if ($14 != "-")
		text = text ", " $14
	return text
}

function label(name) {
	if ($5 == "CM")
		name = "CM " name
	if ($15)
		name = name " (again)"
	return name
}

$6 ~ /Middle$/ && n && names[n] == label($6) && from[n] == $3 {
	count[n]++
	last_psn[n] = $7
	middle_bytes[n] += $9
	next
}

{
	n++
	times[n] = $2 / 1e6
	from[n] = $3
	to[n] = $4
	kinds[n] = $5
	names[n] = label($6)
	details[n] = detail()
	count[n] = 1
	first_psn[n] = $7
	middle_bytes[n] = $9
}

function finish_rows(    i) {
	for (i = 1; i <= n; i++)
		if (count[i] > 1) {
			names[i] = names[i] " x " count[i]
			details[i] = "PSN " first_psn[i] " to " last_psn[i] \
				", " middle_bytes[i] " bytes"
		}
}
