//! Memory: of a registered contact, of a relayed call just ended, and allocations of a relayed message.
//!
//! `bench_memory [--rate CALLS_A_SECOND]`, 1,000 by default. First `memory_contacts` and `memory_calls`, the programs beside
//! this one, measure contacts and calls without sockets. Then a whole server runs in this process with the shipped
//! `examples/relay.toml`, and SIPp calls SIPp through it for 40 s. Once warm, after 34 s, allocations of all threads are
//! counted against the messages relayed. At the end of the load the server holds the calls of the last 32 s; 40 s later
//! it holds none: the difference in PSS is what they took. Needs the Debian package sip-tester. Exit code 1 when a figure
//! is worse than its limit.

use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use mimalloc::MiMalloc;
use strowger_allocations::{Counting, of_process};
use strowger_server::Server;
use strowger_server::config::{Config, ListenAddress, Transport};

/// The allocator of the program, counted.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

/// Bytes of a call just ended: at most, and aimed at.
const CALL: (f64, f64) = (2_500.0, 1_800.0);
/// What may stay after the last call: buffers, and what the allocator keeps for the next one.
const REST: u64 = 16 << 20;
/// Allocations of a relayed message: what beats once a second whatever the load is not meant.
const ALLOCATIONS_EACH: f64 = 0.01;
/// After this a call is forgotten (64 * T1 of RFC 3261, and a step of cleaning up).
const HELD: f64 = 32.0;

fn pss() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux tells its memory");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("smaps_rollup has a Pss line");
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).expect("Pss is in kB") * 1024
}

/// SIPp, ended with this program.
struct Sipp(Child);

impl Drop for Sipp {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sipp(folder: &Path, name: &str, scenario: &str, port: u16, words: &[String]) -> Result<Sipp, String> {
    let file = folder.join(format!("{name}.xml"));
    std::fs::write(&file, scenario).map_err(|error| format!("{}: {error}", file.display()))?;
    let child = Command::new("sipp")
        .arg("-sf")
        .arg(file)
        .args(["-i", "127.0.0.1", "-p", &port.to_string(), "-nostdin", "-key", "way", "udp"])
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.map(Sipp).map_err(|error| format!("sipp: {error} (apt-get install sip-tester)"))
}

fn free_port(start: u16) -> u16 {
    (start..)
        .find(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok() && TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap_or(start)
}

/// Runs a program that lies beside this one; it prints its own figures.
fn beside(name: &str) -> Result<bool, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let file = own.with_file_name(name);
    println!("-- {name}");
    let status = Command::new(&file).status();
    status
        .map(|status| status.success())
        .map_err(|error| format!("{}: {error} (cargo build --release --bins)", file.display()))
}

fn whole_server(rate: u64, folder: &Path) -> Result<bool, String> {
    println!("-- a whole server, {rate} calls a second for 40 s, then 40 s of silence");
    let [port, caller, called] = [21_060, 22_060, 23_060].map(free_port);
    let example = folder.join("relay.toml");
    std::fs::write(&example, include_str!("../../../examples/relay.toml")).map_err(|error| error.to_string())?;
    let listen = [ListenAddress { transport: Transport::Udp, address: ([127, 0, 0, 1], port).into() }];
    let (config, _) = Config::load(Some(&example), &listen).map_err(|report| report.to_string())?;
    let server = Server::start(config).map_err(|error| format!("{error:#}"))?;
    let before = pss();

    let _called = sipp(folder, "uas", include_str!("../../../tests/scenarios/uas.xml"), called, &[])?;
    std::thread::sleep(Duration::from_millis(500));
    let words =
        ["-rsa", &format!("127.0.0.1:{port}"), &format!("127.0.0.1:{called}"), "-r", &rate.to_string(), "-l", "200000"]
            .map(String::from);
    let load = sipp(folder, "uac", include_str!("../../../tests/scenarios/uac.xml"), caller, &words)?;
    std::thread::sleep(Duration::from_secs(34));
    let count = || {
        let counts = server.counts();
        (of_process(), counts.requests + counts.responses, counts.requests)
    };
    let first = count();
    std::thread::sleep(Duration::from_secs(6));
    let last = count();
    let full = pss();
    drop(load);
    std::thread::sleep(Duration::from_secs(40));
    let after = pss();

    let messages = last.1 - first.1;
    // INVITE, ACK and BYE: three requests a call.
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

fn run() -> Result<bool, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rate = match &words[..] {
        [] => 1_000,
        [flag, rate] if flag == "--rate" => rate.parse().map_err(|_| format!("{rate:?} is not a number"))?,
        _ => return Err("bench_memory [--rate CALLS_A_SECOND]".into()),
    };
    let folder: PathBuf = std::env::temp_dir().join(format!("bench_memory-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let whole = whole_server(rate, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    let parts = [beside("memory_contacts")?, beside("memory_calls")?];
    Ok(whole? && parts.iter().all(|good| *good))
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("a figure is worse than its limit");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
