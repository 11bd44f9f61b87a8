//! Database file locked by another process so that nothing can be read: calls of known users continue, and others get
//! their answer in time. Tests start in the order of their names: these, of a minute each with `STROWGER_WHOLE=1`, are among the first.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use strowger_backend::sqlite::SqliteSettings;
use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_tests::account::{add, authorized, register};
use strowger_tests::call::exchange;
use strowger_tests::frozen_database::FrozenDatabase;
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::{Stopwatch, Took};
use strowger_tests::text::{Request, method, respond, status, unique};
use strowger_tests::wire::Transport::Tcp;
use strowger_tests::wire::Wire;
use strowger_tests::{amount, in_background};

const STEP: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_millis(500);
const STALE_WAIT: Duration = Duration::from_millis(200);
/// Additional time of a step while other tests use the processor.
const PATIENCE: Duration = Duration::from_millis(250);

/// Makes a call with credentials, answered by `callee`; returns the status, and the time it took.
fn call(caller: &mut Wire, callee: &mut Wire, user: &str, to: &str) -> (Option<u16>, Took) {
    let mut invite = Request::new("INVITE", &format!("sip:{to}@example.org"), "tcp", caller.local())
        .with(format!("Contact: <sip:{user}@{};transport=tcp>", caller.local()));
    invite.from = format!("<sip:{user}@example.org>;tag={}", unique("f"));
    let challenge = exchange(caller, &invite);
    caller.send(&invite.ack(&challenge).bytes()).expect("the server takes messages");
    let invite = authorized(&invite, &challenge, user, user);
    let start = Stopwatch::start();
    caller.send(&invite.bytes()).expect("the server takes messages");
    loop {
        // The callee receives the ACKs, too.
        if let Some(got) = callee.receive(Duration::from_millis(1))
            && method(&got).as_deref() == Some("INVITE")
        {
            let contact = format!("Contact: <sip:alice@{};transport=tcp>", callee.local());
            callee.send(&respond(&got, 486, "callee", &[contact])).expect("the server takes messages");
        }
        if let Some(answer) = caller.final_response(Duration::from_millis(2)) {
            let took = start.took();
            caller.send(&invite.ack(&answer).bytes()).expect("the server takes messages");
            return (status(&answer), took);
        }
        assert!(start.took().is_below(STEP), "the call of {user} is not answered");
    }
}

#[test]
fn a_frozen_database_is_no_outage_for_users_who_are_known() {
    let mut server = Setup::on(&[Tcp])
        .with("domains = [\"example.org\"]\nban.enabled = false\nstore.cache_lifetime = \"0s\"")
        .with("store.lookup_timeout = \"500ms\"\nlog.refusals_per_minute = 1000")
        .start();
    for user in ["alice", "bob", "carol", "dave"] {
        server.add_user(&format!("{user}@example.org"), user);
    }
    let (mut phone, mut caller) = (server.connect(Tcp), server.connect(Tcp));
    register(&mut phone, "alice", "alice");
    assert_eq!(call(&mut caller, &mut phone, "bob", "alice").0, Some(486));

    let frozen = FrozenDatabase::of(&server);
    // The first call waits for `stale_wait`; from then on the database counts as silent.
    let (answer, took) = call(&mut caller, &mut phone, "bob", "alice");
    assert_eq!(answer, Some(486));
    assert!(took.is_below(STALE_WAIT + PATIENCE), "the first call waited for {took:?}");
    let mut late = Vec::new();
    for n in 0..8 {
        let (answer, took) = call(&mut caller, &mut phone, "bob", "alice");
        assert_eq!(answer, Some(486), "call {n}");
        late.push(took);
        // A user not asked for before the outage.
        let (answer, took) = call(&mut caller, &mut phone, "carol", "alice");
        assert_eq!(answer, Some(500));
        assert!(took.is_below(DEADLINE + PATIENCE), "an unknown user waited for {took:?}");
    }
    late.sort();
    assert!(late[4].is_below(Duration::from_millis(50)), "known users' calls wait: {late:?}");
    server.process().wait_for("the database does not answer", 1, STEP);
    let (answer, took) = call(&mut caller, &mut phone, "dave", "alice");
    assert_eq!(answer, Some(500));
    assert!(took.is_below(DEADLINE / 2), "it fails at once, not after {took:?}");

    drop(frozen);
    let back = Stopwatch::start();
    while call(&mut caller, &mut phone, "dave", "alice").0 != Some(486) {
        assert!(back.took().is_below(STEP), "it never recovers");
        // Poll interval.
        std::thread::sleep(Duration::from_millis(20));
    }
    // SQLite tries again after up to a third of a second.
    assert!(back.took().is_below(Duration::from_millis(1500)), "back after {:?}", back.took());
    server.process().wait_for("the database answers again", 1, STEP);
    assert_eq!(call(&mut caller, &mut phone, "carol", "alice").0, Some(486));
}

/// Returns the length of an outage.
fn length() -> Duration {
    Duration::from_secs(amount("STROWGER_OUTAGE_SECONDS", 60, 12))
}

/// Delay of a slow database.
const SLOW: Duration = Duration::from_millis(500);
/// `store.lookup_timeout`.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two calls of a caller.
const PAUSE: Duration = Duration::from_millis(100);

/// Calls of one kind: status and time of each.
struct Calls(Vec<(Option<u16>, Took)>);

impl Calls {
    /// Calls this phone as these users in turn, until the end.
    fn until(
        over: &AtomicBool,
        [caller, callee]: &mut [Wire; 2],
        phone: &str,
        mut next: impl FnMut() -> String,
    ) -> Self {
        let mut calls = Vec::new();
        while !over.load(Relaxed) {
            calls.push(call(caller, callee, &next(), phone));
            // The pause until the next call.
            std::thread::sleep(PAUSE);
        }
        Self(calls)
    }

    fn all_are(&self, expected: u16) {
        let count = |status| self.0.iter().filter(|call| call.0 == status).count();
        assert_eq!(count(Some(expected)), self.0.len(), "{:?}", self.0);
        assert!(self.0.len() > 10, "{}", self.0.len());
    }

    /// Asserts that this percentage of the calls was answered within the limit.
    #[track_caller]
    fn were_answered_in(&self, limit: Duration, share: usize) {
        let mut took: Vec<Took> = self.0.iter().map(|call| call.1).collect();
        took.sort_unstable();
        let at = took[(took.len() - 1) * share / 100];
        assert!(at.is_below(limit), "{share} %: {at:?} of {took:?}");
    }
}

/// Makes calls for a minute with default settings while `disturb` acts on the database: calls of known users, and of
/// users that were never asked for. Afterwards calls of both kinds must work at once.
fn outage(disturb: impl FnOnce(&Server) + Send) -> (Calls, Calls) {
    let server = Setup::on(&[Tcp]).with("domains = [\"example.org\"]\nlog.refusals_per_minute = 10000").start();
    // More users than call in a minute.
    let mut users = SqliteAdmin::open(&SqliteSettings::new(server.folder().join("test.sqlite"))).expect("it opens");
    add(&mut users, ["alice", "bob", "carol"].map(String::from).into_iter().chain((0..800).map(|n| format!("u{n}"))));
    drop(users);
    let [mut alice, mut carol] = ["alice", "carol"].map(|phone| {
        let mut wires = [server.connect(Tcp), server.connect(Tcp)];
        register(&mut wires[1], phone, phone);
        wires
    });
    let [caller, callee] = &mut alice;
    assert_eq!(call(caller, callee, "bob", "alice").0, Some(486));
    let over = AtomicBool::new(false);
    let (known, unknown) = std::thread::scope(|scope| {
        let (server, over, carol) = (&server, &over, &mut carol);
        let known = scope.spawn(|| Calls::until(over, &mut alice, "alice", || "bob".into()));
        let unknown = scope.spawn(|| {
            let mut users = (0..).map(|n| format!("u{n}"));
            Calls::until(over, carol, "carol", || users.next().expect("there is no end of numbers"))
        });
        disturb(server);
        over.store(true, Relaxed);
        (known.join().expect("each call is answered"), unknown.join().expect("each call is answered"))
    });
    let [caller, callee] = &mut carol;
    let (back, mut users) = (Stopwatch::start(), (700..800).map(|n| format!("u{n}")));
    while call(caller, callee, &users.next().expect("there are enough"), "carol").0 != Some(486) {
        assert!(back.took().is_below(Duration::from_millis(1500)), "it does not recover");
        // Poll interval.
        std::thread::sleep(Duration::from_millis(20));
    }
    (known, unknown)
}

#[test]
fn a_minute_without_a_database_is_none_for_users_who_are_known() {
    let (known, unknown) = in_background(|| {
        outage(|server| {
            let frozen = FrozenDatabase::of(server);
            // The length of the outage.
            std::thread::sleep(length());
            drop(frozen);
        })
    });
    known.all_are(486);
    known.were_answered_in(Duration::from_millis(50), 50);
    known.were_answered_in(STALE_WAIT + PATIENCE, 99);
    // The first calls came while the database still answered.
    let unknown = Calls(unknown.0.into_iter().skip_while(|call| call.0 == Some(486)).collect());
    unknown.all_are(500);
    unknown.were_answered_in(LOOKUP_TIMEOUT + Duration::from_millis(100), 95);
    unknown.were_answered_in(LOOKUP_TIMEOUT + 2 * PATIENCE, 100);
}

#[test]
fn a_minute_with_a_slow_database_holds_up_users_who_are_not_known_alone() {
    let (known, unknown) = in_background(|| {
        outage(|server| {
            let end = Instant::now() + length();
            while Instant::now() < end {
                let frozen = FrozenDatabase::of(server);
                // The time without reads.
                std::thread::sleep(SLOW);
                drop(frozen);
                // SQLite tries again a few times a second.
                std::thread::sleep(SLOW);
            }
        })
    });
    for calls in [&known, &unknown] {
        calls.all_are(486);
    }
    known.were_answered_in(Duration::from_millis(50), 95);
    unknown.were_answered_in(LOOKUP_TIMEOUT + Duration::from_millis(100), 100);
}

/// The server continues with its open file, and reports that the name belongs to another file.
#[test]
fn a_database_that_is_replaced_is_read_on() {
    let server = Setup::on(&[Tcp]).with("domains = [\"example.org\"]\nstore.cache_lifetime = \"0s\"").start();
    for user in ["alice", "bob"] {
        server.add_user(&format!("{user}@example.org"), user);
    }
    let (mut phone, mut caller) = (server.connect(Tcp), server.connect(Tcp));
    register(&mut phone, "alice", "alice");
    let (path, aside) = (server.folder().join("test.sqlite"), server.folder().join("aside"));
    std::fs::rename(&path, &aside).expect("it can be renamed");
    std::fs::write(&path, "this is no database").expect("the folder can be written");
    for user in ["alice", "bob"] {
        assert_eq!(call(&mut caller, &mut phone, user, "alice").0, Some(486), "{user}");
    }
    std::fs::rename(&aside, &path).expect("it can be renamed");
    assert_eq!(call(&mut caller, &mut phone, "bob", "alice").0, Some(486));
}
