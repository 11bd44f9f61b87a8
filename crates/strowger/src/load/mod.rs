//! `strowger load`: traffic and what is measured of it.

pub(crate) mod arguments;
mod prometheus;
mod reports;
mod screen;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::CommandFactory;
use clap::parser::ValueSource;
use strowger_core::Transport;
use strowger_load::campaign::preflight::{Finding, Probing};
use strowger_load::campaign::{
    self, Campaign, Connections, Plan, Stage, Trust, Work, period, profile, rehearse, users,
};
use strowger_load::engine::pace::Part;
use strowger_load::measure::{Level, ReceiveBuffer, Requirement, Run, Unit, catalogue, several};
use strowger_load::printable;
use strowger_load::workload::Workload;

use self::arguments::{Apart, Certificates, LoadArguments, LoadCommand, Output, ReportArguments, UasArguments};
use self::prometheus::Prometheus;
use self::reports::code;
pub(crate) use self::screen::Screen;
use crate::cli::Cli;
use crate::output;

/// Why there is no run: the exit code and a sentence.
struct Refusal(u8, String);

fn usage(text: impl Into<String>) -> Refusal {
    Refusal(code::USAGE, text.into())
}

pub(crate) fn run(arguments: LoadArguments) -> ExitCode {
    let result = match arguments.command {
        Some(LoadCommand::Report(arguments)) => report(&arguments),
        Some(LoadCommand::Uas(arguments)) => uas(arguments),
        Some(LoadCommand::Measures(arguments)) => measures(arguments.part.as_deref().unwrap_or_default()),
        None => load(arguments),
    };
    result.unwrap_or_else(|Refusal(code, text)| {
        output::complain(&printable(&text));
        ExitCode::from(code)
    })
}

fn report(arguments: &ReportArguments) -> Result<ExitCode, Refusal> {
    reports::early(&arguments.reports, None, &arguments.files).map_err(usage)?;
    let rows = arguments.reports.series as usize;
    let window = arguments.reports.bounds.window();
    let run = Run::read_bounded(&arguments.files, rows, window).map_err(|error| usage(error.to_string()))?;
    let requirements = reports::requirements(&arguments.reports, &run.timers).map_err(usage)?;
    Ok(reports::write(&run, &requirements, &arguments.reports, &[]))
}

fn measures(part: &str) -> Result<ExitCode, Refusal> {
    let part = part.to_lowercase();
    let mut out = String::new();
    for entry in catalogue() {
        if !entry.name.contains(&part) && !entry.title.to_lowercase().contains(&part) {
            continue;
        }
        let statistics = if entry.unit == "time" { ".p95, .mean, ..." } else { "" };
        let name = format!("{}{statistics}", entry.name);
        out.push_str(&format!("{name:<34} {}\n", entry.title));
        if !entry.definition.is_empty() {
            out.push_str(&format!("{:<35}{} ({})\n", "", entry.definition, entry.source));
        }
    }
    if out.is_empty() {
        return Err(usage(format!("no measure has '{part}' in its name; `strowger load measures` lists all")));
    }
    output::print(&out).map_err(|error| Refusal(code::FAILED, error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

fn load(arguments: LoadArguments) -> Result<ExitCode, Refusal> {
    reports::early(&arguments.output.reports, arguments.output.log.as_ref(), &[]).map_err(usage)?;
    if arguments.dry_run {
        let plan = plan(&arguments)?;
        warn(&plan, usize::MAX)?;
        return dry_run(&plan);
    }
    let interrupted = Interrupted::listen().map_err(deaf)?;
    let (plan, requirements, notes, output) = interrupted.unless(Duration::ZERO, move |_| {
        let plan = plan(&arguments)?;
        let requirements = required(&plan, &arguments.output)?;
        if !arguments.output.reports.quiet {
            warn(&plan, WARNINGS)?;
        }
        let mut notes = Vec::new();
        if !arguments.no_preflight && matches!(plan.work, Work::Ready(_)) {
            notes = preflight(&plan, arguments.output.reports.quiet)?;
        }
        Ok((plan, requirements, notes, arguments.output))
    })?;
    drive(plan, &output, &requirements, notes, &interrupted)
}

/// The requirements, read before anything is sent.
fn required(plan: &Plan, output: &Output) -> Result<Vec<Requirement>, Refusal> {
    let timers = campaign::timers(plan).map_err(usage)?;
    reports::requirements(&output.reports, &timers).map_err(usage)
}

/// Warnings of a document that are said before a run; --dry-run says all.
const WARNINGS: usize = 5;

/// What the reader of a document stumbled over without refusing it.
fn warn(plan: &Plan, most: usize) -> Result<(), Refusal> {
    let warnings = campaign::warnings(plan).map_err(usage)?;
    let mark = console::style("warning:").for_stderr().yellow().bold();
    warnings.iter().take(most).for_each(|text| output::say(&format!("{mark} {text}")));
    if warnings.len() > most {
        output::say(&format!("{mark} {} more of the document; --dry-run says all", warnings.len() - most));
    }
    Ok(())
}

fn deaf(error: std::io::Error) -> Refusal {
    Refusal(code::FAILED, format!("Ctrl-C cannot be caught: {error}"))
}

fn uas(arguments: UasArguments) -> Result<ExitCode, Refusal> {
    reports::early(&arguments.output.reports, arguments.output.log.as_ref(), &[]).map_err(usage)?;
    let mut plan = Plan::answering();
    plan.transport = arguments.transport;
    plan.port = arguments.port;
    plan.sources = arguments.source.into_iter().collect();
    if let Some(path) = arguments.scenario {
        plan.work = Work::Document(path);
    }
    plan.no_exec = arguments.no_exec;
    plan.ring = milliseconds(arguments.ring);
    plan.grace = arguments.grace;
    plan.trust = trust(&arguments.certificates, plan.transport, true)?;
    plan.profile = match arguments.duration {
        Some(duration) => vec![Part::Ramp { from: 0.0, to: 0.0, micros: duration.as_micros() as u64 }],
        None => vec![Part::Hold { rate: 0.0 }],
    };
    plan.log.clone_from(&arguments.output.log);
    plan.rows = arguments.output.reports.series as usize;
    plan.window = arguments.output.reports.bounds.window();
    plan.seed = 1;
    let requirements = required(&plan, &arguments.output)?;
    if !arguments.output.reports.quiet {
        warn(&plan, WARNINGS)?;
    }
    drive(plan, &arguments.output, &requirements, Vec::new(), &Interrupted::listen().map_err(deaf)?)
}

/// As the plan has it: seven weeks at most.
fn milliseconds(length: Option<Duration>) -> u32 {
    length.map_or(0, |length| u32::try_from(length.as_millis()).unwrap_or(u32::MAX))
}

/// The files for TLS, looked at before anything is opened. `answers`: a side that others connect to is ours.
fn trust(certificates: &Certificates, transport: Transport, answers: bool) -> Result<Trust, Refusal> {
    let Certificates { tls_ca, tls_cert, tls_key } = certificates;
    for (path, inside, what) in [
        (tls_ca, "-----BEGIN CERTIFICATE-----", "certificate"),
        (tls_cert, "-----BEGIN CERTIFICATE-----", "certificate"),
        (tls_key, "PRIVATE KEY-----", "private key"),
    ] {
        let Some(path) = path else { continue };
        let text = std::fs::read(path).map_err(|e| usage(format!("{} cannot be read: {e}", path.display())))?;
        if !String::from_utf8_lossy(&text).contains(inside) {
            return Err(usage(format!("there is no {what} in {}; a PEM file is wanted", path.display())));
        }
    }
    if answers && transport.is_secure() && tls_cert.is_none() {
        return Err(usage(format!(
            "the answering side needs a certificate for {}: give --tls-cert FILE and --tls-key FILE",
            transport.text()
        )));
    }
    Ok(Trust { authorities: tls_ca.clone(), identity: tls_cert.clone().zip(tls_key.clone()) })
}

/// From the command line to a plan.
fn plan(arguments: &LoadArguments) -> Result<Plan, Refusal> {
    let (schedule, traffic) = (&arguments.schedule, &arguments.traffic);
    let target =
        arguments.target.clone().ok_or_else(|| usage("calls need a target, such as 192.0.2.1 or sip:bob@192.0.2.1"))?;
    let mut plan = Plan::to(target.clone());
    if let Some(transport) = traffic.transport {
        plan.transport = transport;
    }
    if let Some(workload) = traffic.workload {
        plan.work = Work::Ready(workload);
    }
    if let Some(mix) = traffic.mix {
        if let Some(other) = traffic.workload.filter(|workload| *workload != Workload::Mix) {
            return Err(usage(format!("--mix is of -w mix, not of -w {}: give one of them", other.name())));
        }
        (plan.mix, plan.work) = (mix, Work::Ready(Workload::Mix));
    }
    if let Some(path) = &traffic.scenario {
        plan.work = Work::Document(path.clone());
    }
    plan.no_exec = traffic.no_exec;
    plan.pair = arguments.pair;
    plan.grace = arguments.grace;
    plan.domain.clone_from(&traffic.domain);
    plan.callee.clone_from(&traffic.callee);
    plan.expires = traffic.expires;
    plan.ring = milliseconds(traffic.ring);
    plan.patience = traffic.timeout;
    plan.sources.clone_from(&traffic.source);
    plan.port = traffic.port;
    plan.shards = usize::from(traffic.shards);
    match traffic.connections {
        Apart::PerUser => plan.connections = Connections::PerUser,
        Apart::PerCall => plan.connections = Connections::PerCall,
        Apart::Number(1) => (),
        Apart::Number(_) if plan.transport == Transport::Udp => {
            return Err(usage("a number of connections is for tcp, tls, ws and wss; for UDP --shards says the same"));
        }
        Apart::Number(_) if traffic.shards > 1 => {
            return Err(usage("--connections N and --shards N say the same: give one of them"));
        }
        Apart::Number(number) => plan.shards = usize::from(number),
    }
    plan.max_sockets = traffic.max_sockets.map(|most| most as usize);
    let answers = arguments.pair || plan.work == Work::Ready(Workload::RegisterThenReceive);
    plan.trust = trust(&traffic.certificates, plan.transport, answers)?;
    plan.keys.clone_from(&traffic.key);
    plan.injections.clone_from(&traffic.inf);
    plan.log.clone_from(&arguments.output.log);
    plan.proxy = match &traffic.proxy {
        Some(proxy) => Some(proxy.resolve(plan.transport).map_err(usage)?),
        None => None,
    };
    plan.users = match (&traffic.auth, &traffic.users) {
        (Some(user), _) => vec![user.clone()],
        (None, Some(path)) => {
            let name = path.display().to_string();
            let content =
                std::fs::read_to_string(path).map_err(|error| usage(format!("{name} cannot be read: {error}")))?;
            users::parse(&content, &name).map_err(usage)?
        }
        (None, None) => Vec::new(),
    };
    let no_users = plan.users.is_empty() && plan.injections.is_empty();
    if plan.connections == Connections::PerUser && no_users && plan.target.is_some() {
        return Err(usage("--connections per-user needs users: give --users FILE, or --inf FILE to a document"));
    }
    let rate = schedule.rate.unwrap_or(10.0);
    let every = |micros| vec![Part::Ramp { from: rate, to: rate, micros }];
    plan.profile = match (&schedule.rate_profile, schedule.duration, schedule.calls) {
        (Some(text), ..) => profile::parse(text).map_err(usage)?,
        (None, Some(duration), _) => every(duration.as_micros() as u64),
        (None, None, Some(_)) => vec![Part::Hold { rate }],
        (None, None, None) => every(10_000_000),
    };
    for (nothing, option) in [
        (schedule.calls == Some(0), "-m 0"),
        (schedule.concurrent == Some(0), "-l 0"),
        (schedule.rate_profile.is_none() && rate == 0.0, "a rate of 0"),
        (profile::length(&plan.profile).is_some() && profile::calls(&plan.profile) < 1.0, "the schedule"),
    ] {
        if nothing {
            return Err(usage(format!("{option} lets no call begin; say how many are wanted with -r, -m, -l and -d")));
        }
    }
    plan.rows = arguments.output.reports.series as usize;
    plan.window = arguments.output.reports.bounds.window();
    plan.calls = schedule.calls;
    if let Some(most) = schedule.concurrent {
        plan.limit = most;
    }
    plan.hold = schedule.hold;
    plan.arrivals = schedule.arrivals;
    plan.seed = schedule.seed.unwrap_or_else(|| {
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish() >> 16
    });
    plan.settings = settings(std::env::args_os());
    Ok(plan)
}

/// What was asked for: the options of the command line with their values, without secrets.
fn settings(words: impl IntoIterator<Item = OsString>) -> BTreeMap<String, String> {
    let command = Cli::command();
    let load = command.find_subcommand("load").map(|load| load.get_arguments().cloned().collect::<Vec<_>>());
    let Ok(matches) = command.try_get_matches_from(words) else { return BTreeMap::new() };
    let Some(given) = matches.subcommand_matches("load") else { return BTreeMap::new() };
    let mut settings = BTreeMap::new();
    for argument in load.unwrap_or_default() {
        let (id, Some(name)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let raw = given.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy());
        let shown = raw.map(|value| match name {
            "auth" | "callee" => value.split(':').next().unwrap_or_default().to_owned(),
            _ => value.into_owned(),
        });
        let shown: Vec<String> = shown.collect();
        let value = if argument.get_action().takes_values() { shown.join(", ") } else { "yes".into() };
        settings.insert(name.into(), value);
    }
    settings
}

/// Looks whether the target answers, and what stands in the way; gives sentences for the report.
fn preflight(plan: &Plan, quiet: bool) -> Result<Vec<String>, Refusal> {
    let Some(target) = &plan.target else { return Ok(Vec::new()) };
    let address = match plan.proxy {
        Some(address) => address,
        None => target.resolve(plan.transport).map_err(usage)?,
    };
    let rate = profile::peak(&plan.profile).clamp(10.0, 200.0);
    // A limiter counts the probes too: no more of them than common ones (pike: 16 messages in 2 s) take twice.
    let probes = ((rate / 10.0) as usize).clamp(3, 8);
    let probing = Probing {
        target,
        address,
        transport: plan.transport,
        sources: &plan.sources,
        probes,
        rate,
        patience: Duration::from_millis(500),
    };
    let mut found = probing.run();
    let beyond = matches!(plan.transport, Transport::Tls | Transport::Ws | Transport::Wss);
    if beyond && found.is_empty() {
        let more = campaign::probe(plan, probing.probes, probing.rate, probing.patience);
        found = more.map_err(|text| Refusal(code::FAILED, text))?;
    }
    let mut notes = Vec::new();
    for finding in found {
        match finding {
            Finding::Closed(text) | Finding::Local(text) => return Err(Refusal(code::FAILED, text)),
            Finding::Obstacle(obstacle) => {
                let text = printable(&format!("Pre-flight: {obstacle}")).into_owned();
                if !quiet {
                    output::say(&format!("{} {text}", console::style("warning:").for_stderr().yellow().bold()));
                }
                notes.push(text);
            }
        }
    }
    Ok(notes)
}

fn dry_run(plan: &Plan) -> Result<ExitCode, Refusal> {
    let (lines, warnings) = rehearse(plan).map_err(usage)?;
    let mut out = String::new();
    for line in lines {
        let mark = if line.sent { "──▶ sent" } else { "◀── an answer of our own answering side" };
        let text = String::from_utf8_lossy(&line.bytes).replace("\r\n", "\n");
        out.push_str(&format!("{}\n{}\n\n", console::style(mark).bold(), text.trim_end()));
    }
    output::print(&out).map_err(|error| Refusal(code::FAILED, error.to_string()))?;
    for warning in &warnings {
        output::say(&format!("{} {warning}", console::style("warning:").for_stderr().yellow().bold()));
    }
    output::say("Nothing was sent to the target.");
    Ok(ExitCode::SUCCESS)
}

/// A run that Ctrl-C ends before its first call has so long to remove a registration.
const FAREWELL: Duration = Duration::from_millis(500);

/// How often Ctrl-C was pressed, or a TERM came.
pub(crate) struct Interrupted(Arc<AtomicU32>);

impl Interrupted {
    /// From now on until the process ends; the third time ends it on the spot.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let count = Arc::new(AtomicU32::new(0));
        let seen = count.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Before anything is sent: the thread may come to run late.
        let (mut interrupt, mut terminate) = {
            use tokio::signal::unix::{SignalKind, signal};
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async move {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => (),
                        _ = terminate.recv() => (),
                    }
                    if seen.fetch_add(1, Relaxed) >= 2 {
                        std::process::exit(i32::from(code::INTERRUPTED));
                    }
                }
            });
        })?;
        Ok(Self(count))
    }

    pub(crate) fn times(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// What comes before the first call and may take its time (names are looked up, connections tried, users registered),
    /// unless Ctrl-C comes first. `work` can ask whether it came, and then has this time to end.
    fn unless<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (done, result) = channel();
        let thread = std::thread::Builder::new().name("start".into());
        let count = self.0.clone();
        let stopped = move || count.load(Relaxed) > 0;
        let worker = thread
            .spawn(move || done.send(work(&stopped)).is_ok())
            .map_err(|e| Refusal(code::FAILED, e.to_string()))?;
        loop {
            match result.recv_timeout(Duration::from_millis(20)) {
                Ok(Ok(begun)) => return Ok(begun),
                Ok(Err(refusal)) if self.times() == 0 => return Err(refusal),
                Err(RecvTimeoutError::Timeout) if self.times() == 0 => (),
                Ok(Err(_)) | Err(RecvTimeoutError::Timeout) => {
                    if let Ok(Ok(begun)) = result.recv_timeout(patience) {
                        return Ok(begun);
                    }
                    let text = "interrupted before the first call: there is nothing to report";
                    return Err(Refusal(code::INTERRUPTED, text.into()));
                }
                Err(RecvTimeoutError::Disconnected) => match worker.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(_) => unreachable!("a thread that ends well has sent its result"),
                },
            }
        }
    }
}

/// Runs a plan to its end, and writes what remains of it.
fn drive(
    plan: Plan,
    output: &Output,
    requirements: &[Requirement],
    notes: Vec<String>,
    interrupted: &Interrupted,
) -> Result<ExitCode, Refusal> {
    let words = &output.reports;
    let mut prometheus = match output.prometheus {
        Some(address) => Some(Prometheus::serve(address).map_err(|e| usage(format!("{e:#}")))?),
        None => None,
    };
    let document = matches!(plan.work, Work::Document(_));
    let refused = if document || plan.log.is_some() { code::USAGE } else { code::FAILED };
    let start = move |stopped: &dyn Fn() -> bool| Campaign::start(plan, stopped).map_err(|text| Refusal(refused, text));
    let mut campaign = interrupted.unless(FAREWELL, start)?;
    for note in notes {
        campaign.note(Level::Warning, note);
    }
    let mut screen = Screen::new(words.quiet, "");
    screen.say(&opening(&campaign));
    if let Some(text) = small(campaign.run().generators.iter().flat_map(|generator| &generator.receive_buffers)) {
        screen.say(&format!("{} {text}", console::style("warning:").for_stderr().yellow().bold()));
    }
    let mut pressed = 0;
    loop {
        let stage = campaign.poll(Duration::from_millis(50));
        if let Some(prometheus) = &mut prometheus {
            prometheus.update(campaign.run());
        }
        for text in campaign.news() {
            screen.say(&format!("{} {text}", console::style("warning:").for_stderr().yellow().bold()));
        }
        if stage == Stage::Over {
            break;
        }
        if screen.is_due(campaign.elapsed(), campaign.run().seconds()) {
            screen.show(&campaign.live());
        }
        let now = interrupted.times();
        if now > pressed {
            pressed = now;
            if pressed > 1 {
                break;
            }
            let what = match campaign.only_answers() {
                true => "new calls are refused, open ones may still end (--grace)",
                false => "open calls are ended",
            };
            campaign.interrupt();
            screen.say(&format!("Interrupted: {what}, then the reports are written. Ctrl-C once more ends at once."));
        }
    }
    let ended = campaign.finish();
    drop(screen);
    let code = reports::write(&ended.run, requirements, words, &ended.advice);
    if ended.broken {
        return Err(Refusal(
            code::INVALID,
            "a thread of the generator broke down; this is a fault of strowger, please report it".into(),
        ));
    }
    Ok(if pressed > 1 { ExitCode::from(code::INTERRUPTED) } else { code })
}

/// What the kernel has not granted of the receive buffers, before it costs datagrams.
fn small<'a>(buffers: impl Iterator<Item = &'a ReceiveBuffer>) -> Option<String> {
    let small: Vec<&ReceiveBuffer> = buffers.filter(|buffer| buffer.got < buffer.asked).collect();
    let first = small.first()?;
    let show = |bytes: u64| Unit::Bytes.show(bytes as f64);
    Some(format!(
        "the receive buffer of {}{} has {} instead of {}: bursts may be lost in this machine's kernel. sysctl -w net.core.rmem_max={} allows it.",
        first.socket,
        if small.len() > 1 { format!(" (and {} more)", small.len() - 1) } else { String::new() },
        show(first.got),
        show(first.asked),
        first.asked
    ))
}

/// One line on what is about to happen.
fn opening(campaign: &Campaign) -> String {
    let plan = campaign.plan();
    let transport = plan.transport.text();
    let Some(target) = &plan.target else {
        let every = plan.sources.iter().all(IpAddr::is_unspecified);
        let at = campaign.answering_at().map_or_else(String::new, |address| match every {
            true => {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                format!("port {} of every {family} address, {} in messages,", address.port(), address.ip())
            }
            false => address.to_string(),
        });
        return format!("Answering on {at} by {transport}; Ctrl-C ends it and writes the reports.");
    };
    let place = campaign.destination().map_or_else(|| target.to_string(), |address| address.to_string());
    let schedule = match (&plan.profile[..], plan.calls) {
        ([Part::Hold { rate }], Some(calls)) => format!("{} at {rate}/s", several(calls, "call")),
        ([Part::Ramp { from, to, micros }], _) if from == to => {
            format!("{from}/s for {}", period::show(Duration::from_micros(*micros)))
        }
        (parts, _) => match profile::length(parts) {
            Some(micros) => format!("a profile of {}", period::show(Duration::from_micros(micros))),
            None => "a profile".into(),
        },
    };
    let pair = match campaign.answering_at() {
        Some(address) => format!(", answered here on {address}"),
        None => String::new(),
    };
    format!("{}: {schedule} to {place} by {transport}{pair}", plan.title())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_without_secrets() {
        let words = ["strowger", "load", "-r100", "--pair", "127.0.0.1", "--callee=bob:builder", "--auth", "al:ice:2"];
        let words = words.into_iter().chain(["--require", "ser>=99%", "--require", "srd.p95<1s"]).map(OsString::from);
        let told = settings(words);
        let told: Vec<(&str, &str)> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let want =
            [("auth", "al"), ("callee", "bob"), ("pair", "yes"), ("rate", "100"), ("require", "ser>=99%, srd.p95<1s")];
        assert_eq!(told, want);
    }

    #[test]
    fn a_receive_buffer_that_is_too_small_is_named_with_its_cure() {
        let buffer = |port: u16, got| ReceiveBuffer { socket: format!("127.0.0.1:{port}"), asked: 8_388_608, got };
        assert_eq!(small([buffer(1, 8_388_608)].iter()), None);
        let text = small([buffer(1, 8_388_608), buffer(2, 212_992), buffer(3, 212_992)].iter()).expect("two are small");
        for part in ["127.0.0.1:2 (and 1 more)", "213.0 kB instead of 8.4 MB", "net.core.rmem_max=8388608"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
