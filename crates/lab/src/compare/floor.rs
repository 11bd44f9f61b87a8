//! Floors of two runs.

use super::{FLOOR, RatioInterval};
use crate::row::{Cell, Row, Scaling};
use std::collections::BTreeMap;

/// Cost of the unread relay, which represents the speed of the machine if a figure has no floor of its own.
const COST: &str = "server.cpu.call";

/// Figures of the unread relay in a run, by experiment.
#[derive(Debug, Default)]
pub(super) struct Floor<'a> {
    values: BTreeMap<(&'a str, &'a str), Vec<f64>>,
}

impl<'a> Floor<'a> {
    /// Collects the valid rows of the floor.
    pub(super) fn of(rows: &'a [Row]) -> Self {
        let mut floor = Self::default();
        for row in rows.iter().filter(|row| row.system.name == FLOOR && row.validity.is_valid()) {
            for (figure, value) in row.figures.iter() {
                floor.values.entry((&row.experiment, figure)).or_default().push(value);
            }
        }
        floor
    }

    /// Computes by how much the machine was slower during another run.
    pub(super) fn speed(&self, after: &Self, cell: &Cell, confidence: f64) -> Option<RatioInterval> {
        self.ratio(after, cell, COST, Scaling::Cost, confidence)
    }

    /// Computes by how much a figure of this cell changes from this run to another because of the machine alone.
    pub(super) fn ratio(
        &self,
        after: &Self,
        cell: &Cell,
        figure: &str,
        scaling: Scaling,
        confidence: f64,
    ) -> Option<RatioInterval> {
        let of = |name: &str| {
            let key = (cell.experiment.as_str(), name);
            RatioInterval::of(self.values.get(&key)?, after.values.get(&key)?, confidence)
        };
        match scaling {
            Scaling::Cost => of(figure).or_else(|| of(COST)),
            Scaling::Speed => of(COST).map(RatioInterval::inverse),
            Scaling::Fixed => None,
        }
    }
}
