/* SPDX-License-Identifier: MIT */
/*
 * What each call and each packet means, in a sentence or two.
 */
"use strict";

const MEANING = {
	rdma_create_event_channel: "Makes a channel on which the connection manager will report. Underneath it is a file descriptor.",
	rdma_destroy_event_channel: "Closes the channel. Nothing is left.",
	rdma_getaddrinfo: "Makes addresses of a name and a port, as getaddrinfo does for sockets.",
	rdma_freeaddrinfo: "Gives the list of addresses back.",
	rdma_create_id: "Makes an id: what a socket is to TCP, an id is to RDMA connections.",
	rdma_destroy_id: "The id is gone. Its queue pair has to be gone before.",
	rdma_bind_addr: "Gives the id a local address and a port.",
	rdma_listen: "From now on the kernel takes connection requests for this port.",
	rdma_resolve_addr: "Asks which device leads to that address. The answer comes as an event.",
	rdma_resolve_route: "Asks for the way to the peer. The answer comes as an event.",
	rdma_set_option: "Sets an option of the id, or of its queue pair.",
	rdma_ack_cm_event: "Gives the event back. What it pointed to, private data among it, is invalid from here on.",
	rdma_create_qp: "Makes a queue pair: a send queue and a receive queue in the card. The library then moves it to INIT, where receives may be posted.",
	rdma_destroy_qp: "The queue pair is gone, and with it whatever was still in its queues.",
	rdma_connect: "Sends the request for a connection, with the number of our queue pair. The call does not wait for the answer.",
	rdma_accept: "Moves the queue pair to RTR and RTS and sends the answer. A receive must be posted before: the peer may send at once.",
	rdma_reject: "Refuses the connection.",
	rdma_disconnect: "Moves the queue pair to ERR, so that everything posted is flushed, and tells the peer.",
	rdma_join_multicast: "Asks to be a member of a multicast group. The answer comes as an event.",
	rdma_leave_multicast: "Leaves the multicast group.",
	rdma_migrate_id: "From now on this id reports to another channel.",
	rdma_get_request: "Waits for a request for a connection.",
	ibv_get_device_list: "Asks the kernel for the RDMA devices of this machine.",
	ibv_free_device_list: "Gives the list back. Devices that were opened stay open.",
	ibv_open_device: "Opens the device: what comes back is the context that everything else is made from.",
	ibv_close_device: "Closes the device.",
	ibv_query_device: "Asks the device for its limits.",
	ibv_query_device_ex: "Asks the device for its limits and abilities.",
	ibv_query_port: "Asks for the state of a port.",
	ibv_query_gid: "Asks for an address of the port.",
	ibv_query_qp: "Asks the card for the state of the queue pair.",
	ibv_alloc_pd: "Makes a protection domain, a fence: a queue pair can use only memory that was registered in the same one.",
	ibv_dealloc_pd: "The protection domain is gone. Nothing may be left in it.",
	ibv_create_comp_channel: "Makes a file descriptor that becomes readable when an armed completion queue gets something.",
	ibv_destroy_comp_channel: "Closes the completion channel.",
	ibv_create_cq: "Makes a completion queue, where the card will say what it has finished.",
	ibv_destroy_cq: "The completion queue is gone. Each of its events has to be acknowledged before.",
	ibv_reg_mr: "Gives a piece of memory to the card: its pages are pinned, and there are two keys for it, the lkey for our own requests and the rkey for the peer's.",
	ibv_dereg_mr: "Takes the memory back from the card. Its keys are worth nothing from here on.",
	ibv_create_srq: "Makes a receive queue that several queue pairs share.",
	ibv_destroy_srq: "The shared receive queue is gone.",
	ibv_create_ah: "Makes an address handle: where a datagram is to go.",
	ibv_destroy_ah: "The address handle is gone.",
	ibv_create_qp: "Makes a queue pair: a send queue and a receive queue in the card.",
	ibv_destroy_qp: "The queue pair is gone, and with it whatever was still in its queues.",
	ibv_post_recv: "Puts empty buffers on the receive queue. Each will take one message.",
	ibv_post_srq_recv: "Puts empty buffers on the shared receive queue. Each will take one message, of whichever peer.",
	ibv_post_send: "Puts work requests on the send queue and returns. The card does the work; until the completion, the buffers are the card's.",
	ibv_wr_complete: "Puts the requests that were gathered on the send queue.",
	ibv_req_notify_cq: "Arms the completion queue: the next completion raises an event. What is in the queue already raises none, so look once more after arming.",
	ibv_get_cq_event: "Takes the event from the completion channel. Each arming gives one event at most.",
	ibv_ack_cq_events: "Acknowledges events, so that the completion queue can be destroyed some day.",
	rdma_get_src_port: "Asks for the port on our side.",
	rdma_get_dst_port: "Asks for the port on the peer's side.",
	rdma_init_qp_attr: "Asks the connection manager what a queue pair needs for the next state.",
	ibv_ack_async_event: "Gives the event back.",
	ibv_ack_async: "Gives the event back.",
	ibv_alloc_mw: "Makes a memory window, a part of a region with a key of its own.",
	ibv_dealloc_mw: "The memory window is gone.",
	ibv_bind_mw: "Lays the window over a part of a region.",
	ibv_create_ah_from_wc: "Makes an address handle of a datagram that came: where an answer is to go.",
	ibv_modify_srq: "Changes the shared receive queue, as its limit below which it warns.",
	ibv_query_srq: "Asks for what the shared receive queue can hold.",
	ibv_fork_init: "Prepares the library for a program that forks.",
	ibv_get_async_event: "Something happened that no completion tells of.",
	ibv_attach_mcast: "Datagrams to this group come to the queue pair from now on.",
	ibv_detach_mcast: "Datagrams to this group come no more.",
};

const EVENT_MEANING = {
	ADDR_RESOLVED: "The device that leads to the peer is found; the id is tied to it now.",
	ADDR_ERROR: "No device leads to that address.",
	ROUTE_RESOLVED: "The way to the peer is known: we can connect.",
	ROUTE_ERROR: "There is no way to the peer.",
	CONNECT_REQUEST: "Somebody wants to connect. The event brings a new id for this connection; the listening one goes on listening.",
	CONNECT_ERROR: "Setting the connection up failed.",
	UNREACHABLE: "The peer did not answer.",
	REJECTED: "The peer refused the connection.",
	ESTABLISHED: "The connection is there. On the client's side the library has just moved the queue pair to RTR and RTS.",
	DISCONNECTED: "The connection is over, whoever said it first.",
	TIMEWAIT_EXIT: "The time is over in which late packets could still come.",
	DEVICE_REMOVAL: "The device is going away.",
	MULTICAST_JOIN: "We are a member of the multicast group.",
};

const PACKET_MEANING = [
	[/^ConnectRequest/, "The request for a connection. It has the number of the client's queue pair, the first number of its packets, and the private data."],
	[/^ConnectReply/, "The answer. It has the number of the server's queue pair, and the private data of rdma_accept."],
	[/^ReadyToUse/, "The client has the answer, and its queue pair is ready."],
	[/^ConnectReject/, "The connection is refused."],
	[/^DisconnectRequest/, "This side is done with the connection."],
	[/^DisconnectReply/, "And the other side knows."],
	[/^MsgRcptAck/, "The request has come; the answer takes a while."],
	[/^ServiceIDResReqResp/, "The number of the queue pair that takes the datagrams, and its key."],
	[/^ServiceIDResReq/, "Asks which queue pair takes the datagrams for this port. There will be no connection."],
	[/^RNR NAK/, "Not ready: no receive was posted for this message. The sender waits and sends it again."],
	[/^NAK/, "Refused. The request fails, and the queue pair with it."],
	[/^Acknowledge/, "The other card has taken everything up to this packet number. One may stand for several requests."],
	[/^ATOMIC Acknowledge/, "The atomic operation is done; this is the number that was there before."],
	[/^(FetchAdd|Fetch|CmpSwap|Compare)/i, "The other card is asked to change eight bytes of its memory in one step. No program there takes part."],
	[/^RDMA WRITE.*Immediate/, "Bytes for the other side's memory, and a number that comes out of a completion there: it uses a receive."],
	[/^RDMA WRITE (First|Only)/, "Bytes for the other side's memory. The packet says where they go, and shows the rkey. No program there takes part."],
	[/^RDMA WRITE/, "More bytes of the same RDMA WRITE."],
	[/^RDMA READ Request/, "The other card is asked for bytes of its memory. No program there takes part."],
	[/^RDMA READ Response/, "The bytes that were asked for."],
	[/^SEND (Last|Only)/, "A message: it goes into the buffer of the oldest receive that is posted there."],
	[/^SEND/, "A part of a message that is longer than one packet."],
];

function meaningOf(e) {
	if (e.side === "wire") {
		const found = PACKET_MEANING.find(([re]) => re.test(e.name || ""));
		let text = found ? found[1] : "";
		if (e.again)
			text += " It had been on the wire before.";
		return text;
	}
	if (e.error)
		return "The call failed.";
	if (/^ibv_(poll_cq|start_poll|next_poll)$/.test(e.call)) {
		if (!e.wcs || !e.wcs.length)
			return e.calls > 1 ?
				"The program looked, again and again, and nothing was finished yet." :
				"The program looked, and nothing was finished yet.";
		if (e.wcs.some((wc) => wc.status))
			return "A request has failed. Its status says why; everything that is posted behind it is flushed.";
		return "Takes completions from the queue: these requests are finished, and their buffers are the program's again.";
	}
	if (e.call === "rdma_get_cm_event")
		return EVENT_MEANING[e.event] || "";
	if (e.call === "ibv_modify_qp")
		return e.state ? "Moves the queue pair to " + e.state + "." :
			"Changes an attribute of the queue pair; it stays in its state.";
	const name = e.call.replace(/_(ex|iova2?|iova)$/, "");
	return MEANING[e.call] || MEANING[name] || "";
}
