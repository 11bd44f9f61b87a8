//! Names of all figures: the same in requirements, JSON, CSV and documents.

use super::unit::Unit;
use super::{Counter, Delay, Delays, Failure, Page, Rate, Share, concluded_registrations, concluded_sessions};
use std::borrow::Cow;
use strowger_message::Method;

/// Statistic of many delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    Count,
    Mean,
    Deviation,
    Least,
    /// Percentile above 0, up to 100.
    Percentile(f64),
    Most,
}

impl Statistic {
    /// Statistics that reports show of times, of which the long ones are bad.
    pub const SHOWN: &'static [Self] = &[
        Self::Count,
        Self::Mean,
        Self::Least,
        Self::Percentile(50.0),
        Self::Percentile(90.0),
        Self::Percentile(95.0),
        Self::Percentile(99.0),
        Self::Percentile(99.9),
        Self::Percentile(99.99),
        Self::Most,
        Self::Deviation,
    ];

    /// Statistics that reports show of scores, of which the low ones are bad: the percentiles of [`Self::SHOWN`] from the other end.
    pub const SHOWN_OF_SCORES: &'static [Self] = &[
        Self::Count,
        Self::Mean,
        Self::Least,
        Self::Percentile(50.0),
        Self::Percentile(10.0),
        Self::Percentile(5.0),
        Self::Percentile(1.0),
        Self::Percentile(0.1),
        Self::Percentile(0.01),
        Self::Most,
        Self::Deviation,
    ];

    /// Returns the suffix after the name of the delay.
    pub fn key(self) -> Cow<'static, str> {
        match self {
            Self::Count => "count".into(),
            Self::Mean => "mean".into(),
            Self::Deviation => "stddev".into(),
            Self::Least => "min".into(),
            Self::Most => "max".into(),
            Self::Percentile(percent) => format!("p{percent}").into(),
        }
    }

    /// Returns the value as it was recorded, or `None` without a delay.
    pub fn of(self, delays: &Delays) -> Option<f64> {
        match self {
            Self::Count => Some(delays.count() as f64),
            Self::Mean => delays.mean(),
            Self::Deviation => delays.deviation(),
            Self::Least => delays.least().map(|us| us as f64),
            Self::Most => delays.most().map(|us| us as f64),
            Self::Percentile(percent) => delays.percentile(percent).map(|us| us as f64),
        }
    }

    /// Splits a name into delay and statistic.
    fn split(name: &str) -> Option<(&str, Self)> {
        // The percentile may have a point of its own: srd.p99.9.
        if let Some(place) = name.rfind(".p")
            && let Ok(percent) = name[place + 2..].parse::<f64>()
        {
            return (percent > 0.0 && percent <= 100.0).then_some((&name[..place], Self::Percentile(percent)));
        }
        let (base, last) = name.rsplit_once('.')?;
        let statistic = match last {
            "count" => Self::Count,
            "mean" | "avg" | "average" => Self::Mean,
            "stddev" => Self::Deviation,
            "min" => Self::Least,
            "max" => Self::Most,
            "median" => Self::Percentile(50.0),
            _ => return None,
        };
        Some((base, statistic))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum FigureKind {
    Delay(Delay, Statistic),
    Timer(usize, Statistic),
    Counter(Counter),
    Failure(Failure),
    Share(Share),
    Rate(Rate),
    /// Responses received with codes from the first to the last, to one method or to all.
    Responses(Option<Method>, u16, u16),
    Sent(Method),
    Received(Method),
    Resent(Method),
    Open,
    Peak,
    Duration,
}

/// Values of a measure that mean fewer failed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
}

/// Named figure. Parsed once, read from any page.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    name: String,
    kind: FigureKind,
}

/// Error of an unknown or incomplete name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    #[error("there is no measure '{name}'{}; `strowger load measures` lists all", near(.nearest))]
    Unknown { name: String, nearest: Option<String> },
    #[error(
        "'{name}' has many figures; say which: {name}.{}, or another percentile, {name}.mean, {name}.min, {name}.max, {name}.stddev, {name}.count",
        usual(.name)
    )]
    WhichFigure { name: String },
    #[error("the scenario has no timer '{name}'{}", timers(.known))]
    NoTimer { name: String, known: Vec<String> },
}

fn near(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(" (nearest: {name})")).unwrap_or_default()
}

/// Returns the usual percentile of a delay or score.
fn usual(name: &str) -> &'static str {
    delay(&name.to_ascii_lowercase()).map_or("p95", Delay::usual_percentile)
}

fn timers(known: &[String]) -> String {
    if known.is_empty() { "; it has none".into() } else { format!("; it has {}", known.join(", ")) }
}

impl Measure {
    /// Parses a name; `timers`: the names of the scenario's timers.
    pub fn parse(name: &str, timers: &[String]) -> Result<Self, MeasureError> {
        let name = name.trim();
        Self::kind(name, timers).map(|kind| Self { name: name.into(), kind })
    }

    fn kind(given: &str, timers: &[String]) -> Result<FigureKind, MeasureError> {
        let lower = given.to_ascii_lowercase();
        let name = lower.as_str();
        if let Some(rest) = given.get(6..).filter(|_| name.starts_with("timer.")) {
            let Some((timer, statistic)) = Statistic::split(rest) else {
                return Err(MeasureError::WhichFigure { name: given.into() });
            };
            let place = timers.iter().position(|known| known == timer);
            let place = place.or_else(|| timers.iter().position(|known| known.eq_ignore_ascii_case(timer)));
            return place
                .map(|place| FigureKind::Timer(place, statistic))
                .ok_or_else(|| MeasureError::NoTimer { name: timer.into(), known: timers.to_vec() });
        }
        let simple = match name {
            "concurrency" => Some(FigureKind::Open),
            "concurrency.max" => Some(FigureKind::Peak),
            "duration" => Some(FigureKind::Duration),
            _ => None,
        };
        simple
            .or_else(|| Share::ALL.iter().find(|share| share.key() == name).map(|share| FigureKind::Share(*share)))
            .or_else(|| Rate::ALL.iter().find(|rate| rate.key() == name).map(|rate| FigureKind::Rate(*rate)))
            .or_else(|| {
                Counter::ALL.iter().find(|counter| counter.key() == name).map(|counter| FigureKind::Counter(*counter))
            })
            .or_else(|| failure(name).map(FigureKind::Failure))
            .or_else(|| messages(name))
            .or_else(|| {
                let (base, statistic) = Statistic::split(name)?;
                Some(FigureKind::Delay(delay(base)?, statistic))
            })
            .ok_or_else(|| match delay(name) {
                Some(_) => MeasureError::WhichFigure { name: given.into() },
                None => MeasureError::Unknown { name: given.into(), nearest: nearest(name) },
            })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn unit(&self) -> Unit {
        match self.kind {
            FigureKind::Delay(_, Statistic::Count) | FigureKind::Timer(_, Statistic::Count) => Unit::Count,
            FigureKind::Delay(delay, _) => delay.unit(),
            FigureKind::Timer(..) => Unit::Microseconds,
            FigureKind::Counter(Counter::BytesSent | Counter::BytesReceived) => Unit::Bytes,
            FigureKind::Share(_) => Unit::Percent,
            FigureKind::Rate(Rate::BytesSent | Rate::BytesReceived) => Unit::BytesPerSecond,
            FigureKind::Rate(_) => Unit::PerSecond,
            FigureKind::Duration => Unit::Seconds,
            _ => Unit::Count,
        }
    }

    /// Returns the number of failed calls that this measure counts, and the better direction, in which a bound on the
    /// measure limits these calls. `ira` counts none, because RFC 6076 does not take a wrong password for a failure.
    pub(super) fn failed_calls(&self, page: &Page) -> Option<(Better, u64)> {
        let count = |counter| page.counter(counter);
        let without = |all: u64, others: &[Counter]| all.saturating_sub(others.iter().map(|other| count(*other)).sum());
        let (sessions, registrations) = (concluded_sessions(page), concluded_registrations(page));
        use Counter::*;
        let failed = count(CallsFailed);
        Some(match self.kind {
            FigureKind::Counter(CallsFailed) | FigureKind::Rate(Rate::Failed) => (Better::Less, failed),
            FigureKind::Share(share) => match share {
                Share::CallSuccess => (Better::More, failed),
                Share::Establishment => (Better::More, without(sessions, &[SessionAnswered, SessionRedirected])),
                Share::EffectiveEstablishment => {
                    (Better::More, without(sessions, &[SessionAnswered, SessionRedirected, SessionEffective]))
                }
                Share::IneffectiveAttempts => {
                    (Better::Less, count(SessionIneffective) + count(SessionTimedOut) + count(SessionTransport))
                }
                Share::Completion => (Better::More, without(sessions, &[SessionCompleted, SessionCut])),
                Share::UnansweredAnyReason if count(SessionRegistered) > 0 => {
                    (Better::Less, without(count(SessionRegistered), &[SessionRegisteredAnswered]))
                }
                Share::UnansweredAnyReason => (Better::Less, without(sessions, &[SessionAnswered])),
                Share::UnregisteredAnyReason => (Better::Less, without(registrations, &[RegistrationSuccessful])),
                Share::IneffectiveRegistrations | Share::Retransmissions | Share::MediaLoss | Share::RateError => {
                    return None;
                }
            },
            _ => return None,
        })
    }

    /// Returns the value, or `None` without a measurement.
    pub fn of(&self, page: &Page) -> Option<f64> {
        let count = |count: u64| Some(count as f64);
        match self.kind {
            FigureKind::Delay(delay, statistic) => delay.figure(statistic, page.delays(delay)),
            FigureKind::Timer(timer, statistic) => page.timers().get(timer).and_then(|delays| statistic.of(delays)),
            FigureKind::Counter(counter) => count(page.counter(counter)),
            FigureKind::Failure(failure) => count(page.failures(failure)),
            FigureKind::Share(share) => share.of(page),
            FigureKind::Rate(rate) => rate.of(page),
            FigureKind::Responses(method, first, last) => count(
                page.responses_received()
                    .iter()
                    .filter(|(of, code, _)| method.is_none_or(|method| method == *of) && (first..=last).contains(code))
                    .map(|(_, _, count)| count)
                    .sum(),
            ),
            FigureKind::Sent(method) => count(page.requests_sent(method)),
            FigureKind::Received(method) => count(page.requests_received(method)),
            FigureKind::Resent(method) => count(page.requests_resent(method)),
            FigureKind::Open => count(page.open),
            FigureKind::Peak => count(page.peak),
            FigureKind::Duration => Some(page.covered as f64 / 1e6),
        }
    }
}

fn delay(name: &str) -> Option<Delay> {
    Delay::ALL.iter().copied().find(|delay| delay.key() == name)
}

fn failure(name: &str) -> Option<Failure> {
    let cause = name.strip_prefix("calls.failed.")?;
    Failure::MEASURES.iter().copied().find(|failure| failure.key() == cause)
}

fn method(name: &str) -> Option<Method> {
    if name == "other" {
        return Some(Method::Other);
    }
    Method::KNOWN.iter().copied().find(|method| method.text().eq_ignore_ascii_case(name.as_bytes()))
}

/// Parses `responses.486`, `responses.5xx`, `responses.invite.486`, `sent.invite`, `received.bye`, `resent.invite`.
fn messages(name: &str) -> Option<FigureKind> {
    let (what, rest) = name.split_once('.')?;
    match what {
        "sent" => method(rest).map(FigureKind::Sent),
        "received" => method(rest).map(FigureKind::Received),
        "resent" => method(rest).map(FigureKind::Resent),
        "responses" => {
            let (of, code) = match rest.split_once('.') {
                Some((of, code)) => (Some(method(of)?), code),
                None => (None, rest),
            };
            let (first, last) = match code.strip_suffix("xx") {
                Some(class) => class
                    .parse::<u16>()
                    .ok()
                    .filter(|class| (1..7).contains(class))
                    .map(|class| (class * 100, class * 100 + 99))?,
                None => code.parse().ok().map(|code| (code, code))?,
            };
            ((100..700).contains(&first)).then_some(FigureKind::Responses(of, first, last))
        }
        _ => None,
    }
}

/// Entry of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Name; for a delay or score without the statistic.
    pub name: String,
    pub title: &'static str,
    pub unit: &'static str,
    /// Source of the definition; empty for mere counts.
    pub source: &'static str,
    pub definition: &'static str,
}

/// Returns every measure, in the order of the documents. Delays, scores and timers are followed by a statistic (`srd.p95`).
pub fn catalogue() -> Vec<Described> {
    let delays = Delay::ALL.iter().map(|delay| Described {
        name: delay.key().into(),
        title: delay.title(),
        unit: if delay.unit() == Unit::Score { "score" } else { "time" },
        source: delay.source(),
        definition: delay.definition(),
    });
    let shares = Share::ALL.iter().map(|share| Described {
        name: share.key().into(),
        title: share.title(),
        unit: "%",
        source: share.source(),
        definition: share.definition(),
    });
    let rates = Rate::ALL.iter().map(|rate| Described {
        name: rate.key().into(),
        title: rate.title(),
        unit: if matches!(rate, Rate::BytesSent | Rate::BytesReceived) { "B/s" } else { "1/s" },
        source: rate.source(),
        definition: rate.definition(),
    });
    let counters = Counter::ALL.iter().map(|counter| Described {
        name: counter.key().into(),
        title: counter.title(),
        unit: if matches!(counter, Counter::BytesSent | Counter::BytesReceived) { "B" } else { "1" },
        source: "",
        definition: "",
    });
    let failures = Failure::MEASURES.iter().map(|failure| Described {
        name: format!("calls.failed.{}", failure.key()),
        title: failure.title(),
        unit: "1",
        source: "",
        definition: "",
    });
    let others = [
        ("concurrency", "calls open at the end", "1"),
        ("concurrency.max", "the most calls open at once", "1"),
        ("duration", "how long was measured", "s"),
        ("timer.NAME", "a named timer of the scenario", "time"),
        ("responses.CODE", "responses received with this code, or of this class (responses.5xx)", "1"),
        ("responses.METHOD.CODE", "the same, to requests of this method (responses.invite.486)", "1"),
        ("sent.METHOD", "requests of this method sent, retransmissions apart", "1"),
        ("received.METHOD", "requests of this method received, retransmissions apart", "1"),
        ("resent.METHOD", "retransmissions of requests of this method", "1"),
    ];
    let others = others.into_iter().map(|(name, title, unit)| Described {
        name: name.into(),
        title,
        unit,
        source: "",
        definition: "",
    });
    delays.chain(shares).chain(rates).chain(others).chain(counters).chain(failures).collect()
}

/// Returns the most similar names, if any: by letters to change, add, drop or swap with the next.
fn nearest(name: &str) -> Option<String> {
    let (base, statistic) = match Statistic::split(name) {
        Some((base, statistic)) => (base, Some(statistic.key())),
        None => (name, None),
    };
    // A name with a statistic is a delay.
    let candidates = catalogue().into_iter().filter(|entry| statistic.is_none() || delay(&entry.name).is_some());
    let mut near: Vec<(usize, String)> =
        candidates.map(|entry| (strsim::osa_distance(base, &entry.name), entry.name)).collect();
    near.sort();
    let least = near.first()?.0;
    let close = least <= base.len().max(3) / 3;
    let names = near.into_iter().take_while(|(distance, _)| *distance == least).take(3).map(|(_, name)| name);
    let names = names.map(|name| match delay(&name) {
        Some(delay) => format!("{name}.{}", statistic.as_deref().unwrap_or_else(|| delay.usual_percentile())),
        None => name,
    });
    close.then(|| names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
