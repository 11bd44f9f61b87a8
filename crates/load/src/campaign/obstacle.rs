//! First answers of a target, classified: a rate limiter or a ban falsifies a run before it has begun.

use std::collections::BTreeMap;

/// Request of the pre-flight, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    /// Source address.
    pub(super) source: String,
    /// Send time, µs.
    pub(super) sent: u64,
    pub(super) answer: Option<ProbeAnswer>,
}

/// Final response to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeAnswer {
    pub(super) code: u16,
    /// Seconds of its Retry-After header field, if present.
    pub(super) retry_after: Option<u32>,
    /// Arrival, µs.
    pub(super) at: u64,
}

/// Obstacle between the generator and the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// No request was answered.
    Silent { probes: u64 },
    /// The target answered, and then refused some or all requests with this code, while requests at a lower rate
    /// succeeded.
    RateLimit { code: u16, after: u64, rate: f64, retry_after: Option<u32> },
    /// The target answered, and then stopped answering this source: the cause is a ban, or a limiter that drops.
    Ban { source: String, after: u64, rate: f64, others_answered: bool },
    /// Every request of this source was refused with 403 from the start: not allowed, or banned before.
    Forbidden { source: String, code: u16 },
    /// Every request was refused with 503 (or 429, 480) and a Retry-After.
    Overloaded { code: u16, retry_after: u32 },
}

/// Limits of the pre-flight.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preflight {
    /// Time after which a probe counts as unanswered, milliseconds. Default 500.
    pub(super) patience: u64,
    /// Number of unanswered probes in a row, up to the last one, that make silence. Default 3.
    pub(super) silence: u64,
}

impl Default for Preflight {
    fn default() -> Self {
        Self { patience: 500, silence: 3 }
    }
}

impl Preflight {
    /// Returns the obstacles that the probes met by `now` (µs), the gravest first; empty if there are none.
    pub(super) fn classify(&self, probes: &[Probe], now: u64) -> Vec<Obstacle> {
        let patience = self.patience * 1_000;
        let mut sources: BTreeMap<&str, Vec<&Probe>> = BTreeMap::new();
        // A recent probe without answer decides nothing.
        for probe in probes.iter().filter(|probe| probe.answer.is_some() || probe.sent + patience <= now) {
            sources.entry(&probe.source).or_default().push(probe);
        }
        sources.values_mut().for_each(|probes| probes.sort_by_key(|probe| probe.sent));
        let all = || sources.values().flatten();
        if all().count() as u64 >= self.silence && all().all(|probe| probe.answer.is_none()) {
            return vec![Obstacle::Silent { probes: all().count() as u64 }];
        }
        let mut obstacles = Vec::new();
        for (source, probes) in &sources {
            let silent = probes.iter().rev().take_while(|probe| probe.answer.is_none()).count();
            let after = probes.len() - silent;
            if silent as u64 >= self.silence {
                let since = probes.get(after).map_or(0, |probe| probe.sent);
                let others = probes_answered_since(&sources, source, since);
                obstacles.push(Obstacle::Ban {
                    source: (*source).into(),
                    after: after as u64,
                    rate: rate(&probes[..after]),
                    others_answered: others,
                });
            } else if let Some(obstacle) = refused(source, probes) {
                obstacles.push(obstacle);
            }
        }
        obstacles
    }
}

fn probes_answered_since(sources: &BTreeMap<&str, Vec<&Probe>>, except: &str, since: u64) -> bool {
    let others = sources.iter().filter(|(source, _)| **source != except);
    others.flat_map(|(_, probes)| probes).any(|probe| probe.sent >= since && probe.answer.is_some())
}

/// Returns the requests per second over these probes.
fn rate(probes: &[&Probe]) -> f64 {
    match (probes.first(), probes.last()) {
        (Some(first), Some(last)) if last.sent > first.sent => {
            (probes.len() - 1) as f64 * 1e6 / (last.sent - first.sent) as f64
        }
        _ => 0.0,
    }
}

fn refused(source: &str, probes: &[&Probe]) -> Option<Obstacle> {
    let limiting = |answer: &ProbeAnswer| match answer.code {
        403 | 429 => true,
        // 503 and 480 show a limiter only if they have a Retry-After; otherwise the server may mean them literally.
        480 | 503 => answer.retry_after.is_some(),
        _ => false,
    };
    let answers: Vec<ProbeAnswer> = probes.iter().filter_map(|probe| probe.answer).collect();
    let first = answers.iter().position(limiting)?;
    let limit = answers[first];
    if first == 0 && answers.iter().all(limiting) {
        return Some(match (limit.code, limit.retry_after) {
            (403, _) => Obstacle::Forbidden { source: source.into(), code: 403 },
            (code, Some(retry_after)) => Obstacle::Overloaded { code, retry_after },
            (code, None) => Obstacle::RateLimit { code, after: 0, rate: rate(probes), retry_after: None },
        });
    }
    Some(Obstacle::RateLimit {
        code: limit.code,
        after: first as u64,
        rate: rate(probes),
        retry_after: limit.retry_after,
    })
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent { probes } => write!(
                f,
                "The target answered none of {probes} requests: is it there, is the transport right, does a firewall drop them?"
            ),
            Self::RateLimit { code, after, rate, retry_after } => {
                write!(f, "The target seems to limit the rate: after {after} requests")?;
                if *rate > 0.0 {
                    write!(f, " at {rate:.0} a second")?;
                }
                write!(f, " it answered {code}")?;
                if let Some(seconds) = retry_after {
                    write!(f, " with Retry-After: {seconds}")?;
                }
                f.write_str(
                    ". Lift the limit for the generator's addresses, or spread the load over several with --source.",
                )
            }
            Self::Ban { source, after, rate, others_answered } => {
                write!(f, "The target stopped answering {source} after {after} answers")?;
                if *rate > 0.0 {
                    write!(f, " at {rate:.0} requests a second")?;
                }
                f.write_str(if *others_answered {
                    ", while it still answers other addresses: a ban (fail2ban, pike, a firewall's limit per source)."
                } else {
                    ": a ban (fail2ban, pike, a firewall's limit per source), or the server died."
                })
            }
            Self::Forbidden { source, code } => write!(
                f,
                "The target refused every request of {source} with {code}: the address or user is not allowed, or banned."
            ),
            Self::Overloaded { code, retry_after } => write!(
                f,
                "The target refused every request with {code} and Retry-After: {retry_after}: it is overloaded or in maintenance."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    /// Returns probes 10 ms apart from one source; the code 0 means that no answer arrived.
    fn probes(source: &str, codes: &[u16]) -> Vec<Probe> {
        let answer = |sent: u64, code: u16| ProbeAnswer { code, retry_after: None, at: sent + MS };
        codes
            .iter()
            .zip((0..).step_by(10_000))
            .map(|(code, sent)| Probe { source: source.into(), sent, answer: (*code > 0).then(|| answer(sent, *code)) })
            .collect()
    }

    fn retry(mut probes: Vec<Probe>, seconds: u32) -> Vec<Probe> {
        for answer in probes.iter_mut().filter_map(|probe| probe.answer.as_mut()).filter(|answer| answer.code >= 480) {
            answer.retry_after = Some(seconds);
        }
        probes
    }

    fn classify(probes: &[Probe]) -> Vec<Obstacle> {
        Preflight::default().classify(probes, 10_000 * MS)
    }

    #[test]
    fn an_open_road() {
        assert_eq!(classify(&probes("a", &[200; 20])), []);
        assert_eq!(classify(&probes("a", &[401, 407, 486, 404, 503])), []);
        assert_eq!(classify(&[]), []);
        // One lost datagram proves no obstacle.
        assert_eq!(classify(&probes("a", &[200, 200, 0, 200, 200])), []);
    }

    #[test]
    fn limiters() {
        assert_eq!(
            classify(&retry(probes("a", &[200, 200, 200, 503, 200, 503]), 5)),
            [Obstacle::RateLimit { code: 503, after: 3, rate: 100.0, retry_after: Some(5) }]
        );
        assert_eq!(
            classify(&probes("a", &[200, 200, 429])),
            [Obstacle::RateLimit { code: 429, after: 2, rate: 100.0, retry_after: None }]
        );
        assert!(matches!(
            classify(&probes("a", &[401, 401, 403, 403]))[..],
            [Obstacle::RateLimit { code: 403, after: 2, .. }]
        ));
        assert_eq!(classify(&retry(probes("a", &[503; 4]), 30)), [Obstacle::Overloaded { code: 503, retry_after: 30 }]);
        assert_eq!(classify(&probes("a", &[403; 4])), [Obstacle::Forbidden { source: "a".into(), code: 403 }]);
    }

    #[test]
    fn silence() {
        assert_eq!(classify(&probes("a", &[0; 5])), [Obstacle::Silent { probes: 5 }]);
        let mut both = probes("10.0.0.1", &[200, 200, 200, 0, 0, 0, 0]);
        assert_eq!(
            classify(&both),
            [Obstacle::Ban { source: "10.0.0.1".into(), after: 3, rate: 100.0, others_answered: false }]
        );
        both.extend(probes("10.0.0.2", &[200; 7]));
        let obstacles = classify(&both);
        assert!(matches!(&obstacles[..], [Obstacle::Ban { others_answered: true, .. }]), "{obstacles:?}");
        assert!(
            obstacles[0].to_string().contains("stopped answering 10.0.0.1 after 3 answers at 100 requests a second")
        );
        // Not yet a silence: the answers may still be in transit.
        assert_eq!(Preflight::default().classify(&probes("a", &[200, 0, 0, 0]), 40 * MS), []);
    }
}
