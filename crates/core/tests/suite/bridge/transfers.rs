//! Transfers: REFER with its NOTIFYs, Replaces in Refer-To, INVITE with Replaces.

use super::changes::change;
use super::rig::*;

use strowger_core::b2bua::bridge::{BridgeEnd, BridgeEvent, Side, capabilities};
use strowger_core::user_agent::{CallKey, DialogName, Ending, Event, Invite, UserAgentSettings};
use strowger_message::Method;
use strowger_message::uri::sip::unescaped;

/// Returns a bridge with three phones that answer nothing by themselves.
fn parties() -> Bridged {
    let phone = || UserAgentSettings { other_methods: true, ..UserAgentSettings::default() };
    let bridge = UserAgentSettings { capabilities: capabilities(), ..UserAgentSettings::default() };
    let mut b2b = Bridged::of([phone(), bridge, phone(), phone()], FAR);
    for n in [NEAR, FAR, THIRD] {
        b2b.net.phones[n].auto_answer = false;
    }
    b2b
}

/// Makes a second call of the near phone, to the third one.
fn second_call(b2b: &mut Bridged) -> (CallKey, CallKey) {
    b2b.target.set(b2b.net.target(THIRD));
    let near = b2b.net.call(&sdp(NEAR, 1, "0 8", "sendrecv"));
    b2b.run(100);
    let (third, answer) = (b2b.net.invited(THIRD), sdp(THIRD, 1, "0", "sendrecv"));
    b2b.net.with(THIRD, |agent, round| agent.answer(round, third, &answer));
    b2b.run(100);
    (near, third)
}

fn name(b2b: &mut Bridged, n: usize, call: CallKey) -> DialogName {
    b2b.net.with(n, |agent, _| agent.dialog_name(call)).expect("the call is up")
}

/// Returns a value of Replaces for the other end of a dialog.
fn replaces(name: &DialogName) -> String {
    format!("{};to-tag={};from-tag={}", text(&name.call_id), text(&name.remote_tag), text(&name.local_tag))
}

/// Returns a Refer-To line with Replaces.
fn refer_to(name: &DialogName) -> String {
    let value = replaces(name).replace(';', "%3B").replace('=', "%3D");
    format!("Refer-To: <sip:carol@127.0.0.2?Replaces={value}>\r\n")
}

/// Returns the value of Replaces in the Refer-To of a message.
fn referred(message: &str) -> String {
    let line = message.lines().find_map(|line| line.strip_prefix("Refer-To: <sip:carol@127.0.0.2?Replaces="));
    let value = line.and_then(|line| line.strip_suffix('>')).unwrap_or_else(|| panic!("{message}"));
    text(&unescaped(value.as_bytes()).collect::<Vec<u8>>())
}

fn cseq(message: &str) -> u32 {
    let line = message.lines().find_map(|line| line.strip_prefix("CSeq: ")).expect("a CSeq");
    line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Sends a REFER, which the other phone answers with 202. Returns the CSeq of the REFER on both legs.
fn refer(b2b: &mut Bridged, (n, call): (usize, CallKey), other: usize, lines: &str) -> (u32, u32) {
    let sent = b2b.net.sent.len();
    b2b.net
        .with(n, |agent, round| agent.request_within(round, call, Method::Refer, lines.as_bytes(), b""))
        .expect("a dialog");
    let asked = cseq(&b2b.net.sent[sent]);
    b2b.run(50);
    let heard = b2b.net.last(other).clone();
    let Event::Request { request, method: Method::Refer, .. } = heard.event else { panic!("{:?}", b2b.net.log) };
    b2b.net.with(other, |agent, round| agent.respond(round, request, 202, b"", b""));
    b2b.run(50);
    let reply = b2b.net.last(n);
    assert!(matches!(reply.event, Event::Reply { status: 202, .. }), "{:?}", b2b.net.log);
    // RFC 3515 section 2: the 2xx has a Contact.
    assert!(reply.message.contains("\r\nContact: <sip:"), "{}", reply.message);
    (asked, cseq(&heard.message))
}

/// Sends a NOTIFY about the REFER with this CSeq.
fn notify(b2b: &mut Bridged, (n, call): (usize, CallKey), id: u32, state: &str, fragment: &str) {
    let lines =
        format!("Event: refer;id={id}\r\nSubscription-State: {state}\r\nContent-Type: message/sipfrag;version=2.0\r\n");
    b2b.net
        .with(n, |agent, round| {
            agent.request_within(round, call, Method::Notify, lines.as_bytes(), fragment.as_bytes())
        })
        .expect("a dialog");
    b2b.run(50);
}

/// Calls the bridge from a phone, with Replaces.
fn call_in_place(b2b: &mut Bridged, n: usize, lines: &str, offer: &[u8]) -> CallKey {
    let target = b2b.net.target(BRIDGE);
    let invite = Invite {
        headers: lines.as_bytes(),
        ..Invite::new(b"<sip:phone@biloxi.example>", b"<sip:carol@127.0.0.2>", target, offer)
    };
    let call = b2b.net.with(n, |agent, round| agent.invite(round, &invite)).expect("addresses");
    b2b.run(100);
    call
}

fn has_ended(b2b: &Bridged, n: usize, ended: CallKey) -> bool {
    let is = |heard: &Heard| matches!(heard.event, Event::Ended { call, by: Ending::Remote } if call == ended);
    b2b.net.phones[n].heard.iter().any(is)
}

/// Returns the ports of both sides in the last session.
fn ports(told: &[BridgeEvent]) -> Option<(u16, u16)> {
    told.iter().rev().find_map(|event| match event {
        BridgeEvent::SessionChanged { streams, .. } => {
            let stream = streams.first()?.as_ref()?;
            Some((stream.near.rtp?.port(), stream.far.rtp?.port()))
        }
        _ => None,
    })
}

/// RFC 3515: each dialog has its own id of the subscription; of a fragment the status line passes.
#[test]
fn a_refer_and_its_notifies_are_carried_over() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        let mut b2b = parties();
        let (near, far) = b2b.up();
        let (call, peer) = if side == NEAR { (near, far) } else { (far, near) };
        // Another request comes before, so that the numbers of the dialogs differ.
        b2b.net.with(side, |agent, round| agent.update(round, call, b"")).expect("no other change");
        b2b.run(50);
        let lines = "Refer-To: <sip:carol@example.org>\r\nX-Secret: 1\r\n";
        let (asked, sent) = refer(&mut b2b, (side, call), other, lines);
        assert_ne!(asked, sent);
        let heard = b2b.heard(other, |event| matches!(event, Event::Request { method: Method::Refer, .. }));
        assert!(heard.message.contains("\r\nRefer-To: <sip:carol@example.org>\r\n"), "{}", heard.message);
        assert!(heard.message.contains("\r\nContact: <sip:") && !heard.message.contains("X-Secret"));
        for (state, fragment, body) in [
            ("active;expires=60", "SIP/2.0 100 Trying\r\nServer: 127.0.0.1 127.0.0.3\r\n", "SIP/2.0 100 Trying\r\n"),
            ("terminated;reason=noresource", "SIP/2.0 200 Fine\r\n", "SIP/2.0 200 OK\r\n"),
        ] {
            notify(&mut b2b, (other, peer), sent, state, fragment);
            let heard = b2b.net.last(side).clone();
            let Event::Request { request, method: Method::Notify, .. } = heard.event else {
                panic!("{:?}", b2b.net.log)
            };
            let lines = format!("\r\nEvent: refer;id={asked}\r\nSubscription-State: {state}\r\n");
            assert!(heard.message.contains(&lines) && text(&heard.body) == body, "{}", heard.message);
            b2b.net.with(side, |agent, round| agent.respond(round, request, 200, b"", b""));
            b2b.run(50);
            assert!(matches!(b2b.net.last(other).event, Event::Reply { status: 200, .. }), "{:?}", b2b.net.log);
        }
        // The subscription is over, and one with another id was never there.
        for id in [sent, asked] {
            notify(&mut b2b, (other, peer), id, "active", "SIP/2.0 180 Ringing\r\n");
            assert!(matches!(b2b.net.last(other).event, Event::Reply { status: 481, .. }), "{:?}", b2b.net.log);
        }
        b2b.net.with(side, |agent, round| agent.hang_up(round, call));
        b2b.run(100);
        assert!(has_ended(&b2b, other, peer));
        b2b.is_clean();
    }
}

/// The refusal of a REFER goes back, and the call continues.
#[test]
fn a_refused_refer_leaves_the_call() {
    let mut b2b = parties();
    let (near, far) = b2b.up();
    let lines = b"Refer-To: <sip:carol@example.org>\r\n";
    b2b.net.with(NEAR, |agent, round| agent.request_within(round, near, Method::Refer, lines, b"")).expect("a dialog");
    b2b.run(50);
    let Event::Request { request, .. } = b2b.net.last(FAR).event else { panic!("{:?}", b2b.net.log) };
    b2b.net.with(FAR, |agent, round| agent.respond(round, request, 603, b"", b""));
    b2b.run(50);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Reply { status: 603, .. }));
    // No transfer is open, so a BYE ends both sides.
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.run(100);
    assert!(has_ended(&b2b, FAR, far));
    b2b.is_clean();
}

#[test]
fn a_refer_that_cannot_be_carried_is_refused() {
    let mut b2b = parties();
    let (near, _) = b2b.up();
    let own = refer_to(&name(&mut b2b, NEAR, near));
    for (lines, expected) in [
        ("", 400),
        ("Refer-To: <sip:a@b>\r\nRefer-To: <sip:c@d>\r\n", 400),
        ("Refer-To: <sip:@>\r\n", 400),
        ("Refer-To: <sip:a@b?Replaces=x>\r\n", 400),
        ("Refer-To: <sip:a@b;method=BYE>\r\n", 403),
        (own.as_str(), 403),
    ] {
        b2b.net
            .with(NEAR, |agent, round| agent.request_within(round, near, Method::Refer, lines.as_bytes(), b""))
            .expect("a dialog");
        b2b.run(50);
        let last = b2b.net.last(NEAR).event;
        assert!(matches!(last, Event::Reply { status, .. } if status == expected), "{lines}: {last:?}");
    }
    assert_eq!(b2b.count("1>2 REFER"), 0);
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// The party that was referred keeps its old call until it has told the outcome, or has told none for too long.
#[test]
fn a_transferor_that_hangs_up_does_not_end_the_transfer() {
    for is_told in [true, false] {
        let mut b2b = parties();
        let (near, far) = b2b.up();
        b2b.told();
        let (_, id) = refer(&mut b2b, (NEAR, near), FAR, "Refer-To: <sip:carol@example.org>\r\n");
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.run(1_000);
        b2b.moves();
        assert!(!has_ended(&b2b, FAR, far));
        if is_told {
            notify(&mut b2b, (FAR, far), id, "active;expires=60", "SIP/2.0 180 Ringing\r\n");
            assert!(matches!(b2b.net.last(FAR).event, Event::Reply { status: 200, .. }), "{:?}", b2b.net.log);
            notify(&mut b2b, (FAR, far), id, "terminated;reason=noresource", "SIP/2.0 486 Busy Here\r\n");
        } else {
            b2b.run(170_000);
            assert!(!has_ended(&b2b, FAR, far));
            b2b.run(11_000);
        }
        assert!(has_ended(&b2b, FAR, far), "{:?}", b2b.net.log);
        b2b.run(100);
        assert!(matches!(b2b.told()[..], [BridgeEvent::Ended { by: BridgeEnd::Side(Side::Near), .. }]));
        b2b.is_clean();
    }
}

/// RFC 5589 section 7.3: two bridged calls end with two parties that talk, and the third released; the transferor may hang up at once.
#[test]
fn two_calls_become_one() {
    for (hangs_up, has_offer) in [(false, true), (true, true), (false, false)] {
        let mut b2b = parties();
        let (first, far) = b2b.up();
        let (second, third) = second_call(&mut b2b);
        b2b.told();
        let lines = refer_to(&name(&mut b2b, NEAR, second));
        let (_, id) = refer(&mut b2b, (NEAR, first), FAR, &lines);
        let message = &b2b.heard(FAR, |event| matches!(event, Event::Request { .. })).message;
        let value = referred(message);
        // The third phone knows this dialog.
        assert_eq!(value, replaces(&name(&mut b2b, THIRD, third).reversed()));
        b2b.moves();
        if hangs_up {
            for call in [first, second] {
                b2b.net.with(NEAR, |agent, round| agent.hang_up(round, call));
            }
            b2b.run(500);
            assert!(!has_ended(&b2b, FAR, far) && !has_ended(&b2b, THIRD, third), "{:?}", b2b.net.log);
        }
        let offer = if has_offer { sdp(FAR, 5, "8 0", "sendrecv") } else { Vec::new() };
        let new = call_in_place(&mut b2b, FAR, &format!("Replaces: {value}\r\n"), &offer);
        let offered = b2b.net.last(THIRD).clone();
        assert!(matches!(offered.event, Event::Offered { update: false, .. }), "{:?}", b2b.net.log);
        assert!(!has_ended(&b2b, NEAR, second));
        b2b.moves();
        let description = sdp(THIRD, 2, "8", "sendrecv");
        b2b.net.with(THIRD, |agent, round| agent.answer(round, third, &description));
        b2b.run(50);
        if has_offer {
            assert!(text(&offered.body).contains(" RTP/AVP 8 0\r\n"), "{}", text(&offered.body));
        } else {
            let answer = sdp(FAR, 5, "8", "sendrecv");
            b2b.net.with(FAR, |agent, round| agent.acknowledge(round, new, &answer));
            b2b.run(50);
        }
        let answered = b2b.heard(FAR, |event| matches!(event, Event::Answered { .. }));
        assert!(matches!(answered.event, Event::Answered { call, .. } if call == new), "{:?}", b2b.net.log);
        assert!(text(&answered.body).contains(" RTP/AVP 8\r\n"), "{}", text(&answered.body));
        let told = b2b.told();
        assert_eq!(ports(&told), Some((42_000, 43_000)), "{told:?}");
        assert!(told.iter().any(|event| matches!(event, BridgeEvent::Replaced { side: Side::Near, .. })), "{told:?}");
        assert!(hangs_up || has_ended(&b2b, NEAR, second), "{:?}", b2b.net.log);
        notify(&mut b2b, (FAR, far), id, "terminated;reason=noresource", "SIP/2.0 200 OK\r\n");
        if !hangs_up {
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, first));
        }
        b2b.run(100);
        assert!(has_ended(&b2b, FAR, far) && !has_ended(&b2b, THIRD, third), "{:?}", b2b.net.log);
        // The new pair is like any other.
        let (offer, answer) = (sdp(THIRD, 3, "8", "sendonly"), sdp(FAR, 6, "8", "recvonly"));
        let (offered, _) = change(&mut b2b, (THIRD, third), (FAR, new), (&offer, &answer), false);
        assert!(offered.contains("\r\na=sendonly\r\n"), "{offered}");
        b2b.net.with(FAR, |agent, round| agent.hang_up(round, new));
        b2b.run(100);
        assert!(has_ended(&b2b, THIRD, third), "{:?}", b2b.net.log);
        b2b.is_clean();
    }
}

/// RFC 3891 section 3: either party of a pair may be replaced by a phone that knows its dialog.
#[test]
fn a_phone_takes_the_place_of_either_party() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        let mut b2b = parties();
        let (near, far) = b2b.up();
        let (old, peer) = if side == NEAR { (near, far) } else { (far, near) };
        let value = replaces(&name(&mut b2b, side, old));
        let new = call_in_place(&mut b2b, THIRD, &format!("Replaces: {value}\r\n"), &sdp(THIRD, 1, "8", "sendrecv"));
        assert!(matches!(b2b.net.last(other).event, Event::Offered { .. }), "{:?}", b2b.net.log);
        let answer = sdp(other, 2, "8", "sendrecv");
        b2b.net.with(other, |agent, round| agent.answer(round, peer, &answer));
        b2b.run(100);
        assert!(matches!(b2b.net.last(THIRD).event, Event::Answered { .. }), "{:?}", b2b.net.log);
        assert!(has_ended(&b2b, side, old) && !has_ended(&b2b, other, peer));
        let expected = if side == NEAR { (43_000, 42_000) } else { (40_000, 43_000) };
        assert_eq!(ports(&b2b.told()), Some(expected));
        b2b.net.with(other, |agent, round| agent.hang_up(round, peer));
        b2b.run(100);
        assert!(has_ended(&b2b, THIRD, new));
        b2b.is_clean();
    }
}

/// Section 3: the matched dialog is unchanged if the new INVITE is refused.
#[test]
fn a_refused_replacement_leaves_the_pair() {
    for (status, expected) in [(488, 488), (491, 500)] {
        let mut b2b = parties();
        let (near, far) = b2b.up();
        let value = replaces(&name(&mut b2b, NEAR, near));
        b2b.told();
        call_in_place(&mut b2b, THIRD, &format!("Replaces: {value}\r\n"), &sdp(THIRD, 1, "8", "sendrecv"));
        b2b.net.with(FAR, |agent, round| agent.reject(round, far, status));
        b2b.run(100);
        let last = b2b.net.last(THIRD).event;
        assert!(matches!(last, Event::Failed { status, .. } if status == expected), "{last:?}");
        assert!(b2b.told().is_empty() && !has_ended(&b2b, NEAR, near));
        let (offer, answer) = (sdp(NEAR, 2, "0", "sendonly"), sdp(FAR, 3, "0", "recvonly"));
        let (_, reply) = change(&mut b2b, (NEAR, near), (FAR, far), (&offer, &answer), false);
        assert!(reply.contains("\r\na=recvonly\r\n"), "{reply}");
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}

/// The new party gives up before its answer: the re-INVITE of the other side is cancelled, and the old party stays.
#[test]
fn a_cancelled_replacement_leaves_the_pair() {
    let mut b2b = parties();
    let (near, far) = b2b.up();
    let value = replaces(&name(&mut b2b, NEAR, near));
    let line = format!("Replaces: {value}\r\n");
    let new = call_in_place(&mut b2b, THIRD, &line, &sdp(THIRD, 1, "8", "sendrecv"));
    // A second one must wait.
    call_in_place(&mut b2b, THIRD, &line, &sdp(THIRD, 1, "0", "sendrecv"));
    assert!(matches!(b2b.net.last(THIRD).event, Event::Failed { status: 500, .. }), "{:?}", b2b.net.log);
    b2b.net.with(THIRD, |agent, round| agent.hang_up(round, new));
    b2b.run(200);
    assert_eq!(b2b.net.last(FAR).event, Event::Withdrawn { call: far });
    let (offer, answer) = (sdp(FAR, 2, "0", "sendonly"), sdp(NEAR, 3, "0", "recvonly"));
    let (_, reply) = change(&mut b2b, (FAR, far), (NEAR, near), (&offer, &answer), false);
    assert!(reply.contains("\r\na=recvonly\r\n"), "{reply}");
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.run(100);
    assert!(has_ended(&b2b, FAR, far));
    b2b.is_clean();
}

/// Section 3: a dialog is named by its Call-ID and both tags.
#[test]
fn a_dialog_is_replaced_by_its_whole_name_alone() {
    let mut b2b = parties();
    let (near, far) = b2b.up();
    let known = name(&mut b2b, NEAR, near);
    let other = name(&mut b2b, FAR, far);
    let good = replaces(&known);
    let mixed = |change: &dyn Fn(&mut DialogName)| {
        let mut name = known.clone();
        change(&mut name);
        format!("Replaces: {}\r\n", replaces(&name))
    };
    for (lines, expected) in [
        (mixed(&|name| name.call_id.push(b'x')), 481),
        (mixed(&|name| name.local_tag.clone_from(&other.local_tag)), 481),
        (mixed(&|name| name.remote_tag.clone_from(&other.remote_tag)), 481),
        (mixed(&|name| name.call_id.clone_from(&other.call_id)), 481),
        (format!("Replaces: {good};early-only\r\n"), 486),
        (format!("Replaces: {good}\r\nReplaces: {good}\r\n"), 400),
        ("Replaces: x\r\n".to_owned(), 400),
    ] {
        call_in_place(&mut b2b, THIRD, &lines, &sdp(THIRD, 1, "8", "sendrecv"));
        let last = b2b.net.last(THIRD).event;
        assert!(matches!(last, Event::Failed { status, .. } if status == expected), "{lines}: {last:?}");
    }
    assert_eq!((b2b.count("1>0 INVITE"), b2b.count("1>2 INVITE")), (0, 1));
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}
