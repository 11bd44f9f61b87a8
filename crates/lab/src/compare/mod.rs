//! Comparison of two runs.
//!
//! Rows of equal cells are paired. The ratio of two values is divided by the ratio of the floors of both runs. A difference is claimed if
//! the interval of the result excludes 1 and the difference is 3 % or more. The floor is the unread relay that each run measures at its
//! start and end, which shows how fast the machine was during that run.

mod floor;
mod ratio;
mod table;

pub use ratio::RatioInterval;
pub use table::{Claim, Comparison, Decision, Line, Withheld};

use self::floor::Floor;
use crate::row::{Better, Cell, Row, Scaling, definition};
use std::collections::BTreeMap;

/// Name of the system whose rows are the floor.
pub const FLOOR: &str = "floor";

/// Run to compare.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Name for people.
    pub name: &'a str,
    /// Identity of the machine: processor, cores, memory, kernel.
    pub machine: &'a str,
    /// Rows, including the floor's.
    pub rows: &'a [Row],
}

/// Difference of the floors from which on nothing is claimed.
const FLOORS_DIFFER: f64 = 0.15;

/// Confidence of the intervals. With many comparisons in a table the confidence is raised, so that for equal runs at most one of
/// twenty tables claims a difference by chance.
const CONFIDENCE: f64 = 0.98;
const BY_CHANCE: f64 = 0.05;

/// Least difference that is claimed. The trials of a run share its process and machine, so that even the memory of two runs of one build
/// differs by 2 %.
const LEAST_DIFFERENCE: f64 = 0.03;

/// Least confidence with which a difference is claimed. Three repetitions reach 0.90, four 0.97.
const LEAST_CONFIDENCE: f64 = 0.95;

type Values<'a> = BTreeMap<(Cell, &'a str), Vec<f64>>;

/// Returns the values of the judged figures in valid rows, by cell.
fn values<'a>(rows: &'a [Row]) -> Values<'a> {
    let mut values = Values::new();
    for row in rows.iter().filter(|row| row.validity.is_valid() && row.system.name != FLOOR) {
        let cell = row.cell();
        for (figure, value) in row.figures.iter() {
            let is_judged = definition(figure).is_some_and(|definition| definition.better != Better::Neither);
            if is_judged {
                values.entry((cell.clone(), figure)).or_default().push(value);
            }
        }
    }
    values
}

/// Compares a run with the run before it.
pub fn compare(before: Run<'_>, after: Run<'_>) -> Comparison {
    let (old, new) = (values(before.rows), values(after.rows));
    let pairs: Vec<_> = old.iter().filter_map(|(key, old)| Some((key, old, new.get(key)?))).collect();
    let confidence = CONFIDENCE.max(1.0 - BY_CHANCE / pairs.len().max(1) as f64);
    let floors = [before, after].map(|run| Floor::of(run.rows));
    let machines_differ = before.machine != after.machine;
    let lines = pairs.iter().filter_map(|((cell, figure), old, new)| {
        let scaling = definition(figure)?.scaling;
        let floor = match scaling {
            Scaling::Fixed => None,
            Scaling::Cost | Scaling::Speed => floors[0].ratio(&floors[1], cell, figure, scaling, confidence),
        };
        let speed = floors[0].speed(&floors[1], cell, confidence);
        let differs = |floor: RatioInterval| floor.middle.max(1.0 / floor.middle) > 1.0 + FLOORS_DIFFER;
        let raw = RatioInterval::of(old, new, confidence);
        let ratio = raw.map(|raw| floor.map_or(raw, |floor| raw.over(floor)));
        // Zeros have no ratio. Adding one to each value gives ratios and keeps the order, by which these values are
        // judged.
        let plus_one = |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value + 1.0).collect() };
        let judged = ratio.or_else(|| RatioInterval::of(&plus_one(old), &plus_one(new), confidence));
        let withheld = if machines_differ {
            Some(Withheld::Machines)
        } else if scaling != Scaling::Fixed && floor.is_none() {
            Some(Withheld::NoFloor)
        } else if speed.is_some_and(differs) || floor.is_some_and(differs) {
            Some(Withheld::Floors)
        } else {
            match judged {
                None => Some(Withheld::NoRatio),
                Some(judged) if judged.confidence < LEAST_CONFIDENCE => Some(Withheld::Repetitions),
                Some(_) => None,
            }
        };
        Some(Line {
            cell: cell.clone(),
            figure: (*figure).to_owned(),
            before: crate::statistics::median(old.to_vec()),
            after: crate::statistics::median(new.to_vec()),
            floor: floor.map(|floor| floor.middle),
            ratio,
            claim: match withheld {
                Some(withheld) => Claim::Withheld(withheld),
                None if ratio.is_some_and(is_small) => Claim::None,
                None => claim(figure, judged),
            },
        })
    });
    let unpaired = |of: &Values<'_>, other: &Values<'_>| {
        let mut cells: Vec<String> =
            of.keys().filter(|key| !other.contains_key(*key)).map(|(cell, _)| cell.to_string()).collect();
        cells.dedup();
        cells
    };
    Comparison {
        before: before.name.to_owned(),
        after: after.name.to_owned(),
        lines: lines.collect(),
        only_before: unpaired(&old, &new),
        only_after: unpaired(&new, &old),
        invalid: [before, after].map(|run| run.rows.iter().filter(|row| !row.validity.is_valid()).count()),
    }
}

fn is_small(ratio: RatioInterval) -> bool {
    ratio.middle.max(1.0 / ratio.middle) < 1.0 + LEAST_DIFFERENCE
}

fn claim(figure: &str, ratio: Option<RatioInterval>) -> Claim {
    let (Some(definition), Some(ratio)) = (definition(figure), ratio) else { return Claim::None };
    if ratio.low <= 1.0 && ratio.high >= 1.0 {
        return Claim::None;
    }
    let has_risen = ratio.low > 1.0;
    match definition.better {
        Better::Lower if has_risen => Claim::Worse,
        Better::Higher if !has_risen => Claim::Worse,
        Better::Lower | Better::Higher => Claim::Better,
        Better::Neither => Claim::None,
    }
}
