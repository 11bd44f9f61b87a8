//! `strowger load`: traffic and measurements.

pub(crate) mod arguments;
mod interrupted;
mod opening;
mod plan;
mod prometheus;
mod reports;
mod screen;

use std::process::ExitCode;
use std::time::Duration;

use strowger_core::Transport;
use strowger_load::campaign::preflight::{Finding, Probing};
use strowger_load::campaign::{self, Campaign, Plan, Stage, Work, period, profile, rehearse};
use strowger_load::engine::pace::Part;
use strowger_load::keys::Keys;
use strowger_load::printable;
use strowger_measure::{Level, Requirement, Run, catalogue, several};

use self::arguments::{LoadArguments, LoadCommand, Output, ReportArguments, UasArguments};
pub(crate) use self::interrupted::Interrupted;
use self::interrupted::{CLEANUP_TIME, NO_CALL_YET};
use self::opening::{opening, small};
use self::plan::{milliseconds, plan, trust};
use self::prometheus::Prometheus;
pub(crate) use self::screen::Screen;
use crate::output::{self, Refusal, code, usage};

pub(crate) fn run(arguments: LoadArguments) -> ExitCode {
    let result = match arguments.command {
        Some(LoadCommand::Report(arguments)) => report(&arguments),
        Some(LoadCommand::Uas(arguments)) => uas(*arguments),
        Some(LoadCommand::Measures(arguments)) => measures(arguments.part.as_deref().unwrap_or_default()),
        None => load(arguments),
    };
    output::exit_code(result)
}

fn report(arguments: &ReportArguments) -> Result<ExitCode, Refusal> {
    reports::check_early(&arguments.reports, &[], None, &arguments.files).map_err(usage)?;
    let rows = arguments.reports.series as usize;
    let window = arguments.reports.bounds.window();
    let run = Run::read_bounded(&arguments.files, rows, window).map_err(|error| usage(error.to_string()))?;
    let requirements = reports::requirements("--require", &arguments.reports.require, &run.timers).map_err(usage)?;
    Ok(reports::write(&run, &requirements, &arguments.reports, &[]))
}

fn measures(part: &str) -> Result<ExitCode, Refusal> {
    let part = part.to_lowercase();
    let mut out = String::new();
    for entry in catalogue() {
        if !entry.name.contains(&part) && !entry.title.to_lowercase().contains(&part) {
            continue;
        }
        let statistics = match entry.unit {
            "time" => ".p95, .mean, ...",
            "score" => ".p1, .mean, ...",
            _ => "",
        };
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
    reports::check_early(&arguments.output.reports, &arguments.output.abort_on, arguments.output.log.as_ref(), &[])
        .map_err(usage)?;
    if arguments.dry_run {
        let plan = plan(&arguments)?;
        warn(&plan, usize::MAX)?;
        return dry_run(&plan);
    }
    let interrupted = Interrupted::listen().map_err(no_signals)?;
    let (plan, requirements, notes, output) = interrupted.run_unless_interrupted(Duration::ZERO, move |_| {
        let mut plan = plan(&arguments)?;
        let requirements = required(&mut plan, &arguments.output)?;
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

/// Reads the requirements before anything is sent; those that end the run are added to the plan.
fn required(plan: &mut Plan, output: &Output) -> Result<Vec<Requirement>, Refusal> {
    let timers = campaign::timers(plan).map_err(usage)?;
    let mut requirements = reports::requirements("--require", &output.reports.require, &timers).map_err(usage)?;
    plan.abort_on = reports::requirements("--abort-on", &output.abort_on, &timers).map_err(usage)?;
    if let Some(other) = plan.abort_on.iter().find(|requirement| requirement.is_of_answerers()) {
        let text = other.text();
        return Err(usage(format!("--abort-on {text}: answerers are known at the end; give it to --require")));
    }
    let new = plan.abort_on.iter().filter(|one| !output.reports.require.iter().any(|text| text == one.text()));
    requirements.extend(new.cloned());
    Ok(requirements)
}

/// Maximum number of warnings about a document before a run; --dry-run prints all.
const WARNINGS: usize = 5;

/// Prints the warnings about a document.
fn warn(plan: &Plan, most: usize) -> Result<(), Refusal> {
    let warnings = campaign::warnings(plan).map_err(usage)?;
    let mark = console::style("warning:").for_stderr().yellow().bold();
    warnings.iter().take(most).for_each(|text| output::say(&format!("{mark} {text}")));
    if warnings.len() > most {
        output::say(&format!("{mark} {} more of the document; --dry-run says all", warnings.len() - most));
    }
    Ok(())
}

fn no_signals(error: std::io::Error) -> Refusal {
    Refusal(code::FAILED, format!("Ctrl-C cannot be caught: {error}"))
}

fn uas(arguments: UasArguments) -> Result<ExitCode, Refusal> {
    reports::check_early(&arguments.output.reports, &arguments.output.abort_on, arguments.output.log.as_ref(), &[])
        .map_err(usage)?;
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
    plan.clock_ahead = arguments.output.clock_ahead;
    plan.keep_failed = usize::from(arguments.output.keep_failed);
    plan.rows = arguments.output.reports.series as usize;
    plan.window = arguments.output.reports.bounds.window();
    plan.seed = 1;
    let requirements = required(&mut plan, &arguments.output)?;
    if !arguments.output.reports.quiet {
        warn(&plan, WARNINGS)?;
    }
    drive(plan, &arguments.output, &requirements, Vec::new(), &Interrupted::listen().map_err(no_signals)?)
}

/// Probes whether the target answers, and what limits the rate; returns sentences for the report.
fn preflight(plan: &Plan, quiet: bool) -> Result<Vec<String>, Refusal> {
    let Some(target) = &plan.target else { return Ok(Vec::new()) };
    let address = match plan.proxy {
        Some(address) => address,
        None => target.resolve(plan.transport).map_err(usage)?,
    };
    let rate = profile::peak(&plan.profile).clamp(10.0, 200.0);
    // A limiter counts the probes too: twice the number of probes must stay within common limits (pike: 16 messages in
    // 2 s).
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

/// Runs a plan to its end and writes the reports.
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
    if let Some(rate) = plan.pool.connect_rate.filter(|_| !words.quiet) {
        let users = plan.users.len();
        let time = period::show(Duration::from_secs_f64(users as f64 / rate));
        output::say(&match users {
            0 => format!("Connecting the users of --inf, {rate} a second"),
            _ => format!("Connecting {}, {rate} a second: {time}", several(users as u64, "user")),
        });
    }
    let document = plan.work.is_document();
    let refused = if document || plan.log.is_some() { code::USAGE } else { code::FAILED };
    let start = move |stopped: &dyn Fn() -> bool| Campaign::start(plan, stopped).map_err(|text| Refusal(refused, text));
    let mut campaign = interrupted.run_unless_interrupted(CLEANUP_TIME, start)?;
    for note in notes {
        campaign.note(Level::Warning, note);
    }
    let mut screen = Screen::new(words.quiet, "");
    screen.say(&opening(&campaign));
    if let Some(text) = small(campaign.run().generators.iter().flat_map(|generator| &generator.receive_buffers)) {
        screen.say(&format!("{} {text}", console::style("warning:").for_stderr().yellow().bold()));
    }
    let keys = if screen.is_drawn() { Keys::read() } else { None };
    screen.set_keys(keys.is_some());
    let mut pressed = 0;
    loop {
        while let Some(key) = keys.as_ref().and_then(Keys::next) {
            campaign.press(key);
            screen.invalidate();
        }
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
        let waits = stage == Stage::Waiting;
        if (screen.is_drawn() || !waits) && screen.is_due(campaign.elapsed(), campaign.run().seconds()) {
            screen.show(&campaign.live());
        }
        let now = interrupted.times();
        if now > pressed {
            pressed = now;
            if pressed > 1 {
                break;
            }
            if waits {
                let _ = campaign.finish();
                return Err(Refusal(code::INTERRUPTED, NO_CALL_YET.into()));
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
    drop((screen, keys));
    let code = reports::write(&ended.run, requirements, words, &ended.advice);
    if ended.broken {
        return Err(Refusal(
            code::INVALID,
            "a thread of the generator broke down; this is a fault of strowger, please report it".into(),
        ));
    }
    Ok(if pressed > 1 { ExitCode::from(code::INTERRUPTED) } else { code })
}
