# SPDX-License-Identifier: MIT
#
# Questions about a trace, for the checkpoints. The input is the whole trace, an
# array of records in the order in which the calls began (tools/README.md has
# the format). A record that is part of another call has "in": the program did
# not make it.

# The program's own calls; of one name, or of several.
def own: map(select(.in == null and .lib == null));
def calls(names): own | map(select(.call | IN(names)));

# Those that came back, and did what they were asked to do.
def good: map(select(.t1 != null and .error == null));

# What creates which kind of object, and which field of which call takes it away.
def kinds: [
	{ kind: "event channel", make: "rdma_create_event_channel", new: "ret",
	  take: "rdma_destroy_event_channel", old: "channel" },
	{ kind: "id", make: "rdma_create_id", new: "id",
	  take: "rdma_destroy_id", old: "id" },
	{ kind: "protection domain", make: "ibv_alloc_pd", new: "ret",
	  take: "ibv_dealloc_pd", old: "pd" },
	{ kind: "memory region", make: "ibv_reg_mr", new: "ret",
	  take: "ibv_dereg_mr", old: "mr" },
	{ kind: "memory region", make: "ibv_reg_mr_iova", new: "ret",
	  take: "ibv_dereg_mr", old: "mr" },
	{ kind: "memory region", make: "ibv_reg_mr_iova2", new: "ret",
	  take: "ibv_dereg_mr", old: "mr" },
	{ kind: "completion channel", make: "ibv_create_comp_channel", new: "ret",
	  take: "ibv_destroy_comp_channel", old: "comp_channel" },
	{ kind: "completion queue", make: "ibv_create_cq", new: "ret",
	  take: "ibv_destroy_cq", old: "cq" },
	{ kind: "queue pair", make: "rdma_create_qp", new: "qp",
	  take: "rdma_destroy_qp", old: "qp" },
	{ kind: "queue pair", make: "ibv_create_qp", new: "ret",
	  take: "ibv_destroy_qp", old: "qp" }
];

# The kinds of the objects that are still there at the end.
def left_over:
	reduce (own | good | .[]) as $r ([];
		. as $there
		| (kinds | map(select(.make == $r.call)) | first) as $made
		| (kinds | map(select(.take == $r.call)) | first) as $taken
		| if $made then
			$there + [{ kind: $made.kind, at: $r[$made.new] }]
		  elif $r.call == "rdma_get_cm_event"
			and $r.event == "CONNECT_REQUEST" then
			$there + [{ kind: "id", at: $r.id }]
		  elif $taken then
			$there | map(select(.kind != $taken.kind
					    or .at != $r[$taken.old]))
		  else $there end)
	| map(.kind);

# Calls that take something away and could not.
def failed_to_take:
	(kinds | map(.take)) as $takes
	| own | map(select(.error != null and (.call | IN($takes[]))));

# The call in which the program was when it was stopped.
def stuck: own | map(select(.t1 == null and .t0 != null
		      and (.call | startswith("trace_") | not))) | last;

# The last call of all.
def last_call: own | map(select(.t0 != null
		      and (.call | startswith("trace_") | not))) | last;

# What of the send queue is with the card, step by step: .most requests at a time,
# .writes of them WRITEs, .twice a request from memory that was with the card, .early
# a SEND while a READ was. A completion tells of all the requests before it as well.
def with_card:
	reduce (calls("ibv_post_send", "ibv_poll_cq") | good[]) as $c
		({ now: [], most: 0, writes: 0, twice: 0, early: 0 };
		if $c.wcs then
			reduce $c.wcs[] as $wc (.;
				(.now | map(.signaled and .wr_id == $wc.wr_id)
				 | index(true)) as $i
				| if $i == null or $wc.opcode == "RECV" then .
				  else .now |= .[$i + 1:] end)
		elif $c.wrs then
			reduce $c.wrs[] as $wr (.;
				{ wr_id: $wr.wr_id, addr: $wr.sges[0].addr,
				  write: ($wr.opcode == "RDMA_WRITE"),
				  read: ($wr.opcode == "RDMA_READ"),
				  signaled: ($wr.flags | index("SIGNALED") != null)
				} as $new
				| (if $new.addr and any(.now[]; .addr == $new.addr)
				   then .twice += 1 else . end)
				| (if $wr.opcode == "SEND" and any(.now[]; .read)
				   then .early += 1 else . end)
				| .now += [$new]
				| .most = ([.most, (.now | length)] | max)
				| .writes = ([.writes, (.now | map(select(.write))
					| length)] | max))
		else . end);

# How many buffers had other bytes in them when their request completed than when
# it was posted. The run needs VERBS_TRACE_DATA.
def changed: [calls("ibv_poll_cq")[].wcs[]? | .changed[]?] | length;
