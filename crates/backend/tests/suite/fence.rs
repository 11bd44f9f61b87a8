//! Fence of a lease: a server that has lost its lease without noticing writes nothing. No test waits for a renewal, by
//! which a server learns of the loss.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use strowger_backend::sql::ServerSettings;
use strowger_backend::sql::bindings::ServerBindings;
use strowger_backend::sql::calls::{CallSettings, ServerCalls};
use strowger_backend::sql::lease::{self, Claim, Holder, Lease, Purpose};
use strowger_backend::sql::schema::{self, Part, SchemaCommand};
use strowger_lab::backend::{MariaDb, PostgreSql};
use strowger_lab::program::{MARIADB, MARIADBD, POSTGRESQL, Program};
use strowger_store::binding::{Binding, BindingId};
use strowger_store::calls::{CallEngine, Change};
use strowger_store::journal::{BindingEngine, Durability, Write};

const PATIENCE: Duration = Duration::from_secs(10);

fn take(settings: &ServerSettings, purpose: Purpose, claim: Claim) -> Arc<Lease> {
    let holder = Holder { name: "a test".into(), process: String::new(), has_ended: |_| false };
    let taken = lease::acquire(&[(settings.clone(), purpose)], &holder, claim, &AtomicBool::new(false));
    Arc::new(taken.expect("it can be taken").and_then(|mut leases| leases.pop()).expect("one lease"))
}

/// Returns the number of rows in a table.
type Rows<'a> = &'a dyn Fn(&str) -> usize;

/// Writes a binding with this number. Returns whether the database accepted it.
fn put(bindings: &mut ServerBindings, id: u64) -> bool {
    let binding = Binding {
        aor: b"sip:bob@example.org",
        uri: b"sip:bob@192.0.2.8",
        call_id: b"c",
        cseq: 1,
        expires_at: 1 << 47,
        ..Binding::EMPTY
    };
    bindings.commit(&mut [Write::Put(BindingId(id), binding, "udp")].into_iter()).is_ok()
}

fn fences_bindings(settings: &ServerSettings, rows: Rows<'_>) {
    let open = |lease: &Arc<Lease>| {
        ServerBindings::open(settings, Durability::Crash, PATIENCE, lease.clone()).expect("the table is there")
    };
    let written = || rows("strowger_binding");
    let first = take(settings, Purpose::Bindings, Claim::IfFree);
    let mut before = open(&first);
    assert!(put(&mut before, 1) && written() == 1);
    // The first holder continues, first on its existing connection, then on a new connection.
    let second = take(settings, Purpose::Bindings, Claim::TakeOver);
    for id in 2..4 {
        assert!(!put(&mut before, id), "the lease is another's");
    }
    assert_eq!(written(), 1);
    let mut after = open(&second);
    assert!(put(&mut after, 4) && written() == 2);
    assert!(!put(&mut before, 5) && written() == 2);
    // A newer connection of the same process fences the older connection.
    let mut newer = open(&second);
    assert!(put(&mut newer, 6) && written() == 3);
    assert!(!put(&mut after, 7), "a newer connection writes");
    assert_eq!(written(), 3);
}

fn fences_calls(settings: &ServerSettings, rows: Rows<'_>) {
    let calls = CallSettings { node: 3, form: 1, patience: PATIENCE };
    let open = |lease: &Arc<Lease>| ServerCalls::open(settings, calls, lease.clone()).expect("the table is there");
    let state = Change::State(vec![7; 50].into());
    let write = |calls: &mut ServerCalls, number| calls.write(&[(number, &state)]).is_ok();
    let written = || rows("strowger_call");
    let first = take(settings, Purpose::Calls(3), Claim::IfFree);
    let mut before = open(&first);
    before.load(&mut |_, _| ()).expect("it can be read");
    assert!(write(&mut before, 1) && written() == 1);
    let second = take(settings, Purpose::Calls(3), Claim::TakeOver);
    for number in 2..4 {
        assert!(!write(&mut before, number), "the lease is another's");
    }
    assert_eq!(written(), 1);
    let mut after = open(&second);
    after.load(&mut |_, _| ()).expect("it can be read");
    assert!(write(&mut after, 4) && written() == 2);
    assert!(!write(&mut before, 5) && written() == 2);
}

fn fences(url: &str, rows: Rows<'_>) {
    let settings = ServerSettings { url: url.parse().expect("a URL"), authorities: None };
    schema::carry_out(&settings, &[Part::Bindings, Part::Calls, Part::Leases], SchemaCommand::Init, false, 0)
        .expect("it makes tables");
    fences_bindings(&settings, rows);
    fences_calls(&settings, rows);
}

fn have(programs: &[Program]) -> bool {
    let missing = programs.iter().find(|program| program.path().is_none());
    if let Some(program) = missing {
        println!("left out: {} is not installed: apt-get install {}", program.name, program.package);
    }
    missing.is_none()
}

fn count(text: &str) -> usize {
    text.trim().parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

#[test]
fn who_has_lost_its_lease_writes_nothing_in_mariadb() {
    if !have(&[MARIADBD, MARIADB]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let database = MariaDb::start(folder.path()).expect("it starts");
    fences(&database.url(), &|table| {
        count(&database.execute(&format!("SELECT COUNT(*) FROM {table}")).expect("there is such a table"))
    });
}

#[test]
fn who_has_lost_its_lease_writes_nothing_in_postgresql() {
    if !have(&[POSTGRESQL]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let database = PostgreSql::start(folder.path()).expect("it starts");
    fences(&database.url(), &|table| {
        count(&database.execute(&format!("SELECT COUNT(*) FROM {table}")).expect("there is such a table"))
    });
}
