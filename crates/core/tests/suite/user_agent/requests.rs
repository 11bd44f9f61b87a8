//! Requests and responses of other kinds, within and outside of a call (sections 8 and 12).

use super::rig::*;
use std::sync::Arc;

use strowger_core::Transport;
use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{Ending, Endpoint, Event, OutOfDialog};
use strowger_message::Method;

#[test]
fn unsupported_requests_are_refused() {
    let head = |method: &str| {
        format!(
            "{method} sip:bob@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bK{method}{{n}}\nMax-Forwards: 70\n\
             From: <sip:x@y>;tag=1\nTo: <sip:bob@z>{{to}}\nCall-ID: c{{n}}\nCSeq: 1 {method}\nContact: <sip:x@127.0.0.99>\n"
        )
    };
    let sdp = "Content-Type: application/sdp\nContent-Length: 5\n\nv=0\n";
    let empty = "Content-Length: 0\n\n";
    let cases = [
        ("PUBLISH", "", empty.to_owned(), "405 ", "Allow: INVITE, ACK"),
        ("NEWMETHOD", "", empty.to_owned(), "405 ", "Allow: INVITE, ACK"),
        ("INVITE", "", format!("Require: foo, 100rel\nRequire: bar\n{empty}"), "420 ", "Unsupported: foo, bar\r\n"),
        (
            "INVITE",
            "",
            "Content-Type: text/plain\nContent-Length: 5\n\nhello".into(),
            "415 ",
            "Accept: application/sdp",
        ),
        ("INVITE", "", format!("Content-Encoding: gzip\n{sdp}"), "415 ", "Accept-Encoding: identity"),
        ("INVITE", ";tag=unknown", empty.to_owned(), "481 ", ""),
        ("BYE", ";tag=unknown", empty.to_owned(), "481 ", ""),
        ("BYE", "", empty.to_owned(), "481 ", ""),
        ("CANCEL", "", empty.to_owned(), "481 ", ""),
        ("OPTIONS", "", empty.to_owned(), "200 ", "Accept: application/sdp"),
        ("OPTIONS", "", format!("Supported: x\nCSeq: 2 OPTIONS\n{empty}"), "400 ", ""),
    ];
    let mut net = Net::new([quiet()]);
    for (n, (method, to, rest, status, line)) in cases.iter().enumerate() {
        net.sent.clear();
        let text = head(method).replace("{n}", &n.to_string()).replace("{to}", to) + rest;
        net.inject(0, &text);
        let response = net.sent.first().unwrap_or_else(|| panic!("no answer to {text}"));
        assert!(response.starts_with(&format!("SIP/2.0 {status}")) && response.contains(line), "{text}\n{response}");
    }
    net.sent.clear();
    net.inject(0, &(head("ACK").replace("{n}", "99").replace("{to}", ";tag=no") + empty));
    assert!(net.sent.is_empty(), "an ACK is never answered");
    net.is_clean();
}

/// Section 8.2.2.2: the copy by another path is refused.
#[test]
fn a_request_that_comes_by_two_ways_is_taken_once() {
    let text = |branch: u8| {
        format!(
            "INVITE sip:bob@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bK{branch}\nFrom: <sip:x@y>;tag=1\n\
             To: <sip:bob@z>\nCall-ID: c\nCSeq: 1 INVITE\nMax-Forwards: 70\nContact: <sip:x@127.0.0.99>\nContent-Length: 0\n\n"
        )
    };
    let mut net = Net::new([quiet()]);
    net.inject(0, &text(1));
    net.inject(0, &text(1));
    assert!(net.sent.is_empty());
    net.inject(0, &text(2));
    assert!(net.sent[0].starts_with("SIP/2.0 482 "));
    let call = net.invited(0);
    net.with(0, |agent, round| agent.reject(round, call, 603));
    net.is_clean();
}

/// RFC 3581 and section 18.2: the response has the source of the request, and goes there.
#[test]
fn a_response_finds_its_way_back() {
    let text = |via: &str| {
        format!(
            "OPTIONS sip:bob@127.0.0.1 SIP/2.0\nVia: {via}, SIP/2.0/UDP below\nVia: SIP/2.0/UDP far\nFrom: <sip:x@y>;tag=1\n\
             To: <sip:bob@z>\nCall-ID: c\nCSeq: 1 OPTIONS\nMax-Forwards: 70\nContent-Length: 0\n\n"
        )
    };
    let mut net = Net::new([quiet()]);
    for (via, expected) in [
        (
            "SIP/2.0/UDP host:9;branch=z9hG4bK1;rport;x",
            "SIP/2.0/UDP host:9;branch=z9hG4bK1;rport=5060;x;received=127.0.0.99, SIP/2.0/UDP below",
        ),
        (
            "SIP/2.0/UDP host:9;branch=z9hG4bK2",
            "SIP/2.0/UDP host:9;branch=z9hG4bK2;received=127.0.0.99, SIP/2.0/UDP below",
        ),
        ("SIP/2.0/UDP 127.0.0.99:9;branch=z9hG4bK3", "SIP/2.0/UDP 127.0.0.99:9;branch=z9hG4bK3, SIP/2.0/UDP below"),
        // Both are added at the end.
        (
            "SIP/2.0/UDP host:9;branch=z9hG4bK5;rport",
            "SIP/2.0/UDP host:9;branch=z9hG4bK5;rport=5060;received=127.0.0.99, SIP/2.0/UDP below",
        ),
        // The sender's own values are not believed.
        (
            "SIP/2.0/UDP host;received=192.0.2.66;rport=1;branch=z9hG4bK4",
            "SIP/2.0/UDP host;received=127.0.0.99;rport=5060;branch=z9hG4bK4, SIP/2.0/UDP below",
        ),
        (
            "SIP/2.0/UDP host;branch=z9hG4bK6;received=192.0.2.66;rport",
            "SIP/2.0/UDP host;branch=z9hG4bK6;received=127.0.0.99;rport=5060, SIP/2.0/UDP below",
        ),
    ] {
        net.sent.clear();
        net.inject(0, &text(via));
        assert!(net.sent[0].contains(&format!("\r\nVia: {expected}\r\nVia: SIP/2.0/UDP far\r\n")), "{}", net.sent[0]);
    }
    net.is_clean();
}

#[test]
fn requests_within_and_without_a_call() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    let info = net
        .with(0, |agent, round| {
            agent.request_within(round, caller, Method::Info, b"Content-Type: text/plain\r\n", b"5")
        })
        .unwrap();
    net.run(50);
    assert!(
        matches!(net.last(1).event, Event::Request { call: Some(call), method: Method::Info, .. } if call == callee)
    );
    assert_eq!(net.last(1).body, b"5");
    assert!(matches!(net.last(0).event, Event::Reply { request, status: 200, .. } if request == info));
    let target = net.target(1);
    let options = OutOfDialog::new(Method::Options, b"sip:alice@atlanta.example", b"<sip:bob@biloxi.example>", target);
    let headers = b"Content-Type: text/plain\r\n";
    let outside = OutOfDialog { method: Method::Message, headers, body: b"hello", ..options };
    let key = net.with(0, |agent, round| agent.request(round, &outside)).unwrap();
    net.run(50);
    assert_eq!(net.last(1).body, b"hello");
    assert!(matches!(net.last(0).event, Event::Reply { request, status: 200, .. } if request == key));
    net.with(0, |agent, round| agent.request(round, &options)).unwrap();
    net.run(50);
    assert!(matches!(net.last(0).event, Event::Reply { status: 200, .. }));
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

/// Section 12.2.1.2: a 481 ends the dialog.
#[test]
fn a_dialog_that_the_peer_has_forgotten_is_over() {
    let mut net = Net::two();
    let (caller, _) = net.up();
    let identity = Arc::new(Identity::new(
        vec![ListenerAddress {
            transport: Transport::Udp,
            bound: address(1),
            sent_by: b"127.0.0.2:5060".as_slice().into(),
            network: 0,
        }],
        [""; 0],
        &[],
    ));
    net.phones[1].endpoint = Endpoint::new(identity, quiet(), Entropy::new([9; 32]), 7);
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 481 INVITE", "0>1 ACK", "0>1 BYE", "1>0 481 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Fault(481) });
    net.is_clean();
}
