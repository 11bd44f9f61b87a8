//! What the generator costs and carries, beside SIPp where there is something to compare.
//!
//! * `cost`: processor time per call of the built-in `uac` against the built-in `uas` at one rate, SIPp and Strowger in
//!   turn, and how closely their calls follow one another at a recorder.
//! * `best`: the highest rate of each at which no call fails and nothing is sent again, each side on one core; the cost
//!   there of both sides together.
//! * `paced`: calls for a minute at one rate: how near the rate, how late the calls.
//! * `held`: calls open at once, and the memory of each.
//!
//! Processor time is what the kernel charged to the process until its end. Needs the Debian package sip-tester and two
//! cores. Exit code 1 when something demanded was not reached.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use strowger_benches::median;
use strowger_benches::process::{Folder, Running, figures, free_port, program};

const USAGE: &str = "\
bench_load [--only cost|best|paced|held] [--rounds N] [--json] [--server PROGRAM]

  --only     measure one thing; several are possible [default: all]
  --rounds   of each generator, the median counts [default: 3]
  --json     one JSON object at the end in place of the lines
  --server   the strowger to measure [default: STROWGER_BIN, or that beside this program]";

/// Calls a second and seconds of `cost`.
const COST: (u64, u64) = (2_000, 10);
/// Calls a second that are tried for `best`, in seconds each.
const SIPP_RATES: [u64; 8] = [2_000, 2_500, 3_000, 3_500, 4_000, 4_500, 5_000, 6_000];
const OWN_RATES: [u64; 9] = [15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000, 60_000];
const BEST_SECONDS: u64 = 5;
/// Calls a second and seconds of `paced`.
const PACED: (u64, u64) = (10_000, 60);
/// Calls held, calls begun a second.
const HELD: (u64, u64) = (50_000, 2_500);

struct Arguments {
    only: Vec<String>,
    rounds: usize,
    json: bool,
    server: PathBuf,
}

impl Arguments {
    fn read() -> Result<Self, String> {
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("strowger"));
        let server = std::env::var_os("STROWGER_BIN").map(PathBuf::from).or_else(beside);
        let mut this =
            Self { only: Vec::new(), rounds: 3, json: false, server: server.unwrap_or_else(|| "strowger".into()) };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--json" => this.json = true,
                "--only" => {
                    let name = value()?;
                    if !["cost", "best", "paced", "held"].contains(&name.as_str()) {
                        return Err(format!("there is nothing called {name:?}\n\n{USAGE}"));
                    }
                    this.only.push(name);
                }
                "--rounds" => {
                    let text = value()?;
                    let rounds = text.parse().ok().filter(|&n| n > 0);
                    this.rounds = rounds.ok_or_else(|| format!("{text:?} is not a number above 0"))?;
                }
                "--server" => this.server = value()?.into(),
                "--help" | "-h" => return Err(USAGE.into()),
                _ => return Err(format!("{word:?} is not known\n\n{USAGE}")),
            }
        }
        if !this.server.is_file() {
            let server = this.server.display();
            return Err(format!("{server} is not there: cargo build --release --package strowger"));
        }
        if program("sipp").is_none() {
            return Err("missing Debian package: apt-get install sip-tester".into());
        }
        Ok(this)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    fn say(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }
}

/// Who makes the calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generator {
    Sipp,
    Strowger,
}

impl Generator {
    const BOTH: [Self; 2] = [Self::Sipp, Self::Strowger];

    const fn name(self) -> &'static str {
        match self {
            Self::Sipp => "sipp",
            Self::Strowger => "strowger",
        }
    }

    /// Its command line, which is SIPp's, on one core.
    fn command(self, arguments: &Arguments, core: u32) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]);
        match self {
            Self::Sipp => command.arg(program("sipp").unwrap_or_else(|| "sipp".into())),
            Self::Strowger => command.arg(&arguments.server).arg("sipp"),
        };
        command.args(["-i", "127.0.0.1", "-nostdin"]);
        command
    }
}

/// One run of the built-in `uac`, against the built-in `uas` or a recorder.
struct Calls {
    successful: u64,
    failed: u64,
    /// By both sides.
    sent_again: u64,
    /// Microseconds of processor time a call.
    caller: f64,
    called: f64,
    /// From the first call to the last one's end.
    wall: Duration,
}

impl Calls {
    fn lost_none(&self, calls: u64) -> bool {
        self.successful == calls && self.failed == 0 && self.sent_again == 0
    }
}

fn calls(generator: Generator, arguments: &Arguments, rate: u64, seconds: u64) -> Result<Calls, String> {
    let folder = Folder::new("bench_load")?;
    let count = rate * seconds;
    let [caller, called] = [free_port(), free_port()];
    let mut command = generator.command(arguments, 1);
    command.args(["-sn", "uas", "-p", &called.to_string()]).args(["-trace_stat", "-fd", "1", "-stf"]);
    let uas_file = folder.path().join("uas.csv");
    command.arg(&uas_file).current_dir(folder.path());
    let uas = Running::start(&mut command, &folder.path().join("uas.log"))?;
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let (gone, uac_file) = call(generator, arguments, folder.path(), caller, called, rate, count)?;
    let wall = begun.elapsed();
    // Its statistics are written each second.
    std::thread::sleep(Duration::from_millis(1_300));
    let answered = uas.end().ok_or("the answering side cannot be waited for")?;
    let [uac, uas] = [figures(&uac_file), figures(&uas_file)];
    let figure = |of: &std::collections::BTreeMap<String, u64>, name: &str| of.get(name).copied().unwrap_or(0);
    let each = |time: Duration| time.as_micros() as f64 / count as f64;
    Ok(Calls {
        successful: figure(&uac, "SuccessfulCall(C)"),
        failed: figure(&uac, "FailedCall(C)"),
        sent_again: figure(&uac, "Retransmissions(C)") + figure(&uas, "Retransmissions(C)"),
        caller: each(gone.cpu),
        called: each(answered.cpu),
        wall,
    })
}

fn call(
    generator: Generator,
    arguments: &Arguments,
    folder: &Path,
    from: u16,
    to: u16,
    rate: u64,
    count: u64,
) -> Result<(strowger_benches::process::Gone, PathBuf), String> {
    let mut command = generator.command(arguments, 0);
    let file = folder.join("uac.csv");
    command
        .args(["-sn", "uac", "-p", &from.to_string(), &format!("127.0.0.1:{to}"), "-d", "0"])
        .args(["-r", &rate.to_string(), "-m", &count.to_string(), "-l", "1000000"])
        .args(["-trace_stat", "-fd", "1", "-stf"])
        .arg(&file)
        .current_dir(folder);
    let mut uac = Running::start(&mut command, &folder.join("uac.log"))?;
    let gone = uac.finish(Duration::from_secs(4 * count / rate + 60))?;
    Ok((gone, file))
}

/// How many calls arrive in the millisecond in which one arrives: mean and 99 in 100.
struct Bunching {
    mean: f64,
    p99: u64,
}

/// Answers as the built-in `uas` does, and notes when each INVITE came.
fn bunching(generator: Generator, arguments: &Arguments) -> Result<Bunching, String> {
    let folder = Folder::new("bench_load")?;
    let port = free_port();
    let socket = UdpSocket::bind(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(|error| error.to_string())?;
    let over = Arc::new(AtomicBool::new(false));
    let recorder = {
        let over = over.clone();
        std::thread::spawn(move || record(&socket, &over))
    };
    let (rate, seconds) = (COST.0, 5);
    let result = call(generator, arguments, folder.path(), free_port(), port, rate, rate * seconds);
    over.store(true, Ordering::Relaxed);
    let arrivals = recorder.join().map_err(|_| "the recorder has died")?;
    result?;
    let mut each_millisecond = std::collections::BTreeMap::<u128, u64>::new();
    for at in &arrivals {
        *each_millisecond.entry(at.as_millis()).or_default() += 1;
    }
    let mut seen: Vec<u64> = each_millisecond.values().flat_map(|&n| (0..n).map(move |_| n)).collect();
    seen.sort_unstable();
    if seen.len() < 1_000 {
        return Err(format!("{}: {} calls came to the recorder", generator.name(), seen.len()));
    }
    let mean = seen.iter().sum::<u64>() as f64 / seen.len() as f64;
    Ok(Bunching { mean, p99: seen[seen.len() * 99 / 100] })
}

fn record(socket: &UdpSocket, over: &AtomicBool) -> Vec<Duration> {
    let (begun, mut arrivals, mut buffer) = (Instant::now(), Vec::new(), [0; 2_048]);
    while !over.load(Ordering::Relaxed) {
        let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
        let now = begun.elapsed();
        let Ok(request) = std::str::from_utf8(&buffer[..bytes]) else { continue };
        let answer = |status: &str| {
            let mut lines = format!("SIP/2.0 {status}\r\n");
            for line in request.lines().skip(1).take_while(|line| !line.is_empty()) {
                let name = line.split(':').next().unwrap_or_default();
                if ["Via", "From", "To", "Call-ID", "CSeq"].contains(&name) {
                    lines.push_str(line);
                    if name == "To" && !line.contains("tag=") {
                        lines.push_str(";tag=recorder");
                    }
                    lines.push_str("\r\n");
                }
            }
            lines.push_str(&format!(
                "Contact: <sip:{}>\r\nContent-Length: 0\r\n\r\n",
                socket.local_addr().expect("bound")
            ));
            let _ = socket.send_to(lines.as_bytes(), from);
        };
        if request.starts_with("INVITE") {
            arrivals.push(now);
            answer("180 Ringing");
            answer("200 OK");
        } else if request.starts_with("BYE") {
            answer("200 OK");
        }
    }
    arrivals
}

/// A demand and what was seen.
struct Line {
    what: String,
    seen: f64,
    demanded: f64,
    /// The more the better.
    upward: bool,
}

impl Line {
    fn most(what: &str, seen: f64, demanded: f64) -> Self {
        Self { what: what.into(), seen, demanded, upward: false }
    }

    fn least(what: &str, seen: f64, demanded: f64) -> Self {
        Self { what: what.into(), seen, demanded, upward: true }
    }

    fn is_met(&self) -> bool {
        if self.upward { self.seen >= self.demanded } else { self.seen <= self.demanded }
    }
}

fn cost(arguments: &Arguments, lines: &mut Vec<Line>) -> Result<Value, String> {
    let (rate, seconds) = COST;
    arguments.say(&format!("cost: uac to uas, {rate} calls/s for {seconds} s, {} rounds", arguments.rounds));
    let (mut caller, mut called) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 1..=arguments.rounds {
        for (n, generator) in Generator::BOTH.into_iter().enumerate() {
            let calls = calls(generator, arguments, rate, seconds)?;
            arguments.say(&format!(
                "  {round}  {:<9} UAC {:>6.1} µs/call  UAS {:>6.1} µs/call  failed {}  sent again {}",
                generator.name(),
                calls.caller,
                calls.called,
                calls.failed,
                calls.sent_again
            ));
            caller[n].push(calls.caller);
            called[n].push(calls.called);
        }
    }
    let bunched = [bunching(Generator::Sipp, arguments)?, bunching(Generator::Strowger, arguments)?];
    for (generator, bunched) in Generator::BOTH.into_iter().zip(&bunched) {
        let (mean, p99) = (bunched.mean, bunched.p99);
        arguments.say(&format!("  {:<9} {mean:.1} calls in a millisecond, p99 {p99}", generator.name()));
    }
    let [sipp_caller, own_caller] = caller.map(median);
    let [sipp_called, own_called] = called.map(median);
    lines.push(Line::most("UAC, of SIPp's cost", own_caller / sipp_caller, 0.6));
    lines.push(Line::most("UAS, of SIPp's cost", own_called / sipp_called, 0.45));
    lines.push(Line::most("calls in a millisecond, of SIPp's", bunched[1].mean / bunched[0].mean, 1.0));
    Ok(json!({
        "rate": rate, "uac_us": {"sipp": sipp_caller, "strowger": own_caller},
        "uas_us": {"sipp": sipp_called, "strowger": own_called},
        "calls_in_a_millisecond": {"sipp": bunched[0].mean, "strowger": bunched[1].mean},
    }))
}

/// The highest rate without loss, and the cost of both sides there. A rate is given up after two tries.
fn highest(generator: Generator, arguments: &Arguments, rates: &[u64]) -> Result<(u64, f64), String> {
    let mut best = None;
    'rates: for &rate in rates {
        for _ in 0..2 {
            let calls = calls(generator, arguments, rate, BEST_SECONDS)?;
            // Without loss, and no later than it should.
            let kept_up = calls.wall < Duration::from_secs(BEST_SECONDS + 1);
            let fine = calls.lost_none(rate * BEST_SECONDS) && kept_up;
            arguments.say(&format!(
                "  {:<9} {rate:>6}/s  {:>5.1} µs/call  failed {}  sent again {}  {:.1} s{}",
                generator.name(),
                calls.caller + calls.called,
                calls.failed,
                calls.sent_again,
                calls.wall.as_secs_f64(),
                if fine { "" } else { "  not this" }
            ));
            if fine {
                best = Some((rate, calls.caller + calls.called));
                continue 'rates;
            }
        }
        break;
    }
    best.ok_or_else(|| format!("{} loses calls at {}/s", generator.name(), rates[0]))
}

fn best(arguments: &Arguments, lines: &mut Vec<Line>) -> Result<Value, String> {
    arguments.say("best: the highest rate without loss, one core a side");
    let (sipp_rate, sipp_cost) = highest(Generator::Sipp, arguments, &SIPP_RATES)?;
    let (own_rate, own_cost) = highest(Generator::Strowger, arguments, &OWN_RATES)?;
    lines.push(Line::least("calls/s without loss, one core a side", own_rate as f64, 35_000.0));
    lines.push(Line::most("UAC and UAS at their best rate, of SIPp's", own_cost / sipp_cost, 0.35));
    Ok(json!({"rate": {"sipp": sipp_rate, "strowger": own_rate}, "us": {"sipp": sipp_cost, "strowger": own_cost}}))
}

/// `strowger load` against `strowger load uas`; while it runs, `look` sees both.
fn load(
    arguments: &Arguments,
    words: &[String],
    seconds: u64,
    mut look: impl FnMut(Duration, &Running, &Running),
) -> Result<Value, String> {
    let folder = Folder::new("bench_load")?;
    let port = free_port();
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(&arguments.server).args(["load", "uas", "--quiet", "--port", &port.to_string()]);
    let uas = Running::start(&mut command, &folder.path().join("uas.log"))?;
    std::thread::sleep(Duration::from_millis(500));
    let report = folder.path().join("report.json");
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(&arguments.server).args(["load", &format!("127.0.0.1:{port}"), "--quiet"]);
    command.arg("--json").arg(&report).args(words);
    let mut uac = Running::start(&mut command, &folder.path().join("uac.log"))?;
    let begun = Instant::now();
    while uac.ended().is_none() {
        if begun.elapsed() > Duration::from_secs(seconds + 60) {
            return Err("the calls do not end".into());
        }
        look(begun.elapsed(), &uac, &uas);
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = std::fs::read_to_string(&report).map_err(|error| {
        let said = std::fs::read_to_string(folder.path().join("uac.log")).unwrap_or_default();
        format!("no report ({error}):\n{said}")
    })?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

fn paced(arguments: &Arguments, lines: &mut Vec<Line>) -> Result<Value, String> {
    let (rate, seconds) = PACED;
    arguments.say(&format!("paced: {rate} calls/s for {seconds} s"));
    let words =
        ["-r", &rate.to_string(), "-d", &format!("{seconds}s"), "--hold", "0s", "--no-preflight"].map(String::from);
    let report = load(arguments, &words, seconds, |_, _, _| ())?;
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
    let wanted = (rate * seconds) as f64;
    let successful = number("/calls/successful").ok_or("the report does not say how many calls succeeded")?;
    let achieved = number("/rates/rate.achieved/value").ok_or("the report does not say the rate")?;
    let lag = number("/delays/lag/p99").ok_or("the report does not say how late calls began")?;
    let error = (achieved - rate as f64).abs() / rate as f64;
    arguments.say(&format!("  {successful} of {wanted} successful, {achieved:.1} calls/s, lag p99 {lag} µs"));
    lines.push(Line::least("successful calls in a minute", successful, wanted));
    lines.push(Line::most("error of the rate, per cent", error * 100.0, 0.5));
    lines.push(Line::most("lag p99, ms", lag / 1_000.0, 2.0));
    Ok(json!({"rate": rate, "successful": successful, "achieved": achieved, "lag_p99_us": lag}))
}

fn held(arguments: &Arguments, lines: &mut Vec<Line>) -> Result<Value, String> {
    let (most, rate) = HELD;
    arguments.say(&format!("held: {most} calls at once"));
    let ramp = most / rate;
    let hold = ramp + 10;
    let words = ["-r", &rate.to_string(), "-m", &most.to_string(), "--hold", &format!("{hold}s"), "--no-preflight"];
    let (mut empty, mut full) = (None, None);
    let report = load(arguments, &words.map(String::from), ramp + hold, |at, uac, uas| {
        let seen = (uac.pss(), uas.pss());
        if at < Duration::from_millis(150) {
            empty = Some(seen);
        }
        if at > Duration::from_secs(ramp + 5) && at < Duration::from_secs(ramp + 6) {
            full = Some(seen);
        }
    })?;
    let ((uac_empty, uas_empty), (uac_full, uas_full)) = empty.zip(full).ok_or("the run was over too soon")?;
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
    let open = number("/concurrency/most").ok_or("the report does not say how many calls were open")?;
    let successful = number("/calls/successful").ok_or("the report does not say how many calls succeeded")?;
    let each = |full: u64, empty: u64| full.saturating_sub(empty) as f64 / most as f64;
    let (caller, called) = (each(uac_full, uac_empty), each(uas_full, uas_empty));
    arguments.say(&format!("  {open} open, {successful} successful; UAC {caller:.0} bytes a call, UAS {called:.0}"));
    lines.push(Line::least("calls held at once", open, most as f64));
    lines.push(Line::most("bytes a held call, UAC", caller, 2_048.0));
    lines.push(Line::most("bytes a held call, UAS", called, 2_048.0));
    Ok(json!({"open": open, "successful": successful, "bytes": {"uac": caller, "uas": called}}))
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    let mut lines = Vec::new();
    let mut all = serde_json::Map::new();
    type Part = fn(&Arguments, &mut Vec<Line>) -> Result<Value, String>;
    let parts: [(&str, Part); 4] = [("cost", cost), ("best", best), ("paced", paced), ("held", held)];
    for (name, part) in parts {
        if arguments.wants(name) {
            all.insert(name.into(), part(arguments, &mut lines)?);
        }
    }
    for line in &lines {
        let (mark, way) = (if line.is_met() { "✓" } else { "✗" }, if line.upward { "at least" } else { "at most" });
        arguments.say(&format!("{mark} {:<44} {:>10.3}  {way} {}", line.what, line.seen, line.demanded));
    }
    let met = lines.iter().all(Line::is_met);
    if arguments.json {
        all.insert("met".into(), met.into());
        println!("{}", Value::Object(all));
    }
    Ok(met)
}

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    match measure(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
