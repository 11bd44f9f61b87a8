//! Converts the command line to a plan.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use clap::CommandFactory;
use clap::parser::ValueSource;
use strowger_core::Transport;
use strowger_load::campaign::{self, Connections, Plan, Pool, Trust, Work, period, profile, users};
use strowger_load::engine::pace::Part;
use strowger_load::workload::Workload;
use strowger_scenario::Distribution;
use strowger_scenario::injection::LineOrder;

use super::arguments::{self, Apart, Certificates, LoadArguments, Schedule};
use crate::cli::Cli;
use crate::output::{Refusal, usage};

/// Calls a second, and the time in which calls begin, if no option says otherwise.
const DEFAULT_RATE: f64 = 10.0;
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// Creates the plan of a command line.
///
/// # Errors
/// A contradiction between options, or a file that cannot be read.
pub(super) fn plan(arguments: &LoadArguments) -> Result<Plan, Refusal> {
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
    let mut documents = campaign::documents(&traffic.scenario).map_err(usage)?;
    plan.work = match documents.len() {
        0 => plan.work,
        1 => Work::Document(documents.remove(0).path),
        _ => Work::Documents(documents),
    };
    plan.no_exec = traffic.no_exec;
    plan.pair = arguments.pair;
    plan.grace = arguments.grace;
    plan.domain.clone_from(&traffic.domain);
    plan.callee.clone_from(&traffic.callee);
    plan.contact.clone_from(&traffic.contact);
    if plan.contact.is_some() && !matches!(plan.work, Work::Ready(workload) if workload.registers()) {
        return Err(usage(format!(
            "--contact is of callers that register, and {} does not: give -w register",
            plan.title()
        )));
    }
    plan.expires = traffic.expires;
    plan.ring = milliseconds(traffic.ring);
    plan.patience = traffic.timeout;
    plan.sources.clone_from(&traffic.source);
    plan.port = traffic.port;
    plan.shards = usize::from(traffic.shards);
    match traffic.pool.connections {
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
    let answers = arguments.pair || plan.work == Work::Ready(Workload::RegisterThenReceive);
    plan.trust = trust(&traffic.certificates, plan.transport, answers)?;
    plan.keys.clone_from(&traffic.key);
    plan.injections.clone_from(&traffic.inf);
    plan.log.clone_from(&arguments.output.log);
    plan.clock_ahead = arguments.output.clock_ahead;
    plan.keep_failed = usize::from(arguments.output.keep_failed);
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
    plan.pool = pool(&traffic.pool, &plan)?;
    let rate = match schedule.simultaneous {
        Some(calls) => simultaneous_rate(calls, schedule)?,
        None => schedule.rate.unwrap_or(DEFAULT_RATE),
    };
    let every = |micros| vec![Part::Ramp { from: rate, to: rate, micros }];
    plan.profile = match (&schedule.rate_profile, schedule.duration, schedule.calls) {
        (Some(text), ..) => profile::parse(text).map_err(usage)?,
        (None, Some(duration), _) => every(duration.as_micros() as u64),
        (None, None, Some(_)) => vec![Part::Hold { rate }],
        (None, None, None) => every(DEFAULT_DURATION.as_micros() as u64),
    };
    for (nothing, option) in [
        (schedule.calls == Some(0), "-m 0"),
        (schedule.concurrent == Some(0), "-l 0"),
        (schedule.simultaneous == Some(0), "--simultaneous 0"),
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
    plan.start_at = schedule.start_at;
    plan.warm_up = schedule.warm_up;
    if let Some(behind) = length(&plan).filter(|length| !plan.warm_up.is_zero() && plan.warm_up >= *length) {
        return Err(usage(format!(
            "--warm-up {} leaves nothing of a schedule of {}: give a longer one (-d, -m), or a shorter warm-up",
            period::show(plan.warm_up),
            period::show(behind)
        )));
    }
    plan.seed = schedule.seed.unwrap_or_else(|| {
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish() >> 16
    });
    plan.settings = settings(std::env::args_os());
    Ok(plan)
}

/// Returns the pool of sockets and connections, with the users who have them before the schedule.
///
/// # Errors
/// No user can connect before the schedule, or calls take no users.
fn pool(words: &arguments::Pool, plan: &Plan) -> Result<Pool, Refusal> {
    let receives = plan.work == Work::Ready(Workload::RegisterThenReceive);
    if words.random_users && receives {
        return Err(usage("register-then-receive registers each user once: leave --random-users out"));
    }
    match words.connect_rate {
        Some(_) if receives => {
            return Err(usage("register-then-receive connects its users at the rate of -r: leave --connect-rate out"));
        }
        Some(_) if plan.users.is_empty() && plan.injections.is_empty() => {
            return Err(usage("--connect-rate connects users: give --users FILE, or --inf FILE to a document"));
        }
        Some(_) if matches!(plan.work, Work::Documents(_)) => {
            return Err(usage("--connect-rate connects the users of one document: give one --scenario"));
        }
        Some(_) if plan.connections != Connections::PerUser => {
            return Err(usage("--connect-rate holds a connection for each user: give --connections per-user"));
        }
        Some(rate) if rate <= 0.0 => {
            return Err(usage("a --connect-rate of 0 connects nobody: give users a second, such as 4k"));
        }
        _ => (),
    }
    Ok(Pool {
        most: words.max_sockets.map(|most| most as usize),
        connect_rate: words.connect_rate,
        order: if words.random_users { LineOrder::Random } else { LineOrder::Sequential },
    })
}

/// Returns the rate that holds this many calls open: their number divided by the duration of a call (C_R = C_S / T).
///
/// # Errors
/// Calls have no duration, or the schedule ends before the number is reached.
fn simultaneous_rate(calls: u64, schedule: &Schedule) -> Result<f64, Refusal> {
    let milliseconds = match schedule.hold {
        Distribution::Fixed(length) => length,
        Distribution::Uniform { min, max } => f64::midpoint(min, max),
        Distribution::Exponential { mean } => mean,
        _ => 0.0,
    };
    if milliseconds <= 0.0 {
        return Err(usage("--simultaneous needs calls that last: give --hold, such as --hold 60s"));
    }
    let length = Duration::from_secs_f64(milliseconds / 1_000.0);
    let begins = match (schedule.duration, schedule.calls) {
        (Some(duration), _) => Some(duration),
        (None, None) => Some(DEFAULT_DURATION),
        (None, Some(_)) => None,
    };
    if let Some(begins) = begins.filter(|begins| *begins < length) {
        return Err(usage(format!(
            "--simultaneous {calls} is not reached: calls begin for {} and last {}; give a longer -d",
            period::show(begins),
            period::show(length)
        )));
    }
    Ok(calls as f64 / length.as_secs_f64())
}

/// Returns the duration in which calls begin, if it is known.
fn length(plan: &Plan) -> Option<Duration> {
    let of_profile = profile::length(&plan.profile).map(Duration::from_micros);
    let rate = match plan.profile[..] {
        [Part::Hold { rate }] => Some(rate),
        [Part::Ramp { from, to, .. }] if from == to => Some(from),
        _ => None,
    };
    let of_calls = plan.calls.zip(rate.filter(|rate| *rate > 0.0));
    let of_calls = of_calls.map(|(calls, rate)| Duration::from_secs_f64((calls as f64 / rate).min(1e9)));
    of_profile.into_iter().chain(of_calls).min()
}

/// Returns the options of the command line with their values, without secrets.
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

/// Reads and checks the files for TLS before anything is opened. `answers`: true for a side to which others connect.
pub(super) fn trust(certificates: &Certificates, transport: Transport, answers: bool) -> Result<Trust, Refusal> {
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

/// Converts a duration to milliseconds, as the plan has them: seven weeks at most.
pub(super) fn milliseconds(length: Option<Duration>) -> u32 {
    length.map_or(0, |length| u32::try_from(length.as_millis()).unwrap_or(u32::MAX))
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
    fn simultaneous_calls_set_the_rate() {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            schedule: Schedule,
        }
        let rate = |words: &[&str]| {
            let words = [&["load"][..], words].concat();
            let words = <Words as clap::Parser>::try_parse_from(words).ok()?;
            simultaneous_rate(660, &words.schedule).ok()
        };
        for (words, wanted) in [
            (&["--hold", "60s", "-d", "5m"][..], Some(11.0)),
            (&["--hold", "60s", "-m", "5000"], Some(11.0)),
            (&["--hold", "10s-30s", "-d", "5m"], Some(33.0)),
            (&["--hold", "exp:60s", "-d", "5m"], Some(11.0)),
            // The schedule ends before the number is reached; calls have no length.
            (&["--hold", "60s"], None),
            (&["--hold", "60s", "-d", "59s"], None),
            (&["--hold", "0", "-d", "5m"], None),
        ] {
            assert_eq!(rate(words), wanted, "{words:?}");
        }
    }
}
