//! Samples of process trees and of a machine, read from a log.

use super::log::{Entry, LogError, LogReader};
use super::{Heading, MachineSample, Page, Span, TreeSample};
use std::path::Path;

/// Part of a span that samples may lack, µs, because samples do not begin with the seconds of the span.
const SHORT: u64 = 1_000_000;

/// Samples of process trees and of a machine, in their order.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub heading: Heading,
    pub trees: Vec<TreeSample>,
    pub machine: Vec<MachineSample>,
    /// Sentence about an incomplete log, or about samples of only a part of the span.
    pub missing: Option<String>,
}

impl Observed {
    /// Reads the samples of this log whose interval lies in the span by more than half.
    ///
    /// # Errors
    /// The file cannot be read, or is no log.
    pub fn read(path: &Path, span: Span) -> Result<Self, LogError> {
        let mut reader = LogReader::open(path)?;
        let mut observed = Self { heading: reader.heading().clone(), ..Self::default() };
        let (mut page, mut has_ended) = (Page::new(0), false);
        while let Some(entry) = reader.next(&mut page) {
            match entry {
                Entry::Tree(sample) if span.has_interval(sample.at, sample.interval) => observed.trees.push(sample),
                Entry::Machine(sample) if span.has_interval(sample.at, sample.interval) => {
                    observed.machine.push(sample)
                }
                Entry::Ending(_) => has_ended = true,
                _ => {}
            }
        }
        let path = reader.path().display();
        let broken = match reader.damage() {
            None if !has_ended => Some(format!("{path} has no ending: its observer was killed, or still runs")),
            damage => damage,
        };
        let covered: u64 = observed.machine.iter().map(|sample| sample.interval).sum();
        let wanted = if span == Span::WHOLE { 0 } else { span.seconds() };
        let gap = (covered + SHORT < wanted * 1_000_000)
            .then(|| format!("{path} has samples of {:.1} of the {wanted} seconds wanted", covered as f64 / 1e6));
        let sentences: Vec<String> = broken.into_iter().chain(gap).map(|what| format!("The log {what}.")).collect();
        observed.missing = (!sentences.is_empty()).then(|| sentences.join(" "));
        Ok(observed)
    }

    /// Returns the names of the trees, in the order of their first samples.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for sample in &self.trees {
            if !names.contains(&sample.name.as_str()) {
                names.push(&sample.name);
            }
        }
        names
    }

    /// Returns the use of a tree over all samples together, or `None` if there is no tree of this name.
    pub fn tree(&self, name: &str) -> Option<TreeSample> {
        let mut samples = self.trees.iter().filter(|sample| sample.name == name).cloned();
        let first = samples.next()?;
        Some(samples.fold(first, |mut sum, next| {
            sum.append(next);
            sum
        }))
    }

    /// Returns the use of the machine over all samples together.
    pub fn whole_machine(&self) -> Option<MachineSample> {
        let mut samples = self.machine.iter().cloned();
        let first = samples.next()?;
        Some(samples.fold(first, |mut sum, next| {
            sum.append(next);
            sum
        }))
    }
}
