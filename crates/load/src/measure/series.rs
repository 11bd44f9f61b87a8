//! The series: one row a second, of the figures that charts and CSV show.

use super::catalogue::{Measure, Statistic};
use super::{Counter, Delay, Failure, Page, Rate, Share};
use strowger_message::Method;

/// One second of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The wall-clock second (since 1970-01-01 UTC).
    pub second: u64,
    /// One for each of [`columns`]; NaN: nothing was measured.
    pub values: Box<[f64]>,
    /// Responses received: (method, code, count).
    pub codes: Vec<(Method, u16, u64)>,
}

impl Row {
    pub fn of(page: &Page) -> Self {
        let mut values = Vec::with_capacity(256);
        values.push(page.covered as f64 / 1e6);
        values.push(page.open as f64);
        values.push(page.peak as f64);
        values.extend(Rate::ALL.iter().map(|rate| rate.of(page).unwrap_or(f64::NAN)));
        // Completion lies seconds behind the INVITE; by the second it is no ratio.
        let shares = Share::ALL.iter().filter(|share| **share != Share::Completion);
        values.extend(shares.map(|share| share.of(page).unwrap_or(f64::NAN)));
        values.extend((100..700).step_by(100).map(|class| {
            let codes = page.responses_received().iter().filter(|(_, code, _)| (class..class + 100).contains(code));
            codes.map(|(_, _, count)| count).sum::<u64>() as f64
        }));
        for delays in Delay::ALL.iter().map(|delay| page.delays(*delay)).chain(page.timers()) {
            values.extend(Statistic::SHOWN.iter().map(|statistic| statistic.of(delays).unwrap_or(f64::NAN)));
        }
        values.extend(Counter::ALL.iter().map(|counter| page.counter(*counter) as f64));
        values.extend(Failure::ALL.iter().map(|failure| page.failures(*failure) as f64));
        Self { second: page.second, values: values.into(), codes: page.responses_received().iter().collect() }
    }
}

/// The names of the columns, each a measure that `--require` knows too. The statistics of a delay stand together.
pub fn columns(timers: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["duration", "concurrency", "concurrency.max"].map(String::from).into();
    names.extend(Rate::ALL.iter().map(|rate| rate.key().into()));
    names.extend(Share::ALL.iter().filter(|share| **share != Share::Completion).map(|share| share.key().into()));
    names.extend((1..7).map(|class| format!("responses.{class}xx")));
    let delays = Delay::ALL.iter().map(|delay| delay.key().to_string());
    for delay in delays.chain(timers.iter().map(|timer| format!("timer.{timer}"))) {
        names.extend(Statistic::SHOWN.iter().map(|statistic| format!("{delay}.{}", statistic.key())));
    }
    names.extend(Counter::ALL.iter().map(|counter| counter.key().into()));
    names.extend(Failure::ALL.iter().map(|failure| format!("calls.failed.{}", failure.key())));
    names
}

/// The unit of each column, as [`Unit::key`](super::Unit::key) says it.
pub fn units(timers: &[String]) -> Vec<&'static str> {
    let unit = |name: &String| Measure::parse(name, timers).map_or("1", |measure| measure.unit().key());
    columns(timers).iter().map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_the_measure_of_its_name() {
        let timers = ["1".to_string(), "ring".to_string()];
        let mut page = Page::new(2);
        page.covered = 1_000_000;
        for (place, counter) in Counter::ALL.iter().enumerate() {
            page.count(*counter, 3 + place as u64);
        }
        for (place, delay) in Delay::ALL.iter().enumerate().skip(1) {
            page.delays[*delay as usize].record(10 * place as u64);
            page.delays[*delay as usize].record(900);
        }
        page.timers[1].record(5);
        page.failures[2] = 8;
        page.responses_received.count(Method::Invite, 180, 6);
        page.open = 4;
        let (row, names) = (Row::of(&page), columns(&timers));
        assert_eq!(row.values.len(), names.len());
        assert_eq!(units(&timers).len(), names.len());
        for (name, value) in names.iter().zip(&row.values) {
            let measure = Measure::parse(name, &timers).unwrap_or_else(|error| panic!("{error}"));
            match measure.of(&page) {
                Some(want) => assert_eq!(*value, want, "{name}"),
                None => assert!(value.is_nan(), "{name}"),
            }
        }
    }
}
