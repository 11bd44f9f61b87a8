//! Health of the generator: whether the generator itself was the limit. Its work is compared with its settings. A run
//! in which the generator fell short of them says nothing about the server and is invalid.

mod threads;
mod warnings;
mod windows;

pub use threads::ThreadLoad;
pub(super) use threads::{starved, thread_loads};
pub use windows::Judged;

use super::heading::{Level, ReceiveBuffer};
use super::{Generator, Page, Reason, Thresholds};
use threads::{Threads, core_loads, mean_stolen};

/// Validity of a run: whether its figures describe the server.
#[derive(Clone, Debug, PartialEq)]
pub enum RunVerdict {
    /// The generator did as it was set.
    Valid,
    /// The generator, and not the server, was the limit.
    Invalid { reasons: Vec<Reason> },
}

impl RunVerdict {
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

/// Health of one generator.
#[derive(Clone, Debug)]
pub struct Health {
    pub verdict: RunVerdict,
    /// Facts that the reader should know although they do not make the run invalid.
    pub warnings: Vec<String>,
    pub threads: Vec<ThreadLoad>,
    /// Mean use of each core of the machine by all programs, per cent.
    pub cores: Vec<f64>,
    /// Share of the machine's cores that its host gave to others, per cent.
    pub stolen: f64,
    /// Peak of the resident memory, bytes.
    pub resident: u64,
    pub receive_buffers: Vec<ReceiveBuffer>,
    /// Windows of the run, in their order.
    pub windows: Vec<Judged>,
    /// Sum of the good ones, if some are not.
    pub good: Option<Box<Page>>,
}

impl Health {
    /// Compares a generator's work with `thresholds`: each window, then the run.
    pub fn judge(generator: &Generator, thresholds: &Thresholds) -> Self {
        let samples = generator.samples_of_window();
        let (threads, stolen) = (Threads::of(samples, thresholds), mean_stolen(samples));
        let (windows, good) = windows::judged(generator, thresholds, &threads.cause(stolen));
        let mut verdict = windows::of_run(&windows, thresholds);
        if let Some(sentence) = generator.missing.clone() {
            let reason = Reason { threshold: LOG.into(), sentence, excess: f64::INFINITY };
            verdict = RunVerdict::Invalid { reasons: verdict.reasons().iter().cloned().chain([reason]).collect() };
        }
        let mut warnings = Vec::new();
        if verdict.is_valid() {
            warnings.extend(warnings::of_windows(&windows, generator.heading.started));
        }
        warnings.extend(warnings::of_limit(&generator.totals, &threads));
        warnings.extend(warnings::of_media(&generator.totals));
        if verdict.is_valid() {
            warnings.extend(warnings::of_threads(&threads));
        }
        warnings.extend(warnings::of_buffers(generator));
        warnings.extend(warnings::of_machine(samples, thresholds, threads.seconds));
        warnings.extend(warnings::of_target(&generator.totals));
        let notes = generator.notes.iter().filter(|note| note.level >= Level::Warning);
        warnings.extend(notes.map(|note| note.text.clone()));
        Self {
            verdict,
            warnings,
            threads: threads.all,
            cores: core_loads(samples),
            stolen,
            resident: samples.iter().map(|sample| sample.resident).max().unwrap_or_default(),
            receive_buffers: generator.receive_buffers.clone(),
            windows,
            good,
        }
    }
}

/// Name of the reason of an incomplete log; no setting.
pub const LOG: &str = "log";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Delay, Delays, Heading, Sample, ThreadUse};

    /// Creates a page of ten seconds of a thousand calls each; all begun 300 µs late and answered within 4 ms.
    fn page(second: u64) -> Page {
        let mut page = Page::new(0);
        (page.second, page.begun, page.covered) = (second, second * 1_000_000, 10_000_000);
        page.count(Counter::CallsIntended, 10_000);
        page.count(Counter::CallsOutgoing, 10_000);
        for _ in 0..10_000 {
            page.delays[Delay::Lag as usize].record(300);
            page.delays[Delay::Setup as usize].record(4_000);
        }
        page
    }

    struct Case {
        pages: Vec<Page>,
        samples: Vec<Sample>,
        buffers: Vec<ReceiveBuffer>,
    }

    fn case() -> Case {
        Case { pages: vec![page(1_000)], samples: vec![], buffers: vec![] }
    }

    fn delayed(page: &mut Page, delay: Delay, us: u64, times: u64) {
        (0..times).for_each(|_| page.delays[delay as usize].record(us));
    }

    impl Case {
        /// Changes the page.
        fn with(change: impl FnOnce(&mut Page)) -> Self {
            let mut case = case();
            change(&mut case.pages[0]);
            case
        }

        /// Sets these shares of a core used and waited for, and turns per second.
        fn used(mut self, share: f64, waited: f64, turns: u64) -> Self {
            let us = |share: f64| (share * 1e6) as u64;
            let thread = ThreadUse {
                id: 7,
                name: "shard-0".into(),
                cpu: us(share),
                waited: us(waited),
                turns,
                ..ThreadUse::default()
            };
            let seconds = 1_001..=1_010;
            let sample = |second| Sample {
                second,
                interval: 1_000_000,
                threads: vec![thread.clone()],
                resident: 5,
                cores: vec![share, 0.1],
                stolen: 0.0,
            };
            self.samples = seconds.map(sample).collect();
            self
        }

        fn health(&self) -> Health {
            self.judge(&Thresholds::default())
        }

        fn judge(&self, thresholds: &Thresholds) -> Health {
            let mut generator = Generator::new(Heading { started: 1_000_000_000, ..Heading::default() });
            self.pages.iter().for_each(|page| generator.second(page));
            generator.samples.clone_from(&self.samples);
            generator.receive_buffers.clone_from(&self.buffers);
            Health::judge(&generator, thresholds)
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
        let health = case().used(0.4, 0.01, 1_000).health();
        assert_eq!((health.verdict, health.warnings.len()), (RunVerdict::Valid, 0));
        assert!((health.threads[0].mean - 40.0).abs() < 0.01 && health.cores.len() == 2);
        assert!((health.threads[0].waited - 1.0).abs() < 0.01 && (health.threads[0].wait - 10.0).abs() < 0.01);
        assert!(health.windows.len() == 1 && health.windows[0].active && health.good.is_none());
    }

    #[test]
    fn calls_that_were_not_started() {
        let missed = Case::with(|page| page.count(Counter::CallsIntended, 150));
        missed.invalid(
            "rate_error",
            "150 of 10,150 calls were not started in time: 1000.0 calls a second instead of 1015.0",
        );
        let sentence = missed.used(0.99, 0.0, 1).health().verdict.reasons()[0].sentence.clone();
        assert!(sentence.contains("thread shard-0 was saturated in 10 of 10 seconds"), "{sentence}");
        assert!(Case::with(|page| page.count(Counter::CallsIntended, 50)).health().verdict.is_valid());
        // Waiting for a place below the limit is the user's choice, or the server's slowness; but only that.
        let limited = |waiting: u64| {
            Case::with(|page| {
                page.count(Counter::CallsIntended, 5_000);
                page.count(Counter::CallsLimited, 100);
                page.waiting = waiting;
            })
        };
        let health = limited(4_990).health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("It saw 1000.0 calls a second"), "{health:?}");
        limited(4_000).invalid("rate_error", "1,000 of 15,000");
    }

    #[test]
    fn a_lag_is_held_against_the_delays_that_it_pollutes() {
        let late = |lag: Delay, us: u64| Case::with(|page| delayed(page, lag, us, 200));
        late(Delay::Lag, 2_100)
            .invalid("lag_p99", "scheduling lag is 2.10 ms, allowed are 2.00 ms beside delays whose 95th");
        late(Delay::TimerLag, 40_000).invalid("lag_p99", "came late to timers");
        late(Delay::SendLag, 2_100).invalid("lag_p99", "slow to send");
        late(Delay::ReceiveLag, 2_100).invalid("receive_lag", "slow to read");
        assert!(late(Delay::Lag, 1_990).health().verdict.is_valid());
        // One bound is for all of them, unless they have their own.
        let wide = Thresholds { lag_p99: Some(50.0), ..Thresholds::default() };
        let bounds =
            [(Delay::ReceiveLag, 40_000, true), (Delay::ReceiveLag, 60_000, false), (Delay::TimerLag, 60_000, false)];
        for (lag, us, valid) in bounds {
            assert_eq!(late(lag, us).judge(&wide).verdict.is_valid(), valid, "{lag:?} {us}");
        }
        // A lag falsifies slower answers less, but a schedule is a schedule.
        let beside = |setup: u64, lag: u64| {
            Case::with(|page| {
                page.delays[Delay::Setup as usize] = Delays::new();
                delayed(page, Delay::Setup, setup, 1_000);
                delayed(page, Delay::Lag, lag, 200);
            })
        };
        assert!(beside(15_000, 7_000).health().verdict.is_valid());
        beside(15_000, 8_000).invalid("lag_p99", "allowed are 7.50 ms");
        beside(3_000_000, 11_000).invalid("lag_p99", "allowed are 10.0 ms");
        // Among few calls a single one that is a little late means nothing.
        let few = |lag: u64| {
            Case::with(|page| {
                page.delays[Delay::Lag as usize] = Delays::new();
                delayed(page, Delay::Lag, 50, 19);
                delayed(page, Delay::Lag, lag, 1);
            })
        };
        assert!(few(4_000).health().verdict.is_valid());
        few(30_000).invalid("lag_p99", "is 30.0 ms");
    }

    #[test]
    fn a_thread_that_waits_for_the_processor_is_seen_though_it_uses_little() {
        let starved = case().used(0.05, 0.6, 200);
        starved.invalid("run_queue", "its thread shard-0 waited 3.00 ms for a core each time");
        assert!(case().used(0.05, 0.3, 1_000).health().verdict.is_valid());
        let mut late = Case::with(|page| delayed(page, Delay::Lag, 9_000, 200)).used(0.05, 0.3, 1_000);
        late.invalid("lag_p99", "shard-0 waited for a core in 30 % of the time");
        late.samples.iter_mut().for_each(|sample| sample.stolen = 0.2);
        late.invalid("lag_p99", "gave 20 % of its cores to others");
    }

    #[test]
    fn a_core_that_is_shared_counts_where_a_limit_hides_the_lag() {
        // A wait of 0.3 ms each time, in half of the time: no lag shows it.
        let held = |waited: f64, share: f64, limited: u64| {
            let case = Case::with(|page| page.count(Counter::CallsLimited, limited));
            case.used(share, waited, (waited * 3_333.0) as u64)
        };
        held(0.5, 0.4, 9_000).invalid("core_wait", "shard-0 waited for a core in 50 % of the time, allowed are 20 %");
        assert!(held(0.5, 0.4, 0).health().verdict.is_valid(), "the schedule would show it");
        let health = held(0.12, 0.4, 9_000).health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("the server or this machine"), "{health:?}");
        let health = held(0.01, 0.4, 9_000).health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("the server was slower"), "{health:?}");
        held(0.0, 0.97, 9_000).invalid("saturated", "shard-0 used 97 % of a core");
    }

    #[test]
    fn datagrams_lost_in_our_own_kernel() {
        let mut drops = Case::with(|page| page.count(Counter::SocketDrops, 5));
        drops.buffers.push(ReceiveBuffer { socket: "127.0.0.1:5060".into(), asked: 8_000_000, got: 212_992 });
        drops.invalid("socket_drops", "net.core.rmem_max=8000000");
        let mut small = case();
        small.buffers = drops.buffers;
        let health = small.health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("smaller than asked for"));
    }

    #[test]
    fn failures_to_send_and_stalls() {
        Case::with(|page| page.count(Counter::SendFailuresLocal, 1))
            .invalid("send_failures", "could not send 1 messages");
        let refused = Case::with(|page| page.count(Counter::SendFailuresRemote, 9));
        assert!(refused.health().verdict.is_valid() && refused.health().warnings[0].contains("refused 9 messages"));
        let stalled = Case::with(|page| {
            delayed(page, Delay::Stall, 900_000, 1);
            page.count(Counter::Stalls, 1);
        });
        stalled.invalid("stall", "at most 900.0 ms, allowed are 250.0 ms");
    }

    #[test]
    fn media_that_are_not_complete() {
        let mut media = Case::with(|page| {
            page.count(Counter::MediaSent, 5_000);
            page.count(Counter::MediaLate, 3);
        });
        assert!(
            media.health().verdict.is_valid()
                && media.health().warnings[0].contains("3 of 5,000 media packets left late")
        );
        media.pages[0].count(Counter::MediaFailures, 2);
        media.pages[0].count(Counter::MediaMissed, 5);
        media.invalid("media_losses", "7 packets or actions were left out");
    }

    #[test]
    fn one_stall_spoils_its_window_and_more_than_may_be_spoil_the_run() {
        let day = |stalls: &[u64]| {
            let mut day = Case { pages: (0..20).map(|place| page(1_000 + place * 10)).collect(), ..case() };
            for place in stalls {
                delayed(&mut day.pages[*place as usize], Delay::Stall, 300_000 + place * 100_000, 1);
            }
            day.health()
        };
        let health = day(&[7]);
        assert!(health.verdict.is_valid(), "{:?}", health.verdict);
        assert!(
            health.warnings[0]
                .starts_with("From 70.0 s to 80.0 s the figures are not the server's: The generator stood")
        );
        let good = health.good.as_ref().expect("some are good");
        assert_eq!((good.counter(Counter::CallsOutgoing), good.delays(Delay::Stall).count()), (190_000, 0));
        let bad: Vec<u64> =
            health.windows.iter().filter(|window| !window.is_good()).map(|window| window.from).collect();
        assert_eq!((bad, health.windows.len()), (vec![1_070], 20));
        assert!(day(&[7, 9]).verdict.is_valid());
        let health = day(&[7, 8, 9]);
        let reasons = health.verdict.reasons();
        assert!(reasons.len() == 1 && reasons[0].sentence.contains("for at most 1.20 s"), "{reasons:?}");
        assert!(reasons[0].sentence.ends_with("In 3 of 20 windows."), "{reasons:?}");
    }

    #[test]
    fn waiting_for_the_last_calls_makes_no_bad_window_small() {
        let mut run = case();
        delayed(&mut run.pages[0], Delay::Stall, 900_000, 1);
        for place in 1..30 {
            let mut page = Page::new(0);
            (page.second, page.begun, page.covered) =
                (1_000 + place * 10, (1_000 + place * 10) * 1_000_000, 10_000_000);
            run.pages.push(page);
        }
        let health = run.health();
        assert_eq!((health.verdict.is_valid(), health.windows.len()), (false, 30));
        let wide = Thresholds { bad_windows: 100.0, ..Thresholds::default() };
        assert!(run.judge(&wide).verdict.is_valid());
    }

    #[test]
    fn every_threshold_is_a_setting() {
        let all = Case::with(|page| {
            page.count(Counter::CallsIntended, 300);
            page.delays[Delay::Lag as usize] = Delays::new();
            delayed(page, Delay::Lag, 20_000, 100);
            delayed(page, Delay::ReceiveLag, 30_000, 100);
            page.count(Counter::SocketDrops, 5);
            page.count(Counter::SendFailuresLocal, 5);
            delayed(page, Delay::Stall, 400_000, 1);
            page.count(Counter::MediaMissed, 5);
        })
        .used(0.5, 0.4, 40);
        let wide = Thresholds {
            rate_error: 3.0,
            lag_p99: Some(21.0),
            receive_lag: Some(31.0),
            run_queue: Some(11.0),
            socket_drops: 5,
            send_failures: 5,
            stall: 500.0,
            media_losses: 5,
            cpu: 60.0,
            ..Thresholds::default()
        };
        assert!(all.judge(&wide).verdict.is_valid(), "{:?}", all.judge(&wide).verdict);
        let free = Thresholds { lag_p99: None, receive_lag: None, run_queue: None, lag_most: 40.0, ..wide.clone() };
        assert!(all.judge(&Thresholds { lag_floor: 31.0, ..free.clone() }).verdict.is_valid());
        assert_eq!(all.judge(&Thresholds { lag_share: 40.0, ..free }).verdict.reasons().len(), 3);
        for (threshold, narrow) in [
            ("rate_error", Thresholds { rate_error: 2.9, ..wide.clone() }),
            ("lag_p99", Thresholds { lag_p99: Some(19.0), ..wide.clone() }),
            ("receive_lag", Thresholds { receive_lag: Some(29.0), ..wide.clone() }),
            ("run_queue", Thresholds { run_queue: Some(9.0), ..wide.clone() }),
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
        let health = case().used(0.97, 0.0, 1).health();
        assert!(health.verdict.is_valid() && health.warnings[0].contains("has nothing left"), "{health:?}");
    }
}
