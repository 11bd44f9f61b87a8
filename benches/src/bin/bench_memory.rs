//! Memory of a registered contact and of a relayed call that has just ended; allocations per relayed message.
//!
//! `bench_memory [--rate CALLS_A_SECOND]`, 1,000 by default. First `memory_contacts` and `memory_calls`, programs in
//! the same folder, measure contacts and calls without sockets. Then a whole server runs in this process with the
//! shipped `examples/relay.toml`, and SIPp calls SIPp through it for 40 s. Once warm, after 34 s, the allocations of
//! all threads are divided by the number of relayed messages. At the end of the load the server holds the calls of the
//! last 32 s; 40 s later it holds none: the difference in PSS is their memory. Needs the Debian package sip-tester.
//! Exit code 1 when a figure is worse than its limit.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use mimalloc::MiMalloc;
use strowger_allocations::{Counting, of_process};
use strowger_benches::command_line::{beside, run};
use strowger_benches::memory::pss;
use strowger_config::{ListenAddress, Transport};
use strowger_node::{Server, preflight};
use strowger_tests::port;
use strowger_tests::program::SIPP;
use strowger_tests::sipp::{Scenario, Sipp};

/// Allocator of the program, with counters.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

/// Bytes of a call that has just ended: limit and target.
const CALL: (f64, f64) = (2_500.0, 1_800.0);
/// Memory that may stay after the last call: buffers, and the reserve of the allocator.
const REST: u64 = 16 << 20;
/// Allocations per relayed message; events once a second, whatever the load, are excluded by the margin.
const ALLOCATIONS_EACH: f64 = 0.01;
/// Time after which a call is forgotten (64 * T1 of RFC 3261, and a step of cleaning up).
const HELD: f64 = 32.0;

/// Runs a program from the folder of this program; it prints its own figures. Returns whether its figures are within
/// their limits.
fn part(name: &str) -> Result<bool, String> {
    println!("-- {name}");
    let file = beside(name);
    let status = Command::new(&file).status();
    status
        .map(|status| status.success())
        .map_err(|error| format!("{}: {error} (cargo build --release --bins)", file.display()))
}

fn whole_server(rate: u64, folder: &Path) -> Result<bool, String> {
    println!("-- a whole server, {rate} calls a second for 40 s, then 40 s of silence");
    let [port, caller, called] = [port::free(), port::free(), port::free()];
    let example = folder.join("relay.toml");
    std::fs::write(&example, include_str!("../../../examples/relay.toml")).map_err(|error| error.to_string())?;
    let listen = [ListenAddress { transport: Transport::Udp, address: ([127, 0, 0, 1], port).into() }];
    let (config, _) = preflight::load(Some(&example), &listen).map_err(|report| report.to_string())?;
    let server = Server::start(config).map_err(|error| format!("{error:#}"))?;
    let before = pss();

    let _called = Sipp::answer(folder, Scenario::Ours("uas"), called, "u1");
    let words =
        ["-rsa", &format!("127.0.0.1:{port}"), &format!("127.0.0.1:{called}"), "-r", &rate.to_string(), "-l", "200000"];
    let words = [&words[..], &["-key", "way", "udp"]].concat();
    let load = Sipp::start("uac", folder, Scenario::Ours("uac"), caller, "u1", &words);
    std::thread::sleep(Duration::from_secs(34));
    let count = || {
        let (requests, responses) = server.received();
        (of_process(), requests + responses, requests)
    };
    let first = count();
    std::thread::sleep(Duration::from_secs(6));
    let last = count();
    let full = pss();
    drop(load);
    std::thread::sleep(Duration::from_secs(40));
    let after = pss();

    let messages = last.1 - first.1;
    // INVITE, ACK and BYE: three requests per call.
    let calls_a_second = (last.2 - first.2) as f64 / 3.0 / 6.0;
    if messages == 0 {
        return Err("no message went through".into());
    }
    let allocations = (last.0 - first.0) as f64 / messages as f64;
    let each = full.saturating_sub(after) as f64 / (calls_a_second * HELD);
    println!("calls a second          {calls_a_second:.0}");
    println!("allocations a message   {allocations:.4} of {messages} messages (at most {ALLOCATIONS_EACH})");
    println!("PSS before              {:.1} MB", before as f64 / 1e6);
    println!("PSS under load          {:.1} MB", full as f64 / 1e6);
    println!(
        "PSS 40 s after          {:.1} MB (at most {:.1} MB more than before)",
        after as f64 / 1e6,
        REST as f64 / 1e6
    );
    println!("PSS per call just ended {each:.0} bytes (at most {}, aim {})", CALL.0, CALL.1);
    server.stop();
    Ok(allocations <= ALLOCATIONS_EACH && each <= CALL.0 && after <= before + REST)
}

/// Memory of a contact, of a call just ended, and allocations of a relayed message.
#[derive(clap::Parser)]
struct Arguments {
    /// Calls a second through the whole server
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    if SIPP.path().is_none() {
        return Err(format!("missing Debian package: apt-get install {}", SIPP.package));
    }
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let whole = whole_server(arguments.rate, folder.path())?;
    let parts = [part("memory_contacts")?, part("memory_calls")?];
    Ok(whole && parts.iter().all(|good| *good))
}

fn main() -> ExitCode {
    run(measure)
}
