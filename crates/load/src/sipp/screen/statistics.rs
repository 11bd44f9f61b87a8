//! Screen 2: totals of the run and of the period.

use super::{View, head};
use crate::engine::sipp_stats::Lengths;
use crate::sipp::statistics::length;
use crate::sipp::trace::Stamp;
use std::fmt::Write;
use std::time::Duration;

const RULE: &str = "-------------------------+---------------------------+--------------------------\n";

impl View<'_> {
    pub(super) fn statistics(&self) -> String {
        let mut all = head("Statistics Screen");
        let text = &mut all;
        let (l, b) = (self.stats, self.before);
        let now = Stamp::now();
        for (name, at) in [("Start Time", self.started), ("Last Reset Time", self.reset), ("Current Time", &now)] {
            let _ = writeln!(text, "  {name:<22} | {:<52}", at.long());
        }
        text.push_str(RULE);
        row(text, "Counter Name", "Periodic value", "Cumulative value");
        text.push_str(RULE);
        let time = |t: Duration| length(t.as_micros() as f64 / 1_000.0);
        row(text, "Elapsed Time", &time(self.period), &time(self.elapsed));
        let (calls, earlier) = (Self::calls(l), Self::calls(b));
        row(text, "Call Rate", &rate(calls - earlier.min(calls), self.period), &rate(calls, self.elapsed));
        text.push_str(RULE);
        count(text, "Incoming calls created", l.incoming, b.incoming);
        count(text, "Outgoing calls created", l.outgoing, b.outgoing);
        row(text, "Total Calls created", "", &format!("{calls:>8}"));
        row(text, "Current Calls", &format!("{:>8}", l.open), "");
        text.push_str(RULE);
        for (i, name) in self.scenario.counters.iter().enumerate() {
            let of = |counters: &[u64]| counters.get(i).copied().unwrap_or(0);
            count(text, &format!("Counter {name}"), of(&l.counters), of(&b.counters));
        }
        if !self.scenario.counters.is_empty() {
            text.push_str(RULE);
        }
        count(text, "Successful call", l.successful, b.successful);
        count(text, "Failed call", l.failed, b.failed);
        text.push_str(RULE);
        for (i, (name, lengths)) in self.scenario.timers.iter().zip(&l.timers).enumerate() {
            mean(text, &format!("Response Time {name}"), lengths, b.timers.get(i));
        }
        mean(text, "Call Length", &l.call_length, Some(&b.call_length));
        all
    }
}

fn row(text: &mut String, name: &str, periodic: &str, whole: &str) {
    let _ = writeln!(text, "  {name:<22} | {periodic:<25} | {whole:<25}");
}

fn count(text: &mut String, name: &str, new: u64, old: u64) {
    row(text, name, &format!("{:>8}", new - old.min(new)), &format!("{new:>8}"));
}

fn rate(calls: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    format!("{:>8.3} cps", if seconds > 0.0 { calls as f64 / seconds } else { 0.0 })
}

fn mean(text: &mut String, name: &str, new: &Lengths, old: Option<&Lengths>) {
    let of = |number: u64, sum: f64| length(if number > 0 { sum / number as f64 } else { 0.0 });
    let (number, sum) = old.map_or((0, 0.0), |old| (old.number, old.sum));
    row(text, name, &of(new.number - number.min(new.number), new.sum - sum), &of(new.number, new.sum));
}
