//! Report as one self-contained page of HTML: it includes styles, script and data, and its Content-Security-Policy
//! forbids every request.

use super::json::{json_without_series, method_name};
use super::verdict::INVALID;
use super::{Report, documents, ladder, rfc3339};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use strowger_measure::{
    Counter, Delay, Delays, GeneratorRole, Heading, Page, Rate, Run, Share, Statistic, Unit, columns, grouped,
};
use strowger_report::{Item, Page as Html, Tile, Tone};

/// Part of the page's script that draws the charts and tables of a run.
const SCRIPT: &str = include_str!("page/page.js");

/// Limit of the points of a chart; longer runs are drawn in steps of several seconds.
const POINTS: usize = 1_200;
/// Number of codes with a colour of their own; all other codes share one.
const CODES: usize = 7;

/// Delays of the generator itself, which have a chart of their own.
const HEALTH: [Delay; 5] = [Delay::Lag, Delay::ReceiveLag, Delay::SendLag, Delay::TimerLag, Delay::Stall];

/// Percentiles of the chart of distributions.
const PERCENTS: &[f64] = &[
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0, 98.0, 99.0, 99.3, 99.5,
    99.7, 99.8, 99.9, 99.93, 99.95, 99.97, 99.98, 99.99,
];

/// Data of the charts.
#[derive(Serialize)]
struct Charts {
    /// Seconds of a point.
    step: usize,
    /// Start of each point, seconds since 1970-01-01 UTC.
    time: Vec<u64>,
    /// End of the warm-up, on the same scale.
    warm_until: Option<f64>,
    columns: BTreeMap<String, Vec<Option<f64>>>,
    codes: Vec<Named>,
    delays: Vec<DelayChart>,
    percents: &'static [f64],
    distributions: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    values: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct DelayChart {
    name: String,
    title: String,
    definition: String,
}

pub(super) fn html(report: &Report<'_>) -> String {
    let run = report.run;
    let heading = run.heading();
    let target = if heading.target.is_empty() { String::new() } else { format!(" to {}", heading.target) };
    let name = if heading.title.is_empty() { "Strowger" } else { &heading.title };
    let title = format!("{name}{target} — {}", command(heading));
    let mut page = Html::new(&title);
    top(&mut page, report);
    page.markup(&documents::html(run));
    page.markup(&ladder::html(run));
    page.markup(
        "<h2>Traffic</h2><div class=\"charts\" id=\"traffic\"></div>\n\
         <h2>Delays</h2><div class=\"charts\" id=\"delays\"></div><p></p><div class=\"wide\" id=\"delay-table\"></div>\n\
         <div class=\"wide\" id=\"score-table\"></div>\n\
         <p class=\"about\">Delays run from the first bit sent to the last bit received; those named .intended run from the time at \
         which the schedule wanted the request sent, so that a stall of generator or server is in them.</p>\n\
         <h2>Ratios</h2><div class=\"wide\" id=\"ratio-table\"></div>\n\
         <h2>Generator</h2><div class=\"charts\" id=\"health\"></div><p></p><div class=\"wide\" id=\"window-table\"></div>\n\
         <h2>Counters</h2><div class=\"charts\"><div class=\"wide\" id=\"counter-table\"></div><div class=\"wide\" id=\"code-table\"></div></div>\n\
         <h2>Settings</h2><div class=\"wide\" id=\"setting-table\"></div>\n",
    );
    page.data("report", &json_without_series(report));
    page.data("series", &serde_json::to_string(&charts(run)).expect("names are strings and numbers are plain"));
    page.script(SCRIPT);
    page.html(&format!("{} · times are UTC", heading.program))
}

/// Returns the command line of a run, reconstructed from its settings, without secrets.
fn command(heading: &Heading) -> String {
    let mut line = "strowger load".to_owned();
    let uas = heading.role == GeneratorRole::Answerer;
    line.push_str(if uas { " uas" } else { "" });
    if !heading.target.is_empty() {
        let _ = write!(line, " {}", heading.target);
    }
    for (name, value) in &heading.settings {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.,:/@%+=".contains(letter);
        let _ = match value.as_str() {
            "yes" => write!(line, " --{name}"),
            value if !value.is_empty() && value.chars().all(plain) => write!(line, " --{name} {value}"),
            value => write!(line, " --{name} '{value}'"),
        };
    }
    line
}

/// Writes the start of the page, readable without the script: verdict, requirements, main figures.
fn top(page: &mut Html, report: &Report<'_>) {
    let run = report.run;
    let (heading, totals) = (run.heading(), &run.totals);
    page.heading(if heading.title.is_empty() { "Load" } else { &heading.title });
    let started = if heading.started == 0 { totals.second * 1_000_000 } else { heading.started };
    let mut about = format!("{:.1} s from {}", totals.covered as f64 / 1e6, rfc3339(started));
    if !heading.target.is_empty() {
        let _ = write!(about, " · to {} {}", heading.target, heading.transport);
    }
    let generators = run.everyone().count();
    if generators > 1 {
        let _ = write!(about, " · {generators} generators");
    }
    if let Some(ending) = &run.generators[0].ending {
        let _ = write!(about, " · ended: {}", ending.reason);
    }
    if let Some(text) = report.warm_up() {
        let _ = write!(about, " · warm-up (shaded): {text}");
    }
    page.about(&about);
    page.command(&command(heading));

    for line in report.verdict() {
        let reasons = if line.title == INVALID { report.reasons() } else { Vec::new() };
        let reasons: Vec<Item> = reasons.into_iter().map(|text| Item { mark: None, text }).collect();
        page.banner(line.tone, line.title, &line.text, &reasons);
    }
    if !report.judgements.is_empty() {
        let (tone, title) = match (report.valid(), report.met()) {
            (false, _) => (Tone::Doubtful, "Requirements not judged"),
            (true, true) => (Tone::Good, "Requirements met"),
            (true, false) => (Tone::Bad, "Requirements not met"),
        };
        let items = report.judgements.iter().map(|judgement| Item {
            mark: Some(report.mark(judgement)),
            text: format!("{}: {}", judgement.requirement, judgement.shown),
        });
        page.banner(tone, title, "", &items.collect::<Vec<_>>());
    }
    for warning in report.warnings() {
        page.banner(Tone::Doubtful, "Note", &warning, &[]);
    }
    page.tiles(&tiles(totals));
    if let Some(answering) = &run.answering {
        page.section("Answerers: the other ends of these calls");
        page.tiles(&tiles(&answering.totals));
    }
}

fn tiles(totals: &Page) -> Vec<Tile> {
    let count = |counter| grouped(totals.counter(counter) as f64);
    let rate = |rate: Rate| rate.of(totals).map_or_else(|| "–".into(), |value| Unit::PerSecond.show(value));
    let mut tiles: Vec<(String, String, String)> = Vec::new();
    if totals.counter(Counter::CallsOutgoing) > 0 {
        tiles.push((
            "calls started".into(),
            count(Counter::CallsOutgoing),
            format!("{} wanted", count(Counter::CallsIntended)),
        ));
        tiles.push(("rate".into(), rate(Rate::Achieved), format!("{} wanted", rate(Rate::Intended))));
    } else {
        tiles.push(("calls that came in".into(), count(Counter::CallsIncoming), rate(Rate::Incoming)));
    }
    if let Some(share) = Share::CallSuccess.of(totals) {
        tiles.push(("successful".into(), Unit::Percent.show(share), format!("{} failed", count(Counter::CallsFailed))));
    }
    tiles.push(("concurrent calls".into(), grouped(totals.peak as f64), "at most".into()));
    let shown =
        [Delay::Registration, Delay::Setup, Delay::Response, Delay::Request, Delay::Disconnect, Delay::MediaMaxDelta];
    for delay in shown {
        let delays = totals.delays(delay);
        if let (Some(p95), Some(p99)) = (delays.percentile(95.0), delays.percentile(99.0)) {
            let show = |us: u64| Unit::Microseconds.show(us as f64);
            tiles.push((format!("{} p95", delay.key()), show(p95), format!("p99 {}", show(p99))));
        }
    }
    let scores = totals.delays(Delay::MediaScore);
    let mos = |statistic| Delay::MediaScore.figure(statistic, scores).map(|score| Unit::Score.show(score));
    if let (Some(p10), Some(p1), Some(least)) =
        (mos(Statistic::Percentile(10.0)), mos(Statistic::Percentile(1.0)), mos(Statistic::Least))
    {
        tiles.push(("MOS p10".into(), p10, format!("p1 {p1}, at least {least}")));
    }
    for share in [Share::Establishment, Share::IneffectiveAttempts, Share::IneffectiveRegistrations] {
        if let Some(value) = share.of(totals) {
            tiles.push((share.key().to_uppercase(), Unit::Percent.show(value), share.title().into()));
        }
    }
    tiles.push((
        "retransmissions".into(),
        count(Counter::RetransmissionsSent),
        format!("of {} messages", count(Counter::MessagesSent)),
    ));
    tiles.into_iter().map(|(name, value, more)| Tile { name, value, more }).collect()
}

/// Reduction of a point's seconds to one value.
#[derive(Clone, Copy)]
enum Fold {
    /// Mean, weighted by the covered time of each second: rates.
    Mean,
    /// Maximum: percentiles, concurrency.
    Most,
    /// Sum per second: counters.
    PerSecond,
}

fn charts(run: &Run) -> Charts {
    let timers = &run.timers;
    let step = run.rows.len().div_ceil(POINTS).max(1);
    let names = columns(timers);
    let place: HashMap<&str, usize> = names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    let points = points(run, step);
    let covered = |rows: &[usize]| rows.iter().map(|row| run.rows[*row].values[0]).sum::<f64>();

    let delays: Vec<(String, String, String, &Delays)> = Delay::ALL
        .iter()
        // The charts have a scale of time.
        .filter(|delay| !HEALTH.contains(delay) && delay.unit() == Unit::Microseconds)
        .map(|delay| (delay.key().into(), delay.title().into(), delay.definition().into(), run.totals.delays(*delay)))
        .chain(timers.iter().zip(run.totals.timers()).map(|(name, delays)| {
            (format!("timer.{name}"), format!("Timer {name}"), "A named timer of the scenario.".into(), delays)
        }))
        .filter(|(_, _, _, delays)| !delays.is_empty())
        .collect();

    let mut wanted: Vec<(String, Fold)> =
        ["rate.intended", "rate.achieved", "rate.successful", "rate.failed", "rate.incoming"]
            .map(|name| (name.into(), Fold::Mean))
            .into();
    wanted.extend(
        [
            "concurrency",
            "concurrency.max",
            "lag.p50",
            "lag.p99",
            "lag.max",
            "lag.receive.p99",
            "lag.timer.p99",
            "lag.send.p99",
            "stall.max",
        ]
        .map(|name| (name.into(), Fold::Most)),
    );
    let counters = [
        Counter::RetransmissionsSent,
        Counter::Unexpected,
        Counter::SessionTimedOut,
        Counter::RegistrationTimedOut,
        Counter::OutOfCall,
        Counter::SocketDrops,
        Counter::SendFailuresLocal,
        Counter::Stalls,
    ];
    wanted.extend(counters.map(|counter| (counter.key().into(), Fold::PerSecond)));
    for (name, ..) in &delays {
        wanted
            .extend(["p50", "p95", "p99", "p99.9", "max"].map(|statistic| (format!("{name}.{statistic}"), Fold::Most)));
    }
    let mut values = BTreeMap::new();
    for (name, fold) in wanted {
        let Some(&column) = place.get(name.as_str()) else { continue };
        // A percentile of too few values is their maximum.
        let least = least_count(&name);
        let count = name.rsplit_once(".p").and_then(|(delay, _)| place.get(format!("{delay}.count").as_str()));
        let folded = points.iter().map(|rows| {
            let all = rows.iter().map(|row| &run.rows[*row].values);
            let is_drawn = |values: &[f64]| count.is_none_or(|count| values[*count] >= least);
            let some = all.filter(|values| values[column].is_finite() && is_drawn(values));
            let value = match fold {
                Fold::Most => some.map(|values| values[column]).fold(f64::NAN, f64::max),
                Fold::Mean => some.map(|values| values[column] * values[0]).sum::<f64>() / covered(rows),
                Fold::PerSecond => some.map(|values| values[column]).sum::<f64>() / covered(rows),
            };
            value.is_finite().then(|| rounded(value))
        });
        values.insert(name, folded.collect());
    }
    let distributions = delays.iter().filter(|(name, ..)| {
        ["rrd", "srd", "response", "sdd", "request"].iter().any(|base| name.split('.').next() == Some(base))
            || name.starts_with("timer.")
    });
    Charts {
        step: step * run.step() as usize,
        time: points.iter().map(|rows| run.rows[rows[0]].second).collect(),
        warm_until: run.warm_up.as_ref().map(|warm_up| (warm_up.begun + warm_up.covered) as f64 / 1e6),
        columns: values,
        codes: codes(run, &points, covered),
        percents: PERCENTS,
        distributions: distributions
            .map(|(name, _, _, delays)| Named {
                name: name.clone(),
                values: PERCENTS.iter().map(|percent| delays.percentile(*percent).map(|us| us as f64)).collect(),
            })
            .collect(),
        // A figure from the intended time is a line in the chart of its wire figure.
        delays: delays
            .into_iter()
            .filter(|(name, ..)| !name.ends_with(".intended"))
            .map(|(name, title, definition, _)| DelayChart { name, title, definition })
            .collect(),
    }
}

/// Returns the number of values in a second from which on a percentile can differ from the maximum: 100 for `srd.p99`,
/// 1,000 for `srd.p99.9`; 0 for other figures.
fn least_count(name: &str) -> f64 {
    let percent = name.rsplit_once(".p").and_then(|(_, percent)| percent.parse::<f64>().ok());
    percent.map_or(0.0, |percent| (100.0 / (100.0 - percent)).round())
}

/// Rounds to four digits; a chart shows no more.
fn rounded(value: f64) -> f64 {
    if value.abs() >= 1_000.0 { value.round() } else { (value * 1_000.0).round() / 1_000.0 }
}

/// Returns the rows of each point. The first and the last second of a run may be fractions of a second, whose rates
/// mean nothing, so that each is joined with its neighbour.
fn points(run: &Run, step: usize) -> Vec<Vec<usize>> {
    let mut points: Vec<Vec<usize>> = Vec::new();
    let mut current = Vec::new();
    let mut covered = 0.0;
    for (place, row) in run.rows.iter().enumerate() {
        current.push(place);
        covered += row.values[0];
        if current.len() >= step && covered >= (step as u64 * run.step()) as f64 / 2.0 {
            points.push(std::mem::take(&mut current));
            covered = 0.0;
        }
    }
    match points.last_mut() {
        Some(last) => last.extend(current),
        None if !current.is_empty() => points.push(current),
        None => {}
    }
    points
}

/// Returns the most frequent codes per second, and all others as one.
fn codes(run: &Run, points: &[Vec<usize>], covered: impl Fn(&[usize]) -> f64) -> Vec<Named> {
    let all = run.responses_received();
    let mut common: Vec<_> = all.iter().collect();
    common.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
    common.truncate(CODES);
    let mut named: Vec<Named> = common
        .iter()
        .map(|(method, code, _)| Named { name: format!("{} {code}", method_name(*method)), values: vec![] })
        .collect();
    let others = all.iter().count() > common.len();
    if others {
        named.push(Named { name: "others".into(), values: vec![] });
    }
    for rows in points {
        let mut sums = vec![0u64; named.len()];
        for (method, code, count) in rows.iter().flat_map(|row| &run.rows[*row].codes) {
            let place = common.iter().position(|(of, which, _)| of == method && which == code).unwrap_or(common.len());
            sums[place] += count;
        }
        let covered = covered(rows);
        for (named, sum) in named.iter_mut().zip(sums) {
            named.values.push((covered > 0.0).then(|| rounded(sum as f64 / covered)));
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_measure::{Heading, Row};

    /// Creates a run with `seconds` of 10 calls each and a fraction of a second at its end.
    fn run(seconds: u64, rows: usize) -> Run {
        let mut run = Run::new(Heading::default()).bounded(rows);
        for second in 0..=seconds {
            let mut page = Page::new(0);
            page.second = 1_000 + second;
            page.covered = if second == seconds { 20_000 } else { 1_000_000 };
            page.peak = second;
            run.second(&page);
            let names = columns(&[]);
            let place = names.iter().position(|name| name == "rate.achieved").unwrap();
            run.rows.last_mut().map(|row: &mut Row| row.values[place] = 10.0).unwrap();
        }
        run
    }

    #[test]
    fn a_percentile_is_drawn_where_there_are_values_enough_for_it() {
        for (values, drawn) in [(30, ["p50", "p95", "max"].as_slice()), (100, &["p50", "p95", "p99", "max"])] {
            let mut run = Run::new(Heading::default()).bounded(10);
            let mut page = Page::new(0);
            page.covered = 1_000_000;
            (0..values).for_each(|us| page.record(Delay::Setup, us));
            run.second(&page);
            run.totals.add_after(&page);
            let charts = charts(&run);
            for statistic in ["p50", "p95", "p99", "p99.9", "max"] {
                let line = &charts.columns[&format!("srd.{statistic}")];
                assert_eq!(line[0].is_some(), drawn.contains(&statistic), "{statistic} of {values}: {line:?}");
            }
        }
    }

    #[test]
    fn long_runs_are_drawn_in_steps() {
        for (seconds, rows, step) in
            [(5, 3_600, 1), (1_100, 3_600, 1), (3_000, 3_600, 3), (5_000, 900, 8), (5_000, 2_000, 8)]
        {
            let charts = charts(&run(seconds, rows));
            assert_eq!(charts.step, step);
            assert!(charts.time.len() <= POINTS && charts.time.len() as u64 >= seconds / step as u64);
            assert!(charts.columns["rate.achieved"].iter().all(|value| *value == Some(10.0)));
            // The maximum of each step is kept, also of the last fraction.
            assert_eq!(charts.columns["concurrency.max"].last(), Some(&Some(seconds as f64)));
        }
    }
}
