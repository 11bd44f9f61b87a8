//! Detection of a stuck shard from another thread.

use std::sync::Mutex;
use std::time::{Duration, Instant};
use strowger_config::{Config, Source};
use strowger_core::Outbox;
use strowger_node::{Program, Server};

/// While this is held, shards block at the end of their round.
static GATE: Mutex<()> = Mutex::new(());

fn pass(_: &Outbox) {
    drop(GATE.lock());
}

pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        // Interval between two checks.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_shard_that_stands_still_is_seen() {
    let text = "listen = [\"udp:127.0.0.1:0\"]\nstore.database = \"memory\"\nregistrar.durability = \"none\"\nmetrics.unhealthy_after = \"400ms\"";
    let (config, _) = Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
    let server = Server::start_in(Program { sends: pass, ..Program::default() }, config).expect("it starts");
    let health = server.health().clone();
    // An idle shard works: it is woken and completes a round.
    let begun = Instant::now();
    until(|| begun.elapsed() > Duration::from_millis(800));
    assert_eq!((health.stuck(), health.unready()), (None, None));
    let gate = GATE.lock().expect("no thread panics with it");
    until(|| health.stuck() == Some(0));
    assert_eq!(health.unready(), Some("shard 0 stands still".into()));
    assert!(server.handle().longest_turn(0) >= Duration::from_millis(300), "{:?}", server.handle().longest_turn(0));
    drop(gate);
    until(|| health.stuck().is_none());
    server.stop();
}
