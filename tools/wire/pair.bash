# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What `make wire` and `make trace` have in common: the two nodes, one lesson's
# pair on them, and the packets between them. Source it, do not run it.
#
# shellcheck disable=SC2154,SC2034
# The caller has set me, the command's name for messages.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$top" || exit

say() {
	printf '%s: %s\n' "$me" "$*" >&2
}

bad_usage() {
	say "$@"
	usage >&2
	exit 2
}

# read_arguments ARG...: one lesson, then -- and the client's arguments
read_arguments() {
	lesson='' arguments=()
	while (($#)); do
		case $1 in
		-h | --help)
			usage
			exit 0
			;;
		--)
			arguments=("${@:2}")
			break
			;;
		-*) bad_usage "no option $1 (arguments for the client come after --)" ;;
		*)
			[[ ! $lesson ]] || bad_usage "one lesson at a time"
			lesson=$1
			;;
		esac
		shift
	done
	[[ $lesson ]] || bad_usage "which lesson? LESSON=08"
	find_folder
}

# find_folder: the folder of the lesson, by number or by name, in $folder. Of an
# exercise: exercises/NUMBER.
find_folder() {
	local each slug parent=lessons name=$lesson
	if [[ $lesson == exercises/* ]]; then
		parent=exercises name=${lesson#exercises/}
	fi
	folder=
	for each in "$parent"/[0-9][0-9]-*/; do
		each=${each%/}
		slug=${each#*/}
		case $name in
		"$slug" | "${slug#*-}" | "${slug%%-*}" | "$each") folder=$each ;;
		"${slug:1:1}") [[ ${slug:0:1} != 0 ]] || folder=$each ;;
		esac
	done
	[[ $folder ]] || bad_usage "$lesson: there is no such pair"
}

# need_lab: the packets can be seen between two virtual machines only
need_lab() {
	[[ ${LAB:-vm} == vm ]] ||
		bad_usage "LAB=$LAB: it needs two virtual machines, LAB=vm"
	export LAB=vm
	[[ ${PACKAGES_CHECKED:-} ]] || lab/packages wire || exit
	export PACKAGES_CHECKED=1
}

work='' private='' capturing='' child=''

begin() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/rdma-$me-XXXXXX")
	trap leave EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
}

# leave: nothing of this run stays
leave() {
	local status=$?
	trap '' INT TERM HUP
	trap - EXIT
	if [[ $child ]]; then
		kill "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	[[ ! $capturing ]] || lab/lab capture stop >/dev/null 2>&1 || true
	[[ ! $private ]] || LAB_DIR=$private lab/lab down || true
	rm -rf "$work"
	exit "$status"
}

# wait_for COMMAND...: in a way that lets the traps run at once
wait_for() {
	local status=0
	"$@" </dev/null &
	child=$!
	wait "$child" || status=$?
	child=
	return "$status"
}

# find_nodes: those that are up, or two of our own
find_nodes() {
	if ! lab/lab status >/dev/null 2>&1; then
		private=$(mktemp -d "${XDG_RUNTIME_DIR:-/tmp}/rdma-run-XXXXXX")
		export LAB_DIR=$private
		wait_for lab/lab up || exit
	fi
	SERVER=$(lab/lab addr server)
	SERVER6=$(lab/lab addr -6 server)
}

# captured COMMAND...: run it, and leave the packets in $work/wire.pcap
captured() {
	local status=0
	capturing=1
	lab/lab capture "$work/wire.pcap" || {
		status=$?
		capturing= # it may be somebody else's that goes on
		exit "$status"
	}
	wait_for "$@" || status=$?
	lab/lab capture stop || exit
	capturing=
	return "$status"
}

# dissect: the packets in columns, in $work/wire.tsv
dissect() {
	SERVER=$SERVER SERVER6=$SERVER6 tools/wire/dissect "$work/wire.pcap" \
		>"$work/wire.tsv"
}
