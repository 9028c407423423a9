# SPDX-License-Identifier: MIT
#
# Every command of the course. Each is one line here; the work is in the script
# that it calls, and can be called without make as well.
#
# `make help` prints the lines that start with two hash signs. Whoever adds a
# command adds its line; tests/house/commands.bats holds the two together.
#
# LAB, KERNEL, SERVER, CLIENT and IPV reach the scripts through the environment.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

LESSONS := $(sort $(wildcard lessons/[0-9][0-9]-*))
EXERCISES := $(sort $(wildcard exercises/[0-9][0-9]-*))
KERNELS := linux-image-amd64/bookworm linux-image-amd64/trixie \
	   linux-image-amd64/sid

## make run                     every lesson pair in order on two SoftRoCE nodes, then a table
## make run LESSON=02           one pair; each line of output is led by its side
## make run LESSON=02 ARGS=..   the same with arguments for the client
## make run EXERCISE=03         the pair of an exercise: your program and what is given
## make run LIMIT=10 ..         each program is stopped after 10 seconds, not 60 (make trace too)
## make run LAB=native          on this machine's own RDMA device (LAB=vm: on two virtual machines)
## make run LAB=ssh SERVER=host CLIENT=host   on two other machines
## make run KERNEL=..           with another kernel in the virtual machines (docs/lab.md)
.PHONY: run
run:
	@MAKEFLAGS= lab/run $(if $(EXERCISE),exercises/$(EXERCISE),$(LESSON)) -- $(ARGS)

## make shell                   a shell on each of the two nodes
.PHONY: shell
shell:
	@lab/shell

## make wire LESSON=08          the packets of a run, as a ladder
## make wire LESSON=08 PCAP=file SVG=file   keep the capture; draw the ladder
.PHONY: wire
wire:
	@MAKEFLAGS= tools/wire/wire $(if $(EXERCISE),exercises/$(EXERCISE),$(LESSON)) -- $(ARGS)

## make trace LESSON=08         verbs calls, packets and completions on one time line
## make trace LESSON=08 ALL=1 OUT=file   with the libraries' own calls; as JSON lines
## make trace LESSON=08 HTML=file   as a page, to step through the run in a browser (SVG=file: drawn)
## make trace EXERCISE=03       the same of an exercise (make wire EXERCISE=03 as well)
.PHONY: trace
trace:
	@MAKEFLAGS= tools/trace/trace $(if $(EXERCISE),exercises/$(EXERCISE),$(LESSON)) -- $(ARGS)

## make figures                 draw the packets of each lesson into its folder (wire.svg)
## make figures LESSON=08       of one lesson
.PHONY: figures
figures:
	@MAKEFLAGS= tools/wire/figures $(LESSON)

## make book                    the course as a site with search and the stepping pages (build/book)
.PHONY: book
book:
	@MAKEFLAGS= tools/book/book

## make check EXERCISE=03       grade your program: what holds, and a hint for the first that does not
## make check                   the next exercise that is not done
.PHONY: check
check:
	@MAKEFLAGS= exercises/exercise check $(EXERCISE)

## make hint EXERCISE=03        the next hint, one more each time
.PHONY: hint
hint:
	@MAKEFLAGS= exercises/exercise hint $(EXERCISE)

## make progress                what is done, what is next
.PHONY: progress
progress:
	@MAKEFLAGS= exercises/exercise progress

## make reset EXERCISE=03       the stub as it was; your file is kept beside it
.PHONY: reset
reset:
	@MAKEFLAGS= exercises/exercise reset $(EXERCISE)

## make solution EXERCISE=03    your program beside ours, once yours passes (FORCE=1: before)
.PHONY: solution
solution:
	@MAKEFLAGS= FORCE=$(FORCE) exercises/exercise solution $(EXERCISE)

## make doctor                  what is wrong with this machine's RDMA, and what mends it
## make doctor PEER=address     .. and the way to another machine (SERVE=1 there)
.PHONY: doctor
doctor:
	@MAKEFLAGS= tools/doctor/doctor $(if $(JSON),--json) $(if $(SERVE),--serve) \
		$(if $(PEER),--peer '$(PEER)') $(if $(PORT),--port '$(PORT)')

## make softroce                put SoftRoCE on this machine's own card, as root (REMOVE=1 undoes)
.PHONY: softroce
softroce:
	@lab/softroce

## make bench                   the programs of lesson 13 beside perftest; a table, a CSV, a figure
## make bench ROUNDS=1 SIZES=64    quicker: how often, which sizes (SAVE=1 keeps it in the lesson)
.PHONY: bench
bench:
	@MAKEFLAGS= ROUNDS='$(ROUNDS)' SIZES='$(SIZES)' SAVE='$(SAVE)' tools/bench/bench

## make build                   build every lesson; the programs stay in their folders
.PHONY: build needed $(LESSONS)
build: $(LESSONS)
needed:
	@lab/packages run
$(LESSONS): needed
	@$(MAKE) -C $@

## make test                    everything that is tested; ends with "N passed, N failed"
## make test TESTS=..           some files or folders: TESTS=tests/house
## make test KERNEL=..          everything, with another kernel
.PHONY: test
test:
	@tests/run $(TESTS)

## make test-kernels            what runs on the nodes, on kernels 6.1, 6.12 and 7.2 (TESTS=.. some)
.PHONY: test-kernels
test-kernels:
	@MAKEFLAGS= TESTS='$(TESTS)' tests/kernels $(KERNELS)

## make soak                    what takes long: thousands of connections, millions of messages
.PHONY: soak
soak:
	@tests/run tests/soak

## make clean                   remove what was built, and keep the nodes' kernel
.PHONY: clean
clean:
	@set -e; for lesson in $(LESSONS) $(EXERCISES); do \
		$(MAKE) -s -C $$lesson clean; done
	@find build -mindepth 1 -maxdepth 1 ! -name kernel -exec rm -rf {} + \
		2>/dev/null || true

## make distclean               remove the kernel too, and the packages of make book
.PHONY: distclean
distclean: clean
	@rm -rf build tools/book/node_modules

## make help                    this list
.PHONY: help
help:
	@sed -n 's/^## //p' Makefile
