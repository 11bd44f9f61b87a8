//! The searches of RFC 7502 and of the staircase.

use super::search;
use super::server::{Fixed, Server, outcome};
use std::time::Duration;
use strowger_lab::finder::{
    Criterion, Finder, Finding, Method, Next, Point, Rfc7502, Rfc7502Settings, Staircase, StaircaseSettings,
    TrialOutcome, criteria,
};
use strowger_lab::row::{Check, Reason, Validity};

/// Returns the rates that the search asks for, and its end.
fn rates(mut finder: Rfc7502, server: &mut dyn Server) -> (Vec<f64>, Finding, f64) {
    let mut rates = Vec::new();
    loop {
        match finder.next() {
            Next::Trial(trial) => {
                rates.push(trial.load);
                finder.take(server.serve(trial.load, trial.duration));
            }
            Next::Done(limit) => return (rates, limit.finding, limit.load),
        }
    }
}

/// Checks the sequence that was computed by hand: up by a tenth, rounded down, until 176 fails; then down by a tenth and up
/// again until ten successes bring no higher rate.
#[test]
fn the_rfc_raises_and_lowers_by_a_tenth_until_ten_repeats() {
    let (rates, finding, load) = rates(Rfc7502::new(Rfc7502Settings::default()), &mut Fixed(170.0));
    let (climb, rest) = rates.split_at(7);
    assert_eq!(climb, [100.0, 110.0, 121.0, 133.0, 146.0, 160.0, 176.0]);
    assert_eq!(rest[..6], [158.0, 173.0, 155.0, 170.0, 187.0, 168.0]);
    assert_eq!((finding, load), (Finding::Found, 170.0));
    // 170 is carried, so that each success from then on is a repeat.
    let repeats = rest.iter().filter(|rate| **rate <= 170.0).count();
    assert_eq!(repeats, 10 + 1, "{rates:?}");
}

#[test]
fn the_rfc_sends_so_many_sessions_at_each_rate() {
    let settings = Rfc7502Settings { sessions: 5_000, rate: 250.0, increase: 0.5, ..Rfc7502Settings::default() };
    let Next::Trial(trial) = Rfc7502::new(settings).next() else { panic!("it begins with a trial") };
    assert_eq!((trial.load, trial.duration), (250.0, Duration::from_secs(20)));
    let least = Duration::from_secs(30);
    let Next::Trial(trial) = Rfc7502::new(Rfc7502Settings { least, ..settings }).next() else { panic!("a trial") };
    assert_eq!((trial.load, trial.duration), (250.0, least));
    // A weight of 0.5 is halved at each failure, as is the decrease that begins with half of it.
    let (rates, ..) = rates(Rfc7502::new(settings), &mut Fixed(300.0));
    assert_eq!(rates[..5], [250.0, 375.0, 281.0, 351.0, 307.0]);
}

#[test]
fn the_rfc_ends_where_nothing_is_carried_or_the_rate_cannot_rise() {
    let failed = rates(Rfc7502::new(Rfc7502Settings::default()), &mut Fixed(0.5));
    assert_eq!((failed.1, failed.2), (Finding::Nothing, 0.0));
    let settings = Rfc7502Settings { rate: 9.0, ..Rfc7502Settings::default() };
    let (rates, finding, load) = rates(Rfc7502::new(settings), &mut Fixed(1_000.0));
    assert_eq!((rates.len(), finding, load), (11, Finding::AtLeast, 9.0));
    let found = search(&mut Rfc7502::new(Rfc7502Settings::default()), &mut Fixed(170.0));
    assert_eq!((found.limit.method, found.limit.beyond), (Method::Rfc7502, Some(173.0)));
}

/// Checks that a search does not exceed its highest rate, and ends at its lowest rate.
#[test]
fn the_rfc_has_a_highest_and_a_lowest_rate() {
    let settings = Rfc7502Settings { most: 150.0, ..Rfc7502Settings::default() };
    let (found, finding, load) = rates(Rfc7502::new(settings), &mut Fixed(1_000.0));
    assert_eq!((finding, load), (Finding::AtLeast, 150.0));
    assert_eq!((found.iter().copied().fold(0.0, f64::max), found.len()), (150.0, 6 + 10));
    let (found, finding, _) = rates(Rfc7502::new(Rfc7502Settings::default()), &mut Fixed(2.0));
    assert_eq!((finding, found.iter().all(|rate| *rate >= 10.0)), (Finding::Nothing, true), "{found:?}");
}

/// Checks that a trial is carried if a late generator established all sessions and met the rate, because the RFC counts
/// sessions.
#[test]
fn the_rfc_takes_a_late_generator_for_no_failure_and_a_missed_rate_for_one() {
    let of = |check, achieved| {
        let mut finder = Rfc7502::new(Rfc7502Settings::default());
        let mut outcome = outcome(0.0, [2.0; 3]);
        outcome.validity = Validity::of(vec![Reason { check, sentence: "it was late".into() }]);
        outcome.figures.set("rate.achieved", achieved).expect("a known figure");
        finder.take(outcome);
        match finder.next() {
            Next::Trial(trial) => trial.load,
            Next::Done(_) => 0.0,
        }
    };
    assert_eq!((of(Check::Generator, 99.5), of(Check::Rate, 99.5)), (110.0, 90.0));
    // A short trial makes all sessions, and not in its time.
    assert_eq!(of(Check::Generator, 30.0), 90.0);
}

/// Creates a point: load, CPU, RRD, SRD, packet delay (ms), failed calls in per cent.
fn point(load: f64, cpu: f64, [rrd, srd, packet]: [f64; 3], isa: f64) -> Point {
    let mut outcome = TrialOutcome::default();
    let figures = [
        ("server.cpu", cpu - 17.0),
        ("database.cpu", 17.0),
        ("rrd.mean", rrd * 1e3),
        ("srd.mean", srd * 1e3),
        ("packet.delay.max", packet * 1e3),
        ("ira.any", 0.0),
        ("isa.any", isa),
    ];
    for (figure, value) in figures {
        outcome.figures.set(figure, value).expect("a known figure");
    }
    Point { load, outcome }
}

/// Returns steps of 60 calls, as the methodology describes its B2BUA: the CPU is full from 660 calls on, delays leap between 600
/// and 660.
fn b2bua() -> Vec<Point> {
    (1..=12)
        .map(|n| {
            let load = f64::from(n) * 60.0;
            let (cpu, delay, packet) = match n {
                ..=10 => (20.0 + 6.5 * f64::from(n), 12.0, 31.0),
                11 => (97.0, 150.0, 70.0),
                _ => (97.5, 400.0, 140.0),
            };
            // One point stands out, as random events make it.
            let srd = if n == 4 { 4.0 * delay } else { delay };
            point(load, cpu, [delay, srd, packet], 0.0)
        })
        .collect()
}

#[test]
fn the_limits_are_those_of_the_published_table() {
    let found = criteria(&b2bua());
    assert_eq!(found.limit(Criterion::Cpu), Some(660.0));
    assert_eq!(found.limit(Criterion::Delays), Some(600.0));
    assert_eq!(found.limit(Criterion::PacketDelay), Some(600.0));
    assert_eq!(found.limit(Criterion::Ineffective), None);
    assert_eq!(found.total().map(|(_, load)| load), Some(600.0));
    // The proxy: everything at 1,600.
    let proxy: Vec<Point> = (2..=18)
        .map(|n| match n {
            ..=15 => point(f64::from(n) * 100.0, 5.0 * f64::from(n) + 18.0, [9.0, 11.0, 0.0], 0.1),
            16 => point(1_600.0, 98.0, [14.0, 18.0, 0.0], 0.4),
            _ => point(f64::from(n) * 100.0, 99.0, [240.0, 900.0, 0.0], 7.0),
        })
        .collect();
    let found = criteria(&proxy);
    let limits = [Criterion::Cpu, Criterion::Delays, Criterion::Ineffective].map(|criterion| found.limit(criterion));
    assert_eq!(limits, [Some(1_600.0); 3]);
}

#[test]
fn boundaries_of_delays_are_limits_too() {
    // Without a leap: each step is less than twice the trend before it.
    let rising =
        |n: u32| point(f64::from(n), 30.0, [150.0 + 50.0 * f64::from(n), 100.0, 40.0 + 12.0 * f64::from(n)], 0.0);
    let points: Vec<Point> = (1..=6).map(rising).collect();
    let found = criteria(&points);
    // 300 ms at 3, and 88 ms at 4, are not above their boundaries.
    assert_eq!((found.limit(Criterion::Delays), found.limit(Criterion::PacketDelay)), (Some(3.0), Some(4.0)));
    // A first point beyond its boundary leaves nothing.
    assert_eq!(criteria(&points[4..]).limit(Criterion::Delays), Some(0.0));
    assert_eq!(criteria(&[]).total(), None);
}

#[test]
fn a_cpu_that_still_rises_has_no_limit_yet() {
    let points: Vec<Point> = (1..=5).map(|n| point(f64::from(n), 15.0 * f64::from(n) + 17.0, [9.0; 3], 0.0)).collect();
    assert_eq!(criteria(&points).limit(Criterion::Cpu), None);
    // A server whose calls cost the less the more there are: the last steps look flat, and are not.
    let measured = [54.3, 56.6, 60.0, 60.0, 61.5, 62.6, 64.4, 65.8, 65.2, 67.0];
    let points: Vec<Point> = (1..).zip(measured).map(|(n, cpu)| point(f64::from(n), cpu, [9.0; 3], 0.0)).collect();
    assert_eq!(criteria(&points).limit(Criterion::Cpu), None);
    // Over four more steps it is flat, at whatever height.
    let flat = (11..15).map(|n| point(f64::from(n), 67.0, [9.0; 3], 0.0));
    assert_eq!(criteria(&points.into_iter().chain(flat).collect::<Vec<_>>()).limit(Criterion::Cpu), Some(8.0));
}

struct Proxy;

impl Server for Proxy {
    fn capacity(&self) -> f64 {
        1_630.0
    }

    fn serve(&mut self, load: f64, _: Duration) -> TrialOutcome {
        let mut outcome = outcome((1.0 - 1_630.0 / load).max(0.0), [2.0; 3]);
        for (figure, value) in [("server.cpu", (load / 16.3).min(100.0)), ("srd.mean", 2_000.0)] {
            outcome.figures.set(figure, value).expect("a known figure");
        }
        outcome.figures.set("server.thread/shard-0", (load / 16.3).min(100.0)).expect("a known figure");
        outcome
    }
}

#[test]
fn a_staircase_goes_two_steps_beyond_its_limit() {
    let settings = StaircaseSettings { start: 200.0, step: 200.0, most: 4_000.0, duration: Duration::from_secs(600) };
    let mut staircase = Staircase::new(settings);
    let found = search(&mut staircase, &mut Proxy);
    assert_eq!(staircase.points().last().map(|point| point.load), Some(2_000.0));
    assert_eq!((found.limit.finding, found.limit.load, found.limit.beyond), (Finding::Found, 1_600.0, Some(1_800.0)));
    assert_eq!(found.limit.cause.to_string(), "server: its thread shard-0 used 100 % of a core");
    let found = search(&mut Staircase::new(StaircaseSettings { most: 1_000.0, ..settings }), &mut Proxy);
    assert_eq!((found.limit.finding, found.limit.load, found.limit.loads), (Finding::AtLeast, 1_000.0, 5));
}
