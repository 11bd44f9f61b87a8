//! Loads of an experiment.

use super::fields::{Faults, Fields, number, unknown_figure};
use crate::finder::{Goal, LEAST_WEIGHT};
use crate::row::{LoadUnit, definition, words};
use strowger_config::nearest;

words! {
    /// Finder of the limit.
    FinderKind {
        /// None: only the fixed loads.
        Fixed = "fixed",
        /// Search by several short trials a load.
        Search = "search",
        /// RFC 7502 section 4.10.
        Rfc7502 = "rfc7502",
        /// Steps of equal height.
        Staircase = "staircase",
    }
}

/// Loads of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// Unit of all loads.
    pub unit: LoadUnit,
    /// Finder of the limit, besides the fixed loads.
    pub finder: FinderKind,
    /// Fixed loads in their order.
    pub values: Vec<f64>,
    /// First load of a finder.
    pub start: f64,
    /// Step of a staircase.
    pub step: f64,
    /// Highest load of a finder.
    pub most: f64,
    /// Expected limit, by which the plan estimates its time.
    pub expected: f64,
    /// Sessions of a trial of RFC 7502.
    pub sessions: u32,
    /// Weight of an increase of RFC 7502, w: the share by which the rate rises after a success.
    pub increase: f64,
    /// Load of the warm-up of a trial at a multiple of the limit, as another multiple. `None`: the load of the window.
    pub before: Option<f64>,
    /// Load after the window of such a trial. `None`: the load of the window.
    pub after: Option<f64>,
    /// Goal of a search. `None`: the goal of calls or registrations.
    pub goal: Option<Goal>,
}

impl LoadPlan {
    pub(super) fn read(load: Option<Fields<'_>>, goal: Option<Fields<'_>>, faults: &mut Faults) -> Self {
        let mut plan = Self {
            unit: LoadUnit::Calls,
            finder: FinderKind::Fixed,
            values: Vec::new(),
            start: 10.0,
            step: 0.0,
            most: 20_000.0,
            expected: 1_000.0,
            sessions: 50_000,
            increase: LEAST_WEIGHT,
            before: None,
            after: None,
            goal: None,
        };
        let Some(fields) = load else { return plan };
        let keys = [
            "unit", "values", "finder", "start", "step", "most", "expected", "sessions", "increase", "before", "after",
        ];
        fields.know(&keys, faults);
        plan.unit = word(&fields, "unit", LoadUnit::ALL, |unit| unit.word(), faults).unwrap_or(plan.unit);
        plan.finder = word(&fields, "finder", FinderKind::ALL, |kind| kind.word(), faults).unwrap_or(plan.finder);
        plan.values = fields.numbers("values", faults);
        plan.start = fields.number("start", faults).unwrap_or(plan.start);
        plan.step = fields.number("step", faults).unwrap_or(plan.step);
        plan.most = fields.number("most", faults).unwrap_or(plan.most);
        plan.expected = fields.number("expected", faults).unwrap_or_else(|| plan.expected.min(plan.most));
        plan.sessions = fields.count("sessions", 1, faults).unwrap_or(plan.sessions);
        plan.increase = increase(&fields, faults).unwrap_or(plan.increase);
        plan.before = fields.number("before", faults);
        plan.after = fields.number("after", faults);
        let span = |key: &str| fields.value(key).map_or_else(|| fields.span(), |value| value.span());
        if plan.finder == FinderKind::Fixed && plan.values.is_empty() && fields.value("values").is_none() {
            fields.missing("values", "write values = [1000], or a finder = \"search\"", faults);
        }
        if plan.finder == FinderKind::Staircase && plan.step <= 0.0 {
            faults.push(span("step"), "a staircase has no step", "write step = 100");
        }
        if plan.finder != FinderKind::Fixed && !(plan.start > 0.0 && plan.start <= plan.most) {
            faults.push(
                span("start"),
                "a finder begins above 0 and not above most",
                "write start = 10 and most = 20000",
            );
        }
        if let Some(goal) = goal {
            plan.goal = Some(read_goal(&goal, plan.unit, faults));
            if plan.finder != FinderKind::Search {
                faults.push(
                    goal.span(),
                    "only finder = \"search\" has a goal",
                    "remove [goal], or write finder = \"search\"",
                );
            }
        }
        plan
    }

    /// Refuses an axis of multiples without a limit, and loads around the window without such an axis.
    pub(super) fn check_multiples(&self, fields: Option<&Fields<'_>>, has_multiples: bool, faults: &mut Faults) {
        let Some(fields) = fields else { return };
        let fault = match (has_multiples, self.finder) {
            (true, FinderKind::Fixed) => {
                Some(("finder", "no finder finds the limit of an axis with of_limit", "write finder = \"search\""))
            }
            (true, _) if !self.values.is_empty() => {
                Some(("values", "the loads are those of the axis with of_limit", "remove values"))
            }
            (true, _) => None,
            (false, _) => [("before", self.before), ("after", self.after)]
                .into_iter()
                .find(|(_, load)| load.is_some())
                .map(|(key, _)| {
                    (key, "the load around the window is a multiple of the limit", "give an [[axis]] of_limit = true")
                }),
        };
        if let Some((key, message, cure)) = fault {
            let span = fields.value(key).map_or_else(|| fields.span(), |value| value.span());
            faults.push(span, message, cure);
        }
    }

    /// Returns the goal of a search.
    pub fn goal(&self) -> Goal {
        self.goal.clone().unwrap_or_else(|| default_goal(self.unit))
    }
}

/// Reads the weight of an increase, from 0.1 (as in RFC 7502) to 1.
pub(super) fn increase(fields: &Fields<'_>, faults: &mut Faults) -> Option<f64> {
    let weight = fields.number("increase", faults)?;
    if let Some(value) = fields.value("increase").filter(|_| !(LEAST_WEIGHT..=1.0).contains(&weight)) {
        faults.push(value.span(), "a rate rises by 0.1 to 1 of itself", "write increase = 0.1");
    }
    Some(weight)
}

fn default_goal(unit: LoadUnit) -> Goal {
    match unit {
        LoadUnit::Registrations => Goal::registrations(),
        LoadUnit::Requests => Goal::requests(),
        LoadUnit::Calls | LoadUnit::Concurrent | LoadUnit::Connections => Goal::calls(),
    }
}

fn read_goal(fields: &Fields<'_>, unit: LoadUnit, faults: &mut Faults) -> Goal {
    let mut goal = Goal { at_most: Vec::new(), ..default_goal(unit) };
    for (name, value) in fields.table {
        match (definition(name.get_ref()), number(value)) {
            (None, _) => {
                // A key with dots and no quotes is a table of tables.
                let is_table = value.get_ref().is_table();
                match is_table {
                    true => {
                        faults.push(name.span(), "a figure with dots stands in quotes", "write \"srd.p95\" = 300000")
                    }
                    false => unknown_figure(value, name.get_ref(), faults),
                }
            }
            (Some(definition), None) => {
                let cure = format!("write \"{}\" = 1, in {}", definition.name, definition.unit);
                faults.push(value.span(), "a bound is no number", cure);
            }
            (Some(_), Some(bound)) => goal.at_most.push((name.get_ref().to_string(), bound)),
        }
    }
    if fields.table.is_empty() {
        faults.push(fields.span(), "the goal has no figure", "write \"isa.any\" = 1");
    }
    goal
}

/// Reads a value that is one of these words.
pub(super) fn word<T: Copy>(
    fields: &Fields<'_>,
    key: &str,
    all: &[T],
    word: impl Fn(T) -> &'static str,
    faults: &mut Faults,
) -> Option<T> {
    let written = fields.text(key, faults)?;
    let found = all.iter().copied().find(|one| word(*one) == written);
    if let (None, Some(value)) = (found, fields.value(key)) {
        let words: Vec<&str> = all.iter().map(|one| word(*one)).collect();
        let cure = match nearest(&written, words.iter().copied()) {
            Some(near) => format!("write {near}"),
            None => format!("write one of {}", words.join(", ")),
        };
        faults.push(value.span(), format!("there is no {key} {written:?}"), cure);
    }
    found
}
