//! What stands on the terminal, and in `-trace_screen`.

use super::statistics::{length, number};
use crate::engine::ledger::Ledger;
use crate::scenario::Scenario;
use crate::scenario::step::{Expected, Kind, Start};
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
            let shown = |name: &str| step.display.as_deref().map_or_else(|| name.to_owned(), str::to_owned);
            let _ = match &step.kind {
                Kind::Send(send) => {
                    let name = match &send.start {
                        Start::Request(method) => String::from_utf8_lossy(&method.text).into_owned(),
                        Start::Response(code) => code.to_string(),
                    };
                    let arrow = if matches!(send.start, Start::Request(_)) { "---------->" } else { "<----------" };
                    writeln!(
                        text,
                        "  {:>10} {arrow} {timer:<7}{:<10}{:<10}{:<10}",
                        shown(&name),
                        counts.sent,
                        counts.sent_again,
                        counts.timeouts
                    )
                }
                Kind::Receive(receive) => {
                    let (name, request) = match &receive.expected {
                        Expected::Request(method) => (String::from_utf8_lossy(&method.text).into_owned(), true),
                        Expected::Response(code) => (code.to_string(), false),
                        Expected::RequestMatching(p) => (String::from_utf8_lossy(&p.text).into_owned(), true),
                        Expected::ResponseMatching(p) => (String::from_utf8_lossy(&p.text).into_owned(), false),
                    };
                    let arrow = if request { "---------->" } else { "<----------" };
                    writeln!(
                        text,
                        "  {:>10} {arrow} {timer:<7}{:<10}{:<10}{:<10}{}",
                        shown(&name),
                        counts.received,
                        counts.received_again,
                        counts.timeouts,
                        counts.unexpected
                    )
                }
                Kind::Pause(_) | Kind::TimeWait(_) => {
                    writeln!(
                        text,
                        "  {:>10}             {timer:<7}{:<10}{:>20}{}",
                        shown("Pause"),
                        counts.pausing,
                        "",
                        counts.unexpected
                    )
                }
                Kind::Nop => writeln!(text, "  {:>10}", shown("[ NOP ]")),
                Kind::SendCommand { .. } => writeln!(text, "  {:>10}", shown("[ Sent Command ]")),
                Kind::ReceiveCommand { .. } => writeln!(text, "  {:>10}", shown("[ Received Command ]")),
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
