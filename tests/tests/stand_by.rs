//! Two servers on one database: the second takes over registrations and calls when the machine of the first is lost,
//! and the first writes nothing when it returns.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_tests::call::{exchange, register};
use strowger_tests::control::metric;
use strowger_tests::database::Database;
use strowger_tests::dialog::{arrives, invite, set_up};
use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;

use super::sql_rows::db;

const SOON: Duration = Duration::from_secs(20);

/// Upper bound of the time from the loss of a machine to a server that answers in its place.
const TAKE_OVER: Duration = Duration::from_secs(10);

/// Exit code of a server whose lease another one has taken.
const FENCED: i32 = 70;

/// Returns a server on this database. All servers have one name towards their peers, as with a floating address.
fn server(url: &str, name: SocketAddr, words: &[&str]) -> Setup {
    let lines = format!(
        "store.bindings = \"{url}\"\nstore.database = \"memory\"\nstore.busy_timeout = \"500ms\"\nauth.secret = \"a secret of this test only\"\n\
         dialogs.database = \"{url}\"\naccounting.cdr = true\naccounting.path = \"rows\"\n\
         accounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"\ncontrol.socket = \"orders\""
    );
    let address = port::free_address();
    let listener = format!(
        "[[listener]]\ntransport = \"udp\"\naddress = \"{}\"\nport = {}\nadvertise = \"{name}\"",
        address.ip(),
        address.port()
    );
    Setup::tables(&[(Udp, address)]).open_registrar().with(&lines).with(&listener).words(words)
}

/// Starts a server and waits until its log has this line.
fn begin(server: &mut Server, line: &str) {
    server.try_start();
    assert!(wait::until(SOON, || server.log().contains(line)), "{line}: {}", server.log());
}

fn takes_over(database: &Database) {
    let relay = SlowRelay::to(database.server().address());
    let port = database.server().address().port().to_string();
    let far = database.url().replace(&port, &relay.address().port().to_string());
    let name = port::free_address();
    let server = |words: &[&str]| server(&database.url(), name, words);
    let mut first = super::stand_by::server(&far, name, &[]).prepare();
    let (is_done, said) = db(&first, &["init"]);
    assert!(is_done && said.contains("leases"), "{said}");
    first.start();
    let [mut caller, mut bob] = [(); 2].map(|()| first.connect(Udp));
    register(&mut bob, "bob");
    let call = invite("sip:bob@example.org", &caller);
    let (mut end, _) = set_up(&mut caller, &mut bob, &call, true);
    let rows = |table: &str| database.execute(&format!("SELECT COUNT(*) FROM {table}")).trim().to_owned();
    assert!(wait::until(SOON, || rows("strowger_call") == "1"));

    // A live holder keeps its lease.
    let mut refused = server(&[]).prepare();
    assert!(!refused.try_start().end(SOON).success());
    // Of the two leases, the error names the one that was renewed first.
    refused.log_with("end it first");
    refused.log_with("--stand-by");
    let mut second = server(&["--stand-by"]).prepare();
    begin(&mut second, "another server has the lease: waiting");
    // Longer than the timeout of a silent holder.
    assert!(!wait::until(Duration::from_secs(6), || second.log().contains("bindings loaded")));

    relay.cut();
    let lost = Stopwatch::start();
    second.await_start();
    assert!(lost.took().is_below(TAKE_OVER), "{:?}", lost.took());
    let mut far_caller = second.connect(Udp);
    // The second server now has the registration, the call and its record.
    assert_eq!(metric(&second, "strowger_bindings"), 1.0);
    assert_eq!(metric(&second, "strowger_calls_tracked"), 1.0);
    let message = Request::new("MESSAGE", "sip:bob@example.org", "udp", far_caller.local());
    far_caller.send(&message.bytes()).expect("it is sent");
    bob.request("MESSAGE", SOON).expect("the binding leads to the phone");
    for wire in [&mut caller, &mut bob] {
        wire.turn_to(second.address(Udp));
    }
    arrives(&mut caller, &mut bob, &end.request("BYE"), &[]);
    assert!(wait::until(SOON, || rows("strowger_call") == "0"), "{}", second.log());

    // The first server returns, with an unwritten registration.
    let mut carol = first.connect(Udp);
    let contact = format!("sip:carol@{}", carol.local());
    let registration = Request::register("carol", "example.org", &contact, "udp", carol.local());
    assert_eq!(status(&exchange(&mut carol, &registration)), Some(500));
    relay.mend();
    let ended = first.process().end(SOON);
    assert_eq!(ended.code(), Some(FENCED), "{}", first.log());
    first.log_with("lease lost: another server has taken it");
    assert_eq!(rows("strowger_binding"), "1");

    // An operator can replace a live server at once.
    let asked = Instant::now();
    let third = server(&["--take-over"]).start();
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    assert_eq!(second.process().end(SOON).code(), Some(FENCED), "{}", second.log());
    assert_eq!(metric(&third, "strowger_bindings"), 1.0);

    // A server that ends releases its lease.
    let mut fourth = server(&["--stand-by"]).prepare();
    begin(&mut fourth, "another server has the lease: waiting");
    let mut third = third;
    third.stop();
    let asked = Instant::now();
    fourth.await_start();
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    // The lease of a server that is killed on this machine is free at once, too.
    fourth.kill();
    let asked = Instant::now();
    fourth.start();
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    fourth.stop();

    // A standby server ends on request.
    let holder = server(&[]).start();
    let mut fifth = server(&["--stand-by"]).prepare();
    begin(&mut fifth, "another server has the lease: waiting");
    fifth.stop();
    drop(holder);
}

#[test]
fn a_second_server_takes_over_in_mariadb() {
    if let Some((database, _folder)) = Database::mariadb() {
        takes_over(&database);
    }
}

#[test]
fn a_second_server_takes_over_in_postgresql() {
    if let Some((database, _certificate, _folder)) = Database::postgresql() {
        takes_over(&database);
    }
}
