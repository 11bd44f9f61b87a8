//! Look-ups in the location table and in the subscriber cache, made for each message, do not allocate.

use std::sync::{Arc, mpsc};

use strowger_allocations::of_thread;
use strowger_backend::sqlite::SqliteSettings;
use strowger_backend::sqlite::subscribers::{self, SqliteAdmin};
use strowger_store::binding::{Binding, Received};
use strowger_store::clock::Moment;
use strowger_store::error::StoreError;
use strowger_store::location::{ExistingBindings, LocationSettings, LocationTable, Step};
use strowger_store::read_through::ReadThroughSettings;
use strowger_store::subscriber::{Ha1s, Question, SubscriberAdmin, SubscriberAnswer, Subscribers};
use strowger_store::ticket::Ticket;

fn allocations(f: impl FnOnce()) -> u64 {
    let before = of_thread();
    f();
    of_thread() - before
}

#[test]
fn a_look_up_allocates_nothing() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");

    let dir = tempfile::tempdir().unwrap();
    let settings = SqliteSettings::new(dir.path().join("s.db"));
    let mut admin = SqliteAdmin::open(&settings).unwrap();
    let ha1 = Ha1s { md5: Some([1; 16]), ..Ha1s::default() };
    admin.add("alice", "example.com", "r", &ha1, 0).unwrap();
    let now = 1_000;
    let clock = Arc::new(move || Moment { mono: now, wall: 0 });
    let store = subscribers::start(&settings, ReadThroughSettings::default(), clock).unwrap();
    let (tx, rx) = mpsc::channel();
    let sink = store.receiver(Arc::new(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
        let _gone = tx.send(results.len());
    }));
    let questions = [
        Question::Credential { username: b"alice", realm: b"r" },
        Question::Credential { username: b"nobody", realm: b"r" },
        Question::User { username: b"alice", domain: b"example.com" },
    ];
    for question in questions {
        store.request(Ticket { sink, value: 0 }, question, now).unwrap();
        store.flush();
        rx.recv().unwrap();
        let count = allocations(|| assert!(store.cached(question, now).is_some()));
        assert_eq!(count, 0, "{question:?}");
    }
    assert_eq!(allocations(|| store.flush()), 0);

    let table = LocationTable::new(LocationSettings::default());
    let received = Some(Received { transport: 1, address: "192.0.2.1:5060".parse().unwrap() });
    for n in 0..1000u32 {
        let aor = format!("sip:user{}@example.com", n % 300);
        let b = Binding { uri: aor.as_bytes(), user_agent: b"Phone", received, expires_at: 9000, ..Binding::EMPTY };
        let steps = |_: &ExistingBindings<'_>| Ok::<_, ()>(vec![Step::Add(b)]);
        table.update(aor.as_bytes(), 0, 10, Ticket { sink, value: 0 }, steps).unwrap();
    }
    let mut seen = 0;
    let count = allocations(|| {
        for _ in 0..100 {
            table.lookup(b"sip:user7@example.com", 0, &mut |b| {
                assert_eq!(b.binding().user_agent, b"Phone");
                assert_eq!(b.received(), received);
                seen += 1;
            });
            table.lookup(b"sip:nobody@example.com", 0, &mut |_| seen += 1000);
        }
    });
    assert_eq!((count, seen), (0, 400));
}
