//! Names of other servers, resolved by a name server of the test.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use strowger_tests::wait;

use strowger_tests::name_server::{A, NameServer, Record};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

use super::{SOON, code, open, request, send};

/// Starts a name server that does not answer address questions about these names.
fn silent(names: &[&str]) -> Option<NameServer> {
    let records: Vec<(&str, Record)> = names.iter().map(|name| (*name, Record::Silent(A))).collect();
    NameServer::start(&records)
}

fn serve(names: &NameServer, lines: &str) -> Server {
    open(&format!("{}\n{lines}", names.line()))
}

#[test]
fn a_silent_name_server_is_asked_so_often_and_waited_for_so_long() {
    let Some(names) = silent(&["gone.example.net"]) else { return };
    let server = serve(&names, "dns.timeout = \"200ms\"\ndns.attempts = 4");
    let mut caller = server.connect(Tcp);
    let begun = Instant::now();
    let message = request(&caller, "MESSAGE", "sip:x@gone.example.net:5060;transport=udp");
    send(&mut caller, &message);
    let refused = caller.final_response(SOON).expect("an answer");
    assert!(code(&refused) >= 400);
    assert!(begun.elapsed() < Duration::from_millis(3_500), "by default it takes four seconds: {:?}", begun.elapsed());
    // The name server may not have read the last one yet.
    wait::until(SOON, || names.asked("gone.example.net", A) >= 4);
    assert_eq!(names.asked("gone.example.net", A), 4);
}

#[test]
fn answers_are_kept() {
    let there = [("there.example.net", Record::A(Ipv4Addr::LOCALHOST))];
    let Some(names) = NameServer::start(&there) else { return };
    let questions_so_far = || names.asked("there.example.net", A);
    for (lines, questions) in [("", 1), ("dns.cache_entries = 0", 3)] {
        let server = serve(&names, lines);
        let (mut caller, mut bob) = (server.connect(Udp), server.connect(Udp));
        let before = questions_so_far();
        for _ in 0..questions.max(2) {
            let uri = format!("sip:x@there.example.net:{};transport=udp", bob.local().port());
            let message = request(&caller, "MESSAGE", &uri);
            send(&mut caller, &message);
            assert!(bob.request("MESSAGE", SOON).is_some());
        }
        assert_eq!(questions_so_far() - before, questions, "{lines}");
    }
}

#[test]
fn so_many_look_ups_wait_and_so_many_messages_of_a_call() {
    let all: Vec<String> = (0..20).map(|n| format!("name{n}.example.net")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).chain(["name.example.net"]).collect();
    let Some(names) = silent(&all) else { return };
    let mut server = serve(&names, "dns.timeout = \"1s\"\nlimits.lookup_queue = 16\nlimits.held_messages_per_call = 1");
    let mut caller = server.connect(Tcp);
    for n in 0..20 {
        let message = request(&caller, "MESSAGE", &format!("sip:x@name{n}.example.net:5060;transport=udp"));
        send(&mut caller, &message);
    }
    let begun = Instant::now();
    let refused = caller.final_response(SOON).expect("some are refused");
    assert_eq!(code(&refused), 503);
    assert!(begun.elapsed() < Duration::from_millis(900), "those that wait are answered after two seconds");
    // A kill ends the waiting ones.
    server.kill();

    server.start();
    let mut caller = server.connect(Udp);
    let first = request(&caller, "MESSAGE", "sip:x@name.example.net:5060;transport=udp");
    for cseq in 1..5 {
        let mut next = first.clone();
        (next.cseq, next.branch) = (cseq, text::unique("z9hG4bK"));
        send(&mut caller, &next);
    }
    assert!(code(&caller.final_response(SOON).expect("an answer")) >= 400);
    server.stop();
    let log = server.log();
    assert!(log.lines().any(|line| line.contains("statistics at the end") && line.contains("held_dropped=2")), "{log}");
}

#[test]
fn so_many_names_are_looked_up_for_one_source() {
    let all: Vec<String> = (0..10).map(|n| format!("name{n}.example.net")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let Some(names) = silent(&all) else { return };
    let lines = "dns.timeout = \"20s\"\ndns.attempts = 1\nlimits.lookups_per_source = 4\nserver.shards = 1";
    let server = serve(&names, lines);
    let mut caller = server.connect(Tcp);
    for n in 0..9 {
        let message = request(&caller, "MESSAGE", &format!("sip:x@name{n}.example.net:5060;transport=udp"));
        send(&mut caller, &message);
    }
    for _ in 0..5 {
        assert_eq!(code(&caller.final_response(SOON).expect("some are refused")), 503);
    }
    assert!(caller.final_response(Duration::from_millis(100)).is_none(), "the others wait");
    // Another source is not refused.
    let from = (Ipv4Addr::new(127, 0, 0, 99), 0).into();
    let mut other = Wire::connect_from(Udp, from, server.address(Udp), None).expect("loopback");
    let message = request(&other, "MESSAGE", "sip:x@name9.example.net:5060;transport=udp");
    send(&mut other, &message);
    assert!(wait::until(SOON, || names.asked("name9.example.net", A) > 0), "its name is not asked for");
}

/// All names of a domain may lead here: each Route with one would be another question.
#[test]
fn so_many_names_in_routes_are_looked_up_for_one_request() {
    let all: Vec<String> = (0..20).map(|n| format!("edge{n}.example.org")).collect();
    let all: Vec<(&str, Record)> = all.iter().map(|name| (name.as_str(), Record::A(Ipv4Addr::LOCALHOST))).collect();
    let Some(names) = NameServer::start(&all) else { return };
    let lines = format!("domains = [\"example.org\"]\n{}", names.line());
    let server = Setup::on(&[Udp, Tcp]).with(&lines).start();
    let port = server.address(Udp).port();
    for (routes, expected, looked_up) in [(4, 404, 4), (20, 400, 4)] {
        let mut caller = server.connect(Udp);
        let mut message = request(&caller, "MESSAGE", "sip:nobody@example.org");
        message.from = "<sip:carol@example.net>;tag=1".into();
        message.headers.extend((0..routes).map(|n| format!("Route: <sip:edge{n}.example.org:{port};lr>")));
        send(&mut caller, &message);
        assert_eq!(code(&caller.final_response(SOON).expect("an answer")), expected, "{routes} routes");
        let asked = all.iter().filter(|(name, _)| names.asked(name, A) > 0).count();
        assert_eq!(asked, looked_up, "{routes} routes");
    }
}

/// A peer that knows the Call-ID of a call cannot delay it.
#[test]
fn a_request_that_waits_holds_up_those_of_its_own_sender_alone() {
    let Some(names) = silent(&["edge.example.org"]) else { return };
    let lines = format!("domains = [\"example.org\"]\ndns.timeout = \"20s\"\n{}", names.line());
    let server = Setup::on(&[Udp, Tcp]).with(&lines).start();
    let (mut mallory, mut caller) = (server.connect(Udp), server.connect(Udp));
    let mut waits = request(&mallory, "MESSAGE", "sip:bob@example.org");
    waits.headers.push("Route: <sip:edge.example.org:5060;lr>".into());
    send(&mut mallory, &waits);
    assert!(wait::until(SOON, || names.asked("edge.example.org", A) > 0), "its name is not asked for");
    let mut next = request(&caller, "OPTIONS", "sip:example.org");
    next.call_id = waits.call_id.clone();
    send(&mut caller, &next);
    assert_eq!(code(&caller.final_response(SOON).expect("it is answered")), 200);
    // A request of the same sender waits its turn.
    let mut own = request(&mallory, "OPTIONS", "sip:example.org");
    (own.call_id, own.from, own.cseq) = (waits.call_id.clone(), waits.from.clone(), waits.cseq + 1);
    send(&mut mallory, &own);
    assert!(mallory.final_response(Duration::from_millis(200)).is_none());
}
