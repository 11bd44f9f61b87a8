//! Outcome of a trial.

use crate::row::{Figures, Row, Series, Validity};

/// Outcome of a trial: its figures and verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialOutcome {
    /// Measured figures.
    pub figures: Figures,
    /// Values of figures for each second.
    pub series: Series,
    /// Verdict on the trial.
    pub validity: Validity,
}

impl Default for TrialOutcome {
    fn default() -> Self {
        Self { figures: Figures::default(), series: Series::default(), validity: Validity::Valid }
    }
}

impl TrialOutcome {
    /// Returns a figure in the unit of its definition.
    pub fn value(&self, figure: &str) -> Option<f64> {
        self.figures.value(figure)
    }

    /// Tells whether the outcome is not to be relied on. A limit of the generator is a result.
    pub fn is_doubtful(&self) -> bool {
        !self.validity.is_valid() && !self.validity.is_limit_of_generator()
    }
}

impl From<&Row> for TrialOutcome {
    fn from(row: &Row) -> Self {
        Self { figures: row.figures.clone(), series: row.series.clone(), validity: row.validity.clone() }
    }
}
