//! Order of changes, and the state after failures: memory equals the disk.

mod bed;

use self::bed::{Bed, Fake, bed};
use super::*;
use crate::binding::{Binding, BindingId};
use crate::clock::Moment;
use crate::location::{LocationSettings, Step, UpdateError, UpdateStatus};
use crate::ticket::{Refused, Ticket};
use std::sync::atomic::AtomicBool;

/// Returns a clock that does not advance, with equal times.
fn at(now_ms: u64) -> Clock {
    Arc::new(move || Moment { mono: now_ms, wall: now_ms })
}

fn quick() -> JournalSettings {
    JournalSettings { linger: Duration::ZERO, ..JournalSettings::default() }
}

#[test]
fn a_ticket_comes_when_the_row_is_kept() {
    let bed = bed(quick());
    assert_eq!(bed.add(7, b"a", b"u"), Ok(UpdateStatus::Pending));
    assert_eq!(bed.result(), (7, Ok(())));
    assert_eq!(bed.disk().len(), 1);
    assert_eq!(bed.update(8, b"a", vec![]), Ok(UpdateStatus::Pending), "a question waits for its turn");
    assert_eq!(bed.result(), (8, Ok(())));
    bed.update(9, b"a", vec![Step::RemoveAll]).unwrap();
    assert_eq!(bed.result(), (9, Ok(())));
    assert_eq!(bed.disk().len(), 0);
    assert_eq!(bed.journal.gauges().groups, 2, "a question alone needs no commit");
}

#[test]
fn changes_of_a_moment_share_a_commit_and_a_call() {
    let bed = bed(JournalSettings { linger: Duration::from_secs(20), group: 500, queue: 1000, ..quick() });
    for n in 0..500 {
        bed.add(n, format!("a{n}").as_bytes(), b"u").unwrap();
    }
    for n in 0..500 {
        assert_eq!(bed.result(), (n, Ok(())), "in the order of the changes");
    }
    assert!(bed.journal.gauges().groups <= 3, "{:?}", bed.journal.gauges());
    assert!(bed.calls.load(Ordering::SeqCst) <= 3);
}

#[test]
fn a_large_group_does_not_wait_for_its_linger() {
    let bed = bed(JournalSettings { linger: Duration::from_secs(3600), group: 10, queue: 100, ..quick() });
    for n in 0..10 {
        bed.add(n, b"a", b"u").unwrap();
    }
    for n in 0..10 {
        assert_eq!(bed.result(), (n, Ok(())));
    }
}

#[test]
fn a_full_queue_refuses_and_changes_nothing() {
    let bed = bed(JournalSettings { group: 4, queue: 3, ..quick() });
    let gate = bed.fake.gate.lock().unwrap();
    bed.add(0, b"a", b"first").unwrap();
    bed.until_commit(1);
    for n in 1..=3 {
        bed.add(n, b"a", b"more").unwrap();
    }
    assert_eq!(bed.add(4, b"a", b"late"), Err(UpdateError::Refused(Refused::Full)));
    assert_eq!(bed.memory().len(), 4);
    assert_eq!(bed.journal.gauges().refused, 1);
    assert_eq!(bed.table.expire(10_000, 100, &mut |_| panic!("not while the queue is full")), 0);
    drop(gate);
    for n in 0..=3 {
        assert_eq!(bed.result(), (n, Ok(())));
    }
    assert_eq!(bed.memory(), bed.disk());
}

#[test]
fn large_bindings_fill_the_queue_sooner() {
    let bed = bed(JournalSettings { group: 4, queue: 8, ..quick() });
    let gate = bed.fake.gate.lock().unwrap();
    bed.add(0, b"first", b"u").unwrap();
    bed.until_commit(1);
    let large = vec![b'x'; 12_000];
    for n in 1..=3 {
        let result = bed.add(n, &n.to_le_bytes(), &large);
        assert_eq!(result.is_ok(), n < 3, "each counts for three");
    }
    assert_eq!(bed.journal.gauges().queued, 6);
    drop(gate);
    for n in 0..3 {
        assert_eq!(bed.result(), (n, Ok(())));
    }
    bed.add(4, b"last", b"u").unwrap();
    assert_eq!(bed.result(), (4, Ok(())));
    assert_eq!(bed.journal.gauges().queued, 0);
}

#[test]
fn a_failed_group_takes_memory_back_and_what_was_built_on_it() {
    let bed = bed(quick());
    bed.add(0, b"a", b"kept").unwrap();
    assert_eq!(bed.result(), (0, Ok(())));
    let kept = bed.memory();

    let gate = bed.fake.gate.lock().unwrap();
    bed.fake.fail.store(true, Ordering::SeqCst);
    bed.add(1, b"a", b"fails").unwrap();
    bed.until_commit(2);
    // These changes were decided on the state of the failing group, so they must fail too, although their own commit
    // would succeed.
    bed.add(2, b"a", b"on top").unwrap();
    bed.update(3, b"a", vec![Step::RemoveAll]).unwrap();
    bed.update(4, b"a", vec![]).unwrap();
    bed.add(5, b"b", b"another").unwrap();
    bed.update(6, b"c", vec![]).unwrap();
    assert_eq!(bed.memory().len(), 1, "only the contact of b");
    let fail = Arc::clone(&bed.fake.fail);
    drop(gate);
    assert_eq!(bed.result(), (1, Err(StoreError::Full)));
    fail.store(false, Ordering::SeqCst);
    let late: Vec<_> = (0..5).map(|_| bed.result()).collect();
    for n in [2, 3, 4] {
        assert_eq!(late[n - 2], (n as u64, Err(StoreError::Superseded)));
    }
    assert_eq!(late[4].0, 6);
    assert_eq!(late[4].1, Ok(()));
    assert!(bed.table.is_registered(b"a", 0));
    assert_eq!(bed.memory(), bed.disk());
    assert!(kept.iter().all(|(id, row)| bed.disk().get(id) == Some(row)));

    bed.add(7, b"a", b"later").unwrap();
    assert_eq!(bed.result(), (7, Ok(())), "it goes on by itself");
    assert_eq!(bed.memory(), bed.disk());
}

/// The database made the change, but its answer was lost: the phone that got a 500 must be absent, and the earlier
/// phone present.
#[test]
fn what_a_commit_in_doubt_has_written_is_taken_back() {
    let bed = bed(quick());
    bed.add(0, b"a", b"first").unwrap();
    assert_eq!(bed.result(), (0, Ok(())));
    let kept = bed.disk();
    bed.fake.doubt.store(true, Ordering::SeqCst);
    bed.fake.fail.store(true, Ordering::SeqCst);
    bed.update(1, b"a", vec![Step::RemoveAll]).unwrap();
    assert_eq!(bed.result(), (1, Err(StoreError::Full)));
    bed.add(2, b"b", b"second").unwrap();
    assert_eq!(bed.result(), (2, Err(StoreError::Full)));
    assert_ne!(bed.disk(), kept, "it was made");
    assert_eq!(bed.memory(), kept);
    bed.fake.fail.store(false, Ordering::SeqCst);
    bed.add(3, b"c", b"third").unwrap();
    assert_eq!(bed.result(), (3, Ok(())));
    assert_eq!((bed.memory(), bed.memory().len()), (bed.disk(), 2));
}

fn renamed(aor: &[u8]) -> Option<Vec<u8>> {
    aor.strip_suffix(b"@b").map(|user| [user, b"@a"].concat())
}

fn rename_all(bed: &Bed) -> usize {
    bed.table.rename_all(&renamed, std::time::Instant::now() + Duration::from_secs(20)).bindings
}

#[test]
fn another_name_of_a_domain_reaches_memory_and_disk() {
    let bed = bed(JournalSettings { queue: 40, ..quick() });
    for n in 0..200 {
        bed.add(n, format!("{n}@b").as_bytes(), b"u").unwrap();
        assert_eq!(bed.result(), (n, Ok(())));
    }
    bed.add(200, b"7@a", b"v").unwrap();
    assert_eq!((bed.result(), rename_all(&bed)), ((200, Ok(())), 200));
    // This query is queued after these changes.
    bed.update(201, b"7@a", vec![]).unwrap();
    assert_eq!((bed.result(), bed.disk().len(), bed.disk() == bed.memory()), ((201, Ok(())), 201, true));
    assert!(bed.disk().values().all(|(aor, ..)| aor.ends_with(b"@a")));
    assert_eq!((bed.journal.gauges().refused, bed.table.gauges().aors), (0, 200));
}

/// The failed change may be the rename itself, or an earlier change of either name.
#[test]
fn a_failed_rename_takes_both_names_back() {
    for (first, is_in_doubt) in [b"x@b", b"x@a", b"y@a"].into_iter().flat_map(|first| [(first, false), (first, true)]) {
        let bed = bed(quick());
        for (n, aor) in [b"x@b", b"x@a"].into_iter().enumerate() {
            bed.add(n as u64, aor, b"u").unwrap();
            assert_eq!(bed.result(), (n as u64, Ok(())));
        }
        let kept = bed.disk();
        bed.fake.fail.store(true, Ordering::SeqCst);
        bed.fake.doubt.store(is_in_doubt, Ordering::SeqCst);
        let gate = bed.fake.gate.lock().unwrap();
        bed.add(2, first, b"fails").unwrap();
        bed.until_commit(3);
        assert_eq!(rename_all(&bed), if first == b"x@b" { 2 } else { 1 });
        bed.update(3, b"x@a", vec![Step::RemoveAll]).unwrap();
        drop(gate);
        assert_eq!(bed.result(), (2, Err(StoreError::Full)));
        assert!(bed.result().1.is_err());
        assert_eq!(bed.memory(), kept, "{}", first.escape_ascii());
        bed.fake.fail.store(false, Ordering::SeqCst);
        assert_eq!(rename_all(&bed), 1);
        bed.add(4, b"z@a", b"u").unwrap();
        assert_eq!((bed.result(), bed.disk() == bed.memory()), ((4, Ok(())), true));
        assert_eq!(bed.disk().values().map(|(aor, ..)| &aor[..]).collect::<Vec<_>>(), [b"x@a", b"x@a", b"z@a"]);
    }
}

#[test]
fn an_engine_that_panics_fails_its_group_alone() {
    let bed = bed(quick());
    bed.fake.panic.store(true, Ordering::SeqCst);
    bed.add(1, b"a", b"u").unwrap();
    assert_eq!(bed.result(), (1, Err(StoreError::Refused)));
    assert_eq!(bed.memory().len(), 0);
    bed.fake.panic.store(false, Ordering::SeqCst);
    bed.add(2, b"a", b"u").unwrap();
    assert_eq!(bed.result(), (2, Ok(())));
    assert_eq!(bed.memory(), bed.disk());
}

#[test]
fn rows_of_expired_bindings_go_even_after_a_failure() {
    let bed = bed(quick());
    bed.add(0, b"a", b"u").unwrap();
    assert_eq!(bed.result(), (0, Ok(())));
    bed.fake.fail.store(true, Ordering::SeqCst);
    assert_eq!(bed.table.expire(9000, 100, &mut |_| {}), 1);
    while bed.journal.gauges().unpurged == 0 {
        std::thread::yield_now();
    }
    assert_eq!(bed.disk().len(), 1);
    bed.fake.fail.store(false, Ordering::SeqCst);
    bed.add(1, b"b", b"u").unwrap();
    assert_eq!(bed.result(), (1, Ok(())));
    assert_eq!(bed.memory(), bed.disk());
    assert_eq!(bed.journal.gauges().unpurged, 0);
}

#[test]
fn a_binding_that_a_failed_change_expired_keeps_its_row() {
    let bed = bed(quick());
    bed.add(0, b"a", b"u").unwrap();
    assert_eq!(bed.result(), (0, Ok(())));
    bed.fake.fail.store(true, Ordering::SeqCst);
    let gate = bed.fake.gate.lock().unwrap();
    let short = Binding { uri: b"u", expires_at: 10, ..Binding::EMPTY };
    bed.update(1, b"a", vec![Step::Replace(BindingId(1), short)]).unwrap();
    bed.until_commit(2);
    assert_eq!(bed.table.expire(5_000, 100, &mut |_| {}), 1, "while that is being written");
    drop(gate);
    assert_eq!(bed.result(), (1, Err(StoreError::Full)));
    bed.fake.fail.store(false, Ordering::SeqCst);
    bed.add(2, b"b", b"u").unwrap();
    assert_eq!(bed.result(), (2, Ok(())));
    assert_eq!(bed.memory().len(), 2);
    assert_eq!(bed.memory(), bed.disk());
}

#[test]
fn a_start_brings_back_what_has_not_expired() {
    let bed = bed(quick());
    bed.add(0, b"a", b"u").unwrap();
    bed.update(1, b"b", vec![Step::Add(Binding { uri: b"short", expires_at: 10, ..Binding::EMPTY })]).unwrap();
    let Bed { fake, journal, .. } = bed;
    journal.close();
    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let (_journal, loaded) = Journal::start(fake, &table, quick(), at(10)).unwrap();
    assert_eq!(loaded, 1);
    assert!(table.is_registered(b"a", 10) && !table.is_registered(b"b", 10));
    let add = |_: &crate::location::ExistingBindings<'_>| {
        Ok::<_, ()>(vec![Step::Add(Binding { expires_at: 99, ..Binding::EMPTY })])
    };
    table.update(b"c", 10, 1, Ticket { sink: SinkId(0), value: 0 }, add).unwrap();
    let mut id = 0;
    table.lookup(b"c", 10, &mut |b| id = b.id().0);
    assert_eq!(id, 3, "ids are not used twice, not even those of expired rows");
}

#[test]
fn nodes_that_share_a_database_give_different_ids() {
    let fake = Fake::default();
    let mut seen = Vec::new();
    for node in [0, 1, 65_535, 1] {
        let table = Arc::new(LocationTable::new(LocationSettings { node, ..LocationSettings::default() }));
        let (journal, loaded) = Journal::start(fake.clone(), &table, quick(), at(0)).unwrap();
        assert_eq!(loaded, seen.len());
        let add = |_: &crate::location::ExistingBindings<'_>| {
            Ok::<_, ()>(vec![Step::Add(Binding { expires_at: 9000, ..Binding::EMPTY })])
        };
        table.update(format!("{}", seen.len()).as_bytes(), 0, 1, Ticket::NONE, add).unwrap();
        journal.close();
        let rows = fake.rows.lock().unwrap();
        let new = rows.keys().find(|id| !seen.contains(*id)).copied().expect("a row of its own");
        assert_eq!(BindingId(new).node(), node);
        assert!(i64::try_from(new).is_ok(), "databases count with a sign");
        drop(rows);
        seen.push(new);
    }
    assert_eq!(seen[3], seen[1] + 1, "a node goes on where it ended");
}

#[test]
fn closing_writes_what_is_queued_and_refuses_the_rest() {
    let bed = bed(JournalSettings { linger: Duration::from_secs(3600), ..JournalSettings::default() });
    for n in 0..50 {
        bed.add(n, b"a", b"u").unwrap();
    }
    let Bed { fake, table, journal, results, sink, .. } = bed;
    journal.close();
    assert_eq!(results.iter().count(), 50);
    assert_eq!(fake.rows.lock().unwrap().len(), 50);
    let add = |_: &crate::location::ExistingBindings<'_>| Ok::<_, ()>(vec![Step::Add(Binding::EMPTY)]);
    let refused = table.update(b"a", 0, 100, Ticket { sink, value: 0 }, add);
    assert_eq!(refused, Err(UpdateError::Refused(Refused::Stopped)));
}

/// Four shards change a few addresses in a database that sometimes fails: each ticket comes back once, and in the end
/// memory equals the disk.
#[test]
fn memory_equals_the_disk_after_any_failure() {
    for is_in_doubt in [false, true] {
        survives_failures(is_in_doubt);
    }
}

fn survives_failures(is_in_doubt: bool) {
    let bed = bed(JournalSettings { linger: Duration::from_micros(50), group: 16, queue: 64, ..quick() });
    bed.fake.doubt.store(is_in_doubt, Ordering::SeqCst);
    let done = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut on = false;
            while !done.load(Ordering::SeqCst) {
                on = !on;
                bed.fake.fail.store(on, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(300));
                let renamed = |aor: &[u8]| matches!(aor, [0 | 3]).then(|| vec![aor[0] + 1]);
                bed.table.rename_all(&renamed, std::time::Instant::now());
            }
            bed.fake.fail.store(false, Ordering::SeqCst);
        });
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                let (table, sink, sent) = (&bed.table, bed.sink, &sent);
                s.spawn(move || {
                    let mut random = worker + 1;
                    for n in 0..3000u64 {
                        // xorshift: any distribution is sufficient.
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let aor = [(random % 5) as u8];
                        let what = random >> 32 & 3;
                        let binding = Binding { uri: &n.to_le_bytes(), expires_at: 9000, ..Binding::EMPTY };
                        let ticket = Ticket { sink, value: worker << 32 | n };
                        let decide = |now: &crate::location::ExistingBindings<'_>| {
                            let first = now.iter().next().map(|b| b.id());
                            Ok::<_, ()>(match (what, first) {
                                (0, Some(id)) => vec![Step::Replace(id, binding)],
                                (1, Some(id)) => vec![Step::Remove(id)],
                                (2, _) if now.len() > 5 => vec![Step::RemoveAll, Step::Add(binding)],
                                _ => vec![Step::Add(binding)],
                            })
                        };
                        match table.update(&aor, 0, 1000, ticket, decide) {
                            Ok(_) => {
                                sent.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(UpdateError::Refused(Refused::Full)) => std::thread::yield_now(),
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    let mut seen = std::collections::HashSet::new();
    let (mut kept, mut failed, mut superseded) = (0, 0, 0);
    for _ in 0..sent.load(Ordering::SeqCst) {
        let (value, result) = bed.result();
        assert!(seen.insert(value), "a ticket came twice");
        match result {
            Ok(()) => kept += 1,
            Err(StoreError::Superseded) => superseded += 1,
            Err(_) => failed += 1,
        }
    }
    assert!(kept > 0 && failed > 0 && superseded > 0, "{kept} {failed} {superseded}");
    // Remaining repairs go with the next group.
    bed.add(u64::MAX, b"last", b"u").unwrap();
    assert_eq!(bed.result(), (u64::MAX, Ok(())));
    assert_eq!(bed.memory(), bed.disk());
    assert_eq!(bed.table.gauges().bindings, bed.memory().len());
}
