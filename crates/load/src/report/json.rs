//! Report as JSON; `docs/load-report.schema.json` describes it.

use super::responses::Responses;
use super::verdict::{Line as Said, RunOutcome};
use super::{Report, ladder, rfc3339};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use strowger_measure::{
    Counter, Delay, Delays, DocumentTotals, Ending, FailedCall, Failure, Heading, Health, Judged as JudgedWindow,
    Judgement, Note, Page, Rate, Reason, ReceiveBuffer, Row, Run, Sample, Share, Statistic, ThreadLoad, Thresholds,
    Unit, columns, units,
};
use strowger_message::{Method, status};

/// Version of the format, which is raised when a field is renamed or removed, and unchanged when one is added.
const VERSION: u32 = 2;

pub(super) fn json(report: &Report<'_>) -> String {
    let mut text = serde_json::to_string(&document(report, true)).expect("names are strings and numbers are plain");
    text.push('\n');
    text
}

/// Returns the report for HTML, without its series, which the page has in its own form.
pub(super) fn json_without_series(report: &Report<'_>) -> String {
    serde_json::to_string(&document(report, false)).expect("names are strings and numbers are plain")
}

/// Map in insertion order.
struct Map<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Map<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    version: u32,
    run: About<'a>,
    requirements: &'a [Judgement],
    verdict: Judged<'a>,
    /// Warm-up, if the run has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    warm_up: Option<WarmUpPart>,
    #[serde(flatten)]
    figures: Figures<'a>,
    /// Other ends of the calls, if logs of callers and answerers were merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    answering: Option<Figures<'a>>,
    /// Documents, if the run has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    documents: Vec<DocumentPart>,
    /// Figures of the good windows, if not all are good.
    good: Option<GoodPart>,
    /// Failed calls with their messages (`--keep-failed`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_calls: Vec<&'a FailedCall>,
    generators: Vec<GeneratorPart<'a>>,
}

/// Figures of one of several documents.
#[derive(Serialize)]
struct DocumentPart {
    name: String,
    share: u32,
    calls: Map<u64>,
    failures: Map<u64>,
    ratios: Map<Figure>,
    delays: Map<DelayPart>,
    timers: Map<DelayPart>,
}

/// Warm-up: calls that fell due in it, followed until they end.
#[derive(Serialize)]
struct WarmUpPart {
    duration_s: f64,
    /// Second in which the warm-up ends; earlier rows of the series belong to the warm-up.
    until: Option<u64>,
    calls: Map<u64>,
}

/// Figures of the good windows.
#[derive(Serialize)]
struct GoodPart {
    windows: usize,
    of: usize,
    duration_s: f64,
    calls: Map<u64>,
    ratios: Map<Figure>,
    delays: Map<DelayPart>,
    timers: Map<DelayPart>,
}

/// Figures of one side of the calls.
#[derive(Serialize)]
struct Figures<'a> {
    calls: Map<u64>,
    failures: Map<u64>,
    refusals: Vec<Refusal>,
    concurrency: Concurrency,
    rates: Map<Figure>,
    ratios: Map<Figure>,
    delays: Map<DelayPart>,
    timers: Map<DelayPart>,
    counters: Map<u64>,
    requests: Vec<Requests>,
    responses: Vec<Counted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series<'a>>,
}

#[derive(Serialize)]
struct About<'a> {
    title: &'a str,
    target: &'a str,
    transport: &'a str,
    /// Start, RFC 3339 in UTC.
    started: String,
    started_us: u64,
    duration_s: f64,
    ended: Option<&'a str>,
}

#[derive(Serialize)]
struct Judged<'a> {
    valid: bool,
    requirements_met: bool,
    /// Outcome of the calls.
    outcome: RunOutcome,
    /// Verdict as text, a line each: the generator, then the calls.
    sentences: Vec<String>,
    reasons: Vec<String>,
    warnings: Vec<String>,
    /// Thresholds of the verdict.
    thresholds: &'a Thresholds,
}

#[derive(Serialize)]
struct Concurrency {
    at_end: u64,
    most: u64,
}

#[derive(Serialize)]
struct Figure {
    value: Option<f64>,
    unit: &'static str,
    title: &'static str,
    source: &'static str,
}

#[derive(Serialize)]
struct DelayPart {
    title: String,
    source: &'static str,
    unit: &'static str,
    count: u64,
    #[serde(flatten)]
    figures: Map<Option<f64>>,
}

#[derive(Serialize)]
struct Requests {
    method: String,
    sent: u64,
    received: u64,
    resent: u64,
}

#[derive(Serialize)]
struct Counted {
    direction: &'static str,
    method: String,
    code: u16,
    count: u64,
}

/// Failed calls that this response ended.
#[derive(Serialize)]
struct Refusal {
    method: String,
    code: u16,
    reason: &'static str,
    count: u64,
}

#[derive(Serialize)]
struct GeneratorPart<'a> {
    heading: &'a Heading,
    valid: bool,
    reasons: &'a [Reason],
    warnings: &'a [String],
    lag: DelayPart,
    socket_drops: u64,
    send_failures: u64,
    stalls: u64,
    threads: &'a [ThreadLoad],
    cores: &'a [f64],
    stolen: f64,
    windows: &'a [JudgedWindow],
    resident: u64,
    receive_buffers: &'a [ReceiveBuffer],
    notes: &'a [Note],
    ending: Option<&'a Ending>,
    samples: &'a [Sample],
}

#[derive(Serialize)]
struct Series<'a> {
    /// Seconds of a row.
    step: u64,
    columns: Vec<String>,
    units: Vec<&'static str>,
    rows: Lines<'a>,
}

/// Rows `[second, value, ...]` in the order of the columns; null without a measurement.
struct Lines<'a> {
    rows: &'a [Row],
    responses: Responses,
}

struct Line<'a>(&'a Row, &'a Responses);

impl Serialize for Lines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.iter().map(|row| Line(row, &self.responses)))
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(row, responses) = self;
        let mut line = serializer.serialize_seq(None)?;
        line.serialize_element(&row.second)?;
        // Not a number is null in JSON.
        row.values.iter().try_for_each(|value| line.serialize_element(value))?;
        responses.values(row).try_for_each(|value| line.serialize_element(&value))?;
        line.end()
    }
}

fn document<'a>(report: &'a Report<'_>, series: bool) -> Document<'a> {
    let run = report.run;
    let (heading, totals) = (run.heading(), &run.totals);
    let started = if heading.started == 0 { totals.second * 1_000_000 } else { heading.started };
    let sentence = |line: Said| format!("{}: {}", line.title, line.text);
    Document {
        format: "strowger-load-report",
        version: VERSION,
        run: About {
            title: &heading.title,
            target: &heading.target,
            transport: &heading.transport,
            started: rfc3339(started),
            started_us: started,
            duration_s: totals.covered as f64 / 1e6,
            ended: run.generators[0].ending.as_ref().map(|ending| ending.reason.as_str()),
        },
        requirements: &report.judgements,
        verdict: Judged {
            valid: report.valid(),
            requirements_met: report.met(),
            outcome: RunOutcome::of(totals),
            sentences: report.verdict().into_iter().map(sentence).collect(),
            reasons: report.reasons(),
            warnings: report.warnings(),
            thresholds: &report.thresholds,
        },
        warm_up: run.warm_up.as_deref().map(|page| WarmUpPart {
            duration_s: page.covered as f64 / 1e6,
            until: (totals.covered > 0).then(|| totals.begun.div_ceil(1_000_000)),
            calls: calls(page),
        }),
        figures: figures(run, series),
        answering: run.answering.as_deref().map(|run| figures(run, series)),
        documents: run.documents().into_iter().map(|one| document_part(one, &run.timers)).collect(),
        good: good(report),
        // The page shows them without its script.
        failed_calls: if series { ladder::failed_calls(run) } else { Vec::new() },
        generators: run.everyone().zip(&report.health).map(|(generator, health)| part(generator, health)).collect(),
    }
}

fn figures(run: &Run, series: bool) -> Figures<'_> {
    let totals = &run.totals;
    let responses = Responses::of(run);
    let refusal = |(method, code, count): (Method, u16, u64)| Refusal {
        method: method_name(method),
        code,
        reason: status::reason(code),
        count,
    };
    Figures {
        calls: calls(totals),
        failures: failures(totals),
        refusals: totals.refusals().iter().map(refusal).collect(),
        concurrency: Concurrency { at_end: totals.open, most: totals.peak },
        rates: Map(Rate::ALL.iter().map(|rate| (rate.key().into(), rate_figure(*rate, totals))).collect()),
        ratios: ratios(totals),
        delays: delays(totals),
        timers: timers(totals, &run.timers),
        counters: Map(Counter::ALL.iter().map(|counter| (counter.key().into(), totals.counter(*counter))).collect()),
        requests: requests(totals),
        responses: counted(totals),
        series: series.then(|| Series {
            step: run.step(),
            columns: columns(&run.timers).into_iter().chain(responses.names.iter().cloned()).collect(),
            units: units(&run.timers).into_iter().chain(responses.names.iter().map(|_| Unit::Count.key())).collect(),
            rows: Lines { rows: &run.rows, responses },
        }),
    }
}

fn document_part(one: DocumentTotals, names: &[String]) -> DocumentPart {
    let totals = &one.totals;
    DocumentPart {
        calls: calls(totals),
        failures: failures(totals),
        ratios: ratios(totals),
        delays: delays(totals),
        timers: timers(totals, names),
        name: one.document.name,
        share: one.document.share,
    }
}

fn failures(totals: &Page) -> Map<u64> {
    Map(Failure::MEASURES.iter().map(|failure| (failure.key().into(), totals.failures(*failure))).collect())
}

fn good(report: &Report<'_>) -> Option<GoodPart> {
    let ((windows, of), page) = (report.good_windows()?, report.good()?);
    Some(GoodPart {
        windows,
        of,
        duration_s: page.covered as f64 / 1e6,
        calls: calls(&page),
        ratios: ratios(&page),
        delays: delays(&page),
        timers: timers(&page, &report.run.timers),
    })
}

fn calls(totals: &Page) -> Map<u64> {
    let calls = [
        Counter::CallsIntended,
        Counter::CallsOutgoing,
        Counter::CallsIncoming,
        Counter::CallsLimited,
        Counter::CallsSuccessful,
        Counter::CallsFailed,
        Counter::CallsStopped,
    ];
    let short = |counter: &Counter| counter.key().trim_start_matches("calls.").to_string();
    Map(calls.iter().map(|counter| (short(counter), totals.counter(*counter))).collect())
}

fn ratios(totals: &Page) -> Map<Figure> {
    Map(Share::ALL.iter().map(|share| (share.key().into(), share_figure(*share, totals))).collect())
}

fn delays(totals: &Page) -> Map<DelayPart> {
    Map(Delay::ALL.iter().map(|delay| (delay.key().into(), delay_part(*delay, totals))).collect())
}

fn timers(totals: &Page, names: &[String]) -> Map<DelayPart> {
    let part = |name: &String, delays: &Delays| {
        let figure = |statistic: Statistic| statistic.of(delays);
        let about = (format!("Timer {name}"), "scenario", Unit::Microseconds);
        figures_part(about, delays.count(), Statistic::SHOWN, figure)
    };
    Map(names.iter().zip(totals.timers()).map(|(name, delays)| (name.clone(), part(name, delays))).collect())
}

fn rate_figure(rate: Rate, totals: &Page) -> Figure {
    let unit = match rate {
        Rate::BytesSent | Rate::BytesReceived => Unit::BytesPerSecond,
        _ => Unit::PerSecond,
    };
    Figure { value: rate.of(totals), unit: unit.key(), title: rate.title(), source: rate.source() }
}

fn share_figure(share: Share, totals: &Page) -> Figure {
    Figure { value: share.of(totals), unit: Unit::Percent.key(), title: share.title(), source: share.source() }
}

fn delay_part(delay: Delay, totals: &Page) -> DelayPart {
    let delays = totals.delays(delay);
    let figure = |statistic: Statistic| delay.figure(statistic, delays);
    figures_part((delay.title().into(), delay.source(), delay.unit()), delays.count(), delay.shown(), figure)
}

fn figures_part(
    (title, source, unit): (String, &'static str, Unit),
    count: u64,
    shown: &[Statistic],
    figure: impl Fn(Statistic) -> Option<f64>,
) -> DelayPart {
    let shown = shown.iter().filter(|statistic| **statistic != Statistic::Count);
    let figures = shown.map(|statistic| (statistic.key().into_owned(), figure(*statistic)));
    DelayPart { title, source, unit: unit.key(), count, figures: Map(figures.collect()) }
}

pub(super) fn method_name(method: Method) -> String {
    if method == Method::Other { "OTHER".into() } else { method.to_string() }
}

fn requests(totals: &Page) -> Vec<Requests> {
    let methods = Method::KNOWN.iter().copied().chain([Method::Other]);
    let all = methods.map(|method| Requests {
        method: method_name(method),
        sent: totals.requests_sent(method),
        received: totals.requests_received(method),
        resent: totals.requests_resent(method),
    });
    all.filter(|requests| requests.sent + requests.received + requests.resent > 0).collect()
}

fn counted(totals: &Page) -> Vec<Counted> {
    let both = [("received", totals.responses_received()), ("sent", totals.responses_sent())];
    both.into_iter()
        .flat_map(|(direction, codes)| {
            codes.iter().map(move |(method, code, count)| Counted {
                direction,
                method: method_name(method),
                code,
                count,
            })
        })
        .collect()
}

fn part<'a>(generator: &'a strowger_measure::Generator, health: &'a Health) -> GeneratorPart<'a> {
    let totals = &generator.totals;
    GeneratorPart {
        heading: &generator.heading,
        valid: health.verdict.is_valid(),
        reasons: health.verdict.reasons(),
        warnings: &health.warnings,
        lag: delay_part(Delay::Lag, totals),
        socket_drops: totals.counter(Counter::SocketDrops),
        send_failures: totals.counter(Counter::SendFailuresLocal),
        stalls: totals.counter(Counter::Stalls),
        threads: &health.threads,
        cores: &health.cores,
        stolen: health.stolen,
        windows: &health.windows,
        resident: health.resident,
        receive_buffers: &health.receive_buffers,
        notes: &generator.notes,
        ending: generator.ending.as_ref(),
        samples: &generator.samples,
    }
}
