//! Artificial run, event by event, on a clock of its own: calls at 200 a second that register, ring, are answered or
//! refused, with a second in which the server stands still.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use strowger_measure::{
    CallOutcome, Clock, Counter, Failure, GeneratorRole, Heading, Journal, Level, Log, ReceiveBuffer, Run,
};
use strowger_message::Method::{Ack, Bye, Invite, Register};

pub(crate) const MS: u64 = 1_000;
pub(crate) const S: u64 = 1_000_000;
/// Start: 2026-11-20T13:00:00.4Z.
pub(crate) const STARTED: u64 = 1_795_179_600_400_000;

pub(crate) fn heading(generator: &str) -> Heading {
    Heading {
        generator: generator.into(),
        role: GeneratorRole::Caller,
        program: "strowger 0.1.0".into(),
        title: "register-then-call <b>".into(),
        target: "sip:127.0.0.1:5060".into(),
        transport: "udp".into(),
        started: STARTED,
        timers: vec!["1".into(), "ring, \"long\"".into()],
        settings: [("rate", "200"), ("duration", "20 s")].map(|(name, value)| (name.into(), value.into())).into(),
        cores: 2,
        seed: Some(7),
    }
}

/// Repeatable random numbers (a linear congruential generator).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Records `seconds` of 200 calls a second; `seed` makes one generator differ from another.
pub(crate) fn run(generator: &str, seconds: u64, seed: u64, log: Option<&Path>) -> Run {
    let clock = Clock::new(0, UNIX_EPOCH + Duration::from_micros(STARTED));
    let heading = heading(generator);
    let log = log.map(|path| Log::create(path, &heading).unwrap());
    let mut journal = Journal::new(clock, heading, 2, log);
    journal.receive_buffer(ReceiveBuffer { socket: "127.0.0.1:5061".into(), asked: 8 << 20, got: 8 << 20 });
    journal.note(5 * S, Level::Info, "rate set to 200");
    let mut dice = Dice(seed);
    let mut shards = [journal.recorder(0), journal.recorder(0)];
    // (time, event) in the order of planning; calls are identified by their index.
    let mut calls = Vec::new();
    let mut events = std::collections::BTreeMap::new();
    for n in 0..seconds * 200 {
        events.insert((n * 5 * MS, n, 0), ());
    }
    let stall = 8 * S..9 * S;
    while let Some(((at, n, step), ())) = events.pop_first() {
        let recorder = &mut shards[(n % 2) as usize];
        recorder.tick(at);
        let mut later = |delay: u64, step: u64| {
            let due = at + delay;
            // The server does not answer during the stall; its answers are sent at the end of the stall.
            let due = if stall.contains(&due) && step % 2 == 1 { stall.end + due % MS } else { due };
            events.insert((due, n, step), ());
        };
        if step == 0 {
            recorder.calls_intended(1);
            calls.push(recorder.call_started(at + dice.below(200), at, 0));
        }
        let call = &mut calls[n as usize];
        match step {
            0 => {
                recorder.request_sent(call, at, Register, 420);
                later(800 + dice.below(900), 1);
            }
            1 => {
                recorder.response_received(call, at, Register, 401, false, 380);
                recorder.request_sent(call, at, Register, 610);
                later(900 + dice.below(900), 3);
            }
            3 => {
                recorder.response_received(call, at, Register, 200, false, 400);
                recorder.request_sent(call, at, Invite, 700);
                if n % 40 == 7 {
                    later(2_000 + dice.below(2_000), 13);
                } else if n % 400 == 11 {
                    later(3 * S, 15);
                } else {
                    later(2_000 + dice.below(8_000), 5);
                }
            }
            5 => {
                recorder.response_received(call, at, Invite, 180, false, 350);
                later(20_000 + dice.below(40_000), 7);
            }
            7 => {
                recorder.response_received(call, at, Invite, 200, false, 800);
                recorder.timer(0, at - call.started);
                recorder.timer(1, at - call.started);
                recorder.request_sent(call, at, Ack, 380);
                later(S + dice.below(S), 8);
            }
            8 => {
                recorder.request_sent(call, at, Bye, 400);
                if n % 100 == 3 {
                    recorder.request_resent(Bye, 400);
                }
                later(500 + dice.below(700), 9);
            }
            9 => {
                recorder.response_received(call, at, Bye, 200, false, 300);
                recorder.call_ended(call, at, CallOutcome::Successful);
            }
            13 => {
                let code = if n % 80 == 7 { 486 } else { 503 };
                recorder.response_received(call, at, Invite, code, false, 300);
                recorder.unexpected();
                recorder.refused(Invite, code);
                recorder.request_sent(call, at, Ack, 380);
                recorder.call_ended(call, at, CallOutcome::Failed(Failure::UnexpectedMessage));
            }
            _ => {
                recorder.count(Counter::Warnings, 1);
                recorder.call_ended(call, at, CallOutcome::Failed(Failure::TimeoutOnReceive));
            }
        }
        if n % 16 == 0 {
            shards[0].tick(at);
            shards[1].tick(at);
            journal.poll(at);
        }
    }
    let end = seconds * S + 4 * S;
    for recorder in shards {
        assert_eq!(recorder.open(), 0);
        recorder.close(end);
    }
    journal.finish(end, "all calls made")
}
