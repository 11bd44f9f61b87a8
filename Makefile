# Build, test and benchmark targets; run `make` for the list.

CARGO ?= cargo
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
STROWGER = $(abspath $(TARGET))/release/strowger
TESTED = $(abspath $(TARGET))/debug/strowger

# Durations and counts of the long-running targets.
SOAK_SECONDS ?= 14400
SEEDS ?= 10000
BILLED ?= 20000
FUZZ_SECONDS ?= 3600
FUZZ_TARGETS ?= message views sdp framing transaction dialog calls conditions media session negotiation proxy_header
FUZZ_OPTIONS ?=
# Folders, relative to fuzz/.
FUZZ_CORPUS ?= corpus
STROWGER_CORPORA ?= ../shared/corpora
FUZZ_SEEDS ?= ../crates/message/tests/torture ../crates/lab/messages \
	$(addprefix $(abspath $(STROWGER_CORPORA))/fuzz-seeds/,sip sip-dialog sdp uri)
RATE ?= 1000
SECONDS ?= 10
RUNS ?= 20
LETTERS ?= A,B,C,D,E,F,G,H,H1,I,J,K
# Rounds of a bench, whose median counts: by default 7 for the stress tests, 3 for the others.
ROUNDS ?=
ENTRIES ?= 10000000
BASELINE_ROUNDS ?= 25
BASELINE_SECONDS ?= 3
BASELINE_RATES ?= 1000,2500
BASELINE_TREE = $(abspath $(TARGET))/baseline/$(BASELINE)
# Systems that lab-quick leaves out, and the folder of all runs of the laboratory.
WITHOUT ?= kamailio kamailio-rtpengine
LAB = $(TARGET)/lab
DIALOGS ?= 100000
ACCOUNTED ?= 20000
# Name filter of the tests.
TESTS ?=
# Tests whose servers can get their configuration by a reload.
BY_RELOAD ?= keys:: algorithms:: answers:: bans:: calls:: drain:: gone:: pings:: registrations:: relaying:: removal:: restart:: unreachable:: waiting::
# Tests that take minutes; a short form of each is among the tests.
LONG ?= bridge_nat:: fault_matrix:: lab_capacity:: lab_compare:: lab_hosts:: reload_under_load::
# Number of simultaneous tests: most of them wait nearly all the time.
TEST_THREADS ?= $(shell expr 4 \* `nproc`)

.DEFAULT_GOAL := help
.PHONY: help demo build packages lint test test-all test-reload test-long test-dialogs test-accounting faults loom test-valkey test-sipp-corpus test-sipp-wire soak test-verdict simulate fuzz bench-parser bench-relay bench-memory bench-cache bench-load bench-abuse bench-control bench-rules bench-engine bench-media bench-stress bench-lookups bench-caches lab-quick lab-pictures

help:
	@echo 'make demo          build, then see it work: a server, two users, a call, ten seconds of load'
	@echo 'make build         the program, optimised: $(TARGET)/release/strowger'
	@echo 'make test          the tests; about 15 minutes on two cores from an empty target, half of them the build'
	@echo 'make test-all      the tests, those of keys by a reload, the long ones, calls over a kill, planted faults and loom; another half hour'
	@echo 'make test-reload   the tests of keys and policy, each server given its configuration by a reload'
	@echo 'make test-dialogs  $(DIALOGS) calls over a kill of their server: memory, disk, time of the restart (DIALOGS=); two minutes'
	@echo 'make test-accounting   rows of $(ACCOUNTED) calls while their database is in trouble (ACCOUNTED=); two minutes'
	@echo 'make test-long     measurements of minutes: a hundred reloads with 100,000 prefixes under load, each database and cache server in each'
	@echo '                   trouble, runs of the laboratory before and after a planted slowdown, a call beside a host that sends to all ports; 14 minutes'
	@echo 'make faults        each fault of tests/faults.toml, which the simulation or tests must find; seven minutes'
	@echo 'make loom          ring and bell between threads, in every order of their steps; seconds'
	@echo 'make lint          formatting and lints'
	@echo 'make test-valkey VALKEY=PATH  the tests of caches with this valkey-server in the place of Redis'
	@echo 'make test-sipp-corpus  the verdict on 975 SIPp documents against that of SIPp 3.6.1 itself'
	@echo 'make test-sipp-wire    every message of "strowger sipp" against that of SIPp 3.6.1, byte by byte'
	@echo 'make test-verdict      is the generator believed when it may be and only then? all planted conditions, $(RUNS) runs of each (RUNS=); about'
	@echo '                       two minutes a run'
	@echo 'make packages      install the Debian packages that tests and benches use, if this user may'
	@echo 'make simulate      $(SEEDS) seeds of phones and servers on a bad network (SEEDS=), of bridged calls with media, and a day of 1,000 phones'
	@echo 'make fuzz          $(words $(FUZZ_TARGETS)) fuzz targets under cargo-fuzz, $(FUZZ_SECONDS) s in all (FUZZ_SECONDS= FUZZ_TARGETS=; needs a nightly compiler)'
	@echo 'make soak          calls and registrations for $(SOAK_SECONDS) s: nothing lost, memory level (SOAK_SECONDS=)'
	@echo 'make bench-parser  messages a second: index, views, print'
	@echo 'make bench-relay   CPU per call beside Kamailio and the floor of the machine (RATE= SECONDS= ROUNDS=);'
	@echo '                   with BASELINE=COMMIT beside the build of that commit, $(BASELINE_ROUNDS) rounds of each in turn (half an hour)'
	@echo 'make bench-load    the generator beside SIPp: cost, highest rate, pace, calls held (takes minutes)'
	@echo 'make bench-memory  bytes a contact and a call, allocations a relayed message; then bench-cache (five minutes)'
	@echo 'make bench-cache   the local cache with $(ENTRIES) entries (ENTRIES=): bytes of one, stores and fetches, hits, a fetch beside a writer; after a'
	@echo '                   kill -9 under load each acknowledged entry, and the time of loading 1,000,000 (kills while it compacts are among the tests)'
	@echo 'make bench-control  cost of status and of a list of 1,000,000 registrations for simultaneous calls (2 minutes)'
	@echo 'make bench-rules   cost of a decision among 1,000 rules and 100,000 prefixes'
	@echo 'make bench-engine  cost of a call of the stress tests A to E for the engine alone, without sockets (LETTERS= ROUNDS=)'
	@echo 'make bench-media   bridged calls with media beside Kamailio with rtpengine and a relay that does not read: CPU a packet with 300 calls, then with'
	@echo '                   660 calls delay, loss and memory, then set-up and release beside forwarded calls (ROUNDS=; 70 minutes)'
	@echo 'make bench-stress  the stress tests A to K and H1 beside Kamailio with MariaDB: server and database, CPU a call; then bench-lookups (LETTERS= ROUNDS=;'
	@echo '                   SECONDS=; with 7 rounds 7 minutes for each of A to F, 10 for each of the others, two hours for all)'
	@echo 'make bench-lookups  cost of one look-up in MariaDB and in PostgreSQL for the server (ROUNDS=; two minutes)'
	@echo 'make bench-caches  cost that credentials in a cache add to a registration and a call: local, Memcached, Redis (SECONDS= ROUNDS=; 12 minutes)'
	@echo 'make lab-quick     every experiment of the laboratory in the profile quick on this server, half an hour; with WITHOUT= on Kamailio too, an hour'
	@echo 'make lab-pictures RUN=DIR  pictures of the report of a run for the documents, light and dark'
	@echo 'make bench-abuse   processor time and bytes that one message, one source, one /64 can cost, each with its bound'

demo:
	$(CARGO) run --locked --release --package strowger -- demo

build:
	$(CARGO) build --locked --release --package strowger

# Names packages that cannot be installed; the tests that need them name them again.
packages:
	-@tests/packages --install

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --quiet -- --deny warnings

# One profile builds the tests and the server that they start, all in one go: what they depend on is compiled once
# (Cargo.toml says how far it is optimised). Tests that measure take turns, those that only work make room (tests/src/turn.rs).
test: packages
	$(CARGO) build --locked --workspace --all-targets
	STROWGER_BIN=$(TESTED) STROWGER_EXAMPLES=$(dir $(TESTED)) RUST_TEST_THREADS=$(TEST_THREADS) \
		$(CARGO) test --locked --workspace --no-fail-fast -- $(TESTS)
	@echo 'make test: everything passed'

test-all: export STROWGER_WHOLE = 1
test-all: test test-reload test-long test-dialogs test-accounting faults loom

# As many calls as a server of one machine has, over a kill (DIALOGS=); two minutes.
test-dialogs:
	$(CARGO) build --locked --workspace --all-targets
	STROWGER_DIALOGS=$(DIALOGS) STROWGER_BIN=$(TESTED) $(CARGO) test --locked --workspace --test parallel -- \
		--ignored --exact kept_dialogs::a_hundred_thousand_calls_outlive_a_kill --nocapture

# Each of so many calls (ACCOUNTED=) has its row once, though the database stops, freezes and comes back.
test-accounting: packages
	$(CARGO) build --locked --workspace --all-targets
	STROWGER_ACCOUNTED_CALLS=$(ACCOUNTED) STROWGER_BIN=$(TESTED) $(CARGO) test --locked --workspace --test parallel -- \
		--ignored --nocapture --test-threads=1 accounting_faults::

# Measurements of minutes, one after the other on the whole machine.
test-long: packages
	$(CARGO) build --locked --workspace --all-targets
	STROWGER_BIN=$(TESTED) STROWGER_EXAMPLES=$(dir $(TESTED)) $(CARGO) test --locked --workspace --test serial -- \
		--ignored --nocapture --test-threads=1 $(or $(TESTS),$(LONG))

# Each server starts with the keys that need a restart alone, and gets the others by a reload: their effect must be the same.
test-reload: packages
	$(CARGO) build --locked --workspace --all-targets
	STROWGER_BY_RELOAD=1 STROWGER_BIN=$(TESTED) STROWGER_EXAMPLES=$(dir $(TESTED)) RUST_TEST_THREADS=$(TEST_THREADS) \
		$(CARGO) test --locked --workspace --no-fail-fast --test policy --test sockets --test parallel -- $(or $(TESTS),$(BY_RELOAD))

# All faults of tests/faults.toml are in one build of a copy of the tree, and each run of a program has one.
faults:
	$(CARGO) test --locked --workspace --test faults -- --ignored --nocapture

# The queue between two shards and the bell of one, built with loom in place of the standard library's atomics.
loom:
	cd loom && RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=$(abspath $(TARGET))/loom $(CARGO) test --locked --release

# A server that speaks the protocol of Redis is started by its name. Two tests need it built with TLS.
test-valkey: packages
	@test -x "$(VALKEY)" || { echo 'name a valkey-server: make test-valkey VALKEY=PATH'; exit 2; }
	$(CARGO) build --locked --workspace --all-targets
	mkdir -p $(TARGET)/valkey
	ln -sf $(abspath $(VALKEY)) $(TARGET)/valkey/redis-server
	PATH=$(abspath $(TARGET))/valkey:$$PATH STROWGER_BIN=$(TESTED) STROWGER_EXAMPLES=$(dir $(TESTED)) $(CARGO) test --locked \
		--workspace --no-fail-fast --test parallel --test serial -- $(or $(TESTS),caches:: credential_cache shared_counts:: cache_faults::)

# SIPp reads each document of the corpus in its folder, then our own oddities, then mutants; it takes three minutes.
test-sipp-corpus: packages
	$(CARGO) test --locked --package strowger-scenario --test suite -- scenario_ --include-ignored --nocapture

# Needs an idle machine; a disturbed run is not judged and repeated, three times at most. As root
# the generator is then scheduled before all other work. No run takes longer than a minute. CASE= names some of the conditions.
test-verdict:
	$(CARGO) build --locked --package strowger
	STROWGER_BIN=$(TESTED) STROWGER_VERDICT_RUNS=$(RUNS) CASE='$(CASE)' $(CARGO) test --locked --package strowger-tests --test serial -- \
		--exact verdict::no_verdict_is_wrong --nocapture

simulate:
	STROWGER_SIM_SEEDS=$(SEEDS) STROWGER_SIM_BILLED=$(BILLED) STROWGER_SIM_BRIDGED=$(SEEDS) STROWGER_SIM_PHONES=1000 $(CARGO) test --locked --release --package strowger-tests --test simulate -- --nocapture

# cargo-fuzz comes with `cargo install cargo-fuzz`, the compiler with `rustup toolchain install nightly`. Findings
# stay in fuzz/artifacts, the corpus in FUZZ_CORPUS, with which the next run continues. `transaction`, `dialog` and `calls` read
# bytes as commands: many short scripts find more than few long ones.
fuzz:
	cd fuzz && for target in $(FUZZ_TARGETS); do \
		mkdir -p $(FUZZ_CORPUS)/$$target && \
		$(CARGO) +nightly fuzz run --release $$target $(FUZZ_CORPUS)/$$target \
			$$(ls -d seeds/$$target $(FUZZ_SEEDS) 2>/dev/null) -- -max_total_time=$$(($(FUZZ_SECONDS) / $(words $(FUZZ_TARGETS)))) \
			-rss_limit_mb=2048 -timeout=10 $$(case $$target in transaction) echo -max_len=400;; esac) $(FUZZ_OPTIONS) \
			|| exit 1; \
	done

test-sipp-wire: packages
	$(CARGO) build --locked --package strowger
	STROWGER_BIN=$(TESTED) $(CARGO) test --locked --package strowger-tests --test serial -- --nocapture sipp_wire::

soak: packages build
	STROWGER_BIN=$(STROWGER) STROWGER_SOAK_SECONDS=$(SOAK_SECONDS) \
		$(CARGO) test --locked --package strowger-tests --test serial -- --ignored --nocapture --test-threads=1 soak::

bench-parser:
	$(CARGO) run --locked --release --quiet --package strowger-benches --bin bench_parser

# Runs an experiment of the laboratory anew; its rows, logs and report are in $(LAB).
lab_run = rm -rf $(LAB)/$(1) && $(STROWGER) lab run $(2) --out $(LAB)/$(1)

# With BASELINE=COMMIT that commit is checked out and built below target/, and stands in for Kamailio: both builds take turns,
# with a copy of the program at each start. Exit code 3 if the median ratio of a scenario is above 1.03.
ifdef BASELINE
bench-relay: packages build
	[ -e $(BASELINE_TREE) ] || { git worktree prune && git worktree add --detach $(BASELINE_TREE) $(BASELINE); }
	cd $(BASELINE_TREE) && CARGO_TARGET_DIR=target $(CARGO) build --locked --release --package strowger
	$(call lab_run,bench-baseline,relay) --system strowger --system baseline=$(BASELINE_TREE)/target/release/strowger \
		--load $(BASELINE_RATES) --window $(BASELINE_SECONDS)s --repetitions $(BASELINE_ROUNDS)
else
bench-relay: packages build
	$(call lab_run,bench-relay,relay) --load $(RATE) --window $(SECONDS)s --repetitions $(or $(ROUNDS),3)
endif

bench-memory: packages
	$(CARGO) build --locked --release --package strowger-benches --bin bench_memory --bin memory_contacts --bin memory_calls --bin bench_cache
	failed=; $(TARGET)/release/bench_memory || failed=1; \
		$(TARGET)/release/bench_cache --entries $(ENTRIES) || failed=1; [ -z "$$failed" ]

bench-cache:
	$(CARGO) build --locked --release --package strowger-benches --bin bench_cache
	$(TARGET)/release/bench_cache --entries $(ENTRIES)

bench-load: packages build
	$(CARGO) build --locked --release --package strowger-benches --bin bench_load
	STROWGER_BIN=$(STROWGER) $(TARGET)/release/bench_load --rounds $(or $(ROUNDS),3)

bench-abuse: packages build
	$(CARGO) build --release --locked --package strowger-benches --bin bench_abuse
	STROWGER_BIN=$(STROWGER) $(TARGET)/release/bench_abuse

bench-control: packages build
	$(CARGO) build --release --locked --package strowger-benches --bin bench_control
	STROWGER_BIN=$(STROWGER) $(TARGET)/release/bench_control --rounds $(or $(ROUNDS),3)

bench-rules:
	$(CARGO) run --locked --release --quiet --package strowger-benches --bin bench_rules

bench-engine:
	$(CARGO) run --locked --release --quiet --package strowger-benches --bin bench_engine -- --rounds $(or $(ROUNDS),3)

bench-media: packages build
	failed=; { $(call lab_run,bench-media-300,b2bua) --profile standard --load 300 --repetitions $(or $(ROUNDS),5); } || failed=1; \
		{ $(call lab_run,bench-media-660,b2bua) --profile standard --load 660 --repetitions $(or $(ROUNDS),3); } || failed=1; \
		{ $(call lab_run,bench-media-calls,b2bua-calls) --profile standard --repetitions $(or $(ROUNDS),5); } || failed=1; [ -z "$$failed" ]

bench-stress: packages build
	$(CARGO) build --locked --release --package strowger-benches --bin bench_lookups
	failed=; { $(call lab_run,bench-stress,stress) --only letter=$(LETTERS) --window $(SECONDS)s --repetitions $(or $(ROUNDS),7); } || failed=1; \
		$(TARGET)/release/bench_lookups --rounds $(or $(ROUNDS),3) || failed=1; [ -z "$$failed" ]

bench-lookups: packages
	$(CARGO) build --locked --release --package strowger-benches --bin bench_lookups
	$(TARGET)/release/bench_lookups --rounds $(or $(ROUNDS),3)

# Each run must have the figures, lines, units and points that its plan promises; its last lines compare the time of the plan with its own.
lab-quick: packages build
	failed=; for file in crates/lab/experiments/*.toml; do experiment=$$(basename $$file .toml); rm -rf $(LAB)/$$experiment; \
		$(STROWGER) lab run $$experiment --profile quick --out $(LAB)/$$experiment $(addprefix --without ,$(WITHOUT)) || failed=1; \
		$(STROWGER) lab report $(LAB)/$$experiment --whole > /dev/null || failed=1; \
	done; [ -z "$$failed" ]

# Colour schemes of Chromium: 0 dark, 1 light.
PICTURE = $(CHROMIUM) --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,750 --blink-settings=preferredColorScheme=$(1) \
	--screenshot=$(abspath docs/lab-report-$(2).png) file://$(abspath $(RUN))/report.html
CHROMIUM ?= chromium

lab-pictures: packages
	$(call PICTURE,1,light)
	$(call PICTURE,0,dark)

bench-caches: packages build
	$(call lab_run,bench-caches,caches) --system strowger --only cache=none,local,memcached,redis --window $(SECONDS)s --repetitions $(or $(ROUNDS),3)
