//! Screen 1: the steps of the scenario and their counts.

use super::{Arrival, View, head};
use crate::engine::sipp_stats::StepCounts;
use std::fmt::Write;
use strowger_scenario::step::{Expected, Pause, Start, Step, StepKind};
use strowger_scenario::{Distribution, Role};

impl View<'_> {
    pub(super) fn steps(&self) -> String {
        let mut text = head("Scenario Screen");
        self.load(&mut text);
        let (scenario, counts) = match self.aside {
            Some(aside) => (aside, &self.stats.aside),
            None => (self.scenario, &self.stats.steps),
        };
        let steps = scenario.steps.iter().zip(counts).filter(|(step, _)| !step.hidden);
        let loses = self.loses || scenario.steps.iter().any(|step| step.lost.is_some());
        let last = if loses { "Unexp.    Lost" } else { "Unexpected-Msg" };
        let _ = writeln!(text, "\n                                 Messages  Retrans   Timeout   {last}");
        for (step, counts) in steps {
            self.step(step, counts, &mut text);
            if step.blank_line {
                text.push('\n');
            }
        }
        text
    }

    /// Writes the requested load and the progress.
    fn load(&self, text: &mut String) {
        let (l, all) = (self.stats, Self::calls(self.stats));
        let hundredths = self.elapsed.as_millis() / 10;
        let so_far = format!("{:<5} {:>6}.{:02} s     {all:>8}", self.port, hundredths / 100, hundredths % 100);
        let _ = match self.arrival {
            Arrival::Answered => {
                writeln!(text, "  Port   Total-time  Total-calls  Transport\n  {so_far}  {}\n", self.transport)
            }
            Arrival::Users(users) => writeln!(
                text,
                "  Users (length)   Port   Total-time  Total-calls  Remote-host\n  {users} ({} ms)   {so_far}  {}({})\n",
                self.duration, self.remote, self.transport
            ),
            Arrival::Rate { calls, period } => writeln!(
                text,
                "  Call rate (length)   Port   Total-time  Total-calls  Remote-host\n  \
                 {calls:.1}({} ms)/{:.3}s   {so_far}  {}({})\n",
                self.duration,
                period as f64 / 1_000.0,
                self.remote,
                self.transport
            ),
        };
        let period = self.period.as_secs_f64();
        let new = match self.calls.filter(|most| all >= *most) {
            Some(most) => format!("Call limit {most} hit, {period:.1} s period "),
            None => format!("{} new calls during {period:.3} s period ", all - Self::calls(self.before).min(all)),
        };
        let resolution = format!("{} ms scheduler resolution", self.resolution);
        let _ = writeln!(text, "  {new:<38}  {resolution:<37}");
        let client = self.scenario.role == Role::Client;
        let open =
            if client { format!("{} calls (limit {})", l.open, self.limit) } else { format!("{} calls", l.open) };
        let _ = writeln!(text, "  {open:<38}  Peak was {} calls, after {} s", l.peak, self.peak_after);
        // A shard that answers runs none of its calls.
        let _ = writeln!(text, "  0 Running, {} Paused, {} Woken up", l.open, self.woken);
        let dead = format!("{} dead call msg (discarded)", l.dead_call);
        let _ = if client {
            writeln!(text, "  {dead:<38}  {} out-of-call msg (discarded)", l.out_of_call)
        } else {
            writeln!(text, "  {dead:<38}")
        };
        let sockets = format!("{} open sockets", self.sockets);
        let [sent, received, congested] = self.errors;
        let _ =
            writeln!(text, "  {sockets:<38}  {sent}/{received}/{congested} {} errors (send/recv/cong)", self.transport);
        text.push_str(&self.media);
    }

    fn step(&self, step: &Step, counts: &StepCounts, text: &mut String) {
        let server = self.scenario.role == Role::Server;
        let place = match &step.kind {
            StepKind::Nop => {
                // A `nop` has no counts.
                let _ = match &step.display {
                    Some(display) => writeln!(text, " {display}"),
                    None => writeln!(text, "              [ NOP ]"),
                };
                return;
            }
            StepKind::SendCommand { .. } => format!("{:>24}", "[ Sent Command ]"),
            StepKind::ReceiveCommand { .. } => format!("{:>24}", "[ Received Command ]"),
            StepKind::Pause(pause) | StepKind::TimeWait(pause) => {
                let length = format!("[{:>9}]", self.length(pause));
                if server { format!("  {length} Pause") } else { format!("       Pause {length}") }
            }
            StepKind::Send(_) | StepKind::Receive(_) => {
                // From the caller's side to the callee's, or back.
                let away = matches!(step.kind, StepKind::Send(_)) != server;
                let arrow = if away { "---------->" } else { "<----------" };
                let (name, timer) = (name(step), timer(step));
                if server { format!("  {arrow} {name:<10}  {timer}") } else { format!("{name:>12} {arrow}  {timer}") }
            }
        };
        let mut columns = match &step.kind {
            StepKind::Send(send) => {
                let waits = send.retransmit.is_some_and(|ms| ms > 0);
                let timeouts = if waits { counts.timeouts.to_string() } else { String::new() };
                vec![counts.sent.to_string(), counts.sent_again.to_string(), timeouts, String::new()]
            }
            StepKind::Receive(_) => [counts.received, counts.received_again, counts.timeouts, counts.unexpected]
                .map(|n| n.to_string())
                .to_vec(),
            StepKind::Pause(_) | StepKind::TimeWait(_) => {
                vec![counts.passed.to_string(), String::new(), String::new(), counts.unexpected.to_string()]
            }
            _ => vec![counts.passed.max(counts.received).to_string(), String::new(), String::new(), String::new()],
        };
        if counts.lost > 0 {
            columns.push(counts.lost.to_string());
        }
        let columns: String = columns.iter().map(|column| format!("{column:<10}")).collect();
        let _ = writeln!(text, "{place:<33}{columns}     ");
    }

    /// Returns the length of a pause, in eleven characters or more.
    fn length(&self, pause: &Pause) -> String {
        let t = |ms: f64| duration(ms);
        match pause {
            Pause::Default => t(self.duration as f64),
            Pause::Variable(slot) => format!("${}", self.aside.unwrap_or(self.scenario).variables.name(*slot)),
            Pause::Drawn(distribution) => match *distribution {
                Distribution::Fixed(ms) => t(ms),
                Distribution::Uniform { min, max } => format!("{}/{}", t(min), t(max)),
                Distribution::Normal { mean, deviation } => format!("N({},{})", t(mean), t(deviation)),
                Distribution::LogNormal { mean, deviation } => format!("LN({},{})", t(mean), t(deviation)),
                Distribution::Exponential { mean } => format!("Exp({})", t(mean)),
                Distribution::Weibull { lambda, k } => format!("Wb({},{})", t(lambda), t(k)),
                Distribution::Pareto { k, x_m } => format!("P({},{})", t(k), t(x_m)),
                Distribution::GeneralizedPareto { shape, scale, location } => {
                    format!("P({},{},{})", t(shape), t(scale), t(location))
                }
                Distribution::Gamma { k, theta } => format!("G({},{})", t(k), t(theta)),
                Distribution::NegativeBinomial { p, n } => format!("NB({},{})", t(n), t(p)),
            },
        }
    }
}

/// Returns the short name of a message.
fn name(step: &Step) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &step.kind {
        StepKind::Send(send) => match &send.start {
            Start::Request(method) => text(&method.text),
            Start::Response(code) => code.to_string(),
        },
        StepKind::Receive(receive) => match &receive.expected {
            Expected::Request(method) => text(&method.text),
            Expected::Response(code) => code.to_string(),
            Expected::RequestMatching(pattern) | Expected::ResponseMatching(pattern) => text(&pattern.text),
        },
        _ => String::new(),
    }
}

/// Returns the timer that begins or ends here.
fn timer(step: &Step) -> String {
    match (step.start_timer, step.stop_timer) {
        (Some(timer), _) => format!("B-RTD{}", timer + 1),
        (None, Some(timer)) => format!("E-RTD{}", timer + 1),
        (None, None) => String::new(),
    }
}

/// Formats as `9999ms`, `15.5s`, `1:40`, `1:00:00`.
fn duration(ms: f64) -> String {
    if ms < 10_000.0 {
        return if ms.fract() == 0.0 { format!("{ms:.0}ms") } else { format!("{ms:.2}ms") };
    }
    if ms < 60_000.0 {
        return format!("{:.1}s", ms / 1_000.0);
    }
    let seconds = (ms / 1_000.0) as u64;
    let (h, m, s) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m}:{s:02}") }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_as_they_are_shown() {
        let all = [9_999.0, 10_000.0, 15_500.0, 60_000.0, 100_000.0, 3_600_000.0, 90_000_000.0, 0.1];
        let shown = all.map(duration);
        assert_eq!(shown, ["9999ms", "10.0s", "15.5s", "1:00", "1:40", "1:00:00", "25:00:00", "0.10ms"]);
    }
}
