//! Conduct of a run: makes each trial that is due and writes its row, until none is due.

use super::folder::Folder;
use super::next_trial::{Due, NextTrial, Schedule};
use crate::Error;
use crate::experiment::Planned;
use crate::finder::{Limit, TrialOutcome};
use crate::formula::stress::scaled_load;
use crate::row::{Digest, Figures, FoundLimit, Load, Row, System, UnknownFigure};
use std::path::Path;

/// Maker of trials.
pub trait TestBed {
    /// Returns a system with its version, and the hash of the configuration that it runs with.
    fn identity(&self, planned: &Planned) -> (System, Digest);

    /// Makes a trial. Its files go to the folder.
    ///
    /// # Errors
    /// The trial cannot be made at all: a system does not start, or a file cannot be written. A trial that failed is an outcome.
    fn trial(&mut self, order: &NextTrial, folder: &Path) -> Result<TrialOutcome, Error>;
}

/// Event of a run, for people.
#[derive(Debug)]
pub enum Event<'a> {
    /// A trial begins.
    Begins(&'a NextTrial),
    /// A row was written.
    Written(&'a Row),
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All trials of the plan were made.
    Whole,
    /// The run was interrupted between or in trials. Its rows are a valid part of the plan.
    Interrupted,
}

/// Makes all trials that are due. `is_stopped` returns whether the run is to end; the trial in progress is then discarded.
///
/// # Errors
/// A trial cannot be made, or a row not be written. The rows before are a valid part.
pub fn conduct(
    schedule: &mut Schedule,
    folder: &mut Folder,
    bed: &mut impl TestBed,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Schedule, &Event<'_>),
) -> Result<Ending, Error> {
    loop {
        if is_stopped() {
            return Ok(Ending::Interrupted);
        }
        let row = match schedule.next() {
            Due::Nothing => {
                folder.finish()?;
                return Ok(Ending::Whole);
            }
            Due::Limit(due) => {
                let (planned, limit, confirmation) = *due;
                limit_row(schedule, bed, &planned, &limit, confirmation)?
            }
            Due::Trial(order) => {
                tell(schedule, &Event::Begins(&order));
                let made = bed.trial(&order, &folder.next_trial()?);
                // A signal ends the programs of the trial.
                if is_stopped() {
                    folder.discard_trial();
                    return Ok(Ending::Interrupted);
                }
                let mut row = row(schedule, bed, &order.planned, order.load);
                let outcome = made?;
                (row.figures, row.series, row.validity) = (outcome.figures, outcome.series, outcome.validity);
                row
            }
        };
        folder.append(&row)?;
        schedule.take(&row).map_err(|reason| Error::Unexpected { what: "a row of this run".into(), reason })?;
        tell(schedule, &Event::Written(&row));
    }
}

fn row(schedule: &Schedule, bed: &impl TestBed, planned: &Planned, load: Load) -> Row {
    let (system, configuration) = bed.identity(planned);
    let mut row = Row::new(&schedule.experiment().name, system, load, schedule.profile(), b"");
    row.axes.clone_from(&planned.axes);
    (row.repetition, row.configuration) = (planned.repetition, configuration);
    row
}

fn limit_row(
    schedule: &Schedule,
    bed: &impl TestBed,
    planned: &Planned,
    limit: &Limit,
    confirmation: TrialOutcome,
) -> Result<Row, Error> {
    let load = Load { value: 0.0, unit: schedule.experiment().load.unit };
    let mut row = row(schedule, bed, planned, load);
    (row.figures, row.validity) = (confirmation.figures, confirmation.validity);
    row.limit = Some(FoundLimit::from(limit));
    set_limit(&mut row.figures, limit)
        .map_err(|error| Error::Unexpected { what: "the limit of a search".into(), reason: error.to_string() })?;
    Ok(row)
}

/// Adds the limit, and the load scaled as the stress tests scale it.
fn set_limit(figures: &mut Figures, limit: &Limit) -> Result<(), UnknownFigure> {
    figures.set("limit", limit.load)?;
    figures.set("limit.low", limit.load)?;
    if let Some(beyond) = limit.beyond {
        figures.set("limit.high", beyond)?;
    }
    let scaled = figures.value("load").zip(figures.value("rate.achieved"));
    match scaled.and_then(|(load, rate)| scaled_load(load, rate)) {
        Some(scaled) => figures.set("load.scaled", scaled),
        None => Ok(()),
    }
}

/// Advances a schedule past the rows of an interrupted run.
///
/// # Errors
/// A row is of another plan. The error is a sentence with the number of the row.
pub fn replay(schedule: &mut Schedule, rows: &[Row]) -> Result<(), String> {
    for (number, row) in (1..).zip(rows) {
        schedule.take(row).map_err(|reason| format!("row {number} is not of this plan: {reason}"))?;
    }
    Ok(())
}
