# SPDX-License-Identifier: MIT
#
# What is wrong with a time line (make trace OUT=..), one complaint a line. The
# order is checked without the causes that it was made from, by counting: at no
# point are there more messages on the wire than were posted, nor more receives
# that completed than messages that had been on the wire.

def other: if . == "client" then "server" else "client" end;

# Calls of the data path that took all their requests.
def posted: select(.call == "ibv_post_send" or .call == "ibv_wr_complete")
	| if .ret == 0 then .wrs | length else (.bad // 0) end;
def begins: select(.kind == "request" and (.again | not)
	and (.name | test("Middle|Last") | not));
def ends: select(.kind == "request" and (.again | not)
	and (.name | test("^SEND (Last|Only)|with Immediate$")));
def received: [.wcs[]? | select(.status == 0 and (.opcode | startswith("RECV")))]
	| length;

(.[0] | if .timeline != 1 then "no time line" else empty end),
(.[1:] | . as $all
	| (to_entries[] | select(.key != .value.n)
		| "line \(.key) says that it is \(.value.n)"),
	  (.[] | . as $e | .after[] | select(. >= $e.n)
		| "\($e.n) (\($e.words)) stands before its cause \(.)"),
	  (range(1; length) | select($all[.].time < $all[. - 1].time)
		| "time runs backwards at \(.)"),
	  (.[] | select(.side != "wire" and .until != null and .t1 != null
			and .until + 1000000 < .time and (.moved | not))
		| "\(.n) (\(.words)) ends before it stands"),
	  foreach .[] as $e (
		{ posted: { client: 0, server: 0 }, begun: { client: 0, server: 0 },
		  ended: { client: 0, server: 0 }, got: { client: 0, server: 0 } };
		.wrong = null
		| if $e.side == "wire" then
			(if [$e | begins] != [] then .begun[$e.from] += 1 else . end)
			| (if [$e | ends] != [] then .ended[$e.from] += 1 else . end)
		  else
			.posted[$e.side] += ([$e | posted] | add // 0)
			| .got[$e.side] += ($e | received)
		  end
		| if $e.from and .begun[$e.from]? > .posted[$e.from] then
			.wrong = "\($e.n) (\($e.words)) before its post"
		  elif $e.side != "wire" and .got[$e.side] > .ended[$e.side | other] then
			.wrong = "\($e.n) (\($e.words)) before its message"
		  else . end;
		.wrong // empty))
