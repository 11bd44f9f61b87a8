//! Hours of calls and registrations: no loss, and constant memory. Run by `make soak`.
//!
//! `STROWGER_SOAK_SECONDS` (default 3600), `STROWGER_SOAK_RATE` calls a second (default 200).

use std::time::{Duration, Instant};

use strowger_tests::port;
use strowger_tests::program::{SIPP, have};
use strowger_tests::server::{Setup, loopback};
use strowger_tests::sipp::{Scenario, Sipp};
use strowger_tests::wire::Transport::{Tcp, Udp};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Upper bound of the growth from the end of the first tenth to the end, in bytes.
const GROWTH: u64 = 32 << 20;

#[test]
#[ignore = "takes hours; make soak"]
fn hours_of_calls_and_registrations() {
    if !have(&[SIPP]) {
        return;
    }
    let (seconds, rate) = (number("STROWGER_SOAK_SECONDS", 3_600), number("STROWGER_SOAK_RATE", 200));
    let mut server = Setup::on(&[Udp, Tcp])
        .open_registrar()
        .with("registrar.max_expires = \"2m\"\nregistrar.default_expires = \"2m\"")
        .start();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let answer_ports = [port::free(), port::free()];
    let uas = ["u1", "t1"].iter().zip(answer_ports).map(|(transport, port)| {
        let own = folder.path().join(transport);
        std::fs::create_dir(&own).expect("the folder can be written");
        Sipp::answer(&own, Scenario::Ours("uas"), port, transport)
    });
    let _uas: Vec<Sipp> = uas.collect();
    let (calls, half) = ((rate / 2 * seconds).to_string(), (rate / 2).to_string());
    let mut load = Vec::new();
    for (index, (transport, way, listener)) in [("u1", "udp", Udp), ("t1", "tcp", Tcp)].into_iter().enumerate() {
        let (proxy, target) = (server.address(listener).to_string(), loopback(answer_ports[index]).to_string());
        let words = ["-rsa", &proxy, &target, "-m", &calls, "-r", &half, "-l", "200000", "-key", "way", way];
        load.push(Sipp::start(
            &format!("uac-{transport}"),
            folder.path(),
            Scenario::Ours("uac"),
            port::free(),
            transport,
            &words,
        ));
    }
    let target = server.address(Udp).to_string();
    let words = [&target, "-m", calls.as_str(), "-r", half.as_str(), "-l", "200000"];
    load.push(Sipp::start("register", folder.path(), Scenario::Ours("register"), port::free(), "u1", &words));

    let start = Instant::now();
    let mut level = None;
    while start.elapsed() < Duration::from_secs(seconds) {
        // Poll interval.
        std::thread::sleep(Duration::from_secs((seconds / 60).clamp(1, 60)));
        let ended = server.process().ended();
        assert!(ended.is_none(), "the server ended: {ended:?}");
        let pss = server.process().pss();
        let done: Vec<_> = load.iter().map(|sipp| sipp.counts()).collect();
        println!("{:>6} s  PSS {:>6.1} MB  {done:?}", start.elapsed().as_secs(), pss as f64 / 1e6);
        // Bindings of the first two minutes have expired by then, if the run is long enough.
        if level.is_none() && start.elapsed() > Duration::from_secs((seconds / 10).max(seconds.min(240))) {
            level = Some(pss);
        }
    }
    for sipp in &mut load {
        let counts = sipp.end(Duration::from_secs(120));
        assert_eq!((counts.successful, counts.failed), (rate / 2 * seconds, 0), "{counts:?}\n{}", sipp.errors());
    }
    let end = server.process().pss();
    if let Some(level) = level {
        assert!(end <= level + GROWTH, "memory grew from {level} to {end} bytes");
    }
    server.assert_answers(Udp);
    server.assert_answers(Tcp);
}
