//! Tests of the overload control, also in a loop with a queue.

use super::*;
use RequestClass::*;
use std::collections::{BTreeMap, VecDeque};

fn at(mono: u64) -> Now {
    Now { mono, wall: 0 }
}

/// Reports waits in milliseconds at these times, and returns the times of begins and ends.
fn changes(control: &mut OverloadControl, reports: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, bool)> {
    let change = |(now, wait)| {
        let change = control.waited(at(now), wait * 1_000)?;
        Some((now, change == OverloadChange::Began))
    };
    reports.into_iter().filter_map(change).collect()
}

/// Returns a control in an overload that began at 100 ms, with this share of the calls admitted, in tenths.
fn overloaded(tenths: u64) -> OverloadControl {
    let mut control = OverloadControl::new([1, 2]);
    // The wait grows by as much as is not served.
    let began = changes(&mut control, (0..=10).map(|n| (n * 10, 10 + n * (10 - tenths))));
    assert_eq!(began, [(100, true)]);
    control
}

/// Returns how many of a thousand requests of this class are admitted.
fn admitted(control: &mut OverloadControl, class: RequestClass) -> usize {
    (0..1_000).filter(|n| control.refuses(at(100), class, format!("{n}").as_bytes()).is_none()).count()
}

#[test]
fn it_begins_when_messages_are_late_for_a_while() {
    let every = |from: u64, to: u64| (from..=to).step_by(10);
    for (reports, began) in [
        (every(0, 200).map(|now| (now, 5)).collect::<Vec<_>>(), None),
        (every(0, 99).map(|now| (now, 6)).collect(), None),
        (every(0, 100).map(|now| (now, 6)).collect(), Some(100)),
        // It was on time once.
        (every(0, 150).map(|now| (now, if now == 60 { 5 } else { 6 })).collect(), None),
        // The wait falls by itself.
        (every(0, 200).map(|now| (now, 210 - now)).collect(), None),
        // The shard stood still.
        (vec![(0, 6), (150, 150)], None),
        // It stood still twice, and the queue may be empty soon.
        (vec![(0, 6), (99, 105), (150, 156)], None),
        (vec![(0, 8), (60, 68), (65, 60), (125, 120), (130, 110), (140, 0)], None),
        // The queue stays from standstill to standstill.
        (vec![(0, 6), (80, 80), (100, 60), (180, 130), (200, 110), (280, 180)], Some(280)),
    ] {
        let mut control = OverloadControl::new([1, 2]);
        assert!(!control.is_active() && control.deadline().is_none());
        let found = changes(&mut control, reports.clone());
        assert_eq!(found.first().map(|(now, _)| *now), began, "{reports:?}");
        assert_eq!(control.is_active(), began.is_some());
        assert_eq!(control.is_refused(Other), began.is_some());
    }
}

#[test]
fn the_first_step_follows_the_growth_of_the_wait() {
    for (tenths, least, most) in [(9, 850, 930), (5, 420, 530), (1, 50, 130)] {
        let mut control = overloaded(tenths);
        let calls = admitted(&mut control, Call);
        assert!((least..=most).contains(&calls), "{tenths}: {calls}");
        let percent = control.refused_percent();
        assert!((100 - most / 10..=101 - least / 10).contains(&(percent as usize)), "{tenths}: {percent}");
        assert_eq!(admitted(&mut control, Other), 0);
        for class in [Registration, Refresh] {
            assert_eq!(admitted(&mut control, class), 1_000, "{class:?}");
            assert!(!control.is_refused(class));
        }
    }
}

/// Checks that a class is refused only when all requests of the classes before it are.
#[test]
fn classes_are_refused_in_order() {
    for tenths in 1..10 {
        let mut control = overloaded(tenths);
        let mut shares = [0; 4];
        (control.step.wait, control.step.least) = (ON_TIME, ON_TIME);
        for step in 1..=8 {
            for n in 0..400 {
                for class in RequestClass::ALL {
                    control.refuses(at(100), class, format!("{n}").as_bytes());
                }
            }
            // The wait does not change.
            control.waited(at(100 + step * STEP), ON_TIME);
            shares = RequestClass::ALL.map(|class| admitted(&mut control, class));
            // These requests do not count.
            control.counted = [0; 4];
            for n in 1..4 {
                assert!(shares[n - 1] == 0 || shares[n] == 1_000, "{tenths}, {step}: {shares:?}");
            }
        }
        // The work of a call is three, that of the others is one.
        let all = [1, 3, 1, 1_usize].into_iter().zip(shares).map(|(work, share)| work * share).sum::<usize>();
        assert!((600 * tenths as usize - 600..600 * tenths as usize + 100).contains(&all), "{tenths}: {shares:?}");
    }
}

#[test]
fn an_exempted_request_does_not_count() {
    let mut control = overloaded(1);
    let refused = (0..1_000).filter(|n| control.refuses(at(100), Call, format!("{n}").as_bytes()).is_some()).count();
    for _ in 0..refused {
        control.exempt(Call);
    }
    assert_eq!((control.counted[Call as usize] as usize, control.refused), (1_000 - refused, 0));
}

#[test]
fn a_call_id_keeps_its_draw_for_a_time() {
    let mut control = overloaded(5);
    let mut fate = |now: u64, key: &str| control.refuses(at(now), Call, key.as_bytes()).is_none();
    let keys: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let first: Vec<bool> = keys.iter().map(|key| fate(100, key)).collect();
    let same: Vec<bool> = keys.iter().map(|key| fate(DRAW_TIME - 1, key)).collect();
    let later: Vec<bool> = keys.iter().map(|key| fate(DRAW_TIME, key)).collect();
    assert_eq!(first, same);
    assert_ne!(first, later);
    let times: Vec<u32> = keys.iter().filter_map(|key| control.refuses(at(100), Other, key.as_bytes())).collect();
    assert!(times.iter().all(|time| (5..=30).contains(time)), "{times:?}");
    assert!(times.iter().any(|time| *time < 12) && times.iter().any(|time| *time > 23), "{times:?}");
}

#[test]
fn an_idle_shard_recovers_by_the_clock() {
    let mut control = overloaded(1);
    assert_eq!(control.deadline(), Some(100 + STEP));
    let found = changes(&mut control, [(150, 0), (200, 0), (1_200, 0), (2_150, 0), (2_200, 0)]);
    assert_eq!(found, [(2_200, false)]);
    assert_eq!((control.refused_percent(), control.deadline()), (0, None));
    assert_eq!(admitted(&mut control, Other), 1_000);
}

/// Result of [`run`].
struct Run {
    /// Admitted calls by second, in thousandths of the capacity.
    goodput: Vec<u64>,
    /// Longest wait of nineteen of twenty calls, in milliseconds.
    wait: u64,
    /// Begins and ends.
    changes: Vec<(u64, bool)>,
}

/// Capacity of the shard of [`run`] in calls a millisecond. A call costs 200 us: its INVITE 100 us, four later messages 25 us each.
const CAPACITY: f64 = 5.0;

/// Message in the queue of a shard.
#[derive(Clone, Copy)]
enum Queued {
    Invite(u64),
    Later,
    Ack,
}

/// Offers calls to a shard for ten seconds. `load`: calls by capacity at a time in milliseconds. A refusal costs 12 us, its ACK 4 us.
fn run(load: impl Fn(u64) -> f64) -> Run {
    run_while(load, |_| true)
}

/// Offers calls to a shard as [`run`] does. `has_processor`: whether the shard has a processor at a time in milliseconds.
fn run_while(load: impl Fn(u64) -> f64, has_processor: impl Fn(u64) -> bool) -> Run {
    let mut control = OverloadControl::new([1, 2]);
    let (mut queue, mut due) = (VecDeque::new(), BTreeMap::<u64, Vec<Queued>>::new());
    let (mut offered, mut number, mut budget) = (0.0, 0_u64, 0.0_f64);
    let (mut goodput, mut waits, mut changes) = (vec![0_u32; 10], Vec::new(), Vec::new());
    for now in 0..10_000 {
        queue.extend(due.remove(&now).into_iter().flatten().map(|message| (now, message)));
        offered += load(now) * CAPACITY;
        while offered >= 1.0 {
            offered -= 1.0;
            number += 1;
            queue.push_back((now, Queued::Invite(number)));
        }
        if !has_processor(now) {
            continue;
        }
        budget = budget.min(0.0) + 1_000.0;
        while budget > 0.0 {
            let wait = queue.front().map_or(0, |(came, _)| (now - came) * 1_000);
            let change = control.waited(at(now), wait);
            changes.extend(change.map(|change| (now, change == OverloadChange::Began)));
            let Some((came, message)) = queue.pop_front() else { break };
            budget -= match message {
                Queued::Later => 25.0,
                Queued::Ack => 4.0,
                Queued::Invite(call) if control.refuses(at(now), Call, &call.to_be_bytes()).is_some() => {
                    due.entry(now + 1).or_default().push(Queued::Ack);
                    12.0
                }
                Queued::Invite(_) => {
                    for after in [5, 10, 15, 400] {
                        due.entry(now + after).or_default().push(Queued::Later);
                    }
                    goodput[now as usize / 1_000] += 1;
                    waits.push(now - came);
                    100.0
                }
            };
        }
        if queue.is_empty() {
            let change = control.waited(at(now), 0);
            changes.extend(change.map(|change| (now, change == OverloadChange::Began)));
        }
    }
    waits.sort_unstable();
    let wait = waits[waits.len() * 95 / 100];
    Run { goodput: goodput.iter().map(|calls| (f64::from(*calls) / CAPACITY) as u64).collect(), wait, changes }
}

/// Returns the goodput of a shard that refuses exactly as many calls as it must, in thousandths of its capacity.
fn ideal(load: f64) -> f64 {
    const REFUSAL: f64 = 16.0 / 200.0;
    let refused = (load - 1.0).max(0.0) * REFUSAL / (1.0 - REFUSAL);
    (load.min(1.0) - refused) * 1_000.0
}

#[test]
fn goodput_is_nearly_ideal_under_each_load() {
    for load in [0.5, 0.9, 1.2, 2.0, 5.0, 10.0] {
        let run = run(|_| load);
        let (goodput, ideal) = (run.goodput[2..].iter().sum::<u64>() as f64 / 8.0, ideal(load));
        assert!((0.95 * ideal..1.02 * ideal).contains(&goodput), "{load}: {:?}, {ideal}", run.goodput);
        assert!(run.wait < 200, "{load}: {} ms", run.wait);
        assert_eq!(run.changes.len(), usize::from(load > 1.0), "{load}: {:?}", run.changes);
    }
}

#[test]
fn all_calls_are_admitted_soon_after_the_load_has_fallen() {
    let run = run(|now| if now < 5_000 { 10.0 } else { 0.9 });
    assert!(run.goodput[6..].iter().all(|goodput| (895..=905).contains(goodput)), "{:?}", run.goodput);
    let [(began, true), (ended, false)] = run.changes[..] else { panic!("{:?}", run.changes) };
    assert!(began < 200 && (6_000..8_000).contains(&ended), "{began}, {ended}");
}

#[test]
fn a_short_burst_is_served() {
    let run = run(|now| if (1_000..1_015).contains(&now) { 3.0 } else { 0.5 });
    assert_eq!(run.changes, []);
    let goodput = run.goodput.iter().sum::<u64>();
    assert!((5_030..=5_040).contains(&goodput), "{goodput}");
}

/// Returns whether a shard of a busy machine has a processor, by millisecond. It waits for one for 20 to 100 ms at a time, and runs for up to
/// 80 ms in between.
fn busy_machine(seed: u64) -> Vec<bool> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % 81
    };
    let mut has_processor = Vec::new();
    while has_processor.len() < 10_000 {
        has_processor.resize(has_processor.len() + draw(), true);
        has_processor.resize(has_processor.len() + 20 + draw(), false);
    }
    has_processor
}

/// Checks that waits for a processor are no overload: the shard works off its queue after each of them.
#[test]
fn a_shard_that_waits_for_a_processor_refuses_nothing() {
    for seed in 1..=8 {
        let has_processor = busy_machine(seed);
        let run = run_while(|_| 0.17, |now| has_processor[now as usize]);
        assert_eq!(run.changes, [], "{seed}");
        let goodput = run.goodput.iter().sum::<u64>();
        assert!(goodput > 1_650, "{seed}: {:?}", run.goodput);
    }
}

#[test]
fn an_overload_ends_though_the_shard_waits_for_a_processor() {
    for seed in 1..=8 {
        let has_processor = busy_machine(seed);
        let run = run_while(|now| if now < 1_500 { 3.0 } else { 0.17 }, |now| has_processor[now as usize]);
        assert!(matches!(run.changes[..], [(_, true), .., (_, false)]), "{seed}: {:?}", run.changes);
        let goodput = run.goodput[5..].iter().sum::<u64>();
        assert!(goodput > 750, "{seed}: {:?}", run.goodput);
    }
}

/// Checks a shard that may use a fifth of a processor in each period, as by a quota of the kernel.
#[test]
fn a_quota_of_processor_time_is_a_capacity() {
    const SHARE: u64 = 5;
    for period in [5, 20, 100] {
        for load in [0.9, 1.2, 2.0, 5.0] {
            let run = run_while(|_| load / SHARE as f64, |now| now % period < period / SHARE);
            let goodput = run.goodput[2..].iter().sum::<u64>() as f64 / 8.0;
            let ideal = ideal(load) / SHARE as f64;
            assert!((0.9 * ideal..1.03 * ideal).contains(&goodput), "{period}, {load}: {:?}, {ideal}", run.goodput);
            assert_eq!(run.changes.len(), usize::from(load > 1.0), "{period}, {load}: {:?}", run.changes);
            assert!(run.wait < 400, "{period}, {load}: {} ms", run.wait);
        }
    }
}
