//! The table against a plain list of bindings, its bounds, ends and pages.

use super::*;
use crate::group::GroupSettings;
use crate::ticket::SinkId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const TICKET: Ticket = Ticket { sink: SinkId(0), value: 0 };

fn table() -> LocationTable {
    LocationTable::new(LocationSettings { partitions: 4, ..LocationSettings::default() })
}

fn contact(uri: &[u8], expires_at: u64) -> Binding<'_> {
    Binding { uri, expires_at, ..Binding::EMPTY }
}

fn uris(table: &LocationTable, aor: &[u8], now: u64) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    table.lookup(aor, now, &mut |b| out.push(b.uri().to_vec()));
    out.sort();
    out
}

fn add(table: &LocationTable, aor: &[u8], uri: &[u8], expires_at: u64) -> Result<UpdateStatus, UpdateError<()>> {
    table.update(aor, 0, 10, TICKET, |_| Ok(vec![Step::Add(contact(uri, expires_at))]))
}

#[test]
fn contacts_of_several_phones_stand_side_by_side() {
    let t = table();
    assert_eq!(add(&t, b"sip:a@x", b"sip:1", 5000), Ok(UpdateStatus::Done));
    assert_eq!(add(&t, b"sip:a@x", b"sip:2", 9000), Ok(UpdateStatus::Done));
    assert_eq!(add(&t, b"sip:b@x", b"sip:3", 9000), Ok(UpdateStatus::Done));
    assert_eq!(uris(&t, b"sip:a@x", 0), [b"sip:1", b"sip:2"]);
    assert_eq!(uris(&t, b"sip:a@x", 5000), [b"sip:2"], "a binding ends at its time, cleaned up or not");
    assert_eq!(uris(&t, b"sip:c@x", 0), Vec::<Vec<u8>>::new());
    assert!(t.is_registered(b"sip:b@x", 8999) && !t.is_registered(b"sip:b@x", 9000));
    assert_eq!((t.gauges().bindings, t.gauges().aors), (3, 2));
}

#[test]
fn a_decision_sees_what_is_there_and_its_steps_count() {
    let t = table();
    add(&t, b"a", b"one", 10_000).unwrap();
    add(&t, b"a", b"old", 500).unwrap();
    let standing = t.update(b"a", 1000, 10, TICKET, |now| {
        assert_eq!(now.iter().map(|b| b.uri().to_vec()).collect::<Vec<_>>(), [b"one"]);
        let one = now.iter().next().unwrap();
        let binding = Binding { cseq: 7, aor: b"another", ..contact(b"one", 20_000) };
        Ok::<_, ()>(vec![Step::Replace(one.id(), binding), Step::Add(contact(b"two", 30_000))])
    });
    assert_eq!(standing, Ok(UpdateStatus::Done));
    let mut after = Vec::new();
    t.lookup(b"a", 1000, &mut |b| after.push((b.aor().to_vec(), b.uri().to_vec(), b.cseq(), b.expires_at())));
    after.sort();
    let a = b"a".to_vec();
    assert_eq!(after, [(a.clone(), b"one".to_vec(), 7, 20_000), (a, b"two".to_vec(), 0, 30_000)]);
}

#[test]
fn all_steps_count_or_none() {
    let t = table();
    add(&t, b"a", b"one", 10_000).unwrap();
    let before = uris(&t, b"a", 0);
    let long = vec![b'x'; 70_000];
    let bad: [(Vec<Step<'_>>, &str); 4] = [
        (vec![Step::RemoveAll, Step::Add(contact(&long, 1))], "a text too long"),
        (vec![Step::Add(contact(b"two", 9000)), Step::Remove(BindingId(999))], "no such binding"),
        (vec![Step::Remove(BindingId(1)), Step::Remove(BindingId(1))], "removed twice"),
        ((0..11).map(|_| Step::Add(contact(b"n", 9000))).collect(), "too many contacts"),
    ];
    for (steps, what) in bad {
        let result = t.update(b"a", 0, 10, TICKET, |_| Ok::<_, ()>(steps));
        assert!(result.is_err(), "{what}");
        assert_eq!(uris(&t, b"a", 0), before, "{what}");
    }
    let refused = t.update(b"a", 0, 10, TICKET, |_| Err("CSeq is old"));
    assert_eq!(refused, Err(UpdateError::Decision("CSeq is old")));
    assert_eq!(t.gauges().bindings, 1);
}

#[test]
fn an_address_of_record_over_its_limit_may_refresh_and_remove() {
    let t = table();
    for uri in [b"1", b"2", b"3"] {
        add(&t, b"a", uri, 9000).unwrap();
    }
    let with = |steps: Vec<Step<'_>>| t.update(b"a", 0, 2, TICKET, |_| Ok::<_, ()>(steps));
    assert_eq!(with(vec![Step::Add(contact(b"4", 9000))]), Err(UpdateError::TooManyContacts { contacts: 4, limit: 2 }));
    with(vec![Step::Replace(BindingId(1), contact(b"1", 10_000))]).unwrap();
    with(vec![Step::Remove(BindingId(2))]).unwrap();
    with(vec![Step::RemoveAll, Step::Add(contact(b"5", 9000))]).unwrap();
    assert_eq!(uris(&t, b"a", 0), [b"5"]);
}

#[test]
fn a_full_table_takes_refreshes_only() {
    let t = LocationTable::new(LocationSettings { bindings: 2, ..LocationSettings::default() });
    add(&t, b"a", b"1", 9000).unwrap();
    add(&t, b"b", b"1", 9000).unwrap();
    assert_eq!(add(&t, b"c", b"1", 9000), Err(UpdateError::TableFull));
    let refresh = |_: &ExistingBindings<'_>| Ok::<_, ()>(vec![Step::Replace(BindingId(1), contact(b"1", 10_000))]);
    t.update(b"a", 0, 10, TICKET, refresh).unwrap();
}

#[test]
fn what_is_refused_is_not_taken() {
    let t = LocationTable::new(LocationSettings { bindings: 1, ..LocationSettings::default() });
    let decided = |aor: &[u8], steps: Vec<Step<'_>>| {
        let mut is_taken = false;
        let outcome = t.update_and(aor, 0, 1, TICKET, |_| Ok::<_, ()>((steps, ())), |()| is_taken = true);
        (outcome.is_ok(), is_taken)
    };
    let add = || Step::Add(contact(b"one", 9000));
    assert_eq!(decided(b"a", vec![add()]), (true, true));
    assert_eq!(decided(b"a", vec![]), (true, true), "a question");
    assert_eq!(decided(b"a", vec![add(), add()]), (false, false), "too many contacts");
    assert_eq!(decided(b"b", vec![add()]), (false, false), "a full table");
    let queue = Queue::new(GroupSettings { linger: Duration::ZERO, group: 1, queue: 1 });
    queue.stop();
    t.write_to(Arc::new(queue));
    assert_eq!(decided(b"a", vec![Step::RemoveAll]), (false, false), "a journal that takes no more");
    assert!(t.is_registered(b"a", 0));
}

#[test]
fn what_expired_is_cleaned_up_in_bounded_steps() {
    let t = table();
    for n in 0..1000u64 {
        add(&t, format!("a{}", n % 500).as_bytes(), format!("u{n}").as_bytes(), 1000 * (n + 1)).unwrap();
    }
    assert_eq!(t.expire(999, 10_000, &mut |_| panic!("nothing is due")), 0);
    let mut seen = 0;
    assert_eq!(
        t.expire(100_000, 30, &mut |b| {
            assert!(b.expires_at() <= 100_000);
            seen += 1;
        }),
        30
    );
    assert_eq!(t.expire(100_000, 1000, &mut |_| seen += 1), 70);
    assert_eq!(seen, 100);
    assert_eq!(t.expire(100_999, 1000, &mut |_| {}), 0);
    assert_eq!(t.expire(101_000, 1000, &mut |_| {}), 1);
    assert_eq!((t.gauges().bindings, t.gauges().aors, t.gauges().expired), (899, 500, 101));
    // The expiry is far beyond one turn of the wheel, and follows a pause of many turns.
    add(&t, b"far", b"far", 9_000_000_000).unwrap();
    assert_eq!(t.expire(8_999_999_999, 10_000, &mut |_| {}), 899);
    assert_eq!(t.expire(9_000_000_000, 10_000, &mut |b| assert_eq!(b.aor(), b"far")), 1);
    assert_eq!((t.gauges().bindings, t.gauges().aors), (0, 0));
}

#[test]
fn a_walk_sees_every_binding_once() {
    let t = table();
    for n in 0..333 {
        add(&t, format!("a{n}").as_bytes(), b"u", 9000).unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    let (mut at, mut rounds) = (Some(Cursor::default()), 0);
    while let Some(cursor) = at {
        let mut of_one = 0;
        at = t.walk(cursor, 7, &mut |b| {
            assert!(seen.insert(b.aor().to_vec()));
            of_one += 1;
        });
        assert!(of_one <= 7);
        rounds += 1;
    }
    assert_eq!(seen.len(), 333);
    assert!(rounds >= 333 / 7);
}

#[test]
fn threads_that_register_one_address_lose_nothing() {
    let t = table();
    std::thread::scope(|s| {
        for n in 0..4 {
            let t = &t;
            s.spawn(move || {
                for m in 0..500 {
                    let uri = format!("{n}-{m}");
                    let add = |_: &ExistingBindings<'_>| Ok::<_, ()>(vec![Step::Add(contact(uri.as_bytes(), 9000))]);
                    t.update(b"a", 0, 10_000, TICKET, add).unwrap();
                }
            });
        }
    });
    let mut count = 0;
    t.lookup(b"a", 0, &mut |_| count += 1);
    assert_eq!(count, 2000);
}

#[derive(Clone, Debug)]
enum Act {
    Add(u8, u64),
    Refresh(u8, usize, u64),
    Remove(u8, usize),
    Clear(u8),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..6u8, 1..3_000_000u64).prop_map(|(a, e)| Act::Add(a, e)),
        2 => (0..6u8, 0..4usize, 1..3_000_000u64).prop_map(|(a, n, e)| Act::Refresh(a, n, e)),
        1 => (0..6u8, 0..4usize).prop_map(|(a, n)| Act::Remove(a, n)),
        1 => (0..6u8).prop_map(Act::Clear),
        2 => (0..700_000u64).prop_map(Act::Pass),
    ]
}

proptest! {
    /// The table behaves as an ordered map, with any steps in any order.
    #[test]
    fn the_table_is_a_map(acts in proptest::collection::vec(act(), 1..120)) {
        let t = table();
        let mut model: BTreeMap<(u8, u64), u64> = BTreeMap::new();
        let mut now = 1_000_000;
        let mut next = 1;
        for act in acts {
            let nth = |model: &BTreeMap<(u8, u64), u64>, a: u8, n: usize| {
                model.iter().filter(|(k, e)| k.0 == a && **e > now).map(|(k, _)| k.1).nth(n)
            };
            let (aor, steps) = match act {
                Act::Add(a, e) => {
                    model.insert((a, next), now + e);
                    next += 1;
                    (a, vec![Step::Add(contact(b"u", now + e))])
                }
                Act::Refresh(a, n, e) => match nth(&model, a, n) {
                    Some(id) => {
                        model.insert((a, id), now + e);
                        (a, vec![Step::Replace(BindingId(id), contact(b"longer", now + e))])
                    }
                    None => continue,
                },
                Act::Remove(a, n) => match nth(&model, a, n) {
                    Some(id) => {
                        model.remove(&(a, id));
                        (a, vec![Step::Remove(BindingId(id))])
                    }
                    None => continue,
                },
                Act::Clear(a) => {
                    model.retain(|k, e| k.0 != a || *e <= now);
                    (a, vec![Step::RemoveAll])
                }
                Act::Pass(ms) => {
                    now += ms;
                    let gone = model.values().filter(|e| **e <= now).count();
                    prop_assert_eq!(t.expire(now, usize::MAX, &mut |_| {}), gone);
                    model.retain(|_, e| *e > now);
                    continue;
                }
            };
            t.update(&[aor], now, 1000, TICKET, |_| Ok::<_, ()>(steps)).unwrap();
            for a in 0..6u8 {
                let mut seen = BTreeMap::new();
                t.lookup(&[a], now, &mut |b| { seen.insert((a, b.id().0), b.expires_at()); });
                let want: BTreeMap<_, _> =
                    model.iter().filter(|(k, e)| k.0 == a && **e > now).map(|(k, e)| (*k, *e)).collect();
                prop_assert_eq!(seen, want);
            }
            prop_assert_eq!(t.gauges().bindings, model.len());
        }
    }
}
