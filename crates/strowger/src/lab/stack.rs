//! `strowger lab stack`: the stack as a library, which the experiment `stack` measures.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strowger_core::Transport;
use strowger_lab::row::Figures;
use strowger_lab::stack::{self, Setting, Work};

use super::print;
use crate::output::{Refusal, code, usage};

/// Measure the stack as a library, and print the figures as a line of JSON.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab stack call                         a thread a side by UDP
  strowger lab stack call --transport tcp --itself --threads 2
  strowger lab stack call --transport tcp --itself --processes 2
  strowger lab stack messages                     messages parsed and printed
  strowger lab stack footprint                    size, bytes a transaction and dialog

Exit codes: 0 done, 1 it failed, 2 the command line cannot be used.")]
pub(crate) struct StackArguments {
    /// Subject.
    #[arg(value_name = "WHAT", value_enum)]
    pub what: What,
    /// Transport of requests and calls: udp or tcp.
    #[arg(long, value_name = "TRANSPORT", default_value = "udp", value_parser = ["udp", "tcp"])]
    pub transport: String,
    /// Threads of each side.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// The same threads call and answer.
    #[arg(long)]
    pub itself: bool,
    /// Number of processes that measure at the same time, each with this number of threads. Their rates are added.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub processes: u8,
    /// Number of requests or calls in progress at a time, of all processes together.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub outstanding: u32,
    /// Load before the window, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub warm_up: Duration,
    /// Window, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    pub window: Duration,
}

/// Subject of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Messages parsed and printed.
    Messages,
    /// Size of the program, memory of a transaction and of a dialog.
    Footprint,
    /// Requests without transactions.
    Stateless,
    /// Requests with transactions.
    Transaction,
    /// Calls of user agents.
    Call,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds, such as 2.5")?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| time.as_secs() < 86_400)
        .ok_or_else(|| "write seconds of a day".into())
}

pub(super) fn run(arguments: &StackArguments) -> Result<ExitCode, Refusal> {
    let figures = measured(arguments)?;
    let values: serde_json::Map<String, _> =
        figures.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    print(&format!("{}\n", serde_json::Value::from(values)))?;
    Ok(ExitCode::SUCCESS)
}

fn measured(arguments: &StackArguments) -> Result<Figures, Refusal> {
    let work = match arguments.what {
        What::Messages => None,
        What::Footprint => None,
        What::Stateless => Some(Work::Stateless),
        What::Transaction => Some(Work::Transaction),
        What::Call => Some(Work::Call),
    };
    let failed = |error: strowger_lab::Error| Refusal(code::FAILED, error.to_string());
    let Some(work) = work else {
        return match arguments.what {
            What::Messages => stack::parse_and_print(arguments.window),
            _ => stack::footprint(),
        }
        .map_err(failed);
    };
    let (processes, threads) = (u32::from(arguments.processes), usize::from(arguments.threads));
    let outstanding = arguments.outstanding / processes;
    if (outstanding as usize) < threads {
        let text = format!("--outstanding {}: each thread needs one at least", arguments.outstanding);
        return Err(usage(text));
    }
    if processes > 1 {
        return stack::together(&words(arguments, outstanding), processes as usize).map_err(failed);
    }
    let transport = if arguments.transport == "tcp" { Transport::Tcp } else { Transport::Udp };
    let (is_itself, warm_up, window) = (arguments.itself, arguments.warm_up, arguments.window);
    stack::exchanges(&Setting { work, transport, threads, is_itself, outstanding, warm_up, window }).map_err(failed)
}

/// Returns the command-line words for one of several processes.
fn words(arguments: &StackArguments, outstanding: u32) -> Vec<String> {
    let what = arguments.what.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let mut words = vec!["lab".to_owned(), "stack".to_owned(), what];
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    for (name, value) in [
        ("--transport", arguments.transport.clone()),
        ("--threads", arguments.threads.to_string()),
        ("--outstanding", outstanding.to_string()),
        ("--warm-up", seconds(arguments.warm_up)),
        ("--window", seconds(arguments.window)),
    ] {
        words.extend([name.to_owned(), value]);
    }
    words.extend(arguments.itself.then(|| "--itself".to_owned()));
    words
}
