# SPDX-License-Identifier: MIT
#
# Every program of every lesson, built in each of the ways that are tested:
# build/VARIANT/NN-slug/PROGRAM. To be called from the top:
#
#	make -f tests/variants.mk -j2 gcc-O0 asan-O2
#
# A warning is an error here.

SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	   -fno-omit-frame-pointer

settings-gcc-O0 = CC=gcc OPT=-O0
settings-gcc-O2 = CC=gcc OPT=-O2
settings-clang-O0 = CC=clang OPT=-O0
settings-clang-O2 = CC=clang OPT=-O2
settings-asan-O0 = CC=gcc OPT=-O0 SANITIZE='$(SANITIZE)'
# Inlined into one another and instrumented, the functions of a program take
# three times as long to compile.
settings-asan-O2 = CC=gcc OPT='-O2 -fno-inline' SANITIZE='$(SANITIZE)'

VARIANTS := gcc-O0 gcc-O2 clang-O0 clang-O2 asan-O0 asan-O2
LESSONS := $(notdir $(sort $(wildcard lessons/[0-9][0-9]-*)))

.PHONY: all $(VARIANTS) peers unit history
all: $(VARIANTS) peers unit history

define variant
.PHONY: $(addprefix $1/,$(LESSONS))
$1: $(addprefix $1/,$(LESSONS))
$(addprefix $1/,$(LESSONS)): $1/%:
	@$$(MAKE) --no-print-directory -C lessons/$$* O=../../build/$1/$$* \
		WERROR=1 $$(settings-$1)
endef
$(foreach v,$(VARIANTS),$(eval $(call variant,$v)))

# The peers: programs that misbehave on purpose, for the tests to meet.
HEADERS := $(wildcard common/*.h tests/peers/*.h tools/doctor/judge.c)
FLAGS = -std=gnu11 -D_GNU_SOURCE -DLESSON=99 -g -O2 -Wall -Wextra -Werror -Icommon

peers: $(patsubst tests/peers/%.c,build/peers/%,$(wildcard tests/peers/*.c))
build/peers/%: tests/peers/%.c $(HEADERS) tests/variants.mk
	@mkdir -p $(@D)
	gcc $(FLAGS) -o $@ $< -lrdmacm -libverbs

# Unit tests of common/, with the sanitizers.
unit: $(patsubst tests/unit/%.c,build/unit/%,$(wildcard tests/unit/*.c))
build/unit/%: tests/unit/%.c $(wildcard tests/unit/*.h) $(HEADERS) \
		tests/variants.mk
	@mkdir -p $(@D)
	gcc $(FLAGS) $(SANITIZE) -o $@ $< -lcmocka -lrdmacm -libverbs

# What looks at a history of requests (lesson 16).
history: build/history/linear
build/history/%: tests/history/%.c tests/variants.mk
	@mkdir -p $(@D)
	gcc -std=gnu11 -D_GNU_SOURCE -g -O2 -Wall -Wextra -Werror -o $@ $<
