//! Progress of a run on standard error: on a terminal a few lines that are redrawn, otherwise a line for each second in
//! which something has changed.

use std::fmt::Write;
use std::time::{Duration, Instant};

use console::{Term, style};
use strowger_load::campaign::{Live, Stage, period};
use strowger_measure::{Unit, grouped};

use crate::output;

/// Display of the figures of a run in progress.
pub(crate) struct Screen {
    term: Option<Term>,
    lines: usize,
    drawn: Option<Instant>,
    /// Second of the last line, and number of complete seconds at the last check.
    told: u64,
    seen: u64,
    /// Figures of the last line, and their second.
    last: (String, u64),
    quiet: bool,
    /// True if keys are read.
    keys: bool,
    indent: &'static str,
}

/// Lag of the schedule in µs above which the generator is suspected.
const LATE: f64 = 10_000.0;
/// Interval of drawing on a terminal.
const DRAW: Duration = Duration::from_millis(200);
/// Seconds after which unchanged figures are repeated, in a run that has an end.
const AGAIN: u64 = 10;

impl Screen {
    pub(crate) fn new(quiet: bool, indent: &'static str) -> Self {
        let term = Term::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        let term = (!quiet && !dumb && term.is_term()).then_some(term);
        if let Some(term) = &term {
            let _ = term.hide_cursor();
        }
        Self { term, lines: 0, drawn: None, told: 0, seen: 0, last: (String::new(), 0), quiet, keys: false, indent }
    }

    /// Returns whether there is something to show after this time and number of complete seconds. The caller computes
    /// the figures only if the result is true.
    pub(crate) fn is_due(&mut self, elapsed: Duration, complete: u64) -> bool {
        let fresh = std::mem::replace(&mut self.seen, complete) < complete;
        !self.quiet
            && match &self.term {
                Some(_) => self.drawn.is_none_or(|at| at.elapsed() >= DRAW),
                // Figures belong to complete seconds of the wall clock, which end within the seconds of the run: a line
                // is printed when such a second has ended. If none ends, the line is printed later with the known
                // figures.
                None => elapsed.as_secs_f64() - self.told as f64 >= if fresh { 0.4 } else { 2.0 },
            }
    }

    /// Draws the screen, or prints the next line: see [`Screen::is_due`].
    pub(crate) fn show(&mut self, live: &Live) {
        if self.quiet {
            return;
        }
        match &self.term {
            Some(term) => {
                if self.drawn.is_some_and(|at| at.elapsed() < DRAW) {
                    return;
                }
                self.drawn = Some(Instant::now());
                let width = usize::from(term.size().1).clamp(40, 120);
                // A line that the terminal breaks would be two to clear.
                let cut = |line: &str| console::truncate_str(line, width, "…").into_owned() + "\n";
                let text: String = drawing(live, width, self.keys).lines().map(cut).collect();
                let _ = term.clear_last_lines(self.lines);
                self.lines = text.lines().count();
                let _ = term.write_str(&text);
            }
            None => {
                // The nearest one.
                self.told = (live.elapsed.as_secs_f64().round() as u64).max(self.told + 1);
                if let Some(line) = self.next(live) {
                    output::say(&format!("{}{line}", self.indent));
                }
            }
        }
    }

    /// Returns the line of this second, if it differs from the last line or that line is old.
    fn next(&mut self, live: &Live) -> Option<String> {
        let figures = figures(live);
        let ends = live.planned.is_some() || live.calls.is_some();
        if figures == self.last.0 && !(ends && self.told >= self.last.1 + AGAIN) {
            return None;
        }
        let line = format!("{:>4} s  {figures}", self.told);
        self.last = (figures, self.told);
        Some(line)
    }

    /// Sets whether keys are read. If so, the screen names the keys.
    pub(crate) const fn set_keys(&mut self, keys: bool) {
        self.keys = keys;
    }

    /// Makes the screen redraw as soon as possible.
    pub(crate) const fn invalidate(&mut self) {
        self.drawn = None;
    }

    /// Returns whether the screen draws on a terminal.
    pub(crate) const fn is_drawn(&self) -> bool {
        self.term.is_some()
    }

    /// Prints a sentence between the figures.
    pub(crate) fn say(&mut self, text: &str) {
        self.clear();
        if !self.quiet {
            output::say(&format!("{}{text}", self.indent));
        }
    }

    /// Clears the drawn lines from the terminal.
    pub(crate) fn clear(&mut self) {
        if let Some(term) = &self.term {
            let _ = term.clear_last_lines(self.lines);
            self.lines = 0;
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
        if let Some(term) = &self.term {
            let _ = term.show_cursor();
        }
    }
}

fn number(count: u64) -> String {
    grouped(count as f64)
}

/// Formats the figures as one line of a log.
fn figures(live: &Live) -> String {
    let mut text = format!("{} calls", number(live.started));
    if let Some(calls) = live.calls {
        let _ = write!(text, " of {}", number(calls));
    }
    if let Some(rate) = live.rate {
        let _ = write!(text, ", {rate:.1}/s");
    }
    if live.warm_up.is_some() {
        text.push_str(", warm-up");
    }
    let _ = write!(
        text,
        ", {} open, {} successful, {} failed",
        number(live.open),
        number(live.successful),
        number(live.failed)
    );
    if let Some((median, p95, _)) = live.delay {
        let show = |us| Unit::Microseconds.show(us);
        let _ = write!(text, ", delay p50 {} p95 {}", show(median), show(p95));
    }
    text
}

/// Formats the lines of a terminal.
fn drawing(live: &Live, width: usize, keys: bool) -> String {
    let mut out = String::new();
    if live.stage == Stage::Waiting {
        let left = live.begins_in.as_secs_f64();
        let _ = writeln!(out, "  calls begin in {}", period::show(Duration::from_secs(left.ceil() as u64)));
        let _ = writeln!(out, "  {}", style("Ctrl-C ends it before the first call").dim());
        return out;
    }
    let clock = |length: Duration| format!("{:02}:{:02}", length.as_secs() / 60, length.as_secs() % 60);
    let mut head = format!("  {}", clock(live.elapsed));
    let share = match (live.planned, live.calls) {
        (Some(planned), _) if !planned.is_zero() => {
            let _ = write!(head, " of {}", clock(planned));
            Some(live.elapsed.as_secs_f64() / planned.as_secs_f64())
        }
        (_, Some(calls)) if calls > 0 => Some(live.started as f64 / calls as f64),
        _ => None,
    };
    if live.paused {
        head.push_str("  paused");
    }
    if let Some(left) = live.warm_up {
        let _ = write!(head, "  warm-up, {} s left", left.as_secs_f64().ceil());
    }
    if let Some(share) = share {
        let cells = width.saturating_sub(head.len() + 4).min(60);
        let full = ((share.clamp(0.0, 1.0) * cells as f64) as usize).min(cells);
        let _ = write!(head, "  {}{}", style("━".repeat(full)).cyan(), style("━".repeat(cells - full)).dim());
    }
    let _ = writeln!(out, "{head}");
    let failed = match live.failed {
        0 => style("0 failed".to_owned()).green(),
        failed => style(format!("{} failed", number(failed))).red().bold(),
    };
    let _ = writeln!(
        out,
        "  calls    {} begun · {} open · {} successful · {failed}",
        number(live.started),
        number(live.open),
        number(live.successful)
    );
    let wanted =
        live.intended_rate.filter(|rate| *rate > 0.0).map_or_else(String::new, |rate| format!(" of {rate:.1}"));
    let rate = live.rate.map_or_else(|| "–".into(), |rate| format!("{rate:.1}"));
    let _ = writeln!(out, "  rate     {rate:>8}{wanted} /s   {}", style(bars(&live.rates)).cyan());
    let shown = live.delay.map_or_else(
        || "no answer yet".into(),
        |(p50, p95, p99)| {
            let show = |us| Unit::Microseconds.show(us);
            format!(
                "p50 {} · p95 {} · p99 {}   {}",
                show(p50),
                show(p95),
                show(p99),
                style(live.delay_name.to_lowercase()).dim()
            )
        },
    );
    let _ = writeln!(out, "  delay    {shown}");
    let codes: Vec<String> =
        live.codes.iter().take(8).map(|(code, count)| format!("{code} × {}", number(*count))).collect();
    let _ = writeln!(
        out,
        "  messages {} sent · {} received · {} resent   {}",
        number(live.messages_sent),
        number(live.messages_received),
        number(live.retransmissions),
        codes.join("  ")
    );
    if let Some(lag) = live.lag {
        let text = format!("calls begin {} late at p99", Unit::Microseconds.show(lag));
        let text = if lag > LATE { style(text).red().bold() } else { style(text) };
        let _ = writeln!(out, "  health   {text}");
    }
    let end = match live.stage {
        Stage::Running if keys => {
            "+ - * / rate · p pause · q no more calls · Q, Ctrl-C end and write the reports".to_owned()
        }
        Stage::Running => "Ctrl-C ends the calls and writes the reports".to_owned(),
        Stage::Ending => format!("ending: {} calls open; Ctrl-C ends at once", number(live.open)),
        Stage::Waiting | Stage::Over => String::new(),
    };
    let _ = writeln!(out, "  {}", style(end).dim());
    out
}

/// Draws a column for each value; the highest one is full.
fn bars(values: &[f64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    let level = |value: f64| if most > 0.0 { ((value / most * 7.0).round() as usize).min(7) } else { 0 };
    values.iter().rev().take(40).rev().map(|value| LEVELS[level(*value)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Live {
        Live {
            stage: Stage::Running,
            elapsed: Duration::from_secs(5),
            begins_in: Duration::ZERO,
            warm_up: None,
            paused: false,
            planned: Some(Duration::from_secs(10)),
            calls: None,
            started: 1_050,
            successful: 1_000,
            failed: 2,
            open: 48,
            intended_rate: Some(210.0),
            rate: Some(210.0),
            rates: vec![0.0, 105.0, 210.0],
            delay_name: "Session request delay, successful",
            delay: Some((1_000.0, 2_000.0, 30_000.0)),
            lag: Some(10.0),
            retransmissions: 3,
            messages_sent: 4_000,
            messages_received: 5_000,
            codes: vec![(200, 2_000), (486, 2)],
        }
    }

    #[test]
    fn screens_are_drawn() {
        let text = console::strip_ansi_codes(&drawing(&live(), 80, false)).into_owned();
        assert!(text.starts_with("  00:05 of 00:10  ━"), "{text}");
        for part in [
            "1,050 begun",
            "2 failed",
            "▁▅█",
            "210.0 of 210.0 /s",
            "begin 10 µs late",
            "p95 2.00 ms",
            "486 × 2",
            "Ctrl-C",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = figures(&live());
        assert_eq!(text, "1,050 calls, 210.0/s, 48 open, 1,000 successful, 2 failed, delay p50 1.00 ms p95 2.00 ms");
        let paused = drawing(&Live { paused: true, ..live() }, 80, true);
        let paused = console::strip_ansi_codes(&paused);
        assert!(paused.starts_with("  00:05 of 00:10  paused  ━") && paused.contains("p pause"), "{paused}");
        let waits = Live { stage: Stage::Waiting, begins_in: Duration::from_millis(89_100), ..live() };
        assert!(drawing(&waits, 80, false).starts_with("  calls begin in 1 min 30 s\n"));
        // Before a second is complete.
        let text = figures(&Live { rate: None, delay: None, ..live() });
        assert_eq!(text, "1,050 calls, 48 open, 1,000 successful, 2 failed");
        let text = drawing(&Live { rate: None, intended_rate: None, ..live() }, 80, false);
        assert!(console::strip_ansi_codes(&text).contains("– /s"), "{text}");
    }

    fn screen() -> Screen {
        Screen {
            term: None,
            lines: 0,
            drawn: None,
            told: 0,
            seen: 0,
            last: Default::default(),
            quiet: false,
            keys: false,
            indent: "",
        }
    }

    #[test]
    fn figures_that_do_not_change_are_not_told_each_second() {
        let told = |live: &dyn Fn(u64) -> Live| -> Vec<u64> {
            let mut screen = screen();
            let told = |second: u64| {
                screen.told = second;
                screen.next(&live(second))
            };
            let lines: Vec<String> = (1..=30).filter_map(told).collect();
            lines.iter().filter_map(|line| line.split_once(" s ")?.0.trim().parse().ok()).collect()
        };
        assert_eq!(told(&|second| Live { started: second, ..live() }).len(), 30);
        assert_eq!(told(&|_| live()), [1, 11, 21], "it goes on");
        let idle = |second| Live { planned: None, calls: None, started: u64::from(second > 7), ..live() };
        assert_eq!(told(&idle), [1, 8]);
    }

    #[test]
    fn a_line_comes_with_the_end_of_a_second() {
        let mut screen = screen();
        let mut told = Vec::new();
        // Seconds of the wall clock end 300 ms after those of the run; from 4 s to 8 s no end is known.
        for tenth in 1..=100 {
            let complete = (tenth + 7) / 10;
            let known = if (40..80).contains(&tenth) { 4 } else { complete };
            if screen.is_due(Duration::from_millis(tenth * 100), known) {
                screen.show(&Live { elapsed: Duration::from_millis(tenth * 100), ..live() });
                told.push((tenth, screen.told));
            }
        }
        assert_eq!(told, [(13, 1), (23, 2), (33, 3), (50, 5), (70, 7), (80, 8), (93, 9)]);
    }
}
