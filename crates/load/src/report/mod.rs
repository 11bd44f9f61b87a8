//! Reports of a run: for terminals, as JSON, CSV and HTML, and as text for Prometheus. Each needs only a [`Run`], at
//! its end or from a raw log.
//!
//! ```no_run
//! use strowger_measure::{Run, Thresholds};
//! use strowger_load::report::Report;
//!
//! let run = Run::read(&["west.log", "east.log"])?;
//! let report = Report::new(&run, &[], &Thresholds::default());
//! std::fs::write("report.html", report.html())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod csv;
mod documents;
mod html;
mod json;
mod ladder;
mod prometheus;
mod responses;
mod table;
mod verdict;

pub use prometheus::{CONTENT_TYPE, exposition};
pub use strowger_report::{Tone, rfc3339};
pub use verdict::{Line, RunOutcome, failures, option};

use std::borrow::Cow;
use strowger_measure::{
    Counter, Health, Judgement, Page, Reason, Requirement, Run, Thresholds, Unit, grouped, several,
};
use strowger_report::{Mark, WIDTH};

/// Run with its evaluation: health of the generators, and judgements of the requirements.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    run: &'a Run,
    /// Health of each generator, in the order of [`Run::everyone`].
    health: Vec<Health>,
    judgements: Vec<Judgement>,
    /// True if a requirement bounds the failed calls, of the callers and of the answerers.
    allowed: [bool; 2],
    thresholds: Thresholds,
}

impl<'a> Report<'a> {
    pub fn new(run: &'a Run, requirements: &[Requirement], thresholds: &Thresholds) -> Self {
        let health = run.everyone().map(|generator| Health::judge(generator, thresholds)).collect();
        let mut report =
            Self { run, health, judgements: Vec::new(), allowed: [false; 2], thresholds: thresholds.clone() };
        let good = [report.good(), report.good_of_answerers()].map(|good| good.filter(|_| report.valid()));
        let good = good.each_ref().map(Option::as_ref);
        report.judgements = requirements.iter().map(|requirement| requirement.judge(run, good)).collect();
        // A lost requirement stays lost, even if the whole run meets it.
        for lost in run.everyone().filter_map(|generator| generator.lost.clone()) {
            report.judgements.retain(|judgement| judgement.requirement != lost.requirement);
            report.judgements.push(lost);
        }
        report.allowed = [false, true].map(|answerers| {
            let mut of_side = requirements.iter().filter(|requirement| requirement.is_of_answerers() == answerers);
            // Failed calls of bad windows count too.
            of_side.any(|requirement| requirement.bounds_all_failures(run) && requirement.judge(run, [None; 2]).met)
        });
        report
    }

    pub fn run(&self) -> &Run {
        self.run
    }

    /// Returns the health of each generator, in the order of [`Run::everyone`].
    pub fn health(&self) -> &[Health] {
        &self.health
    }

    pub fn judgements(&self) -> &[Judgement] {
        &self.judgements
    }

    /// Returns whether no generator was the limit.
    pub fn valid(&self) -> bool {
        self.health.iter().all(|health| health.verdict.is_valid())
    }

    /// Returns the numbers of good windows and of all windows, over all generators, or `None` if all are good.
    fn good_windows(&self) -> Option<(usize, usize)> {
        let windows = || self.health.iter().flat_map(|health| &health.windows);
        let good = windows().filter(|window| window.is_good()).count();
        Some((good, windows().count())).filter(|(good, all)| good < all)
    }

    /// Returns the figures of the good windows of all callers (or answerers, without callers), or `None` if all are
    /// good.
    pub fn good(&self) -> Option<Page> {
        self.good_windows()?;
        Some(good_of(self.run, &self.health))
    }

    /// Returns the figures of the good windows of the answerers in a run that has callers too.
    fn good_of_answerers(&self) -> Option<Page> {
        self.good_windows()?;
        let run = self.run.answering.as_deref()?;
        Some(good_of(run, &self.health[self.run.generators.len()..]))
    }

    /// Returns length and calls of the warm-up as text.
    fn warm_up(&self) -> Option<String> {
        let page = self.run.warm_up.as_deref()?;
        let length = Unit::Seconds.show(page.covered as f64 / 1e6);
        let calls = page.counter(Counter::CallsOutgoing) + page.counter(Counter::CallsIncoming);
        let failed = grouped(page.counter(Counter::CallsFailed) as f64);
        Some(format!("the first {length} with {} ({failed} failed), in no figure below", several(calls, "call")))
    }

    /// Returns whether each log that was read is complete.
    fn has_whole_logs(&self) -> bool {
        self.run.everyone().all(|generator| generator.missing.is_none())
    }

    /// Returns whether every requirement is met, or there is none.
    pub fn met(&self) -> bool {
        self.judgements.iter().all(|judgement| judgement.met)
    }

    /// Returns the sign of a judgement. If a generator was the limit, nothing is judged: the server was not measured.
    fn mark(&self, judgement: &Judgement) -> Mark {
        match (self.valid(), judgement.met) {
            (false, _) => Mark::Unjudged,
            (true, true) => Mark::Met,
            (true, false) => Mark::Missed,
        }
    }

    /// Returns the final table for a terminal; `colour`: with ANSI colours.
    pub fn table(&self, colour: bool) -> String {
        self.table_within(colour, WIDTH)
    }

    /// Returns the table for a terminal of this many columns.
    pub fn table_within(&self, colour: bool, columns: usize) -> String {
        table::table(self, colour, columns)
    }

    /// Returns the whole report, as `docs/load-report.schema.json` describes it.
    pub fn json(&self) -> String {
        json::json(self)
    }

    /// Returns the series (RFC 4180): a header line, then a line for each row. Missing values are empty.
    pub fn csv(&self) -> String {
        csv::csv(self.run)
    }

    /// Returns a self-contained page.
    pub fn html(&self) -> String {
        html::html(self)
    }

    /// Returns whether calls failed and no requirement allows that many failures. If no call succeeded, no requirement
    /// allows the failures.
    pub fn failed(&self) -> bool {
        let failed = |page: &Page| page.counter(Counter::CallsFailed) > 0;
        let none_succeeded = matches!(RunOutcome::of(&self.run.totals), RunOutcome::Silent | RunOutcome::AllFailed);
        let beside = self.run.answering.as_ref().is_some_and(|run| failed(&run.totals));
        none_succeeded || (failed(&self.run.totals) && !self.allowed[0]) || (beside && !self.allowed[1])
    }

    /// Returns sentences of every generator's verdict, with its name if there are several.
    fn sentences<'b>(&'b self, of: impl Fn(&'b Health) -> Vec<Cow<'b, str>>) -> Vec<String> {
        let several = self.run.everyone().count() > 1;
        let each = self.run.everyone().zip(&self.health);
        each.flat_map(|(generator, health)| {
            let name = if several { format!("{}: ", generator.heading.generator) } else { String::new() };
            of(health).into_iter().map(move |sentence| format!("{name}{sentence}"))
        })
        .collect()
    }

    /// Returns the reasons why the run is INVALID; each names the option of its threshold.
    pub fn reasons(&self) -> Vec<String> {
        self.sentences(|health| {
            let reasons = health.verdict.reasons().iter();
            let text = |reason: &Reason| match option(&reason.threshold) {
                Some(option) => format!("{} ({option})", reason.sentence),
                None => reason.sentence.clone(),
            };
            reasons.map(|reason| text(reason).into()).collect()
        })
    }

    fn warnings(&self) -> Vec<String> {
        self.sentences(|health| health.warnings.iter().map(|text| text.as_str().into()).collect())
    }
}

/// Sums the good windows of the generators of one side. `health`: health of these generators.
fn good_of(run: &Run, health: &[Health]) -> Page {
    let mut sum = Page::new(run.totals.timers().len());
    for (generator, health) in run.generators.iter().zip(health) {
        sum.add_beside(health.good.as_deref().unwrap_or(&generator.totals));
    }
    sum
}
