//! Progress of a run on standard error: a bar on a terminal, otherwise a line for each row.

use std::time::Instant;

use console::Term;
use strowger_lab::row::{Row, Validity};
use strowger_lab::run::{Event, NextTrial, Schedule};

use crate::lab::list::length;
use crate::output;

/// Width of the bar in characters.
const WIDTH: usize = 24;

/// Figures that a line names, as far as a row has them.
const FIGURES: [(&str, &str, f64); 4] = [
    ("limit", "limit", 1.0),
    ("server.cpu.call", "µs a call", 1.0),
    ("srd.p95", "ms to the 180", 0.001),
    ("failed", "failed", 1.0),
];

/// Progress of a run.
pub(super) struct Progress {
    term: Option<Term>,
    trials: usize,
    begun: Instant,
}

impl Progress {
    pub(super) fn new(trials: usize) -> Self {
        let term = Term::stderr();
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { term: (term.is_term() && !is_dumb).then_some(term), trials, begun: Instant::now() }
    }

    pub(super) fn show(&self, schedule: &Schedule, event: &Event<'_>) {
        match (event, &self.term) {
            (Event::Begins(order), Some(term)) => {
                let (done, rest) = (schedule.done(), length(schedule.rest()));
                let filled = done * WIDTH / self.trials.max(1);
                let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
                let line = format!("{bar} {}/{} {}, {rest} left", done + 1, self.trials, title(order));
                let width = usize::from(term.size().1).saturating_sub(1);
                // A terminal that went away is no reason to end.
                let _ = term.clear_line().and_then(|()| term.write_str(&console::truncate_str(&line, width, "…")));
            }
            (Event::Begins(_), None) => {}
            (Event::Written(row), term) => {
                if let Some(term) = term {
                    let _ = term.clear_line();
                }
                output::say(&self.line(schedule, row));
            }
        }
    }

    fn line(&self, schedule: &Schedule, row: &Row) -> String {
        let mut line = format!("{:>5} {:>4}/{}  ", length(self.begun.elapsed()), schedule.done(), self.trials);
        line.push_str(&row.system.name);
        row.axes.values().for_each(|value| line.push_str(&format!(" {value}")));
        if row.limit.is_none() {
            line.push_str(&format!(" at {}", row.load));
        }
        for (name, unit, scale) in FIGURES {
            let is_shown = name != "failed" || row.figures.value(name).is_some_and(|failed| failed > 0.0);
            if let Some(value) = row.figures.value(name).filter(|_| is_shown) {
                line.push_str(&format!(", {:.1} {unit}", value * scale));
            }
        }
        if let Some(limit) = &row.limit {
            line.push_str(&format!(" ({}, {})", limit.finding, limit.cause()));
        }
        if let Validity::Reasons(reasons) = &row.validity {
            let mut checks: Vec<&str> = reasons.iter().map(|reason| reason.check.word()).collect();
            checks.dedup();
            line.push_str(&format!(", {} ({})", console::style("invalid").for_stderr().red(), checks.join(", ")));
        }
        line
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(term) = &self.term {
            let _ = term.clear_line();
        }
    }
}

fn title(order: &NextTrial) -> String {
    let axes: String = order.planned.axes.values().map(|value| format!(" {value}")).collect();
    let again = if order.attempt > 1 { format!(", attempt {}", order.attempt) } else { String::new() };
    format!("{}{axes} at {}{again}", order.planned.system, order.load)
}
