//! Examination of a machine: missing programs, settings that spoil a run, its present state, and the rate that the generator reaches here.
//!
//! Each [`Finding`] has its cure. A [bad](Grade::Bad) finding spoils runs, and a [notice](Grade::Notice) limits the experiments that can
//! be run.
//!
//! ```
//! use strowger_lab::doctor::{Grade, programs};
//!
//! let findings = programs();
//! assert!(findings.iter().all(|finding| finding.grade == Grade::Good || !finding.cure.is_empty()));
//! ```

mod generator;
mod kernel;
mod present;
mod programs;

pub use generator::{RATES, generator};
pub use kernel::{Kernel, kernel};
pub use present::{SPAN, present};
pub use programs::programs;

use crate::row::words;
use serde::{Deserialize, Serialize};

words! {
    /// Grade of a finding.
    Grade {
        /// Nothing to do.
        Good = "good",
        /// Some experiments or figures suffer.
        Notice = "notice",
        /// Runs are spoilt.
        Bad = "bad",
    }
}

words! {
    /// Part of the examination.
    Area {
        /// Programs that experiments need.
        Programs = "programs",
        /// Settings of the kernel.
        Kernel = "kernel",
        /// Present state of the machine.
        Present = "present",
        /// Generator on this machine.
        Generator = "generator",
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Part of the examination.
    pub area: Area,
    /// Name of the setting, program or measure.
    pub subject: String,
    /// Value that was found.
    pub found: String,
    /// Grade.
    pub grade: Grade,
    /// Effect on runs. Empty for a good one.
    pub effect: String,
    /// Command or action against it. Empty for a good one.
    pub cure: String,
}

impl Finding {
    fn good(area: Area, subject: impl Into<String>, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.into(), found.into());
        Self { area, subject, found, grade: Grade::Good, effect: String::new(), cure: String::new() }
    }

    /// Replaces the grade, the effect and the cure.
    fn but(self, grade: Grade, effect: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { grade, effect: effect.into(), cure: cure.into(), ..self }
    }
}

/// Returns the worst grade of these findings, or `Good` if there are none.
pub fn worst(findings: &[Finding]) -> Grade {
    findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Good)
}
