# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# short_run NN: what the client of a lesson is asked for, so that a picture of
# its run stays short. A lesson that is not named here is shown as it runs by
# itself. Source it, do not run it.

short_run() {
	case $1 in
	04) echo --count 2 --wait busy ;;
	05) echo --count 2 --window 2 ;;
	09) echo --block 8192 ;;
	10) echo --count 2 --size 1500 ;;
	11) echo --clients 1 --count 2 ;;
	12) echo --show past-region --show bad-rkey --show rnr ;;
	13) echo --count 8 --window 4 --signal 2 ;;
	14) echo --count 3 -m 600 -r 2048 --batch 3 ;;
	15) echo --clients 3 --count 2 --window 1 ;;
	16) echo --put colour=blue --get colour --delete colour ;;
	18) echo --count 3 ;;
	esac
}

# drawn_run NN: the same, for the ladder. There, connections that are open at the
# same time cannot be told apart.
drawn_run() {
	case $1 in
	15) echo --clients 1 --count 2 --window 1 ;;
	*) short_run "$1" ;;
	esac
}
