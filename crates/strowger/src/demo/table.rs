//! The figures at the end, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use console::style;
use serde_json::{Value, json};
use strowger_load::report::Tone;

use super::load::Calls;

/// Figures measured around the calls.
pub(super) struct Figures<'a> {
    pub calls: &'a Calls,
    /// Processor time of the server's shards.
    pub cpu: Duration,
    /// Messages that the server retransmitted.
    pub resent: u64,
    /// Resident memory of this process in bytes, if the system reports it.
    pub memory: Option<u64>,
}

impl Figures<'_> {
    /// Returns the processor time per call in microseconds.
    fn cpu_per_call(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.calls.made().max(1) as f64
    }

    pub(super) fn table(&self) -> String {
        let calls = self.calls;
        let failures = match calls.failures() {
            0 => style("0".to_owned()).green(),
            failures => style(failures.to_string()).red().bold(),
        };
        let mut out = String::new();
        let mut row = |name: &str, value: &dyn std::fmt::Display, unit: &str, note: &str| {
            // A style pads the visible text, not its escape codes.
            let _ = writeln!(out, "{}", format!("  {name:<22}{value:>10} {unit:<4}{}", style(note).dim()).trim_end());
        };
        row("calls", &calls.made(), "", "");
        row("failures", &failures, "", &calls.reasons());
        for (name, percentile, note) in
            [("call setup, p50", 50.0, "from INVITE to 200, seen by the caller"), ("p95", 95.0, ""), ("p99", 99.0, "")]
        {
            let name = if note.is_empty() { format!("              {name}") } else { name.to_owned() };
            row(&name, &format!("{:.2}", calls.delay(percentile)), "ms", note);
        }
        row("calls per second", &format!("{:.1}", calls.per_second()), "", "");
        row(
            "CPU per call",
            &format!("{:.0}", self.cpu_per_call()),
            "µs",
            "of the server's shards, the threads that carry messages",
        );
        row(
            "retransmissions",
            &calls.retransmissions(),
            "",
            &format!("of the caller; the server's are {}", self.resent),
        );
        if let Some(memory) = self.memory {
            row(
                "memory",
                &format!("{:.1}", memory as f64 / 1e6),
                "MB",
                "resident, server and phones together in this process",
            );
        }
        out.push('\n');
        for (tone, line) in calls.verdict() {
            let line = match tone {
                Tone::Good => style(line).green(),
                Tone::Doubtful => style(line).yellow(),
                Tone::Bad => style(line).red(),
            };
            let _ = writeln!(out, "  {line}");
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let calls = self.calls;
        json!({
            "calls": calls.made(),
            "failures": calls.failures(),
            "reasons": calls.reasons(),
            "generator_valid": calls.valid(),
            "verdict": calls.verdict().into_iter().map(|(_, line)| line).collect::<Vec<_>>(),
            "setup_delay_ms": {"p50": calls.delay(50.0), "p95": calls.delay(95.0), "p99": calls.delay(99.0)},
            "calls_per_second": calls.per_second(),
            "server_cpu_us_per_call": self.cpu_per_call(),
            "retransmissions": calls.retransmissions(),
            "server_retransmissions": self.resent,
            "resident_bytes": self.memory,
        })
    }
}

/// Returns the resident memory of this process in bytes.
pub(super) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
