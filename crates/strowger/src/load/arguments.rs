//! The command line of `strowger load`.

mod pool;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueHint};
use strowger_core::Transport;
use strowger_load::campaign::{Target, User, period, users};
use strowger_load::engine::pace::Arrivals;
use strowger_load::workload::{Mix, Workload};
use strowger_measure::Thresholds;
use strowger_scenario::Distribution;

pub(crate) use self::pool::Pool;
pub(crate) use self::values::Apart;
use self::values::{arrivals, domain, hold, key, listen, milliseconds, percent, start_at, transport};
use crate::cli::whole;

/// Make SIP traffic, and measure the results.
///
/// With only a target, it makes ten calls a second for ten seconds and prints a table. Calls begin on schedule,
/// whatever the state of earlier calls, and every report says whether the generator itself kept up.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Examples:
  strowger load 127.0.0.1                            ten calls a second for ten seconds
  strowger load sip:bob@192.0.2.1 -r 100 -m 5000     5,000 calls to bob, 100 a second
  strowger load 192.0.2.1 --pair -r 500 -d 1m        both ends here, through the server
  strowger load 192.0.2.1 -w register --users users.csv -r 50
  strowger load tcp://192.0.2.1 -w register --users users.csv --connections per-user --connect-rate 4k --random-users
  strowger load 192.0.2.1 --mix call=60,register=30,options=10
  strowger load tls://sip.example.org --auth alice:secret --hold 30s
  strowger load 192.0.2.1 --scenario mine.xml --inf data.csv -r 20
  strowger load 192.0.2.1 --scenario call.xml:70 --scenario options.xml:30 -r 100
  strowger load 192.0.2.1 --pair --rate-profile 100:30s,100-500:2m,burst:1000
  strowger load 192.0.2.1 --require 'srd.p95<200ms' --require 'ser>=99.9%' --html report.html
  strowger load 192.0.2.1 -r 500 -d 70s --warm-up 10s figures of the last 60 s
  strowger load 192.0.2.1 -r 500 -d 8h --abort-on 'calls.success>=99%'
  strowger load 192.0.2.1 --keep-failed 3 --html r.html  what the first failed calls said
  strowger load 192.0.2.1 -r 200 --start-at 2026-12-01T09:30:00Z --log west.log
  strowger load 192.0.2.1 --dry-run                  the first call's messages; nothing is sent
  strowger load uas --port 5070                      the answering side alone
  strowger load report run.log b.log --html all.html a report from raw logs

`strowger load measures` lists what --require takes.

Ctrl-C begins no more calls, ends the open ones with CANCEL or BYE, waits for the answers (--grace; meanwhile what is not \
answered is sent again), and writes the reports. A second Ctrl-C waits for nothing and writes the reports, a third not even that.

On a terminal + - * / change the rate, p pauses, q begins no more calls, Q ends those that are open.

Exit codes, of several the first in this order:
  2    the command line, or a file that it names, cannot be used; nothing was sent
  130  ended before the first call by Ctrl-C, or at once by a second one
  4    INVALID: the generator and not the server was the limit
  3    a requirement is not met
  1    calls failed or did not end, no call was begun, a report could not be written, or the run could not begin
  130  otherwise all well, but Ctrl-C or a key ended the run before its schedule was over
  0    all well
Failed calls are no 1 where a requirement counts every one of them and is met (calls.failed<=10, calls.success>=99%, and \
ser, scr, isa.any or ira.any where only such calls failed), unless no call succeeded at all.")]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    pub command: Option<LoadCommand>,
    /// The target of the calls: a host, host:port, [IPv6]:port, a SIP URI, or TRANSPORT://host.
    #[arg(value_name = "TARGET", required = true)]
    pub target: Option<Target>,
    #[command(flatten)]
    pub schedule: Schedule,
    #[command(flatten)]
    pub traffic: Traffic,
    #[command(flatten)]
    pub output: Output,
    /// Run both ends here: calls go through the target to an answering side in this process. With --callee that side registers
    /// first, and unregisters at the end.
    #[arg(long, help_heading = "Traffic")]
    pub pair: bool,
    /// Time after Ctrl-C in which CANCEL and BYE may be answered. If users only receive calls, the time in which these
    /// calls may end.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = period::duration, help_heading = "Run")]
    pub grace: Duration,
    /// Print the messages of the first call and end. Nothing is sent to the target.
    #[arg(long, help_heading = "Run")]
    pub dry_run: bool,
    /// Begin without the few OPTIONS that test whether the target answers and whether something limits the rate. A
    /// scenario of SIPp that answers (`sipp -sn uas`) takes each of these OPTIONS for a call, which fails.
    #[arg(long, help_heading = "Run")]
    pub no_preflight: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    Report(Box<ReportArguments>),
    Uas(Box<UasArguments>),
    Measures(MeasuresArguments),
}

/// Print every measure that --require takes, and its definition.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger load measures
  strowger load measures srd")]
pub(crate) struct MeasuresArguments {
    /// Only those with this text in their name or title.
    pub part: Option<String>,
}

/// Make reports from raw logs. The logs of several generators become one run.
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

Ctrl-C refuses new calls with 503, lets those that are open end by themselves (--grace), ends the rest with a BYE, and writes \
the reports. A second Ctrl-C waits for nothing and writes the reports, a third not even that.

Exit codes: as those of `strowger load`.")]
pub(crate) struct UasArguments {
    /// The port.
    #[arg(long, short, default_value_t = 5060, value_parser = whole::<u16>(0..=65_535))]
    pub port: u16,
    /// Local address, which also appears in messages; :: listens on every IPv6 address [default: every IPv4 address;
    /// messages then have the address by which other machines reach this one].
    #[arg(long, value_name = "IP")]
    pub source: Option<IpAddr>,
    #[arg(long, value_name = "TRANSPORT", default_value = "udp", value_parser = transport)]
    pub transport: Transport,
    /// Ringing time before the answer.
    #[arg(long, value_name = "TIME", value_parser = period::duration)]
    pub ring: Option<Duration>,
    /// A SIPp document that waits for calls, instead.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub scenario: Option<PathBuf>,
    /// Refuse a document that runs commands in a shell.
    #[arg(long)]
    pub no_exec: bool,
    /// End after this time.
    #[arg(long, short = 'd', value_name = "TIME", value_parser = period::duration)]
    pub duration: Option<Duration>,
    /// Time that Ctrl-C leaves for open calls to end by themselves, before they get a BYE.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = period::duration)]
    pub grace: Duration,
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
    /// Maximum number of calls open at a time. Further calls wait, and their wait is counted.
    #[arg(long, short = 'l', value_name = "N", value_parser = period::count)]
    pub concurrent: Option<u64>,
    /// Calls that are open at a time on average: sets the rate to N divided by the mean of --hold, which for a document is
    /// the length of its calls. The number is reached once the first call ends.
    #[arg(long, value_name = "N", value_parser = period::count, conflicts_with_all = ["rate", "rate_profile"])]
    pub simultaneous: Option<u64>,
    /// Time during which new calls start [default: 10s, or until all calls are made].
    #[arg(long, short = 'd', value_name = "TIME", value_parser = period::duration)]
    pub duration: Option<Duration>,
    /// Duration of a call from the ACK to the BYE: a time, MIN-MAX, or exp:MEAN.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = hold)]
    pub hold: Distribution,
    /// A rate that changes: 100:30s,100-500:1m,burst:1000 or a CSV file with lines of seconds,rate.
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["rate", "duration"])]
    pub rate_profile: Option<String>,
    /// Distribution of arrivals: fixed, or poisson.
    #[arg(long, value_name = "HOW", default_value = "fixed", value_parser = arrivals)]
    pub arrivals: Arrivals,
    /// The moment of the first call: a date and time with its zone (2026-12-01T09:30:00Z), or +5s for five seconds from
    /// now. With a date and time, several generators with synchronous clocks begin together.
    #[arg(long, value_name = "MOMENT", value_parser = start_at)]
    pub start_at: Option<SystemTime>,
    /// Length of a first part of the schedule that warms the server up: its calls are made, but count in no total,
    /// percentile, requirement or verdict. A call belongs to the warm-up if it falls due in it, however long the call
    /// lasts.
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true, value_parser = period::duration)]
    pub warm_up: Duration,
    /// Seed of the random numbers, so that a run can be repeated.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Traffic")]
pub(crate) struct Traffic {
    /// call, register, re-register, register-then-call, register-then-receive, options, message or mix [default: call].
    #[arg(long, short, value_name = "NAME", conflicts_with = "scenario")]
    pub workload: Option<Workload>,
    /// Shares of a mix in per cent: call, register, options and message. A kind that is not named has no share; calls
    /// have the share that remains to 100. This option sets the workload to mix [default:
    /// call=70,register=20,options=5,message=5].
    #[arg(long, value_name = "NAME=PERCENT,...", conflicts_with = "scenario")]
    pub mix: Option<Mix>,
    /// A SIPp document that makes the calls. The option may be given several times, each with a share of the calls after a colon:
    /// FILE:70 and FILE:30.
    #[arg(long, visible_alias = "sf", value_name = "FILE[:SHARE]", value_hint = ValueHint::FilePath)]
    pub scenario: Vec<String>,
    /// Refuse a document that runs commands in a shell.
    #[arg(long, requires = "scenario")]
    pub no_exec: bool,
    /// Data for [field0] and so on of the document. The option may be given several times.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "scenario")]
    pub inf: Vec<PathBuf>,
    /// A value for [NAME] of the document, as NAME=VALUE.
    #[arg(long, value_name = "NAME=VALUE", value_parser = key, requires = "scenario")]
    pub key: Vec<(String, String)>,
    /// udp, tcp, tls, ws or wss [default: the transport of the target, or udp].
    #[arg(long, short, value_name = "TRANSPORT", value_parser = transport)]
    pub transport: Option<Transport>,
    #[command(flatten)]
    pub pool: Pool,
    /// Send everything to this address; the target stays in the messages.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub proxy: Option<Target>,
    /// The domain of the users [default: the target's host].
    #[arg(long, value_parser = domain)]
    pub domain: Option<String>,
    /// The calling user and its password.
    #[arg(long, value_name = "USER:PASSWORD", value_parser = users::one, conflicts_with = "users")]
    pub auth: Option<User>,
    /// Users with passwords, one a line: user;password. A document takes its data from --inf instead.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "scenario")]
    pub users: Option<PathBuf>,
    /// The called user, if the target names none. With --pair this user registers at the target first, and answers
    /// here.
    #[arg(long, value_name = "USER[:PASSWORD]", value_parser = users::one)]
    pub callee: Option<User>,
    /// Expiry of a registration in seconds. Registrations of users who are called here are removed at the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600, value_parser = whole::<u32>(0..=u64::from(u32::MAX)))]
    pub expires: u32,
    /// Address in Contact of registrations [default: the address of the socket, which differs for each connection].
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "scenario")]
    pub contact: Option<Target>,
    /// Ringing time of the answering side of --pair.
    #[arg(long, value_name = "TIME", value_parser = period::duration)]
    pub ring: Option<Duration>,
    /// Timeout of an answer, after which its call ends [default: 32s; for a document: none].
    #[arg(long, value_name = "TIME", value_parser = period::duration)]
    pub timeout: Option<Duration>,
    /// Addresses to send from, in turn. Several addresses are separated by commas, or given by several options.
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub source: Vec<IpAddr>,
    /// The port to send from [default: any].
    #[arg(long, short, default_value_t = 0, hide_default_value = true, value_parser = whole::<u16>(0..=65_535))]
    pub port: u16,
    /// Threads that make calls, each with a socket of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1..=64))]
    pub shards: u16,
    #[command(flatten)]
    pub certificates: Certificates,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Certificates {
    /// Certificate authorities for the servers to which this side connects. Without this option any certificate is
    /// accepted.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_ca: Option<PathBuf>,
    /// Certificate of the answering side.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    #[command(flatten)]
    pub reports: Reports,
    /// A requirement that ends the run when it fails. A count fails as soon as it passes its bound; any other measure
    /// is judged over the last 10 s, if 20 calls have ended in them. It is also required at the end. The option may be
    /// given several times.
    #[arg(long, value_name = "MEASURE<VALUE", help_heading = "Output")]
    pub abort_on: Vec<String>,
    /// Write the raw log of results. Every report can be made from it later, and several logs can be combined.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Keep the messages of the first N calls that fail. The table, the JSON, the page and the log show them as
    /// ladders. The messages are shown as they were sent, including digest responses.
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = whole::<u16>(0..=1_000), help_heading = "Output")]
    pub keep_failed: u16,
    /// Microseconds by which the clock of this machine is ahead of the clock of --start-at and the log; negative if it is
    /// behind.
    #[arg(
        long,
        value_name = "MICROSECONDS",
        default_value_t = 0,
        allow_negative_numbers = true,
        hide = true,
        help_heading = "Output"
    )]
    pub clock_ahead: i64,
    /// Serve metrics for Prometheus on this address during the run.
    #[arg(long, value_name = "IP:PORT", value_parser = listen, help_heading = "Output")]
    pub prometheus: Option<SocketAddr>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Reports {
    /// Requirement on the results, such as 'srd.p95<200ms' or 'ser>=99.9%'. The option may be given several times.
    #[arg(long, value_name = "MEASURE<VALUE")]
    pub require: Vec<String>,
    /// Write the report as JSON. With - it goes to standard output, and the table goes to standard error.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the series as CSV, one line a second; - has the same meaning as with --json.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write the report as one self-contained HTML page; - has the same meaning as with --json.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Maximum number of lines of the series. In a longer run each line covers 2, 4, 8 seconds and so on.
    #[arg(long, value_name = "N", default_value_t = 3_600, value_parser = whole::<u32>(2..=u64::from(u32::MAX)))]
    pub series: u32,
    /// No screen and no table; files are written, errors and missed requirements printed.
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub bounds: Bounds,
}

/// Bounds beyond which the generator, not the server, counts as the limit.
#[derive(Debug, Args)]
#[command(next_help_heading = "Health (beyond these a run is INVALID)")]
pub(crate) struct Bounds {
    /// Calls that fell due, had a free place, and were not begun by the end of a window.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    pub max_rate_error: f64,
    /// The 99th percentile of the lag of calls, of timers within calls and of sending [default: by the delays, see
    /// --lag-share].
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub max_lag: Option<f64>,
    /// Waiting time of messages in the sockets of the generator, its 99th percentile [default: as --max-lag].
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub max_receive_lag: Option<f64>,
    /// Mean time that a thread waited for a core each time [default: as --max-lag].
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub max_run_queue: Option<f64>,
    /// Share of the time in which a thread waited for a core, if calls wait for the limit of concurrent calls.
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = percent)]
    pub max_core_wait: f64,
    /// Default of --max-lag, --max-receive-lag and --max-run-queue: this share of the 95th percentile of the measured
    /// delays, within --lag-floor and --lag-most.
    #[arg(long, value_name = "PERCENT", default_value = "50%", value_parser = percent)]
    pub lag_share: f64,
    /// The least bound that --lag-share gives.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = milliseconds)]
    pub lag_floor: f64,
    /// The greatest bound that --lag-share gives.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = milliseconds)]
    pub lag_most: f64,
    /// Datagrams that the kernel dropped before they were read.
    #[arg(long, value_name = "N", default_value = "0", value_parser = period::count)]
    pub max_drops: u64,
    /// Messages that this machine could not send.
    #[arg(long, value_name = "N", default_value = "0", value_parser = period::count)]
    pub max_send_failures: u64,
    /// The longest time for which a thread did not run.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = milliseconds)]
    pub max_stall: f64,
    /// Media packets that were skipped or could not be sent.
    #[arg(long, value_name = "N", default_value = "0", value_parser = period::count)]
    pub max_media_losses: u64,
    /// Mean share of a core that a thread uses; 100% is no bound.
    #[arg(long, value_name = "PERCENT", default_value = "100%", value_parser = percent)]
    pub max_cpu: f64,
    /// Share of a core from which on a thread causes a warning, and is named as the cause of the above.
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = percent)]
    pub saturated: f64,
    /// Share of the seconds up to which such a thread causes no warning.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    pub saturated_seconds: f64,
    /// Length of the windows for all these bounds (in runs of hours, a hundredth of the run).
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = period::duration)]
    pub window: Duration,
    /// Share of the windows with calls that may be bad in a run that is VALID as a whole.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    pub max_bad_windows: f64,
}

impl Reports {
    /// Reports that go to standard output.
    pub(super) fn to_standard_output(&self) -> impl Iterator<Item = &Path> {
        let all = [&self.json, &self.csv, &self.html].into_iter().flatten().map(PathBuf::as_path);
        all.filter(|path| *path == Path::new("-"))
    }
}

impl Bounds {
    pub(super) const fn thresholds(&self) -> Thresholds {
        Thresholds {
            rate_error: self.max_rate_error,
            lag_p99: self.max_lag,
            receive_lag: self.max_receive_lag,
            run_queue: self.max_run_queue,
            core_wait: self.max_core_wait,
            lag_share: self.lag_share,
            lag_floor: self.lag_floor,
            lag_most: self.lag_most,
            socket_drops: self.max_drops,
            send_failures: self.max_send_failures,
            stall: self.max_stall,
            media_losses: self.max_media_losses,
            cpu: self.max_cpu,
            saturated: self.saturated,
            saturated_seconds: self.saturated_seconds,
            bad_windows: self.max_bad_windows,
        }
    }

    /// Returns the length of a window in seconds.
    pub(super) fn window(&self) -> u64 {
        self.window.as_secs().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_health_are_those_of_the_measures() {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            bounds: Bounds,
        }
        let thresholds = |words: &[&str]| <Words as clap::Parser>::try_parse_from(words).map(|w| w.bounds.thresholds());
        assert_eq!(thresholds(&["load"]).ok(), Some(Thresholds::default()));
        let wide = thresholds(&[
            "load",
            "--max-lag",
            "1s",
            "--max-rate-error",
            "2.5%",
            "--max-drops",
            "1k",
            "--max-cpu",
            "80",
        ]);
        let want = Thresholds {
            lag_p99: Some(1_000.0),
            rate_error: 2.5,
            socket_drops: 1_000,
            cpu: 80.0,
            ..Thresholds::default()
        };
        assert_eq!(wide.ok(), Some(want));
    }
}
