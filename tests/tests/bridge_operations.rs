//! Operation of a server with bridged calls: reload, orders, limits, records, threads that come and go, shutdown.

use std::time::Duration;

use serde_json::{Value, json};
use strowger_tests::bridge::{body, described, description, invite, party, setup};
use strowger_tests::call::{exchange, register};
use strowger_tests::control::{self, done, metric};
use strowger_tests::dialog::{answer_to, arrives, contact};
use strowger_tests::server::{Server, Setup};
use strowger_tests::talk::Talk;
use strowger_tests::text::{field, respond, status, unique};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

use crate::accounting::rows;

const SOON: Duration = Duration::from_secs(20);

/// Ports of media of each server.
const PORTS: &str = "22000-22199";

/// Returns the accounting of a server in this form.
fn accounting(to: &str) -> String {
    format!(
        "accounting.cdr = true\naccounting.to = \"{to}\"\naccounting.path = \"rows\"\naccounting.spool = \"rows.spool\"\n\
         accounting.group_interval = \"10ms\""
    )
}

/// Connects a caller and bob, whose addresses of loopback end with these octets.
fn parties(server: &Server, octets: [u8; 2]) -> [Wire; 2] {
    let [caller, mut callee] = octets.map(|octet| party(server, &format!("127.0.0.{octet}")));
    register(&mut callee, "bob");
    [caller, callee]
}

/// Takes the BYE of the server, which is the other party, and returns its text.
fn take_bye(wire: &mut Wire) -> String {
    let bye = wire.request("BYE", SOON).expect("the server is the other party");
    wire.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
    String::from_utf8_lossy(&bye).into_owned()
}

fn calls(server: &Server) -> Value {
    control::json(server, &["calls", "list"])
}

/// Waits until no call and no session of media is left.
fn wait_until_empty(server: &Server) {
    let of_media = ["strowger_calls_bridged", "strowger_media_sessions", "strowger_media_port_pairs{state=\"used\"}"];
    let is_so = || calls(server) == json!([]) && of_media.iter().all(|name| metric(server, name) == 0.0);
    assert!(wait::until(SOON, is_so), "{}\n{}", calls(server), server.log());
}

#[test]
fn a_reload_is_for_the_next_call() {
    let server = setup("127.0.0.101", PORTS, "").start();
    let [mut caller, mut callee] = parties(&server, [102, 103]);
    let mut talk = Talk::begin(&mut caller, &mut callee);
    talk.wait_until_heard();
    server.rewrite("b2bua = true", "b2bua = false");
    server.rewrite(PORTS, "22000-22399");
    let said = done(&server, &["reload"]);
    let later = said.split_once("needs a restart:\n").map(|(_, later)| later.trim()).unwrap_or_default();
    assert!(later.starts_with("media.ports ") && later.lines().count() == 1, "{said}");
    // The call goes on, and so does its signalling.
    talk.wait_until_heard();
    talk.hold(&mut caller, &mut callee);
    // The next one is forwarded.
    let next = invite("sip:bob@example.org", &caller, &description(&caller, "m=audio 40000 RTP/AVP 8\r\n"));
    caller.send(&next.bytes()).expect("the server takes messages");
    let got = callee.request("INVITE", SOON).expect("the INVITE arrives");
    assert_eq!(field(&got, "Call-ID"), Some(next.call_id.clone()));
    assert_eq!(body(&got).into_bytes(), next.body);
    callee.send(&respond(&got, 486, &unique("callee"), &[])).expect("the server takes messages");
    let refusal = answer_to(&next, &mut caller, 200).expect("it is answered");
    assert_eq!(status(&refusal), Some(486));
    caller.send(&next.ack(&refusal).bytes()).expect("the server takes messages");
    callee.request("ACK", SOON).expect("the ACK arrives");
    arrives(&mut callee, &mut caller, &talk.call.far.request("BYE"), &[]);
    wait_until_empty(&server);
}

#[test]
fn an_operator_sees_and_ends_a_bridged_call() {
    let limit = "[[call_limit]]\nname = \"one\"\nmost = 1\nstatus = 486";
    let server = setup("127.0.0.104", PORTS, "call_limits = [\"one\"]").with(limit).with(&accounting("sqlite")).start();
    let [mut caller, mut callee] = parties(&server, [105, 106]);
    let talk = Talk::begin(&mut caller, &mut callee);
    talk.wait_until_heard();
    let figures = ["strowger_calls_tracked", "strowger_calls_bridged", "strowger_media_sessions"];
    let is_counted = wait::until(SOON, || figures.iter().all(|name| metric(&server, name) == 1.0));
    assert!(is_counted, "{:?}", figures.map(|name| metric(&server, name)));
    let list = calls(&server);
    let [one] = &list.as_array().expect("a list")[..] else { panic!("{list}") };
    let id = one["id"].as_str().expect("the call is tracked").to_owned();
    let shown = control::json(&server, &["calls", "show", &id]);
    let media: Vec<_> = shown["media"].as_array().expect("a list").iter().collect();
    let mut heard: Vec<_> = media.iter().filter_map(|stream| stream["party"].as_str()).collect();
    heard.sort_unstable();
    assert_eq!(heard, ["callee", "caller"], "{shown}");
    assert!(media.iter().all(|stream| stream["packets"].as_u64() > Some(0)), "{shown}");
    let refusal = Talk::try_begin(&mut caller, &mut callee).err().expect("the limit is full");
    assert_eq!(status(&refusal), Some(486));

    assert_eq!(control::json(&server, &["calls", "end", &id]), json!({"ended": id}));
    for wire in [&mut caller, &mut callee] {
        let bye = take_bye(wire);
        assert!(bye.contains("Reason: Q.850;cause=31\r\n"), "{bye}");
    }
    wait_until_empty(&server);
    let mut again = Talk::begin(&mut caller, &mut callee);
    arrives(&mut caller, &mut callee, &again.call.near.request("BYE"), &[]);
    wait_until_empty(&server);
    let ends = || {
        let answered = rows(&server, "cdr").into_iter().filter(|row| row["outcome"] == "answered");
        answered.map(|row| (row["call_id"].clone(), row["ended_by"].clone())).collect::<Vec<_>>()
    };
    assert!(wait::until(SOON, || ends().len() == 2), "{:?}", ends());
    let call_ids = [&talk, &again].map(|talk| talk.call.near.call_id.clone());
    assert_eq!(ends(), call_ids.into_iter().zip(["operator".to_owned(), "caller".to_owned()]).collect::<Vec<_>>());
}

#[test]
fn bridged_calls_move_between_threads() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("skipped: a machine of one core has one shard");
    }
    let media = format!("media.addresses = [\"127.0.0.107\"]\nmedia.ports = \"{PORTS}\"");
    let rule = "[[rule]]\nname = \"bridge\"\nb2bua = true";
    let setup = Setup::on(&[Udp]).open_registrar().with(&media).with(rule).with(&accounting("json"));
    let mut server = setup.start();
    let [mut caller, mut callee] = parties(&server, [108, 109]);
    let mut talks: Vec<Talk> = (0..8).map(|_| Talk::begin(&mut caller, &mut callee)).collect();
    talks.iter().for_each(Talk::wait_until_heard);
    // One thread more, and one less.
    for (changes, signal) in (1..).zip([libc::SIGUSR1, libc::SIGUSR2]) {
        server.process().signal(signal);
        server.process().wait_for("number of shards changes", changes, SOON);
        talks.iter().for_each(Talk::wait_until_heard);
        let are_listed = wait::until(SOON, || calls(&server).as_array().map(Vec::len) == Some(talks.len()));
        assert!(are_listed, "{}", calls(&server));
        for (number, mut talk) in talks.drain(4 * (2 - changes)..).enumerate() {
            if number % 2 == 0 {
                talk.hold(&mut caller, &mut callee);
                arrives(&mut callee, &mut caller, &talk.call.far.request("BYE"), &[]);
            } else {
                arrives(&mut caller, &mut callee, &talk.call.near.request("BYE"), &[]);
            }
        }
    }
    wait_until_empty(&server);
    assert!(wait::until(SOON, || rows(&server, "cdr").len() == 8), "{:?}", rows(&server, "cdr"));
    server.stop();
    assert_eq!(rows(&server, "cdr").len(), 8, "a call has one record");
}

#[test]
fn a_drain_lets_a_bridged_call_be_answered_and_ends_it() {
    let mut server = setup("127.0.0.110", PORTS, "").with(&accounting("json")).start();
    let [mut caller, mut callee] = parties(&server, [111, 112]);
    let mut late = party(&server, "127.0.0.111");
    let audio = "m=audio 40000 RTP/AVP 8\r\n";
    let call = invite("sip:bob@example.org", &caller, &description(&caller, audio));
    caller.send(&call.bytes()).expect("the server takes messages");
    let got = callee.request("INVITE", SOON).expect("the INVITE arrives");
    let (tag, line) = (unique("callee"), [contact("callee", &callee)]);
    callee.send(&respond(&got, 180, &tag, &line)).expect("the server takes messages");
    let ringing = answer_to(&call, &mut caller, 101).expect("it rings");
    assert_eq!(status(&ringing), Some(180));
    done(&server, &["drain"]);
    server.log_with("graceful shutdown");
    // New calls are refused once each thread knows.
    let is_refused = wait::until(SOON, || {
        let second = invite("sip:nobody@example.org", &late, &description(&late, audio));
        let refusal = exchange(&mut late, &second);
        late.send(&second.ack(&refusal).bytes()).expect("the server takes messages");
        status(&refusal) == Some(503)
    });
    assert!(is_refused, "{}", server.log());
    let answer = description(&callee, "m=audio 50000 RTP/AVP 8\r\n");
    callee.send(&described(&respond(&got, 200, &tag, &line), &answer)).expect("the server takes messages");
    let accepted = answer_to(&call, &mut caller, 200).expect("the call is answered");
    assert_eq!(status(&accepted), Some(200), "{}", String::from_utf8_lossy(&accepted));
    caller.send(&call.ack(&accepted).bytes()).expect("the server takes messages");
    callee.request("ACK", SOON).expect("the ACK arrives");
    for wire in [&mut caller, &mut callee] {
        let bye = take_bye(wire);
        assert!(bye.contains("Reason: Q.850;cause=31\r\n"), "{bye}");
    }
    let ended = server.process().end(SOON);
    assert!(ended.success(), "{ended:?}\n{}", server.log());
    let records = rows(&server, "cdr");
    let record = records.iter().find(|record| record["call_id"] == call.call_id).expect("a record");
    assert_eq!(["outcome", "ended_by"].map(|name| &*record[name]), ["answered", "server"], "{record:?}");
}
