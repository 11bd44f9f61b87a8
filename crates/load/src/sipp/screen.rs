//! What stands on the terminal, and in `-trace_screen`.

use super::statistics::{length, number};
use crate::engine::ledger::Ledger;
use crate::scenario::step::{Expected, Kind, Pause, Start, Step};
use crate::scenario::{Distribution, Role, Scenario};
use std::fmt::Write;

/// What a screen is made of.
pub(super) struct View<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) ledger: &'a Ledger,
    pub(super) rate: f64,
    pub(super) period: u64,
    pub(super) duration: u64,
    pub(super) port: u16,
    pub(super) seconds: f64,
    pub(super) remote: &'a str,
    pub(super) transport: &'static str,
    pub(super) limit: u64,
    /// The lines about media, if there are any.
    pub(super) media: String,
    pub(super) ending: bool,
}

impl View<'_> {
    /// The scenario and its counts.
    pub(super) fn scenario(&self) -> String {
        let mut text = String::new();
        let l = self.ledger;
        let _ = writeln!(text, "------------------------------ Scenario Screen -------- [1-9]: Change Screen --");
        let _ = writeln!(text, "  Call rate (length)   Port   Total-time  Total-calls  Remote-host");
        let _ = writeln!(
            text,
            "  {:.1}({} ms)/{:.3}s   {}  {:>9.2} s  {:>11}  {}({})\n",
            self.rate,
            self.duration,
            self.period as f64 / 1_000.0,
            self.port,
            self.seconds,
            l.incoming + l.outgoing,
            self.remote,
            self.transport
        );
        let _ = writeln!(text, "  {} calls (limit {}){:>20}Peak was {} calls", l.open, self.limit, "", l.peak);
        let _ = writeln!(
            text,
            "  {} dead call msg (discarded)             {} out-of-call msg (discarded)\n{}",
            l.dead_call, l.out_of_call, self.media
        );
        let _ = writeln!(text, "                                 Messages  Retrans   Timeout   Unexpected-Msg");
        for (step, counts) in self.scenario.steps.iter().zip(&l.steps).filter(|(s, _)| !s.hidden) {
            let timer = step.stop_timer.and_then(|t| self.scenario.timers.get(usize::from(t)));
            let timer = timer.map_or(String::new(), |t| format!("E-RTD{t}"));
            let (name, sends, pause) = name(step);
            let name = step.display.as_deref().map_or(name, str::to_owned);
            let server = self.scenario.role == Role::Server;
            let middle = match pause {
                Some(ms) => {
                    format!("[{:>9}]", ms.map_or_else(|| format!("{}ms", self.duration), |ms| format!("{ms}ms")))
                }
                // From the caller's place to the callee's, or back.
                None if sends != server => "---------->".into(),
                None => "<----------".into(),
            };
            let place = if server { format!("  {middle} {name:<10}") } else { format!("{name:>12} {middle}") };
            let mut columns: Vec<String> = Vec::new();
            match &step.kind {
                Kind::Send(send) => {
                    columns.extend([counts.sent, counts.sent_again].map(|n| n.to_string()));
                    if send.retransmit.is_some_and(|ms| ms > 0) {
                        columns.push(counts.timeouts.to_string());
                    }
                }
                Kind::Receive(_) => {
                    let all = [counts.received, counts.received_again, counts.timeouts, counts.unexpected];
                    columns.extend(all.map(|n| n.to_string()));
                }
                Kind::Pause(_) | Kind::TimeWait(_) => {
                    columns.extend([
                        counts.passed.to_string(),
                        String::new(),
                        String::new(),
                        counts.unexpected.to_string(),
                    ]);
                }
                Kind::SendCommand { .. } | Kind::ReceiveCommand { .. } => {
                    columns.push(counts.passed.max(counts.received).to_string());
                }
                Kind::Nop => (),
            }
            let columns: String = columns.iter().map(|c| format!("{c:<10}")).collect();
            let _ = if columns.is_empty() {
                writeln!(text, "{:>12}", name)
            } else {
                writeln!(text, "{place}  {timer:<6} {}", columns.trim_end())
            };
            if step.blank_line {
                text.push('\n');
            }
        }
        text.push_str(self.foot());
        text
    }

    const fn foot(&self) -> &'static str {
        if self.ending {
            "------------------------------ Test Terminated --------------------------------\n"
        } else {
            "------ [+|-|*|/]: Adjust rate ---- [q]: Soft exit ---- [p]: Pause traffic -----\n"
        }
    }

    /// The totals.
    pub(super) fn statistics(&self) -> String {
        let l = self.ledger;
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<23}| {value}");
        };
        row(
            "Call Rate",
            format!(
                "{} cps",
                number(if self.seconds > 0.0 { (l.incoming + l.outgoing) as f64 / self.seconds } else { 0.0 })
            ),
        );
        row("Incoming calls created", l.incoming.to_string());
        row("Outgoing calls created", l.outgoing.to_string());
        row("Current Calls", l.open.to_string());
        row("Successful call", l.successful.to_string());
        row("Failed call", l.failed.to_string());
        for (name, lengths) in self.scenario.timers.iter().zip(&l.timers) {
            let mean = if lengths.number > 0 { lengths.sum / lengths.number as f64 } else { 0.0 };
            row(&format!("Response Time {name}"), length(mean));
        }
        let mean = if l.call_length.number > 0 { l.call_length.sum / l.call_length.number as f64 } else { 0.0 };
        row("Call Length", length(mean));
        format!(
            "----------------------------- Statistics Screen ------- [1-9]: Change Screen --\n{text}{}",
            self.foot()
        )
    }
}

/// What stands for a step, whether it sends, and of a pause its milliseconds (`None`: those of `-d`).
fn name(step: &Step) -> (String, bool, Option<Option<u64>>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &step.kind {
        Kind::Send(send) => match &send.start {
            Start::Request(method) => (text(&method.text), true, None),
            Start::Response(code) => (code.to_string(), true, None),
        },
        Kind::Receive(receive) => match &receive.expected {
            Expected::Request(method) => (text(&method.text), false, None),
            Expected::Response(code) => (code.to_string(), false, None),
            Expected::RequestMatching(p) | Expected::ResponseMatching(p) => (text(&p.text), false, None),
        },
        Kind::Pause(Pause::Drawn(Distribution::Fixed(ms))) => ("Pause".into(), false, Some(Some(*ms as u64))),
        Kind::Pause(_) => ("Pause".into(), false, Some(None)),
        Kind::TimeWait(ms) => ("Pause".into(), false, Some(ms.map(u64::from))),
        Kind::Nop => ("[ NOP ]".into(), false, None),
        Kind::SendCommand { .. } => ("[ Sent Command ]".into(), true, None),
        Kind::ReceiveCommand { .. } => ("[ Received Command ]".into(), false, None),
    }
}
