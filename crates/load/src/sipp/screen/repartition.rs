//! Screens 3 and 6 to 9: distribution of response times and call lengths.

use super::{View, head};
use crate::engine::sipp_stats::Lengths;
use std::fmt::Write;

impl View<'_> {
    /// Returns the screen of the first timer and of the calls.
    pub(super) fn repartition(&self) -> String {
        let mut text = head("Repartition Screen");
        let timed = !self.scenario.timers.is_empty();
        if !timed && self.stats.call_length.bounds.is_empty() {
            text.push_str(NONE);
            return text;
        }
        if timed {
            self.timer(0, &mut text);
        }
        let _ = writeln!(text, "  {:<75}", "Average Call Length Repartition");
        table(&self.stats.call_length, &mut text);
        text
    }

    /// Returns the screen of another timer; 0 is the first.
    pub(super) fn further_repartition(&self, timer: usize) -> String {
        let mut text = head(&format!("Repartition {} Screen", timer + 1));
        if timer < self.scenario.timers.len() {
            self.timer(timer, &mut text);
        } else {
            text.push_str(NONE);
        }
        text
    }

    fn timer(&self, timer: usize, text: &mut String) {
        let name = self.scenario.timers.get(timer).map_or("", String::as_str);
        let _ = writeln!(text, "  {:<75}", format!("Average Response Time Repartition {name}"));
        match self.stats.timers.get(timer) {
            Some(lengths) => table(lengths, text),
            None => text.push_str(NONE),
        }
    }
}

/// Text without a table, in SIPp's spelling.
const NONE: &str = "    <No repartion defined>\n";

fn table(lengths: &Lengths, text: &mut String) {
    let Some(last) = lengths.bounds.last() else { return text.push_str(NONE) };
    let mut from = 0;
    for (to, count) in lengths.bounds.iter().zip(&lengths.counts) {
        let _ = writeln!(text, "    {from:>10} ms <= n < {to:>10} ms : {count:>10}");
        from = *to;
    }
    let beyond = lengths.counts.last().copied().unwrap_or(0);
    let _ = writeln!(text, "                   n >= {last:>10} ms : {beyond:>10}");
}
