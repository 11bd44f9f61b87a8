//! Reports of a run: for terminals, as JSON, CSV and HTML, and as text for Prometheus. All are made from a
//! [`Run`], so from a raw log as well as at the end of the run itself.
//!
//! ```no_run
//! use strowger_load::measure::{Run, Thresholds};
//! use strowger_load::report::Report;
//!
//! let run = Run::read(&["west.log", "east.log"])?;
//! let report = Report::new(&run, &[], &Thresholds::default());
//! std::fs::write("report.html", report.html())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod csv;
mod date;
mod html;
mod json;
mod prometheus;
mod responses;
mod table;

pub use date::rfc3339;
pub use prometheus::{CONTENT_TYPE, exposition};

use crate::measure::{Counter, Evidence, Health, Judgement, Requirement, Run, Thresholds};

/// A run with what is made of it: whether the generators were healthy, and whether it shows what was required.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    run: &'a Run,
    /// Of each generator, in the order of [`Run::generators`].
    health: Vec<Health>,
    judgements: Vec<Judgement>,
    thresholds: Thresholds,
}

impl<'a> Report<'a> {
    pub fn new(run: &'a Run, requirements: &[Requirement], thresholds: &Thresholds) -> Self {
        let health = run.generators.iter().map(|generator| {
            let evidence = Evidence {
                heading: &generator.heading,
                totals: &generator.totals,
                samples: &generator.samples,
                receive_buffers: &generator.receive_buffers,
                notes: &generator.notes,
            };
            Health::judge(&evidence, thresholds)
        });
        let judgements = requirements.iter().map(|requirement| requirement.judge(&run.totals)).collect();
        Self { run, health: health.collect(), judgements, thresholds: thresholds.clone() }
    }

    pub fn run(&self) -> &Run {
        self.run
    }

    /// The health of each generator, in the order of [`Run::generators`].
    pub fn health(&self) -> &[Health] {
        &self.health
    }

    pub fn judgements(&self) -> &[Judgement] {
        &self.judgements
    }

    /// No generator was the limit.
    pub fn valid(&self) -> bool {
        self.health.iter().all(|health| health.verdict.is_valid())
    }

    /// Every requirement is met; true where none was given.
    pub fn met(&self) -> bool {
        self.judgements.iter().all(|judgement| judgement.met)
    }

    /// The final table for a terminal; `colour`: with ANSI colours.
    pub fn table(&self, colour: bool) -> String {
        table::table(self, colour)
    }

    /// The whole report, as `docs/load-report.schema.json` describes it.
    pub fn json(&self) -> String {
        json::json(self)
    }

    /// The series (RFC 4180): a header line, then a line for each row. Missing values are empty.
    pub fn csv(&self) -> String {
        csv::csv(self.run)
    }

    /// One self-contained page.
    pub fn html(&self) -> String {
        html::html(self)
    }

    /// What VALID says: nothing is the server's where nothing was asked of it.
    fn praise(&self) -> &'static str {
        let totals = &self.run.totals;
        if totals.counter(Counter::CallsOutgoing) + totals.counter(Counter::CallsIncoming) > 0 {
            "The generator did what it was asked to; the figures are the server's."
        } else {
            "The generator did what it was asked to, but no call was begun: there are no figures."
        }
    }

    /// The sentences of every generator's verdict; with its name where there are several.
    fn sentences<'b>(&'b self, of: impl Fn(&'b Health) -> Vec<&'b str>) -> Vec<String> {
        let several = self.run.generators.len() > 1;
        let each = self.run.generators.iter().zip(&self.health);
        each.flat_map(|(generator, health)| {
            let name = if several { format!("{}: ", generator.heading.generator) } else { String::new() };
            of(health).into_iter().map(move |sentence| format!("{name}{sentence}"))
        })
        .collect()
    }

    fn reasons(&self) -> Vec<String> {
        self.sentences(|health| health.verdict.reasons().iter().map(|reason| reason.sentence.as_str()).collect())
    }

    fn warnings(&self) -> Vec<String> {
        self.sentences(|health| health.warnings.iter().map(String::as_str).collect())
    }
}
