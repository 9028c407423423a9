#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# make shell, as a person at a terminal sees it: in a terminal of tmux.

load ../helpers

setup() {
	socket=rdma-test-$$
}

teardown() {
	tmux -L "$socket" kill-server 2>/dev/null || true
	assert_nothing_left
}

# screen_shows REGEX: wait until the terminal does, half a minute at most
screen_shows() {
	local i

	for ((i = 0; i < 150; i++)); do
		if tmux -L "$socket" capture-pane -p | grep -qE "$1"; then
			return
		fi
		sleep 0.2
	done
	tmux -L "$socket" capture-pane -p
	fail "the terminal never showed $1"
}

@test "make shell shows a shell on each node, side by side, and ends with them" {
	tmux -L "$socket" -f /dev/null new-session -d -x 150 -y 30 \
		'make shell; echo "status $?"; cat' 3>&-
	screen_shows '^server:.*│client:'
	tmux -L "$socket" send-keys 'rdma link; echo sum=$((40 + 2)) $HOSTNAME' Enter
	screen_shows '│sum=42 client'
	screen_shows '│link rxe0/1 state ACTIVE'
	tmux -L "$socket" send-keys C-d
	screen_shows '^server:[^│]*$'
	tmux -L "$socket" send-keys C-d
	screen_shows '^status 0'
	# The nodes were up before, and still are.
	lab/lab status
}
