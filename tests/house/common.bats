#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# common/rdma_common.h and the list of it in common/README.md: each has what the
# other has, in the same part.

load ../helpers

# "PART NAME" of every function, macro, struct and enum of the header. What is
# for the header itself is left out.
in_header() {
	awk '
		/^ \* Part [0-9]+:/ { part = $3 + 0 }
		/^static inline / {
			line = $0
			while (line !~ /\(/ && (getline more) > 0)
				line = line " " more
			sub(/\(.*/, "", line)
			sub(/.*[ *]/, "", line)
			print part, line
		}
		/^#define / {
			sub(/\(.*/, "", $2)
			print part, $2
		}
		/^(struct|enum) [a-z_]+ \{/ { print part, $1 " " $2 }
		/^\t(EXIT_[A-Z]+)/ { print 1, $1 }
	' common/rdma_common.h | grep -vE ' (RDMA_COMMON_H|LESSON)$' | sort
}

# The same of the first column of the tables.
in_list() {
	awk -F'|' '
		/^## Part [0-9]+:/ { split($0, word, /[ :]/); part = word[3] }
		/^## / && !/^## Part/ { part = "" }
		part != "" && /^\| `/ {
			n = split($2, name, "`")
			for (i = 2; i <= n; i += 2)
				print part, name[i]
		}
	' common/README.md | sort
}

@test "common/README.md lists what rdma_common.h has, part by part" {
	[ "$(in_header | wc -l)" -gt 50 ]
	diff <(in_header) <(in_list)
}

@test "a part is there after the lesson that the list names" {
	local part lesson gate

	while read -r part lesson; do
		gate=$(awk -v part="$part" '
			/^#if LESSON > / { gate = $4 }
			/^#endif \/\* LESSON/ { gate = 0 }
			$0 ~ "^ \\* Part " part ":" { print gate }' \
			common/rdma_common.h)
		[ "$lesson" -le "$gate" ] || [ "$part" = 1 ] ||
			fail "part $part is there from lesson $((gate + 1)) on, but lesson $lesson shows a helper of it"
	done < <(awk -F'|' '
		/^## Part [0-9]+:/ { split($0, word, /[ :]/); part = word[3] }
		part != "" && /^\| `/ {
			n = split($4, lesson, /[ ,]+/)
			for (i = 1; i <= n; i++)
				if (lesson[i] != "")
					print part, lesson[i] + 0
		}' common/README.md | sort -u)
}
