//! CPU per call of Strowger beside Kamailio and the floor of the machine, or beside an earlier Strowger.
//!
//! SIPp calls SIPp through each of them in turn, round after round, so that what the machine does besides meets all; the
//! figure of each is the median of its rounds: processor time of the whole process tree, user and system, divided by the
//! calls. The floor passes datagrams on unread: nothing that relays a call by UDP with one system call a datagram can cost
//! less. With `--baseline` the rival is the Strowger of another checkout, with the configuration that it ships: both are
//! loaded at the same time, the rounds alternate which of them begins, and the ratio of each round gives the median and its
//! interval. Needs the Debian
//! packages sip-tester and, without a baseline, kamailio. Exit code 1 when a round of Strowger lost more than one call in two
//! hundred, when it costs more than `--at-most` times the baseline or more of Kamailio's than its limit, or when a program is missing.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde_json::json;
use strowger_benches::bar::Bar;
use strowger_benches::command_line::{Options, run};
use strowger_benches::{Interval, floor, median};
use strowger_tests::port;
use strowger_tests::process::Process;
use strowger_tests::program::{KAMAILIO, SIPP};
use strowger_tests::sipp::{self, Sipp};

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    /// Stateful relay
    Relay,
    /// The server stays in the path
    RecordRoute,
    /// REGISTER of a new user each, without authentication and in memory only
    Register,
}

impl Scenario {
    const fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::RecordRoute => "record-route",
            Self::Register => "register",
        }
    }

    /// The most that it may cost, of what it costs Kamailio.
    const fn of_kamailio(self) -> f64 {
        match self {
            Self::Relay => 0.25,
            Self::RecordRoute => 0.20,
            Self::Register => 0.26,
        }
    }

    /// The shipped configuration that is measured, of a checkout.
    fn example(self, checkout: &Path) -> PathBuf {
        checkout.join("examples").join(self.name()).with_extension("toml")
    }

    const fn kamailio(self) -> &'static str {
        match self {
            Self::Relay => "request_route {\n  if (!t_relay()) { sl_send_reply(\"500\", \"Not relayed\"); }\n}\n",
            Self::RecordRoute => {
                "request_route {\n  if (!mf_process_maxfwd_header(\"70\")) { sl_send_reply(\"483\", \"Too many hops\"); exit; }\n  \
                 if (has_totag()) {\n    if (loose_route()) { t_relay(); exit; }\n    \
                 if (is_method(\"ACK\")) { if (t_check_trans()) { t_relay(); } exit; }\n    \
                 sl_send_reply(\"404\", \"No route\");\n    exit;\n  }\n  \
                 if (is_method(\"CANCEL\")) { if (t_check_trans()) { t_relay(); } exit; }\n  \
                 t_check_trans();\n  record_route();\n  if (!t_relay()) { sl_send_reply(\"500\", \"Not relayed\"); }\n}\n"
            }
            Self::Register => "request_route { if (is_method(\"REGISTER\")) { save(\"location\"); exit; } }\n",
        }
    }
}

/// CPU per call of Strowger beside Kamailio and the floor of the machine.
#[derive(clap::Parser)]
struct Arguments {
    /// What the servers do
    #[arg(long, value_enum, default_value_t = Scenario::Relay)]
    scenario: Scenario,
    /// Calls (or registrations) a second
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// Seconds of load in each round
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// A checkout with a release build in its folder `target`, to measure beside this one in place of Kamailio and the floor
    #[arg(long, value_name = "FOLDER")]
    baseline: Option<PathBuf>,
    /// The median ratio to the baseline that is still good
    #[arg(long, value_name = "RATIO", default_value = "1.03", requires = "baseline")]
    at_most: f64,
    #[command(flatten)]
    options: Options,
    /// Is the floor: its port, and those of both ends.
    #[arg(long, num_args = 3, hide = true)]
    floor: Option<Vec<u16>>,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rival {
    Strowger,
    Baseline,
    Kamailio,
    Floor,
}

impl Rival {
    const fn name(self) -> &'static str {
        match self {
            Self::Strowger => "strowger",
            Self::Baseline => "baseline",
            Self::Kamailio => "kamailio",
            Self::Floor => "floor",
        }
    }

    fn start(self, arguments: &Arguments, folder: &Path, port: u16, ends: [u16; 2]) -> Result<Process, String> {
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text).map(|()| file).map_err(|error| error.to_string())
        };
        let strowger = |program: &Path, checkout: &Path| {
            let example = arguments.scenario.example(checkout);
            let text = std::fs::read_to_string(&example).map_err(|error| format!("{}: {error}", example.display()))?;
            let config = text.replace("127.0.0.1:5060", &format!("127.0.0.1:{port}"));
            // The pages of a program's code share the caches as they happen to lie in memory: a copy lies elsewhere, so that in a run of many
            // rounds no build is lucky.
            let copy = folder.join("strowger");
            std::fs::copy(program, &copy).map_err(|error| format!("{}: {error}", program.display()))?;
            let mut command = Command::new(copy);
            command.args(["serve", "--config"]).arg(write("strowger.toml", config)?);
            Ok::<_, String>(command)
        };
        let mut command = match self {
            Self::Strowger => strowger(&arguments.options.server, &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?,
            Self::Baseline => {
                let checkout = arguments.baseline.as_deref().ok_or("no baseline")?;
                let checkout = std::path::absolute(checkout).map_err(|error| error.to_string())?;
                strowger(&checkout.join("target/release/strowger"), &checkout)?
            }
            Self::Kamailio => {
                let modules: String = ["sl", "tm", "rr", "maxfwd", "pv", "siputils", "textops", "usrloc", "registrar"]
                    .iter()
                    .map(|module| format!("loadmodule \"{module}.so\"\n"))
                    .collect();
                let head = "#!KAMAILIO\ndebug=0\nlog_stderror=yes\nchildren=2\ndisable_tcp=yes\n";
                let text = format!(
                    "{head}listen=udp:127.0.0.1:{port}\n{modules}modparam(\"usrloc\", \"db_mode\", 0)\n{}",
                    arguments.scenario.kamailio()
                );
                let mut command = Command::new(KAMAILIO.path().ok_or("kamailio is missing")?);
                command
                    .args(["-DD", "-m", "2048", "-M", "64", "-Y"])
                    .arg(folder)
                    .arg("-f")
                    .arg(write("kamailio.cfg", text)?);
                command
            }
            Self::Floor => {
                let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
                command.args(["--floor", &port.to_string(), &ends[0].to_string(), &ends[1].to_string()]);
                command
            }
        };
        let mut running = Process::start(self.name(), folder, command.current_dir(folder));
        running.listens(port);
        Ok(running)
    }
}

struct Round {
    rival: Rival,
    /// Microseconds a call.
    cost: f64,
    failed: u64,
    retransmitted: u64,
    /// Bytes that the server grew by, for each call.
    grown: f64,
}

/// A server under load, and what it had cost before it was measured.
struct Site {
    rival: Rival,
    server: Process,
    port: u16,
    caller: u16,
    called: u16,
    folder: tempfile::TempDir,
    _answers: Option<Sipp>,
    run_time: Duration,
    memory: u64,
    failed: u64,
    retransmitted: u64,
}

impl Site {
    fn start(rival: Rival, arguments: &Arguments) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
        let [port, caller, called] = [port::free(), port::free(), port::free()];
        let server = rival.start(arguments, folder.path(), port, [caller, called])?;
        let calls = arguments.scenario != Scenario::Register;
        let _answers = calls.then(|| Sipp::answer(folder.path(), sipp::Scenario::Ours("uas"), called, "u1"));
        Ok(Self {
            rival,
            server,
            port,
            caller,
            called,
            folder,
            _answers,
            run_time: Duration::ZERO,
            memory: 0,
            failed: 0,
            retransmitted: 0,
        })
    }

    /// Begins so many calls through it.
    fn call(&self, arguments: &Arguments, calls: u64) -> Sipp {
        let (rate, count) = (arguments.rate.to_string(), calls.to_string());
        let (proxy, target) = (format!("127.0.0.1:{}", self.port), format!("127.0.0.1:{}", self.called));
        let mut words = vec!["-r", &rate, "-m", &count, "-l", "200000", "-key", "way", "udp"];
        let scenario = if arguments.scenario == Scenario::Register {
            words.push(&proxy);
            "register"
        } else {
            words.extend(["-rsa", &proxy, &target]);
            "uac"
        };
        Sipp::start("uac", self.folder.path(), sipp::Scenario::Ours(scenario), self.caller, "u1", &words)
    }

    /// What it has cost so far is not counted.
    fn begin(&mut self) {
        (self.run_time, self.memory) = (self.server.run_time(), self.server.pss());
        (self.failed, self.retransmitted) = (0, 0);
    }

    fn round(&self, calls: u64) -> Round {
        let cost = (self.server.run_time() - self.run_time).as_micros() as f64 / calls as f64;
        let grown = self.server.pss().saturating_sub(self.memory) as f64 / calls as f64;
        Round { rival: self.rival, cost, failed: self.failed, retransmitted: self.retransmitted, grown }
    }
}

/// Loads all of them at once.
fn load(sites: &mut [Site], arguments: &Arguments, seconds: u64) {
    let calls = arguments.rate * seconds;
    let callers: Vec<Sipp> = sites.iter().map(|site| site.call(arguments, calls)).collect();
    for (site, mut caller) in sites.iter_mut().zip(callers) {
        let seen = caller.end(Duration::from_secs(seconds * 4 + 60));
        site.failed += calls.saturating_sub(seen.successful);
        site.retransmitted += seen.retransmissions;
    }
}

/// These servers, loaded at the same time: what the machine does besides meets all of them alike. What their first second costs, when
/// code and memory are touched for the first time, is not counted.
fn round(rivals: &[Rival], arguments: &Arguments) -> Result<Vec<Round>, String> {
    let mut sites = rivals.iter().map(|rival| Site::start(*rival, arguments)).collect::<Result<Vec<_>, _>>()?;
    load(&mut sites, arguments, 1);
    sites.iter_mut().for_each(Site::begin);
    load(&mut sites, arguments, arguments.seconds);
    sites.sort_by_key(|site| site.rival);
    Ok(sites.iter().map(|site| site.round(arguments.rate * arguments.seconds)).collect())
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    if let Some(&[port, _, called]) = arguments.floor.as_deref() {
        let socket = UdpSocket::bind(("127.0.0.1", port));
        let relayed = socket.and_then(|socket| floor::relay(&socket, called, 0));
        return relayed.map(|()| true).map_err(|error| format!("floor: {error}"));
    }
    let options = &arguments.options;
    let rivals = match (&arguments.baseline, arguments.scenario) {
        (Some(_), _) => vec![Rival::Strowger, Rival::Baseline],
        (None, Scenario::Register) => vec![Rival::Strowger, Rival::Kamailio],
        (None, _) => vec![Rival::Strowger, Rival::Kamailio, Rival::Floor],
    };
    options.have(if arguments.baseline.is_some() { &[SIPP] } else { &[SIPP, KAMAILIO] })?;
    let calls = arguments.rate * arguments.seconds;
    let what = if arguments.scenario == Scenario::Register { "registrations" } else { "calls" };
    options.say(&format!(
        "{}: {} {what} a second for {} s, {} rounds",
        arguments.scenario.name(),
        arguments.rate,
        arguments.seconds,
        options.rounds
    ));
    options.say(&format!(
        "{:>5}  {:<9} {:>10} {:>7} {:>10} {:>13}",
        "round", "", "CPU/call", "failed", "sent again", "memory/call"
    ));
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        // Who goes first alternates: what drifts while a round lasts is no advantage of one.
        let mut order = rivals.clone();
        if number % 2 == 0 {
            order.reverse();
        }
        let together = if arguments.baseline.is_some() { order.len() } else { 1 };
        for rivals in order.chunks(together) {
            for round in round(rivals, arguments)? {
                options.say(&format!(
                    "{number:>5}  {:<9} {:>7.1} µs {:>7} {:>10} {:>11.0} B",
                    round.rival.name(),
                    round.cost,
                    round.failed,
                    round.retransmitted,
                    round.grown
                ));
                rounds.push(round);
            }
        }
    }
    let of = |rival: Rival| rounds.iter().filter(move |round| round.rival == rival);
    let medians: BTreeMap<Rival, f64> =
        rivals.iter().map(|rival| (*rival, median(of(*rival).map(|round| round.cost).collect()))).collect();
    let own = medians[&Rival::Strowger];
    let ratio = |rival: Rival| medians.get(&rival).map(|other| own / other);
    let costs = |rival: Rival| of(rival).map(|round| round.cost);
    let pairs = costs(Rival::Strowger).zip(costs(Rival::Baseline)).map(|(own, other)| own / other).collect();
    let interval = Interval::of_median(pairs);
    let bar =
        ratio(Rival::Kamailio).map(|ratio| Bar::most("CPU, of Kamailio's", ratio, arguments.scenario.of_kamailio()));
    let worst = of(Rival::Strowger).map(|round| round.failed).max().unwrap_or(0);
    if options.output.json {
        let named: BTreeMap<&str, f64> = medians.iter().map(|(rival, median)| (rival.name(), *median)).collect();
        let rounds: Vec<_> = rounds
            .iter()
            .map(|round| {
                json!({"server": round.rival.name(), "cpu_us_per_call": round.cost, "failed": round.failed,
                    "retransmitted": round.retransmitted, "memory_bytes_per_call": round.grown})
            })
            .collect();
        println!(
            "{}",
            json!({"scenario": arguments.scenario.name(), "rate": arguments.rate, "seconds": arguments.seconds,
                "median_cpu_us_per_call": named, "ratio_to_kamailio": ratio(Rival::Kamailio),
                "ratio_to_floor": ratio(Rival::Floor), "ratio_to_baseline": interval, "bar": bar, "rounds": rounds})
        );
    } else {
        for (rival, median) in &medians {
            println!("median {:<9} {median:>7.1} µs a call", rival.name());
        }
        if let Some(ratio) = ratio(Rival::Floor) {
            println!("strowger / floor    {ratio:.3}");
        }
        bar.iter().for_each(|bar| println!("{bar}"));
        if let Some(Interval { median, low, high, confidence }) = interval {
            println!(
                "strowger / baseline {median:.3}, {:.0} % interval {low:.3} to {high:.3} (at most {:.3})",
                confidence * 100.0,
                arguments.at_most
            );
        }
        println!();
    }
    if worst * 200 > calls {
        return Err("strowger lost more than one call in two hundred".into());
    }
    let is_met = bar.as_ref().is_none_or(Bar::is_met);
    Ok(is_met && interval.is_none_or(|interval| interval.median <= arguments.at_most))
}

fn main() -> ExitCode {
    run(measure)
}
