#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031 # each test is a subshell, and sets its own
#
# The commands of the exercises, and programs that misbehave under them.

load ../helpers
load grading

# Some checks build everything there is to build.
export BATS_TEST_TIMEOUT=300

# A copy of the repository in which files may be changed, as a learner does.
copy_repository() {
	local copy=$BATS_FILE_TMPDIR/copy

	[ ! -d "$copy" ] || return 0
	mkdir "$copy"
	tests/tracked | tar cf - -T - | tar xf - -C "$copy"
}

setup_file() {
	local name

	copy_repository
	# Programs that are no answer to anything, and an honest one at the end:
	# whatever the others have done, it has to be graded as if nothing was.
	for name in flood crash hang bomb orphan disk memory kill; do
		mkdir "$BATS_FILE_TMPDIR/$name"
		program "$name" >"$BATS_FILE_TMPDIR/$name/client.c"
		printf '%s 01 %s\n' "$name" "$BATS_FILE_TMPDIR/$name"
	done >"$BATS_FILE_TMPDIR/list"
	printf 'honest 01 solutions/01-many-sends -DSOLUTION\n' \
		>>"$BATS_FILE_TMPDIR/list"
	exercises/exercise grade "$BATS_FILE_TMPDIR/list" \
		>"$BATS_FILE_TMPDIR/results"
}

# program NAME: the source of one that misbehaves
program() {
	cat <<-'END'
		#include <fcntl.h>
		#include <signal.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		int main(void) {
			static char block[65536] = "x";
	END
	case $1 in
	flood) echo 'for (;;) puts("listening on my own voice");' ;;
	crash) echo '*(volatile int *)0 = 1;' ;;
	hang) echo 'perror("waiting for ever"); signal(SIGTERM, SIG_IGN); for (;;) pause();' ;;
	bomb) echo 'signal(SIGCHLD, SIG_IGN); for (;;) fork();' ;;
	orphan) echo 'if (fork() == 0) { setsid(); for (;;) pause(); }' ;;
	disk)
		# shellcheck disable=SC2028 # it is C
		cat <<-'END'
			char name[32];
			for (int i = 0; i < 100000; i++) {
				snprintf(name, sizeof(name), "file-%d", i / 100);
				int fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0600);
				if (fd < 0 || write(fd, block, sizeof(block)) < 0)
					return 3;
				close(fd);
			}
		END
		;;
	memory)
		cat <<-'END'
			for (;;) {
				char *p = malloc(sizeof(block));
				if (p) memcpy(p, block, sizeof(block));
			}
		END
		;;
	kill) echo 'kill(-1, SIGKILL); kill(1, SIGKILL); kill(getppid(), SIGKILL); return 4;' ;;
	esac
	echo 'return block[1]; }'
}

# verdict_of NAME HINT: it was graded, and this is what it was told
verdict_of() {
	result "$1"
	assert_equal "$verdict $checkpoint $hint" "fail connects $2"
}

@test "a program that prints without end is stopped" {
	verdict_of flood flood
}

@test "a program that crashes is told where" {
	verdict_of crash crash
}

@test "a program that hangs, and takes no SIGTERM, is stopped" {
	verdict_of hang hang
	# What it said until then is shown.
	grep -q "| waiting for ever" "$BATS_FILE_TMPDIR/list.hang"
}

@test "a fork bomb is bounded, and stopped" {
	verdict_of bomb hang
}

@test "a process that is left behind is seen" {
	verdict_of orphan fork
}

@test "a program that fills the disk finds a small one" {
	verdict_of disk connect
	grep -q 'ended with status 3' "$BATS_FILE_TMPDIR/list.disk"
	# It said nothing, so nothing is announced.
	run grep "said:" "$BATS_FILE_TMPDIR/list.disk"
	assert_failure 1
}

# It is killed for that, or for the time that it takes.
@test "a program that takes all memory is the one to go" {
	result memory
	assert_equal "$verdict $checkpoint" "fail connects"
	[[ $hint == crash || $hint == hang ]]
}

@test "a program that kills all it can kills nothing of ours" {
	verdict_of kill connect
	grep -q 'ended with status 4' "$BATS_FILE_TMPDIR/list.kill"
}

@test "after all of them an honest program passes" {
	result honest
	assert_equal "$verdict" pass
}

# ---- a learner's evening ----------------------------------------------------

learner() {
	cd "$BATS_FILE_TMPDIR/copy" || return
	run --separate-stderr "$@"
	printf '%s\n' "$output" "$stderr"
}

@test "1: nothing is begun, and the first is next" {
	learner make progress
	assert_success
	assert_line --regexp '^01 .*not begun  <- next$'
	assert_line --regexp '^08 .*not begun$'
	learner make solution EXERCISE=01
	assert_failure
	assert_equal "$output" ''
}

@test "2: the stub fails, and the hint that fits is shown" {
	learner make check
	assert_failure
	assert_line --regexp '^ok +1 It builds$'
	assert_line --regexp '^no +3 '
	assert_line --regexp '^-- +9 '
	assert_line --regexp '^[0-9]+ of [0-9]+ checkpoints hold\.$'
	assert_line 'Hint: Room for all of them'
	learner make progress
	assert_line --regexp '^01 .* of [0-9]+ checkpoints  <- next$'
}

@test "3: each hint is another one, and they come to an end" {
	local second third

	learner make hint
	assert_line --partial 'hint 2 of 3'
	second=$output
	learner make hint EXERCISE=1
	assert_line --partial 'hint 3 of 3'
	third=$output
	assert [ "$second" != "$third" ]
	learner make hint EXERCISE=many-sends
	assert_line --partial 'That was all'
	# Of an exercise that was never checked, the first.
	learner make hint EXERCISE=05
	assert_line --partial 'hint 1 of 3'
}

@test "4: a program that does not build is told so" {
	cd "$BATS_FILE_TMPDIR/copy"
	sed -i 's/^int main/int main main/' exercises/01-many-sends/client.c
	learner make check EXERCISE=01
	assert_failure
	assert_line --regexp '^no +1 It builds$'
	assert_output --partial 'error:'
	assert_line 'Hint: It does not build'
}

@test "5: reset gives the stub back, and keeps what was there" {
	learner make reset EXERCISE=01
	assert_success
	assert_output --partial 'client.c.saved-1'
	grep -q 'int main main' exercises/01-many-sends/client.c.saved-1
	cmp exercises/01-many-sends/client.c "$TOP/exercises/01-many-sends/client.c" ||
		grep -q '^01 ' "$TOP/.progress"
	learner make progress
	assert_line --regexp '^01 .*not begun  <- next$'
	git -C "$BATS_FILE_TMPDIR/copy" init -q
	git -C "$BATS_FILE_TMPDIR/copy" status --porcelain \
		--untracked-files=all >"$BATS_TEST_TMPDIR/status"
	grep -q checkpoints.bash "$BATS_TEST_TMPDIR/status"
	run grep -e saved -e progress "$BATS_TEST_TMPDIR/status"
	assert_failure
}

@test "6: a right answer passes, and shows ours" {
	cd "$BATS_FILE_TMPDIR/copy"
	solutions/make-stubs --solution "$BATS_TEST_TMPDIR" 01-many-sends
	cp "$BATS_TEST_TMPDIR/01-many-sends/client.c" exercises/01-many-sends/
	learner make check EXERCISE=01
	assert_success
	assert_output --partial 'exercise 01 is done'
	assert_output --partial 'Next: exercise 02'
	learner make solution EXERCISE=01
	assert_success
	assert_output 'yours and ours are the same'
	learner make progress
	assert_line --regexp '^01 .*done$'
	assert_line --regexp '^02 .*<- next$'
	learner make solution EXERCISE=02 FORCE=1
	assert_success
	assert_output --partial '+++ ours'
}

@test "7: cleaning leaves the learner's things alone" {
	learner make distclean
	assert_success
	[ -e .progress ]
	[ -e exercises/01-many-sends/client.c.saved-1 ]
	[ ! -e exercises/01-many-sends/client ]
}

@test "the pair of an exercise runs by hand" {
	run lab/run exercises/06
	assert_failure
	assert_output --partial 'client | connected'
}

# ---- the rest ----------------------------------------------------------------

@test "the stubs are what the solutions make of them" {
	solutions/make-stubs --check
}

@test "every hint has three levels or more, and every checkpoint a hint" {
	local file hint

	for file in exercises/hints.md exercises/[0-9]*/hints.md; do
		awk -v file="$file" '
			/^## Hint / { check(); title = $0; n = 0 }
			/^[0-9]+\. / { n++ }
			END { check(); exit bad }
			function check() {
				if (title != "" && n < 3) {
					print file ": " title ": " n
					bad = 1
				}
			}' "$file"
	done
	for file in exercises/[0-9]*/checkpoints.bash; do
		while IFS= read -r hint; do
			grep -q "^## Hint $hint: " "${file%/*}/hints.md" \
				exercises/hints.md || fail "$file: no hint $hint"
		done < <(sed -nE 's/^checkpoint [a-z_]+ [a-z_-]+ ([a-z0-9]+) .*/\1/p
			s/.*\<fits[ =]+([a-z0-9]+)( ;;)?$/\1/p' "$file")
	done
}

@test "every exercise has its files, its tests, and its line in the list" {
	local folder name

	for folder in exercises/[0-9]*/; do
		name=$(basename "$folder")
		for file in README.md hints.md checkpoints.bash Makefile; do
			[ -e "$folder/$file" ] || fail "$folder/$file"
		done
		[ -e "tests/exercises/$name.bats" ] || fail "$name has no tests"
		grep -q "($name/README.md)" exercises/README.md ||
			fail "$name is not in exercises/README.md"
	done
}

@test "wrong commands are refused, and nothing is started" {
	local command

	export LAB_DIR=$BATS_TEST_TMPDIR/lab
	mkdir "$LAB_DIR"
	for command in '' nonsense 'check 99' 'check nonsense' 'check 01 02' \
		reset solution 'reset 99' 'progress 01' 'grade /nonsense'; do
		# shellcheck disable=SC2086 # words
		run --separate-stderr exercises/exercise $command
		assert_equal "$status" 2
		assert_equal "$output" ''
		[[ $stderr == *usage:* ]]
		assert_equal "$(ls -A "$LAB_DIR")" ''
	done
	run --separate-stderr solutions/make-stubs --nonsense
	assert_equal "$status" 2
	run --separate-stderr solutions/make-stubs 99-nonsense
	assert_equal "$status" 2
}

@test "no checkpoint takes the name of a function of the checker" {
	local file names

	names=$(sed -nE 's/^([a-z_]+)\(\) \{.*/\1/p' exercises/exercise \
		exercises/checker.bash | sort)
	for file in exercises/[0-9]*/checkpoints.bash; do
		assert_equal "$(comm -12 <(echo "$names") <(sed -nE \
			's/^([a-z_]+)\(\) \{.*/\1/p' "$file" | sort))" ''
	done
}

@test "a question that jq does not understand ends the check" {
	local copy=$BATS_TEST_TMPDIR/copy

	cp -r "$BATS_FILE_TMPDIR/copy" "$copy"
	sed -i 's/^together() {/&\n\task learner "calls("/' \
		"$copy/exercises/01-many-sends/checkpoints.bash"
	printf 'one 01 solutions/01-many-sends -DSOLUTION\n' >"$copy/list"
	run "$copy/exercises/exercise" grade "$copy/list"
	assert_failure 125
	assert_line 'check: jq does not understand: calls('
}
