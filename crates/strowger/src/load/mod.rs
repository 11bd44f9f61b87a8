//! `strowger load`: traffic and what is measured of it.

pub(crate) mod arguments;
mod prometheus;
mod reports;
mod screen;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use strowger_core::Transport;
use strowger_load::campaign::preflight::{Finding, Probing};
use strowger_load::campaign::{Campaign, Plan, Stage, Trust, Work, period, profile, rehearse, users};
use strowger_load::engine::pace::Part;
use strowger_load::measure::{Level, Requirement};

use self::arguments::{Certificates, LoadArguments, LoadCommand, Output, ReportArguments, UasArguments};
use self::prometheus::Prometheus;
use self::reports::code;
pub(crate) use self::screen::Screen;
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
        None => load(arguments),
    };
    result.unwrap_or_else(|Refusal(code, text)| {
        output::complain(&text);
        ExitCode::from(code)
    })
}

fn report(arguments: &ReportArguments) -> Result<ExitCode, Refusal> {
    let run = strowger_load::measure::Run::read(&arguments.files).map_err(|error| usage(error.to_string()))?;
    let requirements = reports::requirements(&arguments.reports, &run.heading().timers).map_err(usage)?;
    Ok(reports::write(&run, &requirements, &arguments.reports, &[]))
}

fn load(arguments: LoadArguments) -> Result<ExitCode, Refusal> {
    early(&arguments.output)?;
    let plan = plan(&arguments)?;
    if arguments.dry_run {
        return dry_run(&plan);
    }
    let mut notes = Vec::new();
    if !arguments.no_preflight && matches!(plan.work, Work::Ready(_)) {
        notes = preflight(&plan, arguments.output.reports.quiet)?;
    }
    drive(plan, &arguments.output, notes)
}

fn uas(arguments: UasArguments) -> Result<ExitCode, Refusal> {
    early(&arguments.output)?;
    let mut plan = Plan::answering();
    plan.transport = arguments.transport;
    plan.port = arguments.port;
    plan.sources = arguments.source.into_iter().collect();
    if let Some(path) = arguments.scenario {
        plan.work = Work::Document(path);
    }
    plan.ring = arguments.ring.map_or(0, |ring| ring.as_millis() as u32);
    plan.trust = trust(&arguments.certificates);
    plan.profile = match arguments.duration {
        Some(duration) => vec![Part::Ramp { from: 0.0, to: 0.0, micros: duration.as_micros() as u64 }],
        None => vec![Part::Hold { rate: 0.0 }],
    };
    plan.log.clone_from(&arguments.output.log);
    plan.seed = 1;
    drive(plan, &arguments.output, Vec::new())
}

fn trust(certificates: &Certificates) -> Trust {
    Trust {
        authorities: certificates.tls_ca.clone(),
        identity: certificates.tls_cert.clone().zip(certificates.tls_key.clone()),
    }
}

/// From the command line to a plan.
fn plan(arguments: &LoadArguments) -> Result<Plan, Refusal> {
    let (schedule, traffic) = (&arguments.schedule, &arguments.traffic);
    let target = arguments.target.clone().ok_or_else(|| usage("whom shall calls be made to? Name a target"))?;
    let mut plan = Plan::to(target.clone());
    if let Some(transport) = traffic.transport {
        plan.transport = transport;
    }
    if let Some(workload) = traffic.workload {
        plan.work = Work::Ready(workload);
    }
    if let Some(path) = &traffic.scenario {
        plan.work = Work::Document(path.clone());
    }
    plan.pair = arguments.pair;
    plan.domain.clone_from(&traffic.domain);
    plan.callee.clone_from(&traffic.callee);
    plan.expires = traffic.expires;
    plan.ring = traffic.ring.map_or(0, |ring| ring.as_millis() as u32);
    plan.patience = traffic.timeout;
    plan.sources.clone_from(&traffic.source);
    plan.port = traffic.port;
    plan.shards = usize::from(traffic.shards.max(traffic.connections));
    plan.trust = trust(&traffic.certificates);
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
    if traffic.connections > 1 && plan.transport == Transport::Udp {
        return Err(usage("--connections is for tcp, tls, ws and wss; UDP has none (--shards gives more sockets)"));
    }
    let rate = schedule.rate.unwrap_or(10.0);
    let every = |micros| vec![Part::Ramp { from: rate, to: rate, micros }];
    plan.profile = match (&schedule.rate_profile, schedule.duration, schedule.calls) {
        (Some(text), ..) => profile::parse(text).map_err(usage)?,
        (None, Some(duration), _) => every(duration.as_micros() as u64),
        (None, None, Some(_)) => vec![Part::Hold { rate }],
        (None, None, None) => every(10_000_000),
    };
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
    plan.settings = settings();
    Ok(plan)
}

/// The words of the command line, as they were typed, without secrets.
fn settings() -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut words = std::env::args().skip(2).peekable();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix('-') else { continue };
        let name = name.trim_start_matches('-');
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let value = words.next_if(|next| !next.starts_with('-')).unwrap_or_default();
                (name.to_owned(), value)
            }
        };
        let secret = matches!(name.as_str(), "auth" | "callee");
        let value = if secret { value.split(':').next().unwrap_or_default().to_owned() } else { value };
        let entry: &mut String = settings.entry(name).or_default();
        if !entry.is_empty() {
            entry.push_str(", ");
        }
        entry.push_str(&value);
    }
    settings
}

/// Looks whether anybody is there, and what stands in the way; gives sentences for the report.
fn preflight(plan: &Plan, quiet: bool) -> Result<Vec<String>, Refusal> {
    let Some(target) = &plan.target else { return Ok(Vec::new()) };
    let address = match plan.proxy {
        Some(address) => address,
        None => target.resolve(plan.transport).map_err(usage)?,
    };
    let rate = profile::peak(&plan.profile).clamp(10.0, 200.0);
    let probing = Probing {
        target,
        address,
        transport: plan.transport,
        sources: &plan.sources,
        probes: ((rate / 10.0) as usize).clamp(3, 20),
        rate,
        patience: Duration::from_millis(500),
    };
    let mut notes = Vec::new();
    for finding in probing.run() {
        match finding {
            Finding::Closed(text) | Finding::Local(text) => return Err(Refusal(code::FAILED, text)),
            Finding::Obstacle(obstacle) => {
                let text = format!("Pre-flight: {obstacle}");
                if !quiet {
                    eprintln!("{} {text}", console::style("warning:").for_stderr().yellow().bold());
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
        eprintln!("{} {warning}", console::style("warning:").for_stderr().yellow().bold());
    }
    eprintln!("Nothing was sent to the target.");
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with a requirement or a place for a report is said before the run, not after it.
fn early(output: &Output) -> Result<(), Refusal> {
    let words = &output.reports;
    // Timers are known once the document is read.
    let of_timers = |text: &String| text.trim_start().to_ascii_lowercase().starts_with("timer.");
    for text in words.require.iter().filter(|text| !of_timers(text)) {
        Requirement::parse(text, &[]).map_err(|error| usage(format!("--require: {error}")))?;
    }
    for path in [&words.json, &words.csv, &words.html, &output.log].into_iter().flatten() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(usage(format!("{} cannot be written: there is no such folder", path.display())));
        }
    }
    Ok(())
}

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
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async move {
                use tokio::signal::unix::{SignalKind, signal};
                let (Ok(mut interrupt), Ok(mut terminate)) =
                    (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
                else {
                    return;
                };
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
}

/// Runs a plan to its end, and writes what remains of it.
fn drive(plan: Plan, output: &Output, notes: Vec<String>) -> Result<ExitCode, Refusal> {
    let words = &output.reports;
    let answers = plan.target.is_none();
    let mut prometheus = match output.prometheus {
        Some(address) => Some(Prometheus::serve(address).map_err(|e| usage(format!("{e:#}")))?),
        None => None,
    };
    let caught = Interrupted::listen();
    let interrupted = caught.map_err(|error| Refusal(code::FAILED, format!("Ctrl-C cannot be caught: {error}")))?;
    let document = matches!(plan.work, Work::Document(_));
    let refused = if document || plan.log.is_some() { code::USAGE } else { code::FAILED };
    let mut campaign = Campaign::start(plan).map_err(|text| Refusal(refused, text))?;
    let timers = campaign.run().heading().timers.clone();
    let requirements = reports::requirements(words, &timers).map_err(usage)?;
    for note in notes {
        campaign.note(Level::Warning, note);
    }
    let mut screen = Screen::new(words.quiet, "");
    screen.say(&opening(&campaign));
    let mut pressed = 0;
    loop {
        let stage = campaign.poll(Duration::from_millis(50));
        if let Some(prometheus) = &mut prometheus {
            prometheus.update(campaign.run());
        }
        if stage == Stage::Over {
            break;
        }
        screen.show(&campaign.live());
        let now = interrupted.times();
        if now > pressed {
            pressed = now;
            if pressed > 1 {
                break;
            }
            screen.say("Interrupted: open calls are ended, then the reports are written. Once more ends at once.");
            campaign.interrupt();
        }
    }
    let ended = campaign.finish();
    drop(screen);
    let code = reports::write(&ended.run, &requirements, words, &ended.advice);
    if ended.broken {
        return Err(Refusal(
            code::INVALID,
            "a thread of the generator broke down; this is a fault of strowger, please report it".into(),
        ));
    }
    // Who only answers ends by Ctrl-C.
    Ok(if pressed > 1 && !answers { ExitCode::from(code::INTERRUPTED) } else { code })
}

/// One line on what is about to happen.
fn opening(campaign: &Campaign) -> String {
    let plan = campaign.plan();
    let transport = plan.transport.text();
    let Some(target) = &plan.target else {
        let at = campaign.answering_at().map_or_else(String::new, |address| address.to_string());
        return format!("Answering on {at} by {transport}; Ctrl-C ends it and writes the reports.");
    };
    let place = campaign.destination().map_or_else(|| target.to_string(), |address| address.to_string());
    let schedule = match (&plan.profile[..], plan.calls) {
        ([Part::Hold { rate }], Some(calls)) => format!("{calls} calls at {rate}/s"),
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
