//! Cost and capacity of the generator, compared with SIPp where possible.
//!
//! * `cost`: processor time per call of the built-in `uac` against the built-in `uas` at one rate, SIPp and Strowger in
//!   turn, and the spacing of their calls at a recorder.
//! * `best`: the highest rate of each without a failed call or a retransmission, each side on one core; the cost of
//!   both sides together at this rate.
//! * `paced`: calls for a minute at one rate, in rounds that alternate with a bare timer: deviation of the rate, lag of
//!   the calls.
//! * `held`: concurrent calls, and the memory of each.
//!
//! Machines differ twofold, so times and rates are judged by their ratios to those of SIPp and of the timer in the same
//! run; the values themselves are printed. Processor time is the time that the kernel charged to the process until its
//! end. Needs the Debian package sip-tester and two cores. Exit code 1 when a demand is not met.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use strowger_benches::bar::Bar;
use strowger_benches::bare_timer::keep_time;
use strowger_benches::command_line::{Options, run};
use strowger_benches::{median, processor_time};
use strowger_tests::port;
use strowger_tests::process::Process;
use strowger_tests::program::SIPP;
use strowger_tests::sipp::Counts;

/// Calls per second and seconds of `cost`.
const COST: (u64, u64) = (2_000, 10);
/// Rates of `best` in calls per second, and seconds of each.
const SIPP_RATES: [u64; 8] = [2_000, 2_500, 3_000, 3_500, 4_000, 4_500, 5_000, 6_000];
const OWN_RATES: [u64; 9] = [15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000, 60_000];
const BEST_SECONDS: u64 = 5;
/// Calls per second of `paced`, seconds of a round and of the bare timer before it, rounds.
const PACED: (u64, u64, u64) = (10_000, 10, 6);
/// Calls held, and calls begun per second.
const HELD: (u64, u64) = (50_000, 2_500);

/// Generator compared with SIPp.
#[derive(clap::Parser)]
struct Arguments {
    /// Measures one thing; several are possible [default: all]
    #[arg(long, value_enum)]
    only: Vec<Part>,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Cost,
    Best,
    Paced,
    Held,
}

impl Part {
    const ALL: [Self; 4] = [Self::Cost, Self::Best, Self::Paced, Self::Held];

    const fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Best => "best",
            Self::Paced => "paced",
            Self::Held => "held",
        }
    }

    fn measure(self, options: &Options, bars: &mut Vec<Bar>) -> Result<Value, String> {
        match self {
            Self::Cost => cost(options, bars),
            Self::Best => best(options, bars),
            Self::Paced => paced(options, bars),
            Self::Held => held(options, bars),
        }
    }
}

/// Generator under test.
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

    /// Returns the command line, in the syntax of SIPp, on one core.
    fn command(self, options: &Options, core: u32) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]);
        match self {
            Self::Sipp => command.arg(SIPP.path().unwrap_or_else(|| SIPP.name.into())),
            Self::Strowger => command.arg(&options.server).arg("sipp"),
        };
        command.args(["-i", "127.0.0.1", "-nostdin"]);
        command
    }
}

/// Result of a run of the built-in `uac`, against the built-in `uas` or a recorder.
struct Calls {
    successful: u64,
    failed: u64,
    /// Retransmissions of both sides.
    sent_again: u64,
    /// Microseconds of processor time per call.
    caller: f64,
    called: f64,
    /// Time from the first call to the end of the last.
    wall: Duration,
}

impl Calls {
    fn lost_none(&self, calls: u64) -> bool {
        self.successful == calls && self.failed == 0 && self.sent_again == 0
    }
}

fn calls(generator: Generator, options: &Options, rate: u64, seconds: u64) -> Result<Calls, String> {
    let folder = folder()?;
    let count = rate * seconds;
    let [caller, called] = [port::free(), port::free()];
    let mut command = generator.command(options, 1);
    command.args(["-sn", "uas", "-p", &called.to_string()]).args(["-trace_stat", "-fd", "1", "-stf"]);
    let uas_file = folder.path().join("uas.csv");
    let mut uas = Process::start("uas", folder.path(), command.arg(&uas_file).current_dir(folder.path()));
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let calling = call(generator, options, folder.path(), caller, called, rate, count);
    let wall = begun.elapsed();
    // SIPp writes its statistics each second.
    std::thread::sleep(Duration::from_millis(1_300));
    let answered = processor_time::until_ended(&mut uas);
    let [uac, uas] = [Counts::of(&folder.path().join("uac.csv")), Counts::of(&uas_file)];
    let each = |time: Duration| time.as_micros() as f64 / count as f64;
    Ok(Calls {
        successful: uac.successful,
        failed: uac.failed,
        sent_again: uac.retransmissions + uas.retransmissions,
        caller: each(calling),
        called: each(answered),
        wall,
    })
}

/// Makes calls, with the figures in `uac.csv`. Returns the processor time of the calling side.
fn call(generator: Generator, options: &Options, folder: &Path, from: u16, to: u16, rate: u64, count: u64) -> Duration {
    let mut command = generator.command(options, 0);
    command
        .args(["-sn", "uac", "-p", &from.to_string(), &format!("127.0.0.1:{to}"), "-d", "0"])
        .args(["-r", &rate.to_string(), "-m", &count.to_string(), "-l", "1000000"])
        .args(["-trace_stat", "-fd", "1", "-stf", "uac.csv"])
        .current_dir(folder);
    let mut uac = Process::start("uac", folder, &mut command);
    processor_time::until_end(&mut uac, Duration::from_secs(4 * count / rate + 60))
}

fn folder() -> Result<tempfile::TempDir, String> {
    tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))
}

/// Number of calls in the millisecond of an arrival: mean and 99th percentile.
struct Bunching {
    mean: f64,
    p99: u64,
}

/// Answers like the built-in `uas`, and records the arrival of each INVITE.
fn bunching(generator: Generator, options: &Options) -> Result<Bunching, String> {
    let folder = folder()?;
    let port = port::free();
    let socket = UdpSocket::bind(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(|error| error.to_string())?;
    let over = Arc::new(AtomicBool::new(false));
    let recorder = {
        let over = over.clone();
        std::thread::spawn(move || record(&socket, &over))
    };
    let (rate, seconds) = (COST.0, 5);
    call(generator, options, folder.path(), port::free(), port, rate, rate * seconds);
    over.store(true, Ordering::Relaxed);
    let arrivals = recorder.join().map_err(|_| "the recorder has died")?;
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

fn cost(options: &Options, bars: &mut Vec<Bar>) -> Result<Value, String> {
    let (rate, seconds) = COST;
    options.say(&format!("cost: uac to uas, {rate} calls/s for {seconds} s, {} rounds", options.rounds));
    let (mut caller, mut called) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 1..=options.rounds {
        for (n, generator) in Generator::BOTH.into_iter().enumerate() {
            let calls = calls(generator, options, rate, seconds)?;
            options.say(&format!(
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
    let bunched = [bunching(Generator::Sipp, options)?, bunching(Generator::Strowger, options)?];
    for (generator, bunched) in Generator::BOTH.into_iter().zip(&bunched) {
        let (mean, p99) = (bunched.mean, bunched.p99);
        options.say(&format!("  {:<9} {mean:.1} calls in a millisecond, p99 {p99}", generator.name()));
    }
    let [sipp_caller, own_caller] = caller.map(median);
    let [sipp_called, own_called] = called.map(median);
    bars.push(Bar::most("UAC, of SIPp's cost", own_caller / sipp_caller, 0.6));
    bars.push(Bar::most("UAS, of SIPp's cost", own_called / sipp_called, 0.45));
    bars.push(Bar::most("calls in a millisecond, of SIPp's", bunched[1].mean / bunched[0].mean, 1.0));
    Ok(json!({
        "rate": rate, "uac_us": {"sipp": sipp_caller, "strowger": own_caller},
        "uas_us": {"sipp": sipp_called, "strowger": own_called},
        "calls_in_a_millisecond": {"sipp": bunched[0].mean, "strowger": bunched[1].mean},
    }))
}

/// Returns the highest rate without loss, and the cost of both sides at this rate. A rate counts as too high after two
/// failed attempts.
fn highest(generator: Generator, options: &Options, rates: &[u64]) -> Result<(u64, f64), String> {
    let mut best = None;
    'rates: for &rate in rates {
        for _ in 0..2 {
            let calls = calls(generator, options, rate, BEST_SECONDS)?;
            // Without loss, and in time.
            let kept_up = calls.wall < Duration::from_secs(BEST_SECONDS + 1);
            let fine = calls.lost_none(rate * BEST_SECONDS) && kept_up;
            options.say(&format!(
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

fn best(options: &Options, bars: &mut Vec<Bar>) -> Result<Value, String> {
    options.say("best: the highest rate without loss, one core a side");
    let (sipp_rate, sipp_cost) = highest(Generator::Sipp, options, &SIPP_RATES)?;
    let (own_rate, own_cost) = highest(Generator::Strowger, options, &OWN_RATES)?;
    bars.push(Bar::least("calls/s without loss, of SIPp's", own_rate as f64 / sipp_rate as f64, 6.0));
    bars.push(Bar::most("UAC and UAS at their best rate, of SIPp's", own_cost / sipp_cost, 0.35));
    Ok(json!({"rate": {"sipp": sipp_rate, "strowger": own_rate}, "us": {"sipp": sipp_cost, "strowger": own_cost}}))
}

/// Runs `strowger load` against `strowger load uas`; `look` examines both during the run.
fn load(
    options: &Options,
    words: &[String],
    seconds: u64,
    mut look: impl FnMut(Duration, &Process, &Process),
) -> Result<Value, String> {
    let folder = folder()?;
    let port = port::free();
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(&options.server).args(["load", "uas", "--quiet", "--port", &port.to_string()]);
    let uas = Process::start("uas", folder.path(), &mut command);
    std::thread::sleep(Duration::from_millis(500));
    let report = folder.path().join("report.json");
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(&options.server).args(["load", &format!("127.0.0.1:{port}"), "--quiet"]);
    command.arg("--json").arg(&report).args(words);
    let mut uac = Process::start("uac", folder.path(), &mut command);
    let begun = Instant::now();
    while uac.ended().is_none() {
        if begun.elapsed() > Duration::from_secs(seconds + 60) {
            return Err("the calls do not end".into());
        }
        look(begun.elapsed(), &uac, &uas);
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = std::fs::read_to_string(&report).map_err(|error| format!("no report ({error}):\n{}", uac.log()))?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

fn paced(options: &Options, bars: &mut Vec<Bar>) -> Result<Value, String> {
    let (rate, seconds, rounds) = PACED;
    options.say(&format!("paced: {rate} calls/s for {seconds} s, {rounds} rounds, each behind a bare timer"));
    let words =
        ["-r", &rate.to_string(), "-d", &format!("{seconds}s"), "--hold", "0s", "--no-preflight"].map(String::from);
    let (mut successful, mut rates, mut lags) = (0.0, Vec::new(), Vec::new());
    let mut seen = Vec::new();
    for round in 1..=rounds {
        let bare = keep_time(0, rate, Duration::from_secs(seconds));
        let report = load(options, &words, seconds, |_, _, _| ())?;
        let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
        successful += number("/calls/successful").ok_or("the report does not say how many calls succeeded")?;
        let achieved = number("/rates/rate.achieved/value").ok_or("the report does not say the rate")?;
        let lag = number("/delays/lag/p99").ok_or("the report does not say how late calls began")?;
        options.say(&format!(
            "  {round}  {achieved:.1} calls/s, lag p99 {lag:.0} µs; the timer {:.1}, {:.0} µs",
            bare.rate, bare.lag_p99
        ));
        rates.push(achieved / bare.rate);
        lags.push(lag / bare.lag_p99);
        seen.push(json!({"achieved": achieved, "lag_p99_us": lag, "timer": {"achieved": bare.rate, "lag_p99_us": bare.lag_p99}}));
    }
    bars.push(Bar::least("successful calls, of those wanted", successful / (rate * seconds * rounds) as f64, 1.0));
    bars.push(Bar::least("rate, of a bare timer's", median(rates), 0.995));
    bars.push(Bar::most("lag p99, of a bare timer's", median(lags), 2.0));
    Ok(json!({"rate": rate, "successful": successful, "rounds": seen}))
}

fn held(options: &Options, bars: &mut Vec<Bar>) -> Result<Value, String> {
    let (most, rate) = HELD;
    options.say(&format!("held: {most} calls at once"));
    let ramp = most / rate;
    let hold = ramp + 10;
    let words = ["-r", &rate.to_string(), "-m", &most.to_string(), "--hold", &format!("{hold}s"), "--no-preflight"];
    let (mut empty, mut full) = (None, None);
    let report = load(options, &words.map(String::from), ramp + hold, |at, uac, uas| {
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
    options.say(&format!("  {open} open, {successful} successful; UAC {caller:.0} bytes a call, UAS {called:.0}"));
    bars.push(Bar::least("calls held at once", open, most as f64));
    bars.push(Bar::most("bytes a held call, UAC", caller, 2_048.0));
    bars.push(Bar::most("bytes a held call, UAS", called, 2_048.0));
    Ok(json!({"open": open, "successful": successful, "bytes": {"uac": caller, "uas": called}}))
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    let options = &arguments.options;
    options.have(&[SIPP])?;
    let mut bars = Vec::new();
    let mut all = serde_json::Map::new();
    for part in Part::ALL {
        if arguments.only.is_empty() || arguments.only.contains(&part) {
            all.insert(part.name().into(), part.measure(options, &mut bars)?);
        }
    }
    bars.iter().for_each(|bar| options.say(&bar.to_string()));
    let met = bars.iter().all(Bar::is_met);
    if options.output.json {
        all.insert("met".into(), met.into());
        println!("{}", Value::Object(all));
    }
    Ok(met)
}

fn main() -> ExitCode {
    run(measure)
}
