//! Layout of pages in the raw log. The log names the figures in their order, so that a program with other measures can
//! read it: a figure that the program does not know is skipped, and a figure that the log lacks is 0.

use super::page::{METHODS, method};
use super::{Counter, Delay, Failure};
use serde::{Deserialize, Serialize};
use strowger_message::Method;

/// Names of a page's figures, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Layout {
    counters: Vec<String>,
    failures: Vec<String>,
    delays: Vec<String>,
    methods: Vec<String>,
}

impl Layout {
    /// Returns the layout of this program.
    pub(super) fn own() -> Self {
        let name = |method: Method| if method == Method::Other { "OTHER".into() } else { method.to_string() };
        Self {
            counters: Counter::ALL.iter().map(|counter| counter.key().into()).collect(),
            failures: Failure::ALL.iter().map(|failure| failure.key().into()).collect(),
            delays: Delay::ALL.iter().map(|delay| delay.key().into()).collect(),
            methods: (0..METHODS).map(|row| name(method(row))).collect(),
        }
    }
}

/// Place of each figure of a log's pages in a page of this program.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) counters: Vec<Option<usize>>,
    pub(super) failures: Vec<Option<usize>>,
    pub(super) delays: Vec<Option<usize>>,
    pub(super) methods: Vec<Option<usize>>,
    /// Places of the scenario's timers, and their number in a page of this program.
    pub(super) timers: Vec<usize>,
    pub(super) timer_count: usize,
}

impl Places {
    /// Returns the places for a log of this layout and this many timers.
    pub(super) fn of(layout: &Layout, timers: usize) -> Self {
        let own = Layout::own();
        let places = |theirs: &[String], ours: &[String]| {
            theirs.iter().map(|name| ours.iter().position(|known| known == name)).collect()
        };
        Self {
            counters: places(&layout.counters, &own.counters),
            failures: places(&layout.failures, &own.failures),
            delays: places(&layout.delays, &own.delays),
            methods: places(&layout.methods, &own.methods),
            timers: (0..timers).collect(),
            timer_count: timers,
        }
    }

    /// Places timers by their names among `all`, which contains each of them.
    pub(super) fn arrange(&mut self, names: &[String], all: &[String]) {
        self.timers = names.iter().filter_map(|name| all.iter().position(|known| known == name)).collect();
        self.timer_count = all.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_have_no_place_and_order_does_not_matter() {
        let own = Layout::own();
        let mut theirs = own.clone();
        theirs.counters.reverse();
        theirs.failures.insert(0, "struck_by_lightning".into());
        let places = Places::of(&theirs, 2);
        let last = Counter::ALL.len() - 1;
        assert_eq!((places.counters[0], places.counters[last]), (Some(last), Some(0)));
        assert_eq!(places.failures[..2], [None, Some(0)]);
        assert_eq!(places.methods.last(), Some(&Some(METHODS - 1)));
        let name = |text: &&str| (*text).to_owned();
        let (mut places, all) = (places, ["setup", "other", "ring"].iter().map(name).collect::<Vec<_>>());
        places.arrange(&["ring", "setup"].iter().map(name).collect::<Vec<_>>(), &all);
        assert_eq!((places.timers, places.timer_count), (vec![2, 0], 3));
    }
}
