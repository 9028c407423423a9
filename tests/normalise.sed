# SPDX-License-Identifier: MIT
#
# What differs from run to run of the same command, made alike on both sides
# before tests/readme compares. The first rules drop whole lines.

# how far the lab, the packages or make have come
/^(lab|packages): /d
/^make(\[[0-9]+\])?: (Entering|Leaving|Nothing|Target|'all' is)/d
/^(gcc|clang|mkdir) /d

# where in a Makefile a recipe stands
s/^(make(\[[0-9]+\])?: \*\*\*) \[[^]]*\]/\1 [RULE]/

# memory addresses, keys and other numbers in hexadecimal
s/0x[0-9a-fA-F]+/HEX/g

# the number of a queue pair
s/\b(QP|QPN|qpn|lqpn|rqpn|qp_num)( number)?([ =:]+)[0-9]+/\1\2\3N/g

# keys, packet sequence numbers, process numbers
s/\b([lr]?key|PSN|psn|pid)([ =:]+)[0-9]+/\1\2N/g

# the port that the kernel chose for a client (a server's is 10121)
s/((\b[0-9]+(\.[0-9]+){3}|\])):([3-6][0-9]{4})\b/\1:PORT/g

# times and rates
s/\b[0-9]+(\.[0-9]+)? ?(ns|us|ms|s|seconds?|minutes?)\b/TIME/g
s/\b[0-9]+(\.[0-9]+)? ?([kMG]i?)?B\/s\b/RATE/g

# messages in a second (lessons 13 and 14), and how often a ring was full and its head told
s/\b[0-9]+(\.[0-9]+)? messages\/s\b/RATE/g
s/\b[0-9]+ times full\b/N times full/
s/\bwritten back [0-9]+ times\b/written back N times/

# what the client's card had not acknowledged yet when it left (lesson 05)
s/\b[0-4] answers not yet acknowledged\b/N answers not yet acknowledged/

# how often a program was woken, and how often for nothing (lesson 04)
s/\b[0-9]+ (events|empty)\b/N \1/g

# how many requests a second, and how far the others were (lesson 15)
s/\b[0-9]+ a second\b/N a second/g
s/\bhad [0-9]+ to [0-9]+ of\b/had N to N of/g

# the width of what stands before
s/[ \t]+/ /g
s/ $//
