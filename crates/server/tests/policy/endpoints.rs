//! Calls that the server answers itself.

mod recordings;
mod restarts;
mod sounds;

use crate::site::*;
use std::time::Duration;
use strowger_calls::CallState;
use strowger_core::Transport;
use strowger_core::transaction::MOST_TIMES;
use strowger_media::session::{
    LatchedSource, PortPair, SessionEnd, SessionEvent, SessionKey, SessionOrder, Side, StreamKind, StreamOrder,
};
use strowger_store::accounting::{Cdr, Row};

/// Starts a server with an echo.
pub(crate) fn echo(keys: &str, rule_keys: &str) -> Site {
    echo_at("20000-20199", keys, rule_keys)
}

/// Starts a server with an echo at these ports.
fn echo_at(ports: &str, keys: &str, rule_keys: &str) -> Site {
    let lines = format!(
        "media.addresses = [\"{{ip}}\"]\nmedia.ports = \"{ports}\"\naccounting.cdr = true\n{keys}\
         [[rule]]\nname = \"echo\"\nwhen = \"request.user == 'echo'\"\nanswer = \"echo\"\n{rule_keys}"
    );
    start(&lines, &["alice"])
}

/// Sends a request with a description; returns the response.
fn say(phone: &Phone, call: &Call, body: &str) -> Got {
    phone.send(&with_body(&phone.text(call), body));
    phone.answer()
}

/// Returns the INVITE of a call that the echo has answered, and the 200.
pub(crate) fn answered(site: &Site) -> (Phone, Call, Got) {
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:echo@example.org");
    let ok = say(&phone, &call, &sdp(4_000, 1, ""));
    assert_eq!(ok.status(), 200, "{}", ok.0);
    acknowledge(&phone, &call, &ok, 1);
    (phone, call, ok)
}

fn acknowledge(phone: &Phone, call: &Call, ok: &Got, cseq: u32) {
    phone.send(&phone.text(&call.within(ok, "ACK", cseq)));
}

/// Returns the version of a description.
fn version(got: &Got) -> u64 {
    let origin = body(got).lines().find(|line| line.starts_with("o=")).expect("an origin");
    origin.split(' ').nth(2).and_then(|version| version.parse().ok()).expect("a number")
}

/// Returns the key and the stream of the only order, which opens or changes a session.
fn set(site: &Site) -> (SessionKey, StreamOrder) {
    let orders = site.media_orders();
    let [SessionOrder::Set { key, streams, .. }] = &orders[..] else { panic!("{orders:?}") };
    let [Some(stream)] = &streams[..] else { panic!("{streams:?}") };
    (*key, stream.clone())
}

pub(crate) fn record(site: &Site) -> Cdr {
    let rows = site.rows();
    let [Row::Cdr(record)] = &rows[..] else { panic!("{rows:?}") };
    record.clone()
}

/// Returns the BYE that a phone gets, and answers it.
pub(crate) fn hung_up(phone: &Phone) -> Got {
    let bye = loop {
        let got = phone.next();
        if got.status() == 0 {
            break got;
        }
    };
    assert_eq!(bye.method(), "BYE", "{}", bye.0);
    phone.respond(&bye, 200, "");
    bye
}

#[test]
fn an_echo_answers_a_call_and_its_media_go_back() {
    let site = echo("", "");
    let (phone, call, ok) = answered(&site);
    let text = body(&ok);
    assert!(text.contains("m=audio 20000 RTP/AVP 8 101\r\n") && text.contains("c=IN IP4 127.0.100.1\r\n"), "{text}");
    let (key, stream) = set(&site);
    assert_eq!((&stream.kind, &stream.far), (&StreamKind::Echo, &None));
    let near = stream.near;
    assert_eq!(near.ports, PortPair { thread: 0, address: 0, rtp: 20_000 });
    assert_eq!(near.rtp, Some("127.0.0.1:4000".parse().expect("an address")));
    assert_eq!((near.sends, near.receives, near.behind_nat, near.formats.len()), (true, true, None, 2));
    assert_eq!(site.calls()[0].state, CallState::Answered);

    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    assert!(site.calls().is_empty());
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by, record.status), ("answered", "caller", 200));
    assert_eq!((&*record.callee, &*record.codecs), ("sip:echo@example.org", "PCMA,telephone-event"));

    // The ports of a call serve others after its end.
    for _ in 0..120 {
        let (phone, call, ok) = answered(&site);
        assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    }
}

#[test]
fn a_caller_with_a_password_is_answered_after_its_challenge() {
    let site = echo("", "");
    let alice = site.phone("alice");
    let call = alice.call("INVITE", "sip:echo@example.org");
    let challenge = alice.ask(&call);
    assert_eq!(challenge.status(), 407);
    assert_eq!(site.media_orders(), []);
    let call = alice.authorized(&call, &challenge, "alice", "alice");
    let ok = say(&alice, &call, &sdp(4_000, 1, ""));
    assert_eq!(ok.status(), 200, "{}", ok.0);
    acknowledge(&alice, &call, &ok, call.cseq);
    set(&site);
    assert_eq!(alice.ask(&call.within(&ok, "BYE", 3)).status(), 200);
    assert_eq!((&*record(&site).outcome, site.calls().len()), ("answered", 0));
}

#[test]
fn an_invite_without_offer_gets_one() {
    let site = echo("", "");
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:echo@example.org");
    let ok = phone.ask(&call);
    assert_eq!(ok.status(), 200, "{}", ok.0);
    assert!(body(&ok).contains("m=audio 20000 RTP/AVP 8 0 "), "{}", ok.0);
    assert_eq!(site.media_orders(), [], "the caller has not described its side");
    phone.send(&with_body(&phone.text(&call.within(&ok, "ACK", 1)), &sdp(4_000, 1, "")));
    let (_, stream) = set(&site);
    assert_eq!(stream.near.rtp, Some("127.0.0.1:4000".parse().expect("an address")));

    // An ACK without the answer.
    let call = phone.call("INVITE", "sip:echo@example.org");
    let ok = phone.ask(&call);
    acknowledge(&phone, &call, &ok, 1);
    assert!(hung_up(&phone).one("Reason").contains("cause=31"));
    assert_eq!(site.media_orders(), [], "the session was never opened");
    assert_eq!(site.calls().len(), 1);
}

#[test]
fn a_session_is_held_resumed_and_moved() {
    let site = echo("", "");
    let (phone, call, ok) = answered(&site);
    let (key, _) = set(&site);

    let hold = say(&phone, &call.within(&ok, "INVITE", 2), &sdp(4_000, 2, "a=sendonly\r\n"));
    assert!(hold.status() == 200 && body(&hold).contains("a=recvonly\r\n"), "{}", hold.0);
    acknowledge(&phone, &call, &ok, 2);
    let (same, stream) = set(&site);
    assert_eq!((same, stream.near.sends, stream.near.receives), (key, true, false));

    let moved = say(&phone, &call.within(&ok, "UPDATE", 3), &sdp(4_002, 3, ""));
    assert!(moved.status() == 200 && body(&moved).contains("m=audio 20000 "), "{}", moved.0);
    assert!(version(&ok) < version(&hold) && version(&hold) < version(&moved));
    let (same, stream) = set(&site);
    assert_eq!((same, stream.near.rtp), (key, Some("127.0.0.1:4002".parse().expect("an address"))));
    assert_eq!((stream.near.sends, stream.near.receives), (true, true));

    // Nothing in common: the session stays.
    let invite = phone.text(&call.within(&ok, "INVITE", 4));
    phone.send(&with_body(&invite, &sdp(4_004, 4, "").replace("m=audio", "m=video")));
    assert_eq!(phone.answer().status(), 488);
    phone.send(&invite.replacen("INVITE", "ACK", 1).replace(" INVITE\r\n", " ACK\r\n"));
    assert_eq!(site.media_orders(), []);

    let offer = phone.ask(&call.within(&ok, "INVITE", 5));
    assert!(offer.status() == 200 && body(&offer).contains("m=audio 20000 "), "{}", offer.0);
    phone.send(&with_body(&phone.text(&call.within(&ok, "ACK", 5)), &sdp(4_006, 5, "")));
    let (same, stream) = set(&site);
    assert_eq!((same, stream.near.rtp), (key, Some("127.0.0.1:4006".parse().expect("an address"))));
    assert_eq!(site.calls().len(), 1);
}

#[test]
fn other_requests_are_answered_as_by_a_phone() {
    let site = echo("", "");
    let (phone, call, ok) = answered(&site);
    for (cseq, method, status) in [(2, "INFO", 200), (3, "OPTIONS", 200), (4, "REFER", 405)] {
        let got = phone.ask(&call.within(&ok, method, cseq));
        assert_eq!(got.status(), status, "{}", got.0);
    }
    for (method, status) in [("OPTIONS", 200), ("MESSAGE", 405), ("SUBSCRIBE", 405)] {
        let got = phone.ask(&phone.call(method, "sip:echo@example.org"));
        assert_eq!(got.status(), status, "{}", got.0);
        assert!(got.one("Allow").contains("INVITE"), "{}", got.0);
    }
    // The 200 was first.
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:echo@example.org");
    assert_eq!(say(&phone, &call, &sdp(4_000, 1, "")).status(), 200);
    phone.send(&phone.text(&call).replace("INVITE", "CANCEL"));
    let got = phone.answer();
    assert!(got.status() == 200 && got.one("CSeq").ends_with("CANCEL"), "{}", got.0);
    assert_eq!(site.calls().len(), 2);
}

#[test]
fn a_call_without_a_common_codec_or_a_free_port_is_refused() {
    let site = echo_at("20000-20007", "", "");
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:echo@example.org");
    let video = sdp(4_000, 1, "").replace("m=audio", "m=video");
    assert_eq!(say(&phone, &call, &video).status(), 488);
    site.log_with("no stream of the offer suits an endpoint");
    site.log_with("allowed=\"audio RTP/AVP PCMA PCMU G722 opus telephone-event");
    site.log_with("offered=\"video RTP/AVP ");
    let calls: Vec<_> = (0..4).map(|_| answered(&site)).collect();
    let got = say(&phone, &phone.call("INVITE", "sip:echo@example.org"), &sdp(4_000, 1, ""));
    assert_eq!((got.status(), got.all("Retry-After").len()), (503, 1), "{}", got.0);
    site.log_with("no port for media is free");
    let (phone, call, ok) = &calls[2];
    assert_eq!(phone.ask(&call.within(ok, "BYE", 2)).status(), 200);
    site.settle();
    let (_, _, next) = answered(&site);
    let media = |got: &Got| body(got).lines().find(|line| line.starts_with("m=")).map(str::to_owned);
    assert_eq!(media(&next), media(ok));
}

#[test]
fn a_call_moves_with_its_bucket() {
    let site = echo("server.shards = 2\n", "");
    let (phone, call, ok) = answered(&site);
    let (key, _) = set(&site);
    site.move_calls();
    let hold = say(&phone, &call.within(&ok, "INVITE", 2), &sdp(4_000, 2, "a=sendonly\r\n"));
    assert!(hold.status() == 200 && version(&hold) > version(&ok), "{}", hold.0);
    assert_eq!(set(&site).0, key);
    site.move_calls();
    acknowledge(&phone, &call, &ok, 2);
    site.settle();
    site.move_calls();
    site.media_event(SessionEvent::Silent { key, end: SessionEnd::Silence(Side::Near) });
    hung_up(&phone);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    assert_eq!((&*record(&site).ended_by, site.calls().len()), ("callee", 0));
}

#[test]
fn a_call_counts_once_under_its_limit() {
    let limit = "[[call_limit]]\nname = \"line\"\nmost = 1\nstatus = 486\n";
    let site = echo(limit, "call_limits = [\"line\"]\n");
    let (phone, call, ok) = answered(&site);
    let (other, second) = (site.foreign_phone(), phone.call("INVITE", "sip:echo@example.org"));
    assert_eq!(say(&other, &second, &sdp(4_000, 1, "")).status(), 486);
    say(&phone, &call.within(&ok, "UPDATE", 2), &sdp(4_002, 2, ""));
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 3)).status(), 200);
    site.settle();
    answered(&site);
}

#[test]
fn a_server_that_is_about_to_end_serves_the_calls_that_it_has() {
    let site = echo("", "");
    let (phone, call, ok) = answered(&site);
    site.drain();
    assert_eq!(phone.ask(&call.within(&ok, "INFO", 2)).status(), 200);
    let got = say(&phone, &phone.call("INVITE", "sip:echo@example.org"), &sdp(4_000, 1, ""));
    assert_eq!((got.status(), site.calls().len()), (503, 1));
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 3)).status(), 200);
    assert!(site.calls().is_empty());
}

#[test]
fn a_caller_that_may_be_forged_gets_few_copies_of_the_200() {
    let site = echo("", "");
    let phone = site.foreign_phone();
    let invite = with_body(&phone.text(&phone.call("INVITE", "sip:echo@example.org")), &sdp(4_000, 1, ""));
    phone.send(&invite);
    site.wait(Duration::from_secs(33));
    let mut bytes = 0;
    while let Some(got) = phone.within(Duration::from_millis(300)).filter(|got| got.status() > 0) {
        assert_eq!(got.status(), 200, "{}", got.0);
        bytes += got.0.len();
    }
    assert!((1..=MOST_TIMES * invite.len()).contains(&bytes), "{bytes} for {}", invite.len());
}

#[test]
fn a_caller_behind_nat_is_reached_at_its_source() {
    for (keys, private) in [("", "10.0.0.1"), ("nat.contact_repair = false\n", "127.0.0.1")] {
        let site = echo(keys, "");
        let from = "203.0.113.9:40000".parse().expect("an address");
        let phone = Phone::new(site.connect_from(Transport::Udp, from), "sip:mallory@example.net");
        let call = phone.call("INVITE", "sip:echo@example.org");
        let hidden = |text: String| {
            let text =
                text.replace(&format!("Contact: <sip:phone@{from}>"), &format!("Contact: <sip:phone@{private}:7379>"));
            text.replace(&format!("UDP {from};"), &format!("UDP {private}:7379;rport;"))
        };
        let offer = sdp(4_000, 1, "").replace("IP4 127.0.0.1", &format!("IP4 {private}"));
        phone.send(&with_body(&hidden(phone.text(&call)), &offer));
        let ok = phone.answer();
        assert_eq!(ok.status(), 200, "{}", ok.0);
        phone.send(&hidden(phone.text(&call.within(&ok, "ACK", 1))));
        let (_, stream) = set(&site);
        assert_eq!(stream.near.behind_nat, Some(from.ip()));
        site.end_call(site.calls()[0].id);
        assert_eq!(hung_up(&phone).uri(), format!("sip:phone@{from}"));
    }
}

#[test]
fn a_dialog_that_takes_much_memory_is_refused() {
    let site = echo("", "");
    let phone = site.foreign_phone();
    let invite = phone.text(&phone.call("INVITE", "sip:echo@example.org"));
    let invite = invite.replace("<sip:phone@", &format!("<sip:{}@", "x".repeat(3_000)));
    phone.send(&with_body(&invite, &sdp(4_000, 1, "")));
    assert_eq!((phone.answer().status(), site.media_orders()), (513, Vec::new()));
}

#[test]
fn no_caller_names_an_inner_address_as_next_hop() {
    let site = echo("", "");
    let from = "203.0.113.9:40000".parse().expect("an address");
    let phone = Phone::new(site.connect_from(Transport::Udp, from), "sip:mallory@example.net");
    let mut call = phone.call("INVITE", "sip:echo@example.org");
    call.lines = "Record-Route: <sip:127.0.0.1:6379;lr>\n".into();
    assert_eq!(say(&phone, &call, &sdp(4_000, 1, "")).status(), 403);
    assert_eq!(site.media_orders(), []);
}

#[test]
fn an_operator_ends_a_call() {
    let site = echo("", "");
    let (phone, ..) = answered(&site);
    let (key, _) = set(&site);
    site.end_call(site.calls()[0].id);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }], "the response to the BYE is not awaited");
    hung_up(&phone);
    assert_eq!(site.media_orders(), []);
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by), ("answered", "operator"));
    assert!(site.calls().is_empty());
}

#[test]
fn a_call_is_tracked_where_others_are_not() {
    let site = start(
        "media.addresses = [\"{ip}\"]\ndialogs.track = false\n\
         [[rule]]\nname = \"echo\"\nwhen = \"request.user == 'echo'\"\nanswer = \"echo\"\n",
        &["alice"],
    );
    let (phone, ..) = answered(&site);
    let calls = site.calls();
    assert_eq!(calls.iter().map(|call| call.state).collect::<Vec<_>>(), [CallState::Answered]);
    site.end_call(calls[0].id);
    hung_up(&phone);
    site.settle();
    assert!(site.calls().is_empty());
}

#[test]
fn a_call_without_media_is_ended() {
    let site = echo("media.timeout = \"10s\"\n", "");
    let (phone, ..) = answered(&site);
    let (key, _) = set(&site);
    site.media_event(SessionEvent::Silent { key, end: SessionEnd::Silence(Side::Near) });
    assert_eq!(hung_up(&phone).one("Reason"), "Q.850;cause=41;text=\"no media\"");
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    let record = record(&site);
    assert_eq!((&*record.ended_by, record.cause), ("callee", 41));
    assert!(site.calls().is_empty());
}

#[test]
fn a_session_without_a_call_is_closed() {
    let site = echo("", "");
    let (phone, call, ok) = answered(&site);
    let (key, _) = set(&site);
    let from = "127.0.0.1:4000".parse().expect("an address");
    let source = LatchedSource { described: from, from, is_symmetric: true };
    let heard = |key| SessionEvent::Heard { key, stream: 0, side: Side::Near, source };
    site.media_event(heard(key));
    assert_eq!(site.media_orders(), []);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    for event in [heard(key), SessionEvent::Silent { key, end: SessionEnd::Silence(Side::Near) }] {
        site.media_event(event);
        assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    }
}

#[test]
fn a_call_that_is_not_refreshed_or_acknowledged_ends() {
    let site = echo("dialogs.session_expires = \"2m\"\n", "");
    let phone = site.foreign_phone();
    let mut call = phone.call("INVITE", "sip:echo@example.org");
    call.lines = "Supported: timer\n".into();
    let ok = say(&phone, &call, &sdp(4_000, 1, ""));
    assert!(ok.one("Session-Expires").starts_with("120;refresher=uac"), "{}", ok.0);
    acknowledge(&phone, &call, &ok, 1);
    site.wait(Duration::from_secs(60));
    let refresh = Call { lines: call.lines.clone(), ..call.within(&ok, "UPDATE", 2) };
    assert_eq!(phone.ask(&refresh).status(), 200);
    site.wait(Duration::from_secs(60));
    assert_eq!(site.calls().len(), 1, "it was refreshed");
    site.wait(Duration::from_secs(30));
    hung_up(&phone);
    site.settle();
    assert!(site.calls().is_empty());

    // Another phone, because copies of the BYE wait for the first one.
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:echo@example.org");
    assert_eq!(say(&phone, &call, &sdp(4_000, 1, "")).status(), 200);
    site.wait(Duration::from_secs(33));
    hung_up(&phone);
    site.settle();
    assert!(site.calls().is_empty());
}
