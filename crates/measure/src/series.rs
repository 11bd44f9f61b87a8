//! Series: one row a second, with the figures that charts and CSV show.

use super::catalogue::{Measure, Statistic};
use super::unit::Unit;
use super::{Counter, Delay, Failure, Page, Rate, Share};
use strowger_message::Method;

/// One second of a run, or several merged.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Wall-clock second (since 1970-01-01 UTC); of several, the first.
    pub second: u64,
    /// Values of [`columns`]; NaN: nothing was measured.
    pub values: Box<[f64]>,
    /// Responses received: (method, code, count).
    pub codes: Vec<(Method, u16, u64)>,
    /// True if all of it is warm-up.
    pub warm_up: bool,
}

impl Row {
    pub fn of(page: &Page) -> Self {
        let mut values = Vec::with_capacity(256);
        values.push(page.covered as f64 / 1e6);
        values.push(page.open as f64);
        values.push(page.peak as f64);
        values.extend(Rate::ALL.iter().map(|rate| rate.over(page).unwrap_or(f64::NAN)));
        values.extend(shares().map(|share| share.of(page).unwrap_or(f64::NAN)));
        values.extend((100..700).step_by(100).map(|class| {
            let codes = page.responses_received().iter().filter(|(_, code, _)| (class..class + 100).contains(code));
            codes.map(|(_, _, count)| count).sum::<u64>() as f64
        }));
        for delay in Delay::ALL {
            let figure = |statistic: &Statistic| delay.figure(*statistic, page.delays(*delay)).unwrap_or(f64::NAN);
            values.extend(delay.shown().iter().map(figure));
        }
        for delays in page.timers() {
            values.extend(Statistic::SHOWN.iter().map(|statistic| statistic.of(delays).unwrap_or(f64::NAN)));
        }
        values.extend(Counter::ALL.iter().map(|counter| page.counter(*counter) as f64));
        values.extend(Failure::MEASURES.iter().map(|failure| page.failures(*failure) as f64));
        Self {
            second: page.second,
            values: values.into(),
            codes: page.responses_received().iter().collect(),
            warm_up: page.warm_up,
        }
    }

    /// Appends a later row, so that both become one row of a longer time. Counts, rates, ratios, means, deviations,
    /// minima and maxima are those of the longer time. Rows keep no histograms, so a percentile is the worse of the two,
    /// which is a bound: the greater time, the lesser score. `scratch`: any page, whose content is lost.
    pub fn append(&mut self, later: &Self, scratch: &mut Page) {
        let (mine, theirs) = (std::mem::take(&mut self.values), &later.values);
        let mut values = Vec::with_capacity(mine.len());
        values.extend([mine[0] + theirs[0], theirs[1], mine[2].max(theirs[2])]);
        let mut at = values.len();
        let mut next = |count: usize| {
            at += count;
            at - count..at
        };
        let (rates, ratios, classes) = (next(Rate::ALL.len()), next(shares().count()), next(CLASSES));
        let counts = mine.len() - Counter::ALL.len() - Failure::MEASURES.len()..mine.len();
        let delays = classes.end..counts.start;
        debug_assert_eq!(delays.len() % Statistic::SHOWN.len(), 0);

        let sum = |place: usize| mine[place] + theirs[place];
        values.extend(rates.map(|place| {
            let part = |rate: f64, time: f64| if rate.is_finite() { rate * time } else { 0.0 };
            (part(mine[place], mine[0]) + part(theirs[place], theirs[0])) / (mine[0] + theirs[0])
        }));
        // Ratios are computed again from the counters.
        scratch.clear();
        for (counter, place) in Counter::ALL.iter().zip(counts.clone()) {
            scratch.count(*counter, sum(place) as u64);
        }
        debug_assert_eq!(ratios.len(), shares().count());
        values.extend(shares().map(|share| share.of(scratch).unwrap_or(f64::NAN)));
        values.extend(classes.map(sum));
        // The timers follow the delays.
        let of_delays = Delay::ALL.iter().copied().map(Some).chain(std::iter::repeat(None));
        for (delay, from) in of_delays.zip(delays.step_by(Statistic::SHOWN.len())) {
            let figures = from..from + Statistic::SHOWN.len();
            values.extend(together(delay, &mine[figures.clone()], &theirs[figures]));
        }
        values.extend(counts.map(sum));
        self.values = values.into();
        self.warm_up &= later.warm_up;
        for (method, code, count) in &later.codes {
            match self.codes.iter_mut().find(|(of, known, _)| of == method && known == code) {
                Some((.., sum)) => *sum += count,
                None => self.codes.push((*method, *code, *count)),
            }
        }
    }
}

/// Merges the figures of one delay in two periods; `None`: of a timer.
fn together(delay: Option<Delay>, mine: &[f64], theirs: &[f64]) -> Vec<f64> {
    let shown = delay.map_or(Statistic::SHOWN, Delay::shown);
    let is_score = delay.is_some_and(|delay| delay.unit() == Unit::Score);
    let place = |wanted| shown.iter().position(|statistic| *statistic == wanted).expect("it is shown");
    let (count, mean, deviation) = (place(Statistic::Count), place(Statistic::Mean), place(Statistic::Deviation));
    let (n, m) = (mine[count], theirs[count]);
    if n == 0.0 || m == 0.0 {
        return if n == 0.0 { theirs.into() } else { mine.into() };
    }
    let weighted = |a: f64, b: f64| (a * n + b * m) / (n + m);
    let middle = weighted(mine[mean], theirs[mean]);
    let square = |of: &[f64]| of[deviation].powi(2) + of[mean].powi(2);
    let fold = |(place, statistic): (usize, &Statistic)| match statistic {
        Statistic::Count => n + m,
        Statistic::Mean => middle,
        Statistic::Least => mine[place].min(theirs[place]),
        Statistic::Percentile(_) if is_score => mine[place].min(theirs[place]),
        Statistic::Percentile(_) | Statistic::Most => mine[place].max(theirs[place]),
        Statistic::Deviation => (weighted(square(mine), square(theirs)) - middle.powi(2)).max(0.0).sqrt(),
    };
    shown.iter().enumerate().map(fold).collect()
}

// A row has as many figures of each delay.
const _: () = assert!(Statistic::SHOWN.len() == Statistic::SHOWN_OF_SCORES.len());

/// Classes of responses: 1xx to 6xx.
const CLASSES: usize = 6;

/// Returns the ratios of a row. Completion is not among them: it follows the INVITE by seconds, and so is no ratio
/// within a second.
fn shares() -> impl Iterator<Item = &'static Share> {
    Share::ALL.iter().filter(|share| **share != Share::Completion)
}

/// Returns the names of the columns, each of which is also a measure of `--require`. The statistics of a delay are
/// adjacent.
pub fn columns(timers: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["duration", "concurrency", "concurrency.max"].map(String::from).into();
    names.extend(Rate::ALL.iter().map(|rate| rate.key().into()));
    names.extend(shares().map(|share| share.key().into()));
    names.extend((1..=CLASSES).map(|class| format!("responses.{class}xx")));
    let delays = Delay::ALL.iter().map(|delay| (delay.key().to_string(), delay.shown()));
    for (delay, shown) in delays.chain(timers.iter().map(|timer| (format!("timer.{timer}"), Statistic::SHOWN))) {
        names.extend(shown.iter().map(|statistic| format!("{delay}.{}", statistic.key())));
    }
    names.extend(Counter::ALL.iter().map(|counter| counter.key().into()));
    names.extend(Failure::MEASURES.iter().map(|failure| format!("calls.failed.{}", failure.key())));
    names
}

/// Returns the unit of each column, by [`Unit::key`](super::Unit::key).
pub fn units(timers: &[String]) -> Vec<&'static str> {
    let unit = |name: &String| Measure::parse(name, timers).map_or("1", |measure| measure.unit().key());
    columns(timers).iter().map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_rows_equal_merged_pages() {
        let timers = ["1".to_string()];
        let page = |second: u64, calls: u64, us: u64| {
            let mut page = Page::new(1);
            (page.second, page.begun, page.covered, page.open, page.peak) =
                (second, second * 1_000_000, 1_000_000, calls, calls);
            page.count(Counter::CallsIntended, calls + 1);
            page.count(Counter::CallsOutgoing, calls);
            page.count(Counter::SessionAnswered, calls);
            page.count(Counter::SessionFailed, 1);
            page.failures[2] = calls;
            (0..calls).for_each(|call| page.delays[Delay::Setup as usize].record(us + call));
            (0..calls).for_each(|call| page.record(Delay::MediaScore, us / 10 + 100 * call));
            page.responses_received.count(Method::Invite, 200, calls);
            page.responses_received.count(Method::Bye, 200 + second as u16, 1);
            page
        };
        let (first, second) = (page(1, 10, 1_000), page(2, 30, 5_000));
        let mut sum = Page::new(1);
        sum.add_after(&first);
        sum.add_after(&second);
        let (whole, mut row) = (Row::of(&sum), Row::of(&first));
        row.append(&Row::of(&second), &mut Page::new(0));
        let mut codes = row.codes.clone();
        codes.sort_by_key(|(method, code, _)| (*method as usize, *code));
        assert_eq!((row.second, codes), (1, whole.codes));
        for (name, (found, want)) in columns(&timers).iter().zip(row.values.iter().zip(&whole.values)) {
            let near = (found - want).abs() <= want.abs() * 1e-9 || (found.is_nan() && want.is_nan());
            // A percentile is the worse one: at least the right time, at most the right score.
            let is_bound = if name.starts_with("media.mos") { found <= want } else { found >= want };
            let percentile = name.contains(".p") && is_bound;
            assert!(near || percentile, "{name}: {found} for {want}");
        }
    }

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
