# SPDX-License-Identifier: MIT
#
# The rules that all lesson folders share. A lesson's Makefile says what is
# particular to it and includes this file:
#
#	PROGRAMS = client server
#	SHOWS = the bare twenty steps of a client
#	include ../../common/lesson.mk
#
# What a lesson may set:
#
#	PROGRAMS	the programs of this folder, each made from NAME.c
#	SHOWS		one line: what running the lesson shows
#	SERVER, CLIENT	the two programs of the pair, as seen from this folder.
#			Without them, server and client of this folder.
#	EACH		in place of a pair: one program to run on each node
#	SERVER_ARGS, CLIENT_ARGS	what the pair is started with
#	USES		how much of rdma_common.h is there: what the lessons before this
#			number have shown. It is the folder's own number, and in an
#			exercise one more. USES_client, USES_server: for that program.
#
# What you may set when you call make ("make -B" builds again when a setting
# has changed and no file has):
#
#	CC=clang		the compiler
#	OPT=-O0			the optimisation
#	SANITIZE=-fsanitize=address	flags for compiling and for linking
#	WERROR=1		a warning is an error
#	O=folder		where the programs go
#	S=folder		where the sources are

PROGRAMS ?= client server
O ?= .
S ?= .
OPT ?= -O2
SANITIZE ?=
WERROR ?=
ifeq ($(origin CC),default)
CC := gcc
endif

COMMON := $(dir $(lastword $(MAKEFILE_LIST)))

# What the lesson's own Makefile says of its pair. In the environment SERVER and
# CLIENT name machines (LAB=ssh), so only what was set in a file counts.
set_in_file = $(if $(filter file,$(origin $1)),$($1),$2)
each := $(call set_in_file,EACH)
# With EACH there is no pair; otherwise the usual names are the pair.
pair_server := $(call set_in_file,SERVER,$(if $(each),,server))
pair_client := $(call set_in_file,CLIENT,$(if $(each),,client))

CFLAGS ?= $(OPT) -g
# An exercise may use what its lesson has taught.
# Not notdir: the path to here may have a space in it.
here := $(lastword $(subst /, ,$(CURDIR)))
number := $(patsubst 0%,%,$(firstword $(subst -, ,$(here))))
is_exercise := $(findstring /exercises/$(here),$(CURDIR))
uses := $(call set_in_file,USES,$(if $(is_exercise),$(shell expr $(number) + 1),$(number)))

ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -DLESSON=$(call set_in_file,USES_$*,$(uses)) -Wall -Wextra \
	     $(if $(WERROR),-Werror) -I$(COMMON) \
	     $(CFLAGS) $(SANITIZE)
LDLIBS = -lrdmacm -libverbs

BUILT := $(addprefix $(O)/,$(PROGRAMS))

.PHONY: all clean show-pair
.DEFAULT_GOAL := all

all: $(BUILT)

$(BUILT): $(O)/%: $(S)/%.c $(wildcard $(S)/*.h $(COMMON)*.h) $(COMMON)lesson.mk Makefile
	@mkdir -p $(O)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(LDLIBS)

clean:
	rm -f $(BUILT)

# What the runner asks a lesson. Paths are as seen from the top of the
# repository, so that another lesson's program can be named as well.
from_top = $(if $1,$(shell realpath -m --relative-to='$(COMMON)..' '$1'))

show-pair:
	$(info shows=$(SHOWS))
	$(info server=$(call from_top,$(pair_server)))
	$(info client=$(call from_top,$(pair_client)))
	$(info each=$(call from_top,$(each)))
	$(info server_args=$(call set_in_file,SERVER_ARGS))
	$(info client_args=$(call set_in_file,CLIENT_ARGS))
	@:
