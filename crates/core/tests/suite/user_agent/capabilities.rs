//! Methods, option tags and content types that the owner states (RFC 3261 sections 8.2.1 to 8.2.3).

use super::rig::*;

use strowger_core::user_agent::{Capabilities, Content, Event, Invite, UserAgentSettings};
use strowger_message::Method;

/// Returns capabilities of a gateway.
fn wide() -> Capabilities {
    Capabilities {
        allow: b"INVITE, ACK, CANCEL, BYE, REFER".to_vec(),
        supported: b"replaces".to_vec(),
        accept: b"application/sdp, multipart/mixed".to_vec(),
        ..Capabilities::default()
    }
}

const CONTACT: &str = "Contact: <sip:x@127.0.0.99>\n";

/// RFC 3261 section 8.2.2.3: option tags that the owner does not state are named in a 420; 100rel is one of them.
#[test]
fn the_owner_states_the_option_tags() {
    let mut net = Net::new([UserAgentSettings { capabilities: wide(), ..quiet() }]);
    for (n, (required, refused)) in [("replaces, foo", "foo"), ("100rel", "100rel")].into_iter().enumerate() {
        net.sent.clear();
        net.inject(0, &request("INVITE", n as u32 + 1, "", &format!("{CONTACT}Require: {required}\n"), ""));
        let expected = format!("\r\nUnsupported: {refused}\r\n");
        assert!(net.sent[0].starts_with("SIP/2.0 420 ") && net.sent[0].contains(&expected), "{}", net.sent[0]);
    }
    net.inject(0, &request("INVITE", 3, "", &format!("{CONTACT}Require: Replaces\n"), ""));
    let call = net.invited(0);
    net.sent.clear();
    net.with(0, |agent, round| agent.answer(round, call, OFFER));
    let ok = net.sent[0].clone();
    assert!(ok.contains("\r\nAllow: INVITE, ACK, CANCEL, BYE, REFER\r\nSupported: replaces\r\n"), "{ok}");
    net.inject(0, &request("ACK", 3, &to_tag(&ok), "", ""));
    net.sent.clear();
    net.inject(0, &request("INFO", 4, &to_tag(&ok), "", ""));
    assert!(
        net.sent[0].starts_with("SIP/2.0 405 ") && net.sent[0].contains("\r\nAllow: INVITE, ACK, CANCEL, BYE, REFER")
    );
    net.inject(0, &request("REFER", 5, &to_tag(&ok), CONTACT, ""));
    let Event::Request { request, method: Method::Refer, .. } = net.last(0).event else { panic!("no REFER") };
    net.with(0, |agent, round| agent.respond(round, request, 603, b"", b""));
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// RFC 3261 section 13.2.1: each call may have its own: a back-to-back user agent passes on those of the other side.
#[test]
fn a_call_has_capabilities_of_its_own() {
    let mut net = Net::two();
    let (target, wide) = (net.target(1), wide());
    let caller = net
        .with(0, |agent, round| agent.invite(round, &Invite { capabilities: Some(&wide), ..invite(target, OFFER) }))
        .unwrap();
    net.run(20);
    let callee = net.invited(1);
    assert!(net.last(1).message.contains("\r\nAllow: INVITE, ACK, CANCEL, BYE, REFER\r\nSupported: replaces\r\n"));
    net.with(1, |agent, round| {
        agent.set_capabilities(callee, Capabilities { supported: b"norefersub".to_vec(), ..wide.clone() });
        agent.answer(round, callee, ANSWER);
    });
    net.run(50);
    assert!(net.last(0).message.contains("\r\nSupported: norefersub\r\n"));
    // They move with the call, and stand in its later messages.
    let caller = net.moves(0, 1).call(caller).expect("it moved");
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(20);
    assert!(net.last(1).message.contains("\r\nSupported: replaces\r\n"), "{}", net.last(1).message);
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

const PARTS: &str = "--x\nContent-Type: application/sdp\n\nv=0\n\n--x\nContent-Type: application/isup\n\n5\n--x--\n";

fn in_parts(text: &str) -> String {
    with_body(text, PARTS).replacen("Content-Type: application/sdp", "Content-Type: multipart/mixed;boundary=x", 1)
}

/// RFC 3261 section 8.2.3, RFC 5621: an owner that accepts bodies of several parts gets them whole, and sends them.
#[test]
fn bodies_of_several_parts_are_the_owners() {
    for is_accepted in [false, true] {
        let capabilities = if is_accepted { wide() } else { Capabilities::default() };
        let mut net = Net::new([UserAgentSettings { capabilities, ..quiet() }]);
        net.inject(0, &in_parts(&request("INVITE", 1, "", CONTACT, "")));
        if !is_accepted {
            let refused = &net.sent[0];
            assert!(refused.starts_with("SIP/2.0 415 ") && refused.contains("\r\nAccept: application/sdp\r\n"));
            continue;
        }
        let call = net.invited(0);
        assert_eq!(net.last(0).body, PARTS.replace('\n', "\r\n").into_bytes());
        let content_type = b"multipart/mixed;boundary=x";
        let content = Content { content_type, ..Content::from(PARTS.as_bytes()) };
        net.with(0, |agent, round| agent.answer(round, call, content));
        assert!(net.sent[0].contains("\r\nContent-Type: multipart/mixed;boundary=x\r\n"), "{}", net.sent[0]);
        // One of the parts was the offer, so the next one may follow.
        let tag = to_tag(&net.sent[0]);
        net.inject(0, &request("ACK", 1, &tag, "", ""));
        net.with(0, |agent, round| agent.reinvite(round, call, content)).unwrap();
        let last = net.sent.last().unwrap();
        assert!(last.starts_with("INVITE ") && last.contains("\r\nContent-Type: multipart/mixed;boundary=x\r\n"));
        net.lose = Box::new(|_| true);
        net.with(0, |agent, round| agent.hang_up(round, call));
        net.is_clean();
    }
}
