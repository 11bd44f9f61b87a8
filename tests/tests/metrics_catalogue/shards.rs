//! Shards: messages that cross between them, and buckets that move.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::{SOON, Stage, ask, code, send};
use strowger_tests::meter;
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::program::{STRACE, have};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, status, unique};
use strowger_tests::trace::Trace;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;
use strowger_tests::{control, wait};

pub(super) const SCENES: &[(&str, fn())] = &[
    ("messages that cross", crossings),
    ("a full ring", full_ring),
    ("held messages", held),
    ("more and fewer shards", more_and_fewer),
];

const BUCKETS: u64 = 256;

/// Starts two shards with half of the buckets each.
fn start(setup: Setup) -> Stage {
    let mut stage = Stage::with_shards(setup, 2, &[]);
    let halves = [0, 1].map(|shard| format!("buckets{{shard=\"{shard}\"}}"));
    let are_shared = || halves.iter().all(|half| stage.meter.value(half) == (BUCKETS / 2) as f64);
    assert!(wait::until(SOON, are_shared), "the buckets have moved");
    stage.meter.begins_again();
    stage.shows(&[
        ("shards", At(2)),
        ("buckets", At(BUCKETS)),
        ("messages_held", At(0)),
        ("buckets_moved_total", By(0)),
    ]);
    stage
}

fn options(wire: &Wire) -> Request {
    Request::new("OPTIONS", "sip:example.org", wire.transport().name(), wire.local())
}

/// Finds a call in a bucket of the other shard: its requests and their answers cross between the shards.
fn foreign_call(stage: &mut Stage, wire: &mut Wire) -> String {
    for _ in 0..64 {
        let request = options(wire);
        assert_eq!(code(wire, &request), 200);
        stage.shows(&[("requests_total", By(1)), ("stream_messages_out_total", By(1))]);
        let crossed = stage.meter.value("crossed_in_total");
        assert_eq!(code(wire, &Request { branch: unique("z9hG4bK"), cseq: 2, ..request.clone() }), 200);
        stage.shows(&[("requests_total", By(1)), ("stream_messages_out_total", By(1))]);
        if stage.meter.value("crossed_in_total") - crossed == 2.0 {
            return request.call_id;
        }
    }
    panic!("none of 64 calls is of the other shard");
}

fn crossings() {
    let mut stage = start(Setup::on(&[Tcp]).open_registrar());
    let mut wire = stage.server.connect(Tcp);
    let call_id = foreign_call(&mut stage, &mut wire);
    for cseq in 0..10 {
        let request = Request { call_id: call_id.clone(), cseq, ..options(&wire) };
        assert_eq!(code(&mut wire, &request), 200);
        stage.shows(&[
            ("crossed_out_total", By(2)),
            ("crossed_in_total", By(2)),
            ("wakes_total", More),
            ("requests_total", By(1)),
            ("crossings_dropped_total", By(0)),
            ("crossings_waiting", At(0)),
        ]);
    }
    stage.end();
}

/// One shard is delayed while it answers a datagram; messages from the other fill the ring and the queue before it.
fn full_ring() {
    const QUEUE: u64 = 4_096;
    const SENT: u64 = 9_000;
    if !have(&[STRACE]) {
        return meter::leave_out(&["crossings_waiting", "crossings_dropped_total"]);
    }
    let trace = Trace::default();
    let setup = Setup::on(&[Udp, Tcp]).open_registrar();
    let mut stage = start(setup.under(&trace.injecting("sendmmsg,sendto", "delay_enter=4000000")));
    let mut wire = stage.server.connect(Tcp);
    let call_id = foreign_call(&mut stage, &mut wire);
    let mut other = stage.server.connect(Udp);
    let slow = Request { call_id: call_id.clone(), ..options(&other) };
    send(&mut other, &slow);
    stage.shows(&[("requests_total", By(1)), ("datagrams_out_total", By(0))]);
    let more = (0..SENT).map(|_| Request { call_id: call_id.clone(), ..options(&wire) }.bytes());
    wire.send(&more.collect::<Vec<_>>().concat()).expect("the server reads");
    // There is one ring, and a queue of the same length before it.
    let crossed = 2 * QUEUE;
    stage.shows(&[
        ("crossings_waiting", At(QUEUE)),
        ("crossings_dropped_total", By(SENT - crossed)),
        ("requests_overloaded_total", By(SENT - crossed)),
        ("stream_messages_in_total", By(SENT)),
        ("requests_total", By(0)),
    ]);
    let answers: Vec<_> = (0..SENT).filter_map(|_| status(&wire.final_response(SOON)?)).collect();
    let served = answers.iter().filter(|status| **status == 200).count();
    assert_eq!((answers.len() as u64, served as u64), (SENT, crossed));
    stage.shows(&[("crossings_waiting", At(0)), ("requests_total", By(crossed)), ("crossings_dropped_total", By(0))]);
    assert!(other.final_response(SOON).is_some());
    stage.end();
}

/// Each answer to datagrams delays a shard for a moment, so also between the departure of a bucket and its arrival.
fn held() {
    if !have(&[STRACE]) {
        return meter::leave_out(&["messages_held"]);
    }
    let trace = Trace::default();
    let setup = Setup::on(&[Udp]).open_registrar();
    let mut stage = start(setup.under(&trace.injecting("sendmmsg,sendto", "delay_enter=50000")));
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut wires: Vec<Wire> = (0..8).map(|_| stage.server.connect(Udp)).collect();
    let (mut is_seen, mut of_second) = (false, 0.0);
    std::thread::scope(|scope| {
        let end = EndOnDrop(&over);
        scope.spawn(|| {
            while !over.load(SeqCst) {
                for wire in &mut wires {
                    let request = options(wire);
                    send(wire, &request);
                    sent.fetch_add(1, SeqCst);
                }
                // Slow enough for a shard to empty its sockets: no bucket leaves before that.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        for (signal, shards) in [(libc::SIGUSR2, 1), (libc::SIGUSR1, 2)].into_iter().cycle().take(20) {
            stage.server.process().signal(signal);
            of_second = (BUCKETS - BUCKETS / shards) as f64;
            wait::until(SOON, || {
                is_seen = stage.meter.sees("messages_held", Above(0.0), Duration::ZERO);
                is_seen || stage.meter.value("buckets{shard=\"1\"}") == of_second
            });
            if is_seen {
                break;
            }
        }
        drop(end);
    });
    assert!(is_seen);
    assert!(wait::until(SOON, || stage.meter.value("buckets{shard=\"1\"}") == of_second), "all buckets have moved");
    // Each request is received once, wherever it waited.
    let sent = sent.load(SeqCst);
    assert!(wait::until(SOON, || stage.meter.value("requests_total") >= sent as f64));
    assert_eq!(stage.meter.value("requests_total"), sent as f64);
    stage.shows(&[("messages_held", At(0)), ("buckets_moved_total", More)]);
    stage.end();
}

/// No counter falls or disappears when shards and configuration change.
fn more_and_fewer() {
    let mut stage = start(Setup::on(&[Udp, Tcp]).open_registrar().with("server.software = \"first\""));
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut wires = [stage.server.connect(Udp), stage.server.connect(Tcp), stage.server.connect(Udp)];
    let mut shown = Shown(stage.meter.look());
    std::thread::scope(|scope| {
        let end = EndOnDrop(&over);
        scope.spawn(|| {
            while !over.load(SeqCst) {
                for wire in &mut wires {
                    let contact = format!("sip:bob@{}", wire.local());
                    let register = Request::register(
                        &unique("bob"),
                        "example.org",
                        &contact,
                        wire.transport().name(),
                        wire.local(),
                    );
                    for request in [options(wire), register] {
                        ask(wire, &request);
                        sent.fetch_add(1, SeqCst);
                    }
                }
            }
        });
        for (signal, shards) in [(libc::SIGUSR2, 1), (libc::SIGUSR1, 2), (libc::SIGUSR2, 1), (libc::SIGUSR1, 2)] {
            let before = shown.0["buckets_moved_total"];
            stage.server.process().signal(signal);
            let has_moved = || {
                shown.falls_nowhere(stage.meter.look());
                let of = |shard: u64| shown.0[&format!("buckets{{shard=\"{shard}\"}}")] as u64;
                shown.0["shards"] as u64 == shards && of(0) == BUCKETS / shards && of(1) == BUCKETS - BUCKETS / shards
            };
            assert!(wait::until(SOON, has_moved), "{:#?}", shown.0);
            assert_eq!(shown.0["buckets_moved_total"] - before, (BUCKETS / 2) as f64);
            let of_second = At(BUCKETS - BUCKETS / shards);
            assert!(
                stage.meter.sees("shards", At(shards), SOON)
                    && stage.meter.sees("buckets{shard=\"1\"}", of_second, SOON)
            );
        }
        stage.server.rewrite("\"first\"", "\"second\"");
        let reloads = shown.0["reload_seconds_count"];
        control::done(&stage.server, &["reload"]);
        let is_taken = || {
            shown.falls_nowhere(stage.meter.look());
            shown.0["reload_seconds_count"] - reloads == 2.0
        };
        assert!(wait::until(SOON, is_taken), "each shard takes it");
        drop(end);
    });
    let sent = sent.load(SeqCst);
    stage.shows(&[
        ("requests_total", By(sent)),
        ("registrations_total", By(sent / 2)),
        ("journal_kept_total", By(sent / 2)),
        ("bindings", At(sent / 2)),
        ("buckets_moved_total", By(4 * BUCKETS / 2)),
        ("reloads_total", By(1)),
        ("reload_seconds_count", By(2)),
        ("crossings_dropped_total", By(0)),
    ]);
    shown.falls_nowhere(stage.meter.look());
    stage.end();
}

/// Ends the background thread of a scene, also when the scene fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The samples of the last scrape.
struct Shown(BTreeMap<String, f64>);

impl Shown {
    fn falls_nowhere(&mut self, now: BTreeMap<String, f64>) {
        let counters = ["_total", "_count", "_sum", "_bucket"];
        for (name, before) in &self.0 {
            let family = name.split('{').next().unwrap_or(name);
            if counters.iter().any(|end| family.ends_with(end)) {
                assert!(now.get(name).is_some_and(|now| now >= before), "{name}: {before} -> {:?}", now.get(name));
            }
        }
        self.0 = now;
    }
}
