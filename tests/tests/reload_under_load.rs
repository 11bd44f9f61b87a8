//! A hundred reloads under a thousand calls a second.

use std::time::{Duration, Instant};

use strowger_tests::alone;
use strowger_tests::control::{done, metric};
use strowger_tests::port;
use strowger_tests::program::{SIPP, have};
use strowger_tests::scrape::scrape;
use strowger_tests::server::{Server, Setup, loopback};
use strowger_tests::sipp::{Calls, Scenario};
use strowger_tests::wire::Transport::Udp;

const RELOADS: usize = 100;
/// Readings of memory before, and after.
const READINGS: usize = 10;

/// Time from one name to the other.
const STEP: Duration = Duration::from_millis(100);

#[test]
fn a_hundred_reloads_under_a_thousand_calls_a_second_lose_none() {
    if !have(&[SIPP]) {
        return;
    }
    let _alone = alone();
    let port = port::free();
    let table = |name: &str| format!("\n[[listener]]\nport = {port}\nadvertise = \"{name}.test\"\n");
    // Transactions end early, so that what is under way is soon as much as it will be.
    let timers = "timers.t1 = \"50ms\"\ntimers.t4 = \"500ms\"\ntimers.timer_d = \"3s\"\ntimers.timer_b = \"3s\"";
    let lines = "control.socket = \"test.control\"";
    let server = Setup::tables(&[(Udp, loopback(port))]);
    let metrics = port::free_address();
    let mut server = server
        .relay()
        .with(timers)
        .with(lines)
        .with(&format!("metrics.listen = \"{metrics}\""))
        .with(&table("alpha"))
        .start();
    let scenarios = (Scenario::Ours("uac_one_name"), Scenario::Ours("uas_one_name"));
    let calls = Calls { scenarios, transports: ("u1", "u1"), way: "udp", calls: None, rate: 1_000 };
    let calls = calls.start(server.address(Udp), None, port::free());
    calls.reach(6_000);
    // What the calls of the moment take comes and goes by as much as is allowed: what stays of reloads lifts the least of many readings over
    // the most of before.
    let readings = |server: &Server| -> Vec<f64> {
        let reading = |_| {
            std::thread::sleep(STEP);
            metric(server, "strowger_resident_memory_bytes")
        };
        (0..READINGS).map(reading).collect()
    };
    let before = readings(&server).into_iter().fold(0.0, f64::max);
    for n in 0..RELOADS {
        let began = Instant::now();
        let (from, to) = if n % 2 == 0 { ("alpha", "beta") } else { ("beta", "alpha") };
        server.rewrite(&format!("{from}.test"), &format!("{to}.test"));
        done(&server, &["reload"]);
        // Calls begin and end under each of the two.
        std::thread::sleep(STEP.saturating_sub(began.elapsed()));
    }
    let grown = readings(&server).into_iter().fold(f64::INFINITY, f64::min) - before;
    let shown = scrape(metrics);
    calls.end();
    assert_eq!(shown["strowger_reloads_total"], RELOADS as f64);
    assert!(grown < 2e6, "memory grew by {grown} bytes");
    let [all, short] = ["count", "bucket{le=\"0.001\"}"].map(|of| shown[&format!("strowger_reload_seconds_{of}")]);
    let longest = shown["strowger_shard_longest_turn_seconds{shard=\"0\"}"];
    println!(
        "memory grew by {grown} bytes; {short} of {all} turns with a reload took 1 ms at most; the longest turn of any kind {:.1} ms",
        longest * 1e3
    );
    // What is longer was held up by other programs, as on every machine now and then.
    assert!(all == RELOADS as f64 && short > 0.95 * all, "{short} of {all}");
    server.stop();
}
