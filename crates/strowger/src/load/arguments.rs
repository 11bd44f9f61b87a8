//! The command line of `strowger load`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use strowger_core::Transport;
use strowger_load::campaign::{Target, User, period, users};
use strowger_load::engine::pace::Arrivals;
use strowger_load::scenario::Distribution;
use strowger_load::workload::Workload;

/// Make SIP traffic, and measure what comes of it.
///
/// With a target alone it makes ten calls a second for ten seconds and prints a table. Calls begin when the schedule says,
/// however the calls before them fare, and every report says whether the generator itself kept up.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Examples:
  strowger load 127.0.0.1                                 ten calls a second for ten seconds
  strowger load sip:bob@192.0.2.1 -r 100 -m 5000          5,000 calls to bob, 100 a second
  strowger load 192.0.2.1 --pair -r 500 --duration 1m     both ends here, through the server
  strowger load 192.0.2.1 --workload register --users users.csv -r 50
  strowger load tls://sip.example.org --auth alice:secret --hold 30s
  strowger load 192.0.2.1 --scenario mine.xml --inf data.csv -r 20
  strowger load 192.0.2.1 --pair --rate-profile 100:30s,100-500:2m,burst:1000
  strowger load 192.0.2.1 --pair -r 200 --require 'srd.p95<200ms' --require 'ser>=99.9%' --html report.html
  strowger load 192.0.2.1 --dry-run                       the messages of the first call; nothing is sent
  strowger load uas --port 5070                           the side that answers, alone
  strowger load report run.log other.log --html all.html  a report from raw logs

Exit codes: 0 all well; 1 calls failed, or the run could not begin; 2 the command line, or a file that it names, cannot be used;
3 a requirement is not met; 4 INVALID: the generator and not the server was the limit; 130 ended at once by a second Ctrl-C.
Of 4, 3 and 1 the first that applies. Where a requirement says how many calls may fail, failed calls alone are no 1.")]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    pub command: Option<LoadCommand>,
    /// Whom calls are made to: a host, host:port, [IPv6]:port, a SIP URI, or TRANSPORT://host.
    #[arg(value_name = "TARGET", required = true)]
    pub target: Option<Target>,
    #[command(flatten)]
    pub schedule: Schedule,
    #[command(flatten)]
    pub traffic: Traffic,
    #[command(flatten)]
    pub output: Output,
    /// Both ends run here: calls go through the target to an answering side in this process.
    #[arg(long, help_heading = "Traffic")]
    pub pair: bool,
    /// Print the messages of the first call, as they would be sent, and end. The target gets nothing.
    #[arg(long, help_heading = "Run")]
    pub dry_run: bool,
    /// Begin without a few OPTIONS that look whether anybody is there and whether something limits the rate.
    #[arg(long, help_heading = "Run")]
    pub no_preflight: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    Report(ReportArguments),
    Uas(UasArguments),
}

/// Make reports from raw logs; several generators' logs become one run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger load report run.log
  strowger load report west.log east.log --html both.html --require 'ser>=99%'

Exit codes: as those of `strowger load`.")]
pub(crate) struct ReportArguments {
    /// Raw logs that --log wrote.
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub reports: Reports,
}

/// Answer calls, OPTIONS, MESSAGE and REGISTER until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger load uas                          on port 5060 of every address
  strowger load uas --port 5070 --transport tcp
  strowger load uas --ring 2s --duration 10m --json -
  strowger load uas --scenario answer.xml

Exit codes: as those of `strowger load`.")]
pub(crate) struct UasArguments {
    /// The port.
    #[arg(long, short, default_value_t = 5060)]
    pub port: u16,
    /// The address that is listened on and stands in messages [default: that by which others reach this machine].
    #[arg(long, value_name = "IP")]
    pub source: Option<IpAddr>,
    #[arg(long, value_name = "TRANSPORT", default_value = "udp", value_parser = transport)]
    pub transport: Transport,
    /// How long it rings before it answers.
    #[arg(long, value_name = "TIME", value_parser = period::duration)]
    pub ring: Option<Duration>,
    /// A SIPp document that waits for calls, instead.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub scenario: Option<PathBuf>,
    /// It ends after so long.
    #[arg(long, value_name = "TIME", value_parser = period::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub certificates: Certificates,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Schedule")]
pub(crate) struct Schedule {
    /// Calls a second [default: 10].
    #[arg(long, short, value_name = "RATE", value_parser = period::rate)]
    pub rate: Option<f64>,
    /// Calls in all.
    #[arg(long, short = 'm', value_name = "N", value_parser = period::count)]
    pub calls: Option<u64>,
    /// Calls open at once, at most; more wait, and the wait is counted.
    #[arg(long, short = 'l', value_name = "N", value_parser = period::count)]
    pub concurrent: Option<u64>,
    /// For how long calls are begun [default: 10s, or until all calls are made].
    #[arg(long, short = 'd', value_name = "TIME", value_parser = period::duration)]
    pub duration: Option<Duration>,
    /// How long a call is held, from the ACK to the BYE: a time, MIN-MAX, or exp:MEAN.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = hold)]
    pub hold: Distribution,
    /// A rate that changes: 100:30s,100-500:1m,burst:1000 or a CSV file with lines of seconds,rate.
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["rate", "duration"])]
    pub rate_profile: Option<String>,
    /// How arrivals are spread: fixed, or poisson.
    #[arg(long, value_name = "HOW", default_value = "fixed", value_parser = arrivals)]
    pub arrivals: Arrivals,
    /// Draw randomness from this number, so that a run can be repeated.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Traffic")]
pub(crate) struct Traffic {
    /// call, register, re-register, register-then-call, register-then-receive, options, message or mix [default: call].
    #[arg(long, short, value_name = "NAME", conflicts_with = "scenario")]
    pub workload: Option<Workload>,
    /// A SIPp document that makes the calls.
    #[arg(long, visible_alias = "sf", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub scenario: Option<PathBuf>,
    /// Data for [field0] and so on of the document; several are possible.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "scenario")]
    pub inf: Vec<PathBuf>,
    /// A value for [NAME] of the document, as NAME=VALUE.
    #[arg(long, value_name = "NAME=VALUE", value_parser = key)]
    pub key: Vec<(String, String)>,
    /// udp, tcp, tls, ws or wss [default: that of the target, or udp].
    #[arg(long, short, value_name = "TRANSPORT", value_parser = transport)]
    pub transport: Option<Transport>,
    /// Connections of tcp, tls, ws and wss: one, or a number; each has a thread of its own that makes calls over it.
    #[arg(long, value_name = "N", default_value = "one", value_parser = connections, conflicts_with = "shards")]
    pub connections: u16,
    /// Send everything here; the target stays in the messages.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub proxy: Option<Target>,
    /// The domain of the users [default: the target's host].
    #[arg(long)]
    pub domain: Option<String>,
    /// The user who calls, and its password.
    #[arg(long, value_name = "USER:PASSWORD", value_parser = users::one, conflicts_with = "users")]
    pub auth: Option<User>,
    /// Users with passwords, one a line: user;password. A document takes its data by --inf.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "scenario")]
    pub users: Option<PathBuf>,
    /// Whom calls are for if the target names nobody; with --pair it registers at the target first, and answers here.
    #[arg(long, value_name = "USER[:PASSWORD]", value_parser = users::one)]
    pub callee: Option<User>,
    /// Seconds that a registration asks for.
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    pub expires: u32,
    /// How long the answering side of --pair rings.
    #[arg(long, value_name = "TIME", value_parser = period::duration)]
    pub ring: Option<Duration>,
    /// An answer that does not come in this time ends its call [default: 32s; of a document: none].
    #[arg(long, value_name = "TIME", value_parser = period::duration)]
    pub timeout: Option<Duration>,
    /// Addresses to send from, in turn; several are possible, with commas or one by one.
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub source: Vec<IpAddr>,
    /// The port to send from [default: any].
    #[arg(long, short, default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Threads that make calls, each with a socket of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub shards: u16,
    #[command(flatten)]
    pub certificates: Certificates,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Certificates {
    /// Authorities of the target's certificate; without it any certificate is taken.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_ca: Option<PathBuf>,
    /// Our own certificate, for the side that answers.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of our own certificate.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    #[command(flatten)]
    pub reports: Reports,
    /// Write the raw log of results: every report can be made from it later, and several can be put together.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Serve figures for Prometheus on this address while it runs.
    #[arg(long, value_name = "IP:PORT", value_parser = listen)]
    pub prometheus: Option<SocketAddr>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Reports {
    /// What the run must show, such as 'srd.p95<200ms' or 'ser>=99.9%'; several are possible.
    #[arg(long, value_name = "MEASURE<VALUE")]
    pub require: Vec<String>,
    /// Write the report as JSON; - is standard output, and the table goes to standard error.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the series as CSV, one line a second.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write the report as one self-contained HTML page.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// No screen and no table; files are written, errors and missed requirements said.
    #[arg(long, short)]
    pub quiet: bool,
}

fn transport(text: &str) -> Result<Transport, String> {
    Transport::of(text.as_bytes()).ok_or_else(|| format!("'{text}' is none of udp, tcp, tls, ws and wss"))
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text.to_ascii_lowercase().as_str() {
        "fixed" | "even" | "uniform" => Ok(Arrivals::Fixed),
        "poisson" | "random" => Ok(Arrivals::Poisson),
        _ => Err(format!("'{text}' is neither fixed nor poisson")),
    }
}

fn connections(text: &str) -> Result<u16, String> {
    match text.to_ascii_lowercase().replace('_', "-").as_str() {
        "one" => Ok(1),
        "per-user" | "per-call" => Err(format!(
            "{text} is not possible yet: each generator has one connection. A number makes so many generators, up to 64"
        )),
        number => match number.parse() {
            Ok(number @ 1..=64) => Ok(number),
            _ => Err(format!("'{text}' is neither one nor a number, 1 to 64")),
        },
    }
}

/// `5s`, `1s-5s`, `exp:30s`.
fn hold(text: &str) -> Result<Distribution, String> {
    let ms = |text: &str| period::duration(text).map(|length| length.as_secs_f64() * 1e3);
    if let Some(mean) = text.strip_prefix("exp:").or_else(|| text.strip_prefix("exponential:")) {
        return Ok(Distribution::Exponential { mean: ms(mean)? });
    }
    match text.split_once('-') {
        Some((min, max)) => {
            let (min, max) = (ms(min)?, ms(max)?);
            if min > max {
                return Err(format!("in '{text}' the shorter time comes first"));
            }
            Ok(Distribution::Uniform { min, max })
        }
        None => Ok(Distribution::Fixed(ms(text)?)),
    }
}

fn key(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' has no =; write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// `IP:PORT`, `:PORT`, `PORT`; on loopback unless an address is named.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    text.parse()
        .or_else(|_| local(text.trim_start_matches(':')))
        .map_err(|_| format!("'{text}' is no address; write IP:PORT such as 127.0.0.1:9100"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_a_person_would_try() {
        assert_eq!(hold("0"), Ok(Distribution::Fixed(0.0)));
        assert_eq!(hold("1s-5s"), Ok(Distribution::Uniform { min: 1_000.0, max: 5_000.0 }));
        assert_eq!(hold("exp:30s"), Ok(Distribution::Exponential { mean: 30_000.0 }));
        assert!(hold("5s-1s").is_err() && hold("long").is_err());
        assert_eq!(listen("9100"), Ok(SocketAddr::from(([127, 0, 0, 1], 9_100))));
        assert!(listen("nowhere").is_err());
        assert_eq!(key("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(arrivals("Poisson"), Ok(Arrivals::Poisson));
        assert_eq!((connections("one"), connections("8")), (Ok(1), Ok(8)));
        assert!(connections("per-call").is_err_and(|e| e.contains("not possible yet")) && connections("65").is_err());
    }
}
