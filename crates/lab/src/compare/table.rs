//! Result of a comparison.

use super::RatioInterval;
use crate::row::{Cell, definition};
use std::fmt;

/// Reason why nothing is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The runs were made on different machines.
    Machines,
    /// The floors of the runs differ by more than 15 %.
    Floors,
    /// A run has no valid row of the floor.
    NoFloor,
    /// There are too few valid repetitions.
    Repetitions,
    /// A value is negative, and has no ratio.
    NoRatio,
}

impl Withheld {
    /// Returns the reason and its cure.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Machines => "the machines differ: compare runs of one machine",
            Self::Floors => {
                "the floors differ by more than 15 %: the machine was not the same during both runs; make them again"
            }
            Self::NoFloor => "a run has no valid floor: make it again without other programs",
            Self::Repetitions => {
                "there are too few valid repetitions: each run needs four, which --repetitions 4 makes"
            }
            Self::NoRatio => "a value is negative",
        }
    }
}

/// Claim about one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No difference is shown.
    None,
    /// The later run is better.
    Better,
    /// The later run is worse.
    Worse,
    /// Nothing can be claimed.
    Withheld(Withheld),
}

/// Figure of a cell that both runs have.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Cell of the experiment.
    pub cell: Cell,
    /// Name of the figure.
    pub figure: String,
    /// Median of the earlier run.
    pub before: f64,
    /// Median of the later run.
    pub after: f64,
    /// Ratio of the floors by which the ratio is divided, or `None` for figures that do not depend on the speed of the
    /// machine.
    pub floor: Option<f64>,
    /// Ratio of the later run to the earlier one, divided by the floors.
    pub ratio: Option<RatioInterval>,
    /// Claim.
    pub claim: Claim,
}

/// Decision on a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No figure is claimed to be worse.
    NotWorse,
    /// One figure or more is claimed to be worse.
    Worse,
    /// No figure could be judged.
    Nothing,
}

impl Decision {
    /// Returns the exit code, as `strowger load` uses them.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::NotWorse => 0,
            Self::Worse => 1,
            Self::Nothing => 4,
        }
    }
}

/// Comparison of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Name of the earlier run.
    pub before: String,
    /// Name of the later run.
    pub after: String,
    /// Figures that both runs have.
    pub lines: Vec<Line>,
    /// Cells that only the earlier run has.
    pub only_before: Vec<String>,
    /// Cells that only the later run has.
    pub only_after: Vec<String>,
    /// Rows of the earlier and the later run that are not valid and were left out.
    pub invalid: [usize; 2],
}

impl Comparison {
    /// Decides from the claims of all lines.
    pub fn decision(&self) -> Decision {
        let claims = || self.lines.iter().map(|line| line.claim);
        if claims().any(|claim| claim == Claim::Worse) {
            Decision::Worse
        } else if claims().all(|claim| matches!(claim, Claim::Withheld(_))) {
            Decision::Nothing
        } else {
            Decision::NotWorse
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {}", self.after, self.before)?;
        let (mut cell, mut reasons) = (None, Vec::new());
        for line in &self.lines {
            if cell != Some(&line.cell) {
                writeln!(f, "{}", line.cell)?;
                cell = Some(&line.cell);
            }
            let unit = definition(&line.figure).map_or("", |definition| definition.unit.key());
            write!(f, "  {:<24} {:>12.2} {:>12.2} {unit:<4}", line.figure, line.before, line.after)?;
            if let Some(RatioInterval { middle, low, high, confidence }) = line.ratio {
                let share = (confidence * 1_000.0).floor() / 10.0;
                write!(f, " {middle:>7.3} ({low:.3} to {high:.3}, {share} %)")?;
            }
            match line.claim {
                Claim::None => {}
                Claim::Better => f.write_str("  better")?,
                Claim::Worse => f.write_str("  WORSE")?,
                Claim::Withheld(reason) => {
                    f.write_str("  no claim")?;
                    if !reasons.contains(&reason) {
                        reasons.push(reason);
                    }
                }
            }
            writeln!(f)?;
        }
        for reason in reasons {
            writeln!(f, "No claim: {}.", reason.sentence())?;
        }
        for (cells, name) in [(&self.only_before, &self.before), (&self.only_after, &self.after)] {
            for cell in cells {
                writeln!(f, "Only in {name}: {cell}")?;
            }
        }
        let [before, after] = self.invalid;
        if before + after > 0 {
            writeln!(f, "Left out as not valid: {before} and {after} rows.")?;
        }
        Ok(())
    }
}
