//! Gates of an experiment: bounds on figures or their ratios.

use super::Axes;
use super::axis::Axis;
use super::fields::{Faults, Fields, number};
use super::system::SystemSpec;
use crate::compare::FLOOR;

/// Bound of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The value may be this much.
    AtMost(f64),
    /// The value must be this much.
    AtLeast(f64),
}

impl Bound {
    /// Tells whether a value is within the bound. No number is within any.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

/// Gate on a figure of a system, or on its ratio.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Figures whose sum is judged.
    pub figures: Vec<String>,
    /// System that is judged.
    pub system: String,
    /// Values of axes of the judged rows.
    pub only: Axes,
    /// System by whose figure it is divided, or the floor.
    pub against: Option<String>,
    /// Values of axes of the rows by whose figure it is divided, in place of the same values.
    pub against_only: Axes,
    /// Bound.
    pub bound: Bound,
    /// Value that is hoped for.
    pub aim: Option<f64>,
}

impl Gate {
    pub(super) fn read(
        fields: &Fields<'_>,
        systems: &[SystemSpec],
        axes: &[Axis],
        faults: &mut Faults,
    ) -> Option<Self> {
        let keys = ["figure", "system", "where", "against", "against_where", "at_most", "at_least", "aim"];
        fields.know(&keys, faults);
        if fields.value("figure").is_none() {
            fields.missing("figure", "write figure = \"server.cpu.call\"", faults);
        }
        let names: Vec<&str> = systems.iter().map(|system| system.name.as_str()).collect();
        let with_floor: Vec<&str> = names.iter().copied().chain([FLOOR]).collect();
        let named = |key: &str, known: &[&str], faults: &mut Faults| {
            let written = fields.text(key, faults)?;
            if let Some(value) = fields.value(key).filter(|_| !known.contains(&written.as_str())) {
                faults.wrong_word(value, &written, "system", known);
            }
            Some(written)
        };
        let against_only = fields.axes("against_where", axes, faults);
        let mut against = named("against", &with_floor, faults);
        let system = match named("system", &names, faults) {
            Some(system) => system,
            None => names.first().copied().unwrap_or_default().to_owned(),
        };
        if against.is_none() && !against_only.is_empty() {
            against = Some(system.clone());
        }
        let bound = |key: &str| fields.value(key).and_then(number);
        let bound = match (bound("at_most"), bound("at_least")) {
            (Some(most), None) => Some(Bound::AtMost(most)),
            (None, Some(least)) => Some(Bound::AtLeast(least)),
            _ => {
                fields.missing("bound", "write either at_most = 1.2 or at_least = 0.9", faults);
                None
            }
        };
        Some(Self {
            figures: fields.figures("figure", faults),
            system,
            only: fields.axes("where", axes, faults),
            against,
            against_only,
            bound: bound?,
            aim: fields.number("aim", faults),
        })
    }
}
