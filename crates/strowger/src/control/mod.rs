//! Commands that reach a running server through its control socket.

mod accounting;
pub(crate) mod arguments;
mod caches;
mod calls;
mod limits;
mod registrations;
mod reload;
mod sets;
mod status;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde_json::json;
use strowger_core::shown::shown;
use strowger_node::control::{Ban, BanList, Client, ControlOrder, Done, Reply, Unreachable};
use strowger_node::preflight;

pub(crate) use self::accounting::accounting;
use self::arguments::*;
pub(crate) use self::caches::caches;
pub(crate) use self::calls::calls;
pub(crate) use self::limits::limits;
pub(crate) use self::registrations::{RegistrationsArguments, end_registrations, registrations};
pub(crate) use self::sets::sets;
use crate::cli::ConfigArgument;
use crate::configuration::Choice;
use crate::output::{self, CommandOutcome};

/// Timeout of an answer of the server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Timeout of a reload, which is long because each database of a set has its own `timeout`.
const LONGEST_RELOAD: Duration = Duration::from_secs(75);

/// Extra time beyond the drain timeout of the server.
const AFTER_DRAIN: Duration = Duration::from_secs(10);

/// Registrations, calls and bans per page.
const PAGE: usize = 500;

pub(crate) fn status(arguments: &StatusArguments) -> anyhow::Result<CommandOutcome> {
    reach(&arguments.server, |client| match ask(client, &ControlOrder::Status)? {
        Reply::Status(status) if arguments.server.json => output::print(&as_json(&status)?),
        Reply::Status(status) => output::print(&status::table(&status)),
        other => unexpected(&other),
    })
}

pub(crate) fn ban(arguments: &BanArguments) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        BanCommand::List(server) => reach(server, |client| {
            let bans = banned(client)?;
            if server.json {
                return output::print(&as_json(&json!({"bans": bans, "banned": bans.len()}))?);
            }
            let mut text = String::new();
            match bans.is_empty() {
                true => text.push_str("no source is banned\n"),
                false => {
                    let _ = writeln!(text, "{:<40} ends in", "source");
                }
            }
            for ban in &bans {
                let _ = writeln!(text, "{:<40} {}", ban.source.to_string(), duration(ban.seconds_left));
            }
            output::print(&text)
        }),
        BanCommand::Lift(LiftArguments { source, server, .. }) => {
            reach(server, |client| match ask(client, &ControlOrder::Lift { source: *source })? {
                Reply::Done(Done::Lifted { bans }) if server.json => output::print(&as_json(&json!({"lifted": bans}))?),
                Reply::Done(Done::Lifted { bans: 0 }) => match source {
                    Some(source) => bail!("{source} is not banned"),
                    None => output::print("no source is banned\n"),
                },
                Reply::Done(Done::Lifted { bans }) => output::print(&format!("bans lifted: {bans}\n")),
                other => unexpected(&other),
            })
        }
    }
}

/// Reads all banned sources, page by page.
fn banned(client: &mut Client) -> anyhow::Result<Vec<Ban>> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let BanList { bans, next, .. } = match ask(client, &ControlOrder::Bans { from, most: PAGE })? {
            Reply::Bans(list) => list,
            other => return unexpected(&other),
        };
        all.extend(bans);
        from = next;
        if from.is_none() {
            return Ok(all);
        }
    }
}

pub(crate) fn log(arguments: &LogArguments) -> anyhow::Result<CommandOutcome> {
    let LogCommand::Level(LevelArguments { level, server }) = &arguments.command;
    reach(server, |client| match ask(client, &ControlOrder::LogLevel { level: level.clone() })? {
        Reply::Done(Done::Level { level }) if server.json => output::print(&as_json(&json!({"level": level}))?),
        Reply::Done(Done::Level { level }) => output::print(&format!("{level}\n")),
        other => unexpected(&other),
    })
}

pub(crate) fn drain(arguments: &DrainArguments) -> anyhow::Result<CommandOutcome> {
    let json = arguments.server.json;
    reach(&arguments.server, |client| {
        let seconds = match ask(client, &ControlOrder::Drain)? {
            Reply::Done(Done::Draining { seconds }) => seconds,
            other => return unexpected(&other),
        };
        if arguments.wait {
            let limit = Duration::from_secs(seconds) + AFTER_DRAIN;
            client.wait_for_end(limit).map_err(|_| anyhow!("the server has not ended in {} s", limit.as_secs()))?;
        }
        match (json, arguments.wait) {
            (true, ended) => output::print(&as_json(&json!({"ended": ended, "seconds": seconds}))?),
            (false, true) => output::print("the server has ended\n"),
            (false, false) => output::print(&format!(
                "the server shuts down; calls that are being set up have {seconds} s (server.drain_timeout)\n"
            )),
        }
    })
}

pub(crate) fn reload(arguments: &ReloadArguments) -> anyhow::Result<CommandOutcome> {
    let json = arguments.server.json;
    let mut outcome = CommandOutcome::Done;
    let choice = arguments.server.config.choose();
    // A socket identifies the server, whatever its configuration file.
    let file = choice.file().filter(|_| arguments.server.socket.is_none());
    let file = file.map(|file| file.canonicalize().unwrap_or_else(|_| file.to_owned()));
    let reached = reach(&arguments.server, |client| {
        client.wait_for(LONGEST_RELOAD)?;
        match ask(client, &ControlOrder::Reload { file })? {
            Reply::Done(Done::Reloaded(reload)) if json => output::print(&as_json(&reload)?),
            Reply::Done(Done::Reloaded(reload)) => reload::print(&reload),
            Reply::Wrong(wrong) => {
                outcome = CommandOutcome::Failed;
                match json {
                    true => output::print(&as_json(&json!({"refused": wrong.faults}))?),
                    false => reload::refused(&wrong),
                }
            }
            other => unexpected(&other),
        }
    })?;
    Ok(self::outcome(reached, outcome))
}

/// Connects to the selected server and speaks with it.
fn reach(
    argument: &ServerArgument,
    speak: impl FnOnce(&mut Client) -> anyhow::Result<()>,
) -> anyhow::Result<CommandOutcome> {
    reach_at(argument.socket.as_ref(), &argument.config, speak)
}

/// Connects to the server at this socket, or to the server of a configuration.
fn reach_at(
    socket: Option<&PathBuf>,
    config: &ConfigArgument,
    speak: impl FnOnce(&mut Client) -> anyhow::Result<()>,
) -> anyhow::Result<CommandOutcome> {
    let is_named = socket.is_some();
    let socket = match socket {
        Some(socket) => socket.clone(),
        None => match socket_of(&config.choose())? {
            Some(socket) => socket,
            None => return Ok(CommandOutcome::Failed),
        },
    };
    let spoken =
        Client::connect(&socket, PATIENCE).map_err(anyhow::Error::from).and_then(|mut client| speak(&mut client));
    match spoken {
        Ok(()) => Ok(CommandOutcome::Done),
        Err(error) => {
            let Some(unreachable) = error.downcast_ref::<Unreachable>() else { return Err(error) };
            let cure = match !is_named && unreachable.is_absent() {
                true => {
                    ": name the configuration of a server that runs by --config FILE or STROWGER_CONFIG, or its socket by \
                     --socket PATH"
                }
                false => "",
            };
            output::complain(&format!("{error:#}{cure}"));
            Ok(CommandOutcome::Unreached)
        }
    }
}

/// Returns the control socket of a configuration. Returns `None`, after a report, if the configuration is wrong and its
/// server does not run.
fn socket_of(choice: &Choice) -> anyhow::Result<Option<PathBuf>> {
    // The server runs with an earlier version of the file, and the present version may have a fault. Files that the
    // configuration names, such as sets, need not be read.
    if let Some(socket) = choice.file().and_then(preflight::control_socket_of).filter(|socket| socket.exists()) {
        return Ok(Some(socket));
    }
    match preflight::load(choice.file(), &[]) {
        Ok((config, _)) => config.control_socket().map(Some).ok_or_else(|| {
            anyhow!("this configuration has no control socket: name one by control.socket, or with --socket PATH")
        }),
        Err(report) => {
            choice.announce();
            output::report(&report);
            Ok(None)
        }
    }
}

fn ask(client: &mut Client, order: &ControlOrder) -> anyhow::Result<Reply> {
    match client.ask(order)? {
        Reply::Refused(reason) => bail!("the server refuses: {reason}"),
        Reply::Unavailable(reason) => bail!("the server cannot do that now: {reason}"),
        reply => Ok(reply),
    }
}

fn unexpected<T>(reply: &Reply) -> anyhow::Result<T> {
    bail!("the server answers something else, it may be of another version: {reply:?}")
}

fn as_json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Formats seconds for people.
fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Formats the time since a moment in milliseconds since 1970.
fn ago(at: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    format!("{} ago", duration(now.saturating_sub(at) / 1_000))
}

/// Returns the outcome of a command if the server was reached, otherwise that of the attempt to reach it.
fn outcome(reached: CommandOutcome, outcome: CommandOutcome) -> CommandOutcome {
    if reached == CommandOutcome::Done { outcome } else { reached }
}

/// Output of a list page by page: a table for people, or one JSON array.
struct List {
    json: bool,
    rows: usize,
    /// Name of the rows, for the sentence that there are none.
    what: &'static str,
    heading: String,
}

impl List {
    const fn new(json: bool, what: &'static str, heading: String) -> Self {
        Self { json, rows: 0, what, heading }
    }

    fn print<T: serde::Serialize>(&mut self, rows: &[T], line: impl Fn(&T) -> String) -> anyhow::Result<()> {
        let mut text = String::new();
        if !self.json && self.rows == 0 && !rows.is_empty() {
            let _ = writeln!(text, "{}", self.heading);
        }
        for row in rows {
            if self.json {
                text.push_str(if self.rows == 0 { "[\n" } else { ",\n" });
                text.push_str(&serde_json::to_string(row)?);
            } else {
                let _ = writeln!(text, "{}", line(row));
            }
            self.rows += 1;
        }
        output::print(&text)
    }

    fn end(&self) -> anyhow::Result<()> {
        match (self.json, self.rows) {
            (true, 0) => output::print("[]\n"),
            (true, _) => output::print("\n]\n"),
            (false, 0) => output::print(&format!("no {}\n", self.what)),
            (false, _) => Ok(()),
        }
    }
}

/// Escapes text of a peer for a terminal.
fn printable(text: &str) -> String {
    shown(text.as_bytes()).to_string()
}

/// Escapes a sentence of the server. It is not truncated, because it names files and database servers and may quote
/// their messages.
fn sentence(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
