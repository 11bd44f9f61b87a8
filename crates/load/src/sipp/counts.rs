//! `-trace_counts`: the counts of each step, a line for each period.

use super::statistics::length;
use super::trace::Stamp;
use crate::engine::sipp_stats::{SippStats, StepCounts};
use std::fs::File;
use std::io::{BufWriter, Write};
use strowger_scenario::Scenario;
use strowger_scenario::step::{Expected, Start, Step, StepKind};

/// Writer of the file.
pub(super) struct Counts {
    file: BufWriter<File>,
    delimiter: String,
    start: Stamp,
    /// True if any step loses messages on purpose, so that all steps have a column for it.
    loses: bool,
}

/// Columns of a step: name suffixes and counts.
type Columns = &'static [(&'static str, fn(&StepCounts) -> u64)];

const SEND: Columns = &[("Sent", |c| c.sent), ("Retrans", |c| c.sent_again)];
const SEND_AGAIN: Columns = &[("Sent", |c| c.sent), ("Retrans", |c| c.sent_again), ("Timeout", |c| c.timeouts)];
const RECEIVE: Columns = &[
    ("Recv", |c| c.received),
    ("Retrans", |c| c.received_again),
    ("Timeout", |c| c.timeouts),
    ("Unexp", |c| c.unexpected),
];
const PAUSE: Columns = &[("Sessions", |c| c.passed), ("Unexp", |c| c.unexpected)];
/// A step without message has the columns of a pause, with no pausing sessions.
const OTHER: Columns = &[("Sessions", |_| 0), ("Unexp", |c| c.unexpected)];
const LOST: Columns = &[("Lost", |c| c.lost)];

/// Returns name and columns of a step.
fn columns(step: &Step) -> (String, Columns) {
    match &step.kind {
        StepKind::Send(send) => {
            let name = match &send.start {
                Start::Request(method) => String::from_utf8_lossy(&method.text).into_owned(),
                Start::Response(code) => code.to_string(),
            };
            let again = send.retransmit.is_some_and(|ms| ms > 0);
            (name, if again { SEND_AGAIN } else { SEND })
        }
        StepKind::Receive(receive) => {
            let name = match &receive.expected {
                Expected::Request(method) => String::from_utf8_lossy(&method.text).into_owned(),
                Expected::Response(code) => code.to_string(),
                Expected::RequestMatching(p) | Expected::ResponseMatching(p) => {
                    String::from_utf8_lossy(&p.text).into_owned()
                }
            };
            (name, RECEIVE)
        }
        StepKind::Pause(_) | StepKind::TimeWait(_) => ("Pause".into(), PAUSE),
        StepKind::Nop | StepKind::SendCommand { .. } | StepKind::ReceiveCommand { .. } => ("Pause".into(), OTHER),
    }
}

impl Counts {
    /// Writes the header.
    pub(super) fn new(file: File, delimiter: &str, scenario: &Scenario, loses: bool) -> std::io::Result<Self> {
        let loses = loses || scenario.steps.iter().any(|step| step.lost.is_some());
        let mut counts =
            Self { file: BufWriter::new(file), delimiter: delimiter.to_owned(), start: Stamp::now(), loses };
        let d = &counts.delimiter;
        write!(counts.file, "CurrentTime{d}ElapsedTime{d}")?;
        for (index, step) in scenario.steps.iter().enumerate().filter(|(_, step)| !step.hidden) {
            let (name, columns) = columns(step);
            let lost = counts.loses && matches!(step.kind, StepKind::Send(_) | StepKind::Receive(_));
            for (tail, _) in columns.iter().chain(if lost { LOST } else { &[] }) {
                write!(counts.file, "{index}_{name}_{tail}{d}")?;
            }
        }
        writeln!(counts.file)?;
        counts.file.flush()?;
        Ok(counts)
    }

    /// Writes a line of the current counts.
    pub(super) fn write(&mut self, scenario: &Scenario, stats: &SippStats) -> std::io::Result<()> {
        let now = Stamp::now();
        let elapsed = now.micros().saturating_sub(self.start.micros()) as f64 / 1_000.0;
        let d = &self.delimiter;
        write!(self.file, "{}{d}{}{d}", now.long(), length(elapsed))?;
        for (step, counts) in scenario.steps.iter().zip(&stats.steps).filter(|(step, _)| !step.hidden) {
            let (_, columns) = columns(step);
            let lost = self.loses && matches!(step.kind, StepKind::Send(_) | StepKind::Receive(_));
            for (_, value) in columns.iter().chain(if lost { LOST } else { &[] }) {
                write!(self.file, "{}{d}", value(counts))?;
            }
        }
        writeln!(self.file)?;
        self.file.flush()
    }
}
