# Two commands: `make demo` shows the system at work, `make test` judges the tree. Both install the
# Debian packages that they lack (as root or through sudo) and then do their whole job.

.DEFAULT_GOAL := help
.PHONY: help demo test deep bench bootstrap

# rustup's directory, for shells that have not read its environment file.
export PATH := $(PATH):$(HOME)/.cargo/bin

XTASK := cargo run --quiet --locked --package xtask --
# A server acts for the users who ask it, and for that it is root.
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || command -v sudo)
# Arguments handed on: make bench NAME=wan ARGS="--rtt 100", make deep ARGS="fsx apps".
NAME ?= wan
ARGS ?=

help:
	@echo "make demo    build, start a server, mount it, copy files, show figures and what to try next"
	@echo "make test    everything that judges a change, within 20 minutes on 2 cores"
	@echo "make deep    the long suites, as root: ARGS=\"fsx apps\" chooses"
	@echo "make bench   measurements over emulated distance: NAME=wan ARGS=\"...\""

# What even the first program needs: a linker. What building the rest needs is found out by that
# program.
bootstrap:
	@sh xtask/bootstrap.sh
	@$(XTASK) deps build

demo: bootstrap
	@$(XTASK) deps demo
	cargo build --locked --profile demo --package azekura
	@$(SUDO) "$${CARGO_TARGET_DIR:-target}/demo/azekura" demo $(ARGS)

# Nothing is compiled twice here, and nobody looks at it with a debugger. With two processors and
# many crates to compile, a crate in one part costs a quarter less than one in four.
test: export CARGO_INCREMENTAL = 0
test: export CARGO_PROFILE_DEV_DEBUG = 0
test: export CARGO_PROFILE_DEV_CODEGEN_UNITS = 1
test: bootstrap
	@$(XTASK) deps test
	@$(XTASK) ci $(ARGS)

deep: bootstrap
	@$(XTASK) deps deep
	@$(XTASK) deep $(ARGS)

bench: bootstrap
	@$(XTASK) deps bench
	@$(XTASK) bench $(NAME) $(ARGS)
