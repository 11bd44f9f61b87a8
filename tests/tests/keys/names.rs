//! Names of other servers, resolved by a name server of the test.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use strowger_tests::wait;

use strowger_tests::name_server::{A, NameServer, Record};
use strowger_tests::server::{Server, Setup};
use strowger_tests::wire::Transport::{Tcp, Udp};

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
fn a_silent_name_server_is_asked_twice_and_waited_for_so_long() {
    let Some(names) = silent(&["gone.example.net"]) else { return };
    let server = serve(&names, "dns.timeout = \"200ms\"");
    let mut caller = server.connect(Tcp);
    let begun = Instant::now();
    let message = request(&caller, "MESSAGE", "sip:x@gone.example.net:5060;transport=udp");
    send(&mut caller, &message);
    let refused = caller.final_response(SOON).expect("an answer");
    assert!(code(&refused) >= 400);
    assert!(begun.elapsed() < Duration::from_millis(3_500), "by default it takes four seconds: {:?}", begun.elapsed());
    // The name server may not have read the last one yet.
    wait::until(SOON, || names.asked("gone.example.net", A) >= 2);
    assert_eq!(names.asked("gone.example.net", A), 2);
}

#[test]
fn answers_are_kept() {
    let there = [("there.example.net", Record::A(Ipv4Addr::LOCALHOST))];
    let Some(names) = NameServer::start(&there) else { return };
    let server = serve(&names, "");
    let (mut caller, mut bob) = (server.connect(Udp), server.connect(Udp));
    for _ in 0..2 {
        let uri = format!("sip:x@there.example.net:{};transport=udp", bob.local().port());
        let message = request(&caller, "MESSAGE", &uri);
        send(&mut caller, &message);
        assert!(bob.request("MESSAGE", SOON).is_some());
    }
    assert_eq!(names.asked("there.example.net", A), 1);
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
    // A request of the same sender waits until the earlier request is handled.
    let mut own = request(&mallory, "OPTIONS", "sip:example.org");
    (own.call_id, own.from, own.cseq) = (waits.call_id.clone(), waits.from.clone(), waits.cseq + 1);
    send(&mut mallory, &own);
    assert!(mallory.final_response(Duration::from_millis(200)).is_none());
}
