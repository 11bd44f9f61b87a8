//! Was the generator itself the limit? What it did is held against what it was asked to do; a run in which it fell short says
//! nothing about the server and is invalid.

use super::catalogue::{Unit, grouped};
use super::heading::{Heading, Level, Note, ReceiveBuffer};
use super::{Counter, Delay, Page, Rate, Sample, Share};
use serde::{Deserialize, Serialize};

/// From where on a generator counts as the limit. Every one is a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Calls that the schedule wanted and that were not started, per cent of those wanted. Default 1.
    pub rate_error: f64,
    /// The 99th percentile of the scheduling lag, milliseconds. Default 10.
    pub lag_p99: f64,
    /// Datagrams that the kernel dropped before we read them. Default 0.
    pub socket_drops: u64,
    /// Messages that this machine could not send. Default 0.
    pub send_failures: u64,
    /// The longest stall of a shard, milliseconds. Default 250.
    pub stall: f64,
    /// Media packets that were left out or that this machine could not send, and media actions that were refused. Default 0.
    pub media_losses: u64,
    /// The mean share of a core that a thread of the generator may use, per cent. Default 100: no bound, for a saturated
    /// thread that keeps its times measures what it should.
    pub cpu: f64,
    /// The share of a core from which on a thread counts as saturated, per cent. Default 95. A saturated thread alone gives a
    /// warning; with one of the above it is named as the cause.
    pub saturated: f64,
    /// The seconds, per cent of all, in which a thread may be saturated without a word. Default 10.
    pub saturated_seconds: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            rate_error: 1.0,
            lag_p99: 10.0,
            socket_drops: 0,
            send_failures: 0,
            stall: 250.0,
            media_losses: 0,
            cpu: 100.0,
            saturated: 95.0,
            saturated_seconds: 10.0,
        }
    }
}

/// Why a run is invalid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Which threshold: the name of the setting.
    pub threshold: String,
    /// What happened and what helps, for people.
    pub sentence: String,
}

/// Whether the figures of a run are the server's.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The generator did what it was asked to.
    Valid,
    /// It did not: it, and not the server, was the limit.
    Invalid { reasons: Vec<Reason> },
}

impl Verdict {
    pub fn is_valid(&self) -> bool {
        matches!(self, Self::Valid)
    }

    pub fn reasons(&self) -> &[Reason] {
        match self {
            Self::Valid => &[],
            Self::Invalid { reasons } => reasons,
        }
    }
}

/// How busy a thread of the generator was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadLoad {
    pub name: String,
    pub id: u64,
    /// The mean share of a core, per cent.
    pub mean: f64,
    /// The share of a core in its busiest sample (a second, more in runs of hours), per cent.
    pub most: f64,
    /// Seconds in which it was saturated.
    pub saturated: u64,
}

/// The health of one generator.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub verdict: Verdict,
    /// What the reader should know although it does not make the run invalid.
    pub warnings: Vec<String>,
    pub threads: Vec<ThreadLoad>,
    /// The mean use of each core of the machine by everybody, per cent.
    pub cores: Vec<f64>,
    /// The most memory in RAM, bytes.
    pub resident: u64,
    pub receive_buffers: Vec<ReceiveBuffer>,
}

/// Everything that is known of one generator.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    pub heading: &'a Heading,
    /// The sum of what this generator did.
    pub totals: &'a Page,
    pub samples: &'a [Sample],
    pub receive_buffers: &'a [ReceiveBuffer],
    pub notes: &'a [Note],
}

impl Health {
    /// Holds what a generator did against `thresholds`.
    pub fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Self {
        let Evidence { totals, samples, receive_buffers, .. } = *evidence;
        let threads = thread_loads(samples, thresholds);
        let seconds = samples.iter().map(|sample| sample.interval).sum::<u64>() as f64 / 1e6;
        let saturated: Vec<&ThreadLoad> = threads
            .iter()
            .filter(|thread| thread.saturated as f64 > seconds * thresholds.saturated_seconds / 100.0)
            .collect();
        let cause = saturated
            .first()
            .map(|thread| {
                format!(
                    " Its thread {} was saturated in {} of {seconds:.0} seconds (a core to {:.0} % on average): more \
                     generator threads or machines, or a lower rate, help.",
                    thread.name, thread.saturated, thread.mean
                )
            })
            .unwrap_or_default();
        let mut reasons = Vec::new();
        let mut warnings = Vec::new();
        let mut invalid = |threshold: &str, sentence: String| {
            reasons.push(Reason { threshold: threshold.into(), sentence });
        };

        let limited = totals.counter(Counter::CallsLimited);
        if let Some(error) = Share::RateError.of(totals).filter(|error| *error > thresholds.rate_error) {
            let wanted = totals.counter(Counter::CallsIntended);
            let missing = wanted - totals.counter(Counter::CallsOutgoing).min(wanted);
            let (intended, achieved) = (Rate::Intended.of(totals), Rate::Achieved.of(totals));
            let figures = format!(
                "{} of {} calls were not started: {:.1} calls a second instead of {:.1}",
                grouped(missing as f64),
                grouped(wanted as f64),
                achieved.unwrap_or_default(),
                intended.unwrap_or_default(),
            );
            if limited > 0 {
                warnings.push(format!(
                    "The limit of concurrent calls held the schedule back; {figures} ({error:.1} %). The server was slower \
                     than the schedule, or the limit is too low for rate times call length."
                ));
            } else {
                invalid("rate_error", format!("The generator did not keep its rate: {figures} ({error:.1} %).{cause}"));
            }
        } else if limited > 0 {
            warnings.push(format!(
                "The limit of concurrent calls held {} calls back; the figures from the intended time contain that wait.",
                grouped(limited as f64)
            ));
        }

        if let Some(lag) =
            totals.delays(Delay::Lag).percentile(99.0).filter(|lag| *lag as f64 > thresholds.lag_p99 * 1e3)
        {
            invalid(
                "lag_p99",
                format!(
                    "The generator started calls late: the 99th percentile of the scheduling lag is {}, allowed are {}.{cause}",
                    Unit::Microseconds.show(lag as f64),
                    Unit::Microseconds.show(thresholds.lag_p99 * 1e3),
                ),
            );
        }

        let drops = totals.counter(Counter::SocketDrops);
        if drops > thresholds.socket_drops {
            let small = receive_buffers.iter().find(|buffer| buffer.got < buffer.asked);
            let help = small.map_or_else(String::new, |buffer| {
                format!(
                    " Its receive buffers have {} instead of {}: sysctl net.core.rmem_max={} allows them.",
                    Unit::Bytes.show(buffer.got as f64),
                    Unit::Bytes.show(buffer.asked as f64),
                    buffer.asked
                )
            });
            invalid(
                "socket_drops",
                format!(
                    "The generator was too slow to read: its kernel dropped {} datagrams that the server had sent.{help}{cause}",
                    grouped(drops as f64)
                ),
            );
        }

        let failures = totals.counter(Counter::SendFailuresLocal);
        if failures > thresholds.send_failures {
            invalid(
                "send_failures",
                format!(
                    "The generator could not send {} messages (send buffers full, no port left, or no route).{cause}",
                    grouped(failures as f64)
                ),
            );
        }

        if let Some(stall) = totals.delays(Delay::Stall).most().filter(|stall| *stall as f64 > thresholds.stall * 1e3) {
            invalid(
                "stall",
                format!(
                    "The generator stood still: {} times, for at most {}. The machine was suspended, swapping, or busy \
                     with something else.{cause}",
                    grouped(totals.counter(Counter::Stalls) as f64),
                    Unit::Microseconds.show(stall as f64)
                ),
            );
        }

        let media = [Counter::MediaFailures, Counter::MediaMissed, Counter::MediaRefused];
        let lost: u64 = media.iter().map(|counter| totals.counter(*counter)).sum();
        let media_sent = grouped(totals.counter(Counter::MediaSent) as f64);
        if lost > thresholds.media_losses {
            invalid(
                "media_losses",
                format!(
                    "The generator's media are not complete: {} packets or actions were left out or could not be sent, beside \
                     {media_sent} packets sent. Fewer streams at once, or more machines, help.{cause}",
                    grouped(lost as f64),
                ),
            );
        }

        // A mean above a whole core is how the kernel counts, no load.
        let bound = thresholds.cpu;
        if let Some(thread) = threads.iter().find(|thread| bound < 100.0 && thread.mean > bound) {
            invalid(
                "cpu",
                format!(
                    "The generator's thread {} used {:.0} % of a core, allowed are {bound:.0} %: more generator threads or \
                     machines, or a lower rate, help.",
                    thread.name, thread.mean
                ),
            );
        }

        let late = totals.counter(Counter::MediaLate);
        if late > 0 {
            warnings.push(format!(
                "{} of {media_sent} media packets left late: a jitter that the target measures is partly the generator's.",
                grouped(late as f64)
            ));
        }
        if reasons.is_empty() {
            for thread in &saturated {
                warnings.push(format!(
                    "The generator's thread {} was saturated in {} of {seconds:.0} seconds (a core to {:.0} % on average). It \
                     kept its times, but has nothing left: the next step of the rate would measure the generator.",
                    thread.name, thread.saturated, thread.mean
                ));
            }
        }
        if drops == 0
            && let Some(buffer) = receive_buffers.iter().find(|buffer| buffer.got < buffer.asked)
        {
            warnings.push(format!(
                "Receive buffers are smaller than asked for: {} instead of {}. No datagram was dropped; for more load, sysctl \
                 net.core.rmem_max={}.",
                Unit::Bytes.show(buffer.got as f64),
                Unit::Bytes.show(buffer.asked as f64),
                buffer.asked
            ));
        }
        let busy = samples.iter().filter(|sample| {
            let cores = sample.cores.len().max(1) as f64;
            sample.cores.iter().sum::<f64>() / cores * 100.0 > thresholds.saturated
        });
        let busy = busy.map(|sample| sample.interval).sum::<u64>() as f64 / 1e6;
        if busy > seconds * thresholds.saturated_seconds / 100.0 {
            warnings.push(format!(
                "All cores of the generator's machine were busy for {} of {}. If the server runs on it too, they took the cores \
                 from each other.",
                Unit::Seconds.show(busy),
                Unit::Seconds.show(seconds)
            ));
        }
        if let Some((name, most)) = remote_failures(totals) {
            warnings.push(format!("The target refused {most} messages ({name})."));
        }
        warnings
            .extend(evidence.notes.iter().filter(|note| note.level >= Level::Warning).map(|note| note.text.clone()));

        let verdict = if reasons.is_empty() { Verdict::Valid } else { Verdict::Invalid { reasons } };
        Self {
            verdict,
            warnings,
            threads,
            cores: core_loads(samples),
            resident: samples.iter().map(|sample| sample.resident).max().unwrap_or_default(),
            receive_buffers: receive_buffers.to_vec(),
        }
    }
}

fn remote_failures(totals: &Page) -> Option<(&'static str, String)> {
    let refused = totals.counter(Counter::SendFailuresRemote);
    (refused > 0).then(|| ("port closed, or connection refused or reset", grouped(refused as f64)))
}

/// The sum of each thread over all samples, the busiest first.
fn thread_loads(samples: &[Sample], thresholds: &Thresholds) -> Vec<ThreadLoad> {
    let whole: u64 = samples.iter().map(|sample| sample.interval).sum();
    // With each: CPU time, and time in which it was saturated, µs.
    let mut threads: Vec<(ThreadLoad, u64, u64)> = Vec::new();
    for sample in samples {
        for used in &sample.threads {
            let share = sample.share(used) * 100.0;
            let place = threads.iter().position(|(thread, ..)| thread.id == used.id).unwrap_or_else(|| {
                let thread = ThreadLoad { name: used.name.clone(), id: used.id, mean: 0.0, most: 0.0, saturated: 0 };
                threads.push((thread, 0, 0));
                threads.len() - 1
            });
            let (thread, cpu, saturated) = &mut threads[place];
            thread.most = thread.most.max(share);
            *saturated += if share >= thresholds.saturated { sample.interval } else { 0 };
            *cpu += used.cpu;
        }
    }
    threads.sort_by_key(|(_, cpu, _)| std::cmp::Reverse(*cpu));
    let share = |cpu: u64| if whole == 0 { 0.0 } else { cpu as f64 / whole as f64 * 100.0 };
    let seconds = |us: u64| (us as f64 / 1e6).round() as u64;
    let load = |(thread, cpu, us)| ThreadLoad { mean: share(cpu), saturated: seconds(us), ..thread };
    threads.into_iter().map(load).collect()
}

fn core_loads(samples: &[Sample]) -> Vec<f64> {
    let cores = samples.iter().map(|sample| sample.cores.len()).max().unwrap_or_default();
    let whole: u64 = samples.iter().map(|sample| sample.interval).sum();
    (0..cores)
        .map(|core| {
            let busy = samples.iter().map(|sample| sample.cores.get(core).unwrap_or(&0.0) * sample.interval as f64);
            if whole == 0 { 0.0 } else { busy.sum::<f64>() / whole as f64 * 100.0 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::ThreadUse;

    struct Case {
        totals: Page,
        samples: Vec<Sample>,
        buffers: Vec<ReceiveBuffer>,
    }

    fn case() -> Case {
        let mut totals = Page::new(0);
        totals.covered = 10_000_000;
        totals.count(Counter::CallsIntended, 10_000);
        totals.count(Counter::CallsOutgoing, 10_000);
        for _ in 0..10_000 {
            totals.delays[Delay::Lag as usize].record(300);
        }
        Case { totals, samples: vec![], buffers: vec![] }
    }

    impl Case {
        fn busy(mut self, share: f64) -> Self {
            self.samples = (0..10)
                .map(|second| Sample {
                    second,
                    interval: 1_000_000,
                    threads: vec![ThreadUse { id: 7, name: "shard-0".into(), cpu: (share * 1e6) as u64, core: 0 }],
                    resident: 5,
                    cores: vec![share, 0.1],
                })
                .collect();
            self
        }

        fn health(&self) -> Health {
            self.judge(&Thresholds::default())
        }

        fn judge(&self, thresholds: &Thresholds) -> Health {
            let heading = Heading::default();
            let evidence = Evidence {
                heading: &heading,
                totals: &self.totals,
                samples: &self.samples,
                receive_buffers: &self.buffers,
                notes: &[],
            };
            Health::judge(&evidence, thresholds)
        }

        #[track_caller]
        fn invalid(&self, threshold: &str, part: &str) {
            let health = self.health();
            let reasons = health.verdict.reasons();
            assert_eq!(reasons.len(), 1, "{reasons:?}");
            assert_eq!(reasons[0].threshold, threshold);
            assert!(reasons[0].sentence.contains(part), "{}", reasons[0].sentence);
        }
    }

    #[test]
    fn a_healthy_run_is_valid() {
        let health = case().busy(0.4).health();
        assert_eq!((health.verdict, health.warnings.len()), (Verdict::Valid, 0));
        assert!((health.threads[0].mean - 40.0).abs() < 0.01 && health.cores.len() == 2);
    }

    #[test]
    fn calls_that_were_not_started() {
        let mut missed = case();
        missed.totals.count(Counter::CallsIntended, 150);
        missed.invalid("rate_error", "150 of 10,150 calls were not started");
        let sentence = missed.busy(0.99).health().verdict.reasons()[0].sentence.clone();
        assert!(sentence.contains("thread shard-0 was saturated in 10 of 10 seconds"), "{sentence}");
        let mut few = case();
        few.totals.count(Counter::CallsIntended, 50);
        assert!(few.health().verdict.is_valid());
        // Held back by the limit of concurrent calls it is the user's wish, or the server's slowness.
        let mut limited = case();
        limited.totals.count(Counter::CallsIntended, 5_000);
        limited.totals.count(Counter::CallsLimited, 100);
        let health = limited.health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("limit of concurrent calls"), "{health:?}");
    }

    #[test]
    fn calls_started_late() {
        let mut late = case();
        for _ in 0..200 {
            late.totals.delays[Delay::Lag as usize].record(40_000);
        }
        late.invalid("lag_p99", "is 40.0 ms, allowed are 10.0 ms");
    }

    #[test]
    fn datagrams_lost_in_our_own_kernel() {
        let mut drops = case();
        drops.totals.count(Counter::SocketDrops, 5);
        drops.buffers.push(ReceiveBuffer { socket: "127.0.0.1:5060".into(), asked: 8_000_000, got: 212_992 });
        drops.invalid("socket_drops", "net.core.rmem_max=8000000");
        let mut small = case();
        small.buffers = drops.buffers;
        let health = small.health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("smaller than asked for"));
    }

    #[test]
    fn failures_to_send_and_stalls() {
        let mut failed = case();
        failed.totals.count(Counter::SendFailuresLocal, 1);
        failed.invalid("send_failures", "could not send 1 messages");
        let mut refused = case();
        refused.totals.count(Counter::SendFailuresRemote, 9);
        assert!(refused.health().verdict.is_valid() && refused.health().warnings[0].contains("refused 9 messages"));
        let mut stalled = case();
        stalled.totals.delays[Delay::Stall as usize].record(900_000);
        stalled.totals.count(Counter::Stalls, 1);
        stalled.invalid("stall", "at most 900.0 ms");
    }

    #[test]
    fn media_that_are_not_complete() {
        let mut media = case();
        media.totals.count(Counter::MediaSent, 5_000);
        media.totals.count(Counter::MediaLate, 3);
        assert!(
            media.health().verdict.is_valid()
                && media.health().warnings[0].contains("3 of 5,000 media packets left late")
        );
        media.totals.count(Counter::MediaFailures, 2);
        media.totals.count(Counter::MediaMissed, 5);
        media.invalid("media_losses", "7 packets or actions were left out");
    }

    #[test]
    fn every_threshold_is_a_setting() {
        let mut all = case().busy(0.5);
        all.totals.count(Counter::CallsIntended, 300);
        all.totals.delays[Delay::Lag as usize] = crate::measure::Delays::new();
        (0..100).for_each(|_| all.totals.delays[Delay::Lag as usize].record(20_000));
        all.totals.count(Counter::SocketDrops, 5);
        all.totals.count(Counter::SendFailuresLocal, 5);
        all.totals.delays[Delay::Stall as usize].record(400_000);
        all.totals.count(Counter::MediaMissed, 5);
        let wide = Thresholds {
            rate_error: 3.0,
            lag_p99: 21.0,
            socket_drops: 5,
            send_failures: 5,
            stall: 500.0,
            media_losses: 5,
            cpu: 60.0,
            ..Thresholds::default()
        };
        assert!(all.judge(&wide).verdict.is_valid(), "{:?}", all.judge(&wide));
        for (threshold, narrow) in [
            ("rate_error", Thresholds { rate_error: 2.9, ..wide.clone() }),
            ("lag_p99", Thresholds { lag_p99: 19.0, ..wide.clone() }),
            ("socket_drops", Thresholds { socket_drops: 4, ..wide.clone() }),
            ("send_failures", Thresholds { send_failures: 4, ..wide.clone() }),
            ("stall", Thresholds { stall: 399.0, ..wide.clone() }),
            ("media_losses", Thresholds { media_losses: 4, ..wide.clone() }),
            ("cpu", Thresholds { cpu: 49.0, ..wide.clone() }),
        ] {
            let health = all.judge(&narrow);
            let names: Vec<&str> = health.verdict.reasons().iter().map(|reason| &*reason.threshold).collect();
            assert_eq!(names, [threshold]);
        }
        let health = all.judge(&Thresholds { saturated: 40.0, ..wide });
        assert!(health.verdict.is_valid() && health.warnings[0].contains("has nothing left"), "{health:?}");
    }

    #[test]
    fn a_saturated_thread_that_kept_its_times_is_a_warning() {
        let health = case().busy(0.97).health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("has nothing left"), "{health:?}");
    }
}
