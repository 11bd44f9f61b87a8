//! Finders: choosers of the next trial of a search for the limit of a system.
//!
//! A finder reads no clock and starts nothing. It returns the next trial, and takes the outcome of that trial.
//!
//! * [`Search`]: the default, in the manner of MLRsearch (draft-ietf-bmwg-mlrsearch): several short trials a load.
//! * [`Rfc7502`]: the algorithm of RFC 7502 section 4.10.
//! * [`Staircase`]: the steps and limits of "Methodology for SIP Infrastructure Performance Testing".
//!
//! ```
//! use strowger_lab::finder::{Finder, Goal, Next, TrialOutcome, Search, Settings};
//!
//! // A server that takes 700 calls a second and refuses the others.
//! let serve = |load: f64| {
//!     let mut outcome = TrialOutcome::default();
//!     for (figure, value) in [("isa.any", (1.0 - 700.0 / load).max(0.0) * 100.0), ("srd.p95", 2_000.0)] {
//!         outcome.figures.set(figure, value).expect("a known figure");
//!     }
//!     outcome
//! };
//! let mut search = Search::new(Settings::default(), Goal::calls());
//! let limit = loop {
//!     match search.next() {
//!         Next::Trial(trial) => search.take(serve(trial.load)),
//!         Next::Done(limit) => break limit,
//!     }
//! };
//! assert!((665.0..=708.0).contains(&limit.load));
//! ```

mod cause;
mod goal;
mod history;
mod outcome;
mod rfc7502;
mod search;
mod staircase;

pub use cause::{Cause, Part, cause};
pub use goal::{Goal, Judgement};
pub use outcome::TrialOutcome;
pub(crate) use rfc7502::is_carried;
pub use rfc7502::{LEAST_WEIGHT, Rfc7502, Rfc7502Settings};
pub use search::{Search, Settings};
pub use staircase::{Criteria, Criterion, Point, Staircase, StaircaseSettings, criteria};

use crate::row::words;
use std::time::Duration;

/// Trial that a finder asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Offered load in the unit of the experiment.
    pub load: f64,
    /// Length of the window in which it is measured.
    pub duration: Duration,
}

/// Answer of a finder.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Trial whose outcome the finder takes next.
    Trial(Trial),
    /// Result of the search.
    Done(Limit),
}

/// Chooser of the next trial.
pub trait Finder {
    /// Returns the next trial, or the limit. Repeated calls return the same trial until its outcome is taken.
    fn next(&self) -> Next;

    /// Takes the outcome of the trial that [`Finder::next`] returned. Does nothing after the last trial.
    fn take(&mut self, outcome: TrialOutcome);
}

words! {
    /// Method of a search.
    Method {
        /// Several short trials a load.
        Search = "multiple trials",
        /// RFC 7502 section 4.10.
        Rfc7502 = "RFC 7502 section 4.10",
        /// Steps of equal height.
        Staircase = "staircase",
    }
}

words! {
    /// Result of a search.
    Finding {
        /// A load that the system carries lies next to one that it does not carry.
        Found = "found",
        /// The system carries the highest load that the search may offer.
        AtLeast = "at least",
        /// The system does not carry the lowest load that the search offers.
        Nothing = "nothing",
        /// The system carries a load at first and not when the load stays.
        Unstable = "unstable",
    }
}

/// Limit of a system, with its interval and cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Method of the search.
    pub method: Method,
    /// Result of the search.
    pub finding: Finding,
    /// Highest load that the system carries. For an unstable system: the highest load that it carried for a while.
    pub load: f64,
    /// Lowest load above `load` that the system does not carry, or `None` if no load was too high.
    pub beyond: Option<f64>,
    /// First bound of the goal that is missed beyond the limit.
    pub missed: Option<String>,
    /// Part of the test bed that is the limit.
    pub cause: Cause,
    /// Number of different loads that were offered.
    pub loads: usize,
    /// Number of trials.
    pub trials: usize,
    /// A trial next to the limit is not valid, for another reason than a limit of the generator.
    pub marked: bool,
}
