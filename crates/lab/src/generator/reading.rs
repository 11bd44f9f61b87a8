//! Figures of a trial, read from the logs of its processes.

use super::Setting;
use crate::Error;
use crate::row::{Check, Figures, Load, LoadUnit, Reason, UnknownFigure};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strowger_core::Transport;
use strowger_load::campaign::Connections;
use strowger_measure::{
    Counter, Delay, Delays, Generator, GeneratorRole, LogError, METHODS, Page, Rate, Run, Share, Span,
};
use strowger_message::Method;

/// Window of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) begin: SystemTime,
    pub(super) length: Duration,
    /// True if the load ends with it.
    pub(super) is_last: bool,
}

impl Window {
    /// Returns the whole seconds of the window.
    fn span(self) -> Span {
        let from = seconds(self.begin);
        Span { from, until: from + self.length.as_secs() }
    }

    /// Returns the first and the last third of the window, in whole seconds, or `None` if the window is shorter than
    /// two seconds.
    fn thirds(self) -> Option<[Span; 2]> {
        let Span { from, until } = self.span();
        let third = (until - from).div_ceil(3);
        (until - from >= 2).then_some([Span { from, until: from + third }, Span { from: until - third, until }])
    }
}

fn seconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the delay that the goal for this unit of load bounds.
const fn delay_of(unit: LoadUnit) -> Delay {
    match unit {
        LoadUnit::Registrations => Delay::Registration,
        LoadUnit::Requests => Delay::Request,
        LoadUnit::Calls | LoadUnit::Concurrent | LoadUnit::Connections => Delay::Setup,
    }
}

/// Reads the figures and the failed checks of a trial.
pub(super) fn read(
    logs: &[PathBuf],
    window: Window,
    load: Load,
    rate: f64,
    setting: &Setting,
) -> Result<(Figures, Vec<Reason>), Error> {
    let run = Run::read(logs).map_err(unreadable)?;
    let in_window = Run::read_span(logs, window.span()).map_err(unreadable)?;
    // Counts of a span are those of whole seconds.
    let span = window.span();
    let counted = Duration::from_secs(span.until.saturating_sub(span.from).max(1));
    let length = if window.is_last { window.length } else { counted };
    let mut figures = Figures::default();
    let known = |error: UnknownFigure| Error::Unexpected { what: "a figure".into(), reason: error.to_string() };
    // If the load continues after the window, the events in the window count that belong to calls that fell due in it;
    // a call may end after the window.
    let measured = if window.is_last { &run.totals } else { &in_window.totals };
    of_page(&mut figures, measured).map_err(known)?;
    if !window.is_last {
        of_failures(&mut figures, measured).map_err(known)?;
        let begun = measured.counter(Counter::CallsOutgoing) as f64;
        figures.set("rate.achieved", begun / length.as_secs_f64()).map_err(known)?;
    }
    let completed = measured.counter(Counter::CallsSuccessful) as f64 / length.as_secs_f64();
    figures.set("goodput", completed).map_err(known)?;
    if setting.transport != Transport::Udp && setting.connections.owner == Connections::PerCall {
        figures.set("connect.rate", completed).map_err(known)?;
    }
    if let held @ 1.. = run.totals.counter(Counter::ConnectionsAheadRate) {
        figures.set("connect.rate", held as f64).map_err(known)?;
    }
    if let Some(warm_up) = warm_ups(&run).next() {
        let [begun, successful] =
            [Counter::CallsOutgoing, Counter::CallsSuccessful].map(|counter| warm_up.counter(counter));
        figures.set("failed.warm_up", begun.saturating_sub(successful) as f64).map_err(known)?;
    }
    of_media(&mut figures, &run, &in_window, counted).map_err(known)?;
    of_threads(&mut figures, &in_window).map_err(known)?;
    if figures.largest("generator.thread/").is_none() {
        // A window of a second may end before its sample is taken.
        of_threads(&mut figures, &run).map_err(known)?;
    }
    if let Some(thirds) = window.thirds() {
        for (name, third) in ["delay.first", "delay.last"].into_iter().zip(thirds) {
            let part = Run::read_span(logs, third).map_err(unreadable)?;
            let delay = part.totals.delays(delay_of(load.unit)).percentile(95.0);
            set(&mut figures, name, delay.map(|us| us as f64)).map_err(known)?;
        }
    }
    let verdict = run.verdict(&setting.thresholds);
    let mut reasons: Vec<Reason> = verdict
        .reasons()
        .iter()
        .map(|reason| Reason { check: Check::Generator, sentence: reason.sentence.clone() })
        .collect();
    reasons.extend(rate_missed(measured, rate, length, setting.callers.len()));
    reasons.extend(ends_disagree(&run));
    Ok((figures, reasons))
}

/// Result of a registration of all users.
pub(super) struct Registered {
    users: u32,
    registered: u64,
    /// Codes of final responses that are no success and no challenge, each with its count.
    codes: BTreeMap<u16, u64>,
}

/// Reads the result of a registration.
pub(super) fn registered(logs: &[PathBuf], users: u32) -> Result<Registered, Error> {
    let run = Run::read(logs).map_err(unreadable)?;
    let mut codes = BTreeMap::new();
    for (_, code, count) in run.totals.responses_received().iter() {
        if code >= 300 && code != 401 && code != 407 {
            *codes.entry(code).or_default() += count;
        }
    }
    Ok(Registered { users, registered: run.totals.counter(Counter::RegistrationSuccessful), codes })
}

impl Registered {
    /// Tells whether users are missing, and none of them was refused for good.
    pub(super) fn is_worth_another(&self) -> bool {
        self.registered != u64::from(self.users) && self.codes.keys().all(|code| (500..600).contains(code))
    }

    /// Returns the number of users that are registered.
    pub(super) const fn count(&self) -> u64 {
        self.registered
    }

    /// Checks that all users are registered.
    ///
    /// # Errors
    /// A user is not registered.
    pub(super) fn complete(&self) -> Result<(), Error> {
        let Self { users, registered, codes } = self;
        if *registered == u64::from(*users) {
            return Ok(());
        }
        let codes: Vec<String> =
            codes.iter().map(|(code, count)| format!("{count} were answered with {code}")).collect();
        let why = if codes.is_empty() { "the others got no answer".into() } else { codes.join(", ") };
        Err(Error::Unexpected {
            what: "registrations".into(),
            reason: format!("{registered} of {users} are registered: {why}"),
        })
    }
}

fn unreadable(error: LogError) -> Error {
    Error::Unexpected { what: "the log of a generator".into(), reason: error.to_string() }
}

fn set(figures: &mut Figures, name: &str, value: Option<f64>) -> Result<(), UnknownFigure> {
    value.map_or(Ok(()), |value| figures.set(name, value))
}

/// Requests of all kinds without a final response in time.
const TIMED_OUT: [Counter; 4] =
    [Counter::RegistrationTimedOut, Counter::SessionTimedOut, Counter::DisconnectTimedOut, Counter::RequestTimedOut];

/// Computes the figures of one second from the events in that second, which include events of calls that fell due
/// earlier.
pub(crate) fn of_second(page: &Page) -> Result<Figures, UnknownFigure> {
    let mut figures = Figures::default();
    of_page(&mut figures, page)?;
    figures.set("rate.achieved", page.counter(Counter::CallsOutgoing) as f64)?;
    of_failures(&mut figures, page)?;
    Ok(figures)
}

/// Adds the failures of calls that ended in a span, whether or not the calls fell due in it.
fn of_failures(figures: &mut Figures, page: &Page) -> Result<(), UnknownFigure> {
    let failed = page.counter(Counter::CallsFailed) as f64;
    figures.set("failed", failed)?;
    let ended = failed + page.counter(Counter::CallsSuccessful) as f64;
    figures.remove("failed.any");
    set(figures, "failed.any", (ended > 0.0).then(|| failed / ended * 100.0))
}

/// Adds the figures of calls and registrations that fell due in the window.
fn of_page(figures: &mut Figures, page: &Page) -> Result<(), UnknownFigure> {
    let attempts = page.counter(Counter::CallsOutgoing);
    let failed = attempts.saturating_sub(page.counter(Counter::CallsSuccessful));
    let refused: u64 = page.refusals().iter().filter(|(_, code, _)| *code >= 500).map(|(.., count)| count).sum();
    let all = Method::KNOWN.iter().copied().chain([Method::Other]);
    let resent: u64 = all.take(METHODS).map(|method| page.requests_resent(method)).sum();
    let timeouts = TIMED_OUT.iter().map(|counter| page.counter(*counter)).sum::<u64>();
    for (name, count) in [
        ("attempts", attempts),
        ("failed", failed),
        ("refused", refused),
        ("timeouts", timeouts),
        ("retransmissions", resent),
    ] {
        figures.set(name, count as f64)?;
    }
    set(figures, "rate.achieved", Rate::Achieved.of(page))?;
    let share = |count: u64| (attempts > 0).then(|| count as f64 / attempts as f64 * 100.0);
    set(figures, "failed.any", share(failed))?;
    set(figures, "refused.share", share(refused))?;
    for (name, share) in [
        ("ira", Share::IneffectiveRegistrations),
        ("isa", Share::IneffectiveAttempts),
        ("ira.any", Share::UnregisteredAnyReason),
        ("isa.any", Share::UnansweredAnyReason),
    ] {
        set(figures, name, share.of(page))?;
    }
    for (name, delay) in [
        ("rrd", Delay::Registration),
        ("srd", Delay::Setup),
        ("response", Delay::Response),
        ("request", Delay::Request),
    ] {
        of_delays(figures, name, page.delays(delay))?;
    }
    Ok(())
}

/// Adds the figures of media, of both ends: of the streams of all calls, and of the packets in the seconds of a window. A run without media
/// has none.
///
/// The generator counts a stream when its call ends, and as one of the warm-up if its call fell due in it. A window may be shorter than a call:
/// then most calls that are open in it fell due in the warm-up, so that their streams are judged too.
fn of_media(figures: &mut Figures, run: &Run, in_window: &Run, counted: Duration) -> Result<(), UnknownFigure> {
    if ends(run).all(|page| page.counter(Counter::MediaSent) == 0) {
        return Ok(());
    }
    let of_calls: Vec<&Page> = ends(run).chain(warm_ups(run)).collect();
    let in_window: Vec<&Page> = ends(in_window).collect();
    let count = |pages: &[&Page], counter| pages.iter().map(|page| page.counter(counter)).sum::<u64>() as f64;
    let delays = |pages: &[&Page], delay| {
        let mut sum = Delays::new();
        pages.iter().for_each(|page| sum.add(page.delays(delay)));
        sum
    };
    let percentile = |delays: &Delays, percent| delays.percentile(percent).map(|us| us as f64);
    figures.set("media.rate", count(&in_window, Counter::MediaReceived) / counted.as_secs_f64())?;
    figures.set("media.lost", count(&of_calls, Counter::MediaLost))?;
    figures.set("media.silent", count(&of_calls, Counter::MediaSilent))?;
    let largest = delays(&of_calls, Delay::MediaMaxDelta);
    set(figures, "media.max_delta.p99", percentile(&largest, 99.0))?;
    set(figures, "packet.delay.max", percentile(&largest, 100.0))?;
    set(figures, "media.jitter.mean", delays(&of_calls, Delay::MediaJitter).mean())?;
    let of_packets = delays(&in_window, Delay::MediaDelay);
    set(figures, "media.delay.p50", percentile(&of_packets, 50.0))?;
    set(figures, "media.delay.p99", percentile(&of_packets, 99.0))
}

/// Returns the totals of the callers and those of the answering sides.
fn ends(run: &Run) -> impl Iterator<Item = &Page> {
    std::iter::once(&run.totals).chain(run.answering.as_deref().map(|answering| &answering.totals))
}

/// Returns the pages of the warm-up, with the later events of its calls.
fn warm_ups(run: &Run) -> impl Iterator<Item = &Page> {
    [Some(run), run.answering.as_deref()].into_iter().flatten().filter_map(|run| run.warm_up.as_deref())
}

fn of_delays(figures: &mut Figures, name: &str, delays: &Delays) -> Result<(), UnknownFigure> {
    set(figures, &format!("{name}.mean"), delays.mean())?;
    for percent in [50.0, 95.0, 99.0] {
        let value = delays.percentile(percent).map(|us| us as f64);
        set(figures, &format!("{name}.p{percent}"), value)?;
    }
    Ok(())
}

/// Adds the share of a core of each thread in the window, and the CPU time of a call.
fn of_threads(figures: &mut Figures, run: &Run) -> Result<(), UnknownFigure> {
    let mut cpu = 0;
    for (place, generator) in run.everyone().enumerate() {
        let covered: u64 = generator.samples.iter().map(|sample| sample.interval).sum();
        let mut sums: Vec<(u64, &str, u64)> = Vec::new();
        for thread in generator.samples.iter().flat_map(|sample| &sample.threads) {
            cpu += thread.cpu;
            match sums.iter_mut().find(|(id, ..)| *id == thread.id) {
                Some((.., sum)) => *sum += thread.cpu,
                None => sums.push((thread.id, &thread.name, thread.cpu)),
            }
        }
        let who = side(generator, place, run.generators.len());
        for (_, name, sum) in sums.into_iter().filter(|_| covered > 0) {
            let label = format!("generator.thread/{who} {}", name.replace('/', "-"));
            let share = sum as f64 / covered as f64 * 100.0;
            let before = figures.value(&label).unwrap_or(0.0);
            figures.set(&label, share.max(before))?;
        }
    }
    let attempts = figures.value("attempts").filter(|attempts| *attempts > 0.0);
    set(figures, "generator.cpu.call", attempts.filter(|_| cpu > 0).map(|attempts| cpu as f64 / attempts))
}

/// Returns the name of a process of a trial.
fn side(generator: &Generator, place: usize, callers: usize) -> String {
    match generator.heading.role {
        GeneratorRole::Answerer => format!("answer-{}", place + 1 - callers.min(place)),
        GeneratorRole::Caller | GeneratorRole::Observer => "caller".into(),
    }
}

/// Share of the rate that may be missed.
const RATE_ERROR: f64 = 0.01;

fn rate_missed(page: &Page, rate: f64, length: Duration, callers: usize) -> Option<Reason> {
    let (made, wanted) = (page.counter(Counter::CallsOutgoing) as f64, rate * length.as_secs_f64());
    // The first or last call of a caller may fall on the other side of an edge.
    let allowed = (wanted * RATE_ERROR).max(callers as f64) + 1e-6;
    let sentence = || {
        format!("{made} calls were begun in the window of {wanted:.0}: the generator needs more cores, or less load")
    };
    ((made - wanted).abs() > allowed).then(|| Reason { check: Check::Rate, sentence: sentence() })
}

/// Returns a reason if the answering sides answered fewer sessions than the callers saw answered, or more than the
/// callers began.
fn ends_disagree(run: &Run) -> Option<Reason> {
    let answering = run.answering.as_ref()?;
    let both = |run: &Run, counter: Counter| {
        run.totals.counter(counter) + run.warm_up.as_ref().map_or(0, |page| page.counter(counter))
    };
    let (asked, answered) = (both(run, Counter::SessionAttempts), both(run, Counter::SessionAnswered));
    let taken = both(answering, Counter::IncomingAnswered);
    let sentence = match taken {
        _ if taken < answered => format!("callers saw {answered} calls answered, the answering sides answered {taken}"),
        _ if taken > asked => format!("callers began {asked} calls, the answering sides answered {taken}"),
        _ => return None,
    };
    Some(Reason { check: Check::Ends, sentence: format!("{sentence}: another program may use the same addresses") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(calls: u64) -> Page {
        let mut page = Page::new(0);
        page.count(Counter::CallsOutgoing, calls);
        page
    }

    #[test]
    fn a_rate_is_missed_by_more_than_a_hundredth() {
        let by = |callers, calls, rate| rate_missed(&page(calls), rate, Duration::from_secs(2), callers).is_some();
        let missed = |calls, rate| by(1, calls, rate);
        assert!(!missed(2_000, 1_000.0) && !missed(1_980, 1_000.0) && missed(1_979, 1_000.0) && missed(2_021, 1_000.0));
        assert!(!missed(20, 10.0) && !missed(19, 10.0) && missed(18, 10.0));
        assert!(!by(2, 18, 10.0) && by(2, 17, 10.0));
    }

    #[test]
    fn thirds_of_a_window_are_whole_seconds() {
        let thirds = |seconds| {
            let window = Window {
                begin: UNIX_EPOCH + Duration::from_secs(100),
                length: Duration::from_secs(seconds),
                is_last: true,
            };
            window.thirds().map(|thirds| thirds.map(|third| (third.from, third.until)))
        };
        assert_eq!(thirds(1), None);
        assert_eq!(thirds(2), Some([(100, 101), (101, 102)]));
        assert_eq!(thirds(3), Some([(100, 101), (102, 103)]));
        assert_eq!(thirds(30), Some([(100, 110), (120, 130)]));
    }

    #[test]
    fn figures_are_those_of_attempts() {
        let mut page = page(100);
        page.count(Counter::CallsSuccessful, 90);
        page.count_refusals(Method::Options, 503, 7);
        page.count_refusals(Method::Options, 404, 3);
        page.record(Delay::Request, 1_000);
        let mut figures = Figures::default();
        of_page(&mut figures, &page).expect("all names are known");
        let value = |name: &str| figures.value(name);
        assert_eq!((value("attempts"), value("failed"), value("failed.any")), (Some(100.0), Some(10.0), Some(10.0)));
        assert_eq!((value("refused"), value("request.p95"), value("srd.p95")), (Some(7.0), Some(1_000.0), None));
        assert_eq!(value("refused.share"), Some(7.0));
    }

    #[test]
    fn media_are_those_of_both_ends() {
        let run = || Run::new(strowger_measure::Heading::default());
        let (mut calling, mut other) = (run(), run());
        for (side, max_delta, delay) in [(&mut calling, 25_000, 200), (&mut other, 61_000, 400)] {
            side.totals.count(Counter::MediaSent, 500);
            side.totals.count(Counter::MediaReceived, 450);
            side.totals.count(Counter::MediaLost, 3);
            side.totals.record(Delay::MediaMaxDelta, max_delta);
            side.totals.record(Delay::MediaDelay, delay);
        }
        calling.totals.count(Counter::MediaSilent, 1);
        calling.answering = Some(Box::new(other));
        // A call that fell due in the warm-up. The packets of that time are not those of the window.
        let mut warm_up = Page::new(0);
        for (counter, by) in [(Counter::MediaLost, 2), (Counter::MediaSilent, 1), (Counter::MediaReceived, 9_000)] {
            warm_up.count(counter, by);
        }
        warm_up.record(Delay::MediaMaxDelta, 97_000);
        calling.warm_up = Some(Box::new(warm_up));
        let mut figures = Figures::default();
        of_media(&mut figures, &calling, &calling, Duration::from_secs(3)).expect("known figures");
        let value = |name: &str| figures.value(name);
        assert_eq!(
            (value("media.rate"), value("media.lost"), value("media.silent")),
            (Some(300.0), Some(8.0), Some(2.0))
        );
        assert!(value("packet.delay.max").is_some_and(|us| (97_000.0..97_100.0).contains(&us)), "{figures:?}");
        assert!(value("media.delay.p99").is_some_and(|us| (400.0..401.0).contains(&us)), "{figures:?}");
        // Calls without media have no such figures.
        let mut figures = Figures::default();
        of_media(&mut figures, &run(), &run(), Duration::from_secs(3)).expect("known figures");
        assert_eq!(figures, Figures::default());
    }

    #[test]
    fn both_ends_agree_or_it_is_said() {
        let disagree = |asked, answered, taken| {
            let mut run = Run::new(strowger_measure::Heading::default());
            run.totals.count(Counter::SessionAttempts, asked);
            run.totals.count(Counter::SessionAnswered, answered);
            let mut other = Run::new(strowger_measure::Heading::default());
            other.totals.count(Counter::IncomingAnswered, taken);
            run.answering = Some(Box::new(other));
            ends_disagree(&run).map(|reason| reason.sentence)
        };
        assert_eq!((disagree(10, 9, 9), disagree(10, 8, 10)), (None, None));
        assert!(disagree(10, 9, 8).is_some_and(|text| text.starts_with("callers saw 9 calls answered")));
        assert!(disagree(10, 9, 11).is_some_and(|text| text.starts_with("callers began 10 calls")));
    }
}
