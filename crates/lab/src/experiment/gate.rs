//! Gates of an experiment: bounds on figures or their ratios.

use super::Axes;
use super::axis::Axis;
use super::fields::{Faults, Fields, number};
use super::system::SystemSpec;
use crate::compare::FLOOR;

/// Keys of a gate.
const KEYS: [&str; 12] = [
    "figure",
    "system",
    "where",
    "against",
    "against_where",
    "at_most",
    "at_least",
    "adds_at_most",
    "aim",
    "or_over",
    "each",
    "repetitions",
];

/// Bound of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The value may be this much.
    AtMost(f64),
    /// The value must be this much.
    AtLeast(f64),
    /// The value may exceed the value it is compared with by this much.
    AddsAtMost(f64),
}

impl Bound {
    /// Tells whether a value is within the bound. NaN is within no bound.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) | Self::AddsAtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    /// Returns the bound of this kind with another value.
    #[must_use]
    pub const fn with(self, value: f64) -> Self {
        match self {
            Self::AtMost(_) => Self::AtMost(value),
            Self::AtLeast(_) => Self::AtLeast(value),
            Self::AddsAtMost(_) => Self::AddsAtMost(value),
        }
    }

    /// Returns the value of the bound.
    pub const fn value(self) -> f64 {
        match self {
            Self::AtMost(value) | Self::AtLeast(value) | Self::AddsAtMost(value) => value,
        }
    }

    /// Compares two values by their difference or their ratio. Returns `None` if there is no ratio.
    pub fn compare(self, own: f64, other: f64) -> Option<f64> {
        match self {
            Self::AddsAtMost(_) => Some(own - other),
            Self::AtMost(_) | Self::AtLeast(_) => (other > 0.0).then_some(own / other),
        }
    }

    /// Returns the value that misses the bound by more, or meets it by less.
    pub fn worse(self, one: f64, other: f64) -> f64 {
        match self {
            Self::AtMost(_) | Self::AddsAtMost(_) => one.max(other),
            Self::AtLeast(_) => one.min(other),
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
    /// System whose figure is the divisor, or the floor.
    pub against: Option<String>,
    /// Values of axes of the divisor's rows, if they differ from those of the judged rows.
    pub against_only: Axes,
    /// Bound.
    pub bound: Bound,
    /// Value that is hoped for.
    pub aim: Option<f64>,
    /// Gate that may be met instead of this one: a bound on the ratio of the same figure to that of another system.
    pub instead: Option<Box<Self>>,
    /// Each valid trial is judged, not their median.
    pub is_of_each: bool,
    /// Least number of valid repetitions that judge it.
    pub repetitions: u32,
}

impl Gate {
    pub(super) fn read(
        fields: &Fields<'_>,
        systems: &[SystemSpec],
        axes: &[Axis],
        faults: &mut Faults,
    ) -> Option<Self> {
        fields.know(&KEYS, faults);
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
        let bound = |key: &str, bound: fn(f64) -> Bound| fields.value(key).and_then(number).map(bound);
        let bounds = [
            bound("at_most", Bound::AtMost),
            bound("at_least", Bound::AtLeast),
            bound("adds_at_most", Bound::AddsAtMost),
        ];
        let mut bounds = bounds.into_iter().flatten();
        let bound = bounds.next().filter(|_| bounds.next().is_none());
        if bound.is_none() {
            fields.missing("bound", "write one of at_most = 1.2, at_least = 0.9 and adds_at_most = 20", faults);
        }
        let is_of_each = fields.flag("each", faults).unwrap_or(false);
        for (key, is_wrong, message, cure) in [
            (
                "adds_at_most",
                against.is_none(),
                "adds_at_most compares two values, and the gate has one",
                "write against = \"kamailio\" or against_where = { axis = \"value\" }",
            ),
            (
                "each",
                is_of_each && against.is_some(),
                "each judges trials, and the gate compares two medians",
                "remove it",
            ),
        ] {
            if let Some(value) = fields.value(key).filter(|_| is_wrong) {
                faults.push(value.span(), message, cure);
            }
        }
        let instead = over(fields, &with_floor, faults);
        let gate = Self {
            figures: fields.figures("figure", faults),
            system,
            only: fields.axes("where", axes, faults),
            against,
            against_only,
            bound: bound?,
            aim: fields.number("aim", faults),
            instead: None,
            is_of_each,
            repetitions: fields.count("repetitions", 1, faults).unwrap_or(1),
        };
        let ratio =
            |(against, bound)| Self { against: Some(against), bound, aim: None, is_of_each: false, ..gate.clone() };
        let instead = instead.map(ratio).map(Box::new);
        Some(Self { instead, ..gate })
    }
}

/// Reads `or_over = { system = "kamailio", at_most = 1.5 }`: a system, and the ratio to its figures.
fn over(fields: &Fields<'_>, systems: &[&str], faults: &mut Faults) -> Option<(String, Bound)> {
    let table = fields.table("or_over", faults)?;
    let start = fields.value("or_over").map_or(fields.start, |value| value.span().start);
    let fields = Fields { name: "or_over", table, start };
    fields.know(&["system", "at_most"], faults);
    let system = fields.required_text("system", "\"kamailio\"", faults);
    if let Some(value) = fields.value("system").filter(|_| !systems.contains(&system.as_str())) {
        faults.wrong_word(value, &system, "system", systems);
    }
    if fields.value("at_most").is_none() {
        fields.missing("at_most", "write at_most = 1.5", faults);
    }
    Some((system, Bound::AtMost(fields.number("at_most", faults)?)))
}
