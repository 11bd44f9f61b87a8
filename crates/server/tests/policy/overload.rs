//! Requests of an overloaded server: what is refused, what never is.
//!
//! The keyed hash of a Call-ID decides whether a request is admitted, so a request that must be refused has a Call-ID that every run uses.

use crate::site::*;
use std::time::Duration;
use strowger_core::Transport;

const OPEN: &str = "proxy.relay_for = \"everyone\"\n";

/// Overloads a server: the wait grows as fast as the clock, so the server serves nothing, and admits a thousandth of all calls.
pub(crate) fn overload(site: &Site) {
    for n in 1..=13 {
        site.report_wait(Duration::from_millis(10 * n));
        site.wait(Duration::from_millis(10));
    }
    assert_eq!(site.counts().overloaded_shards, 1);
}

/// Returns a request outside any dialog with this Call-ID.
fn with_id(phone: &Phone, method: &str, uri: &str, call_id: &str) -> Call {
    Call { call_id: call_id.into(), ..phone.call(method, uri) }
}

/// Makes a call with this Call-ID from Alice to Bob, who answers. Returns the INVITE, the INVITE that Bob received, and the 200.
fn answered(alice: &Phone, bob: &Phone, call_id: &str) -> (Call, Got, Got) {
    let call = with_id(alice, "INVITE", "sip:bob@example.org", call_id);
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    let invite = bob.next();
    bob.respond(&invite, 200, "");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200);
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    assert_eq!(bob.next().method(), "ACK");
    (call, invite, ok)
}

/// Sends a request and checks that it is refused without a transaction.
fn is_refused(phone: &Phone, call: &Call) -> Got {
    let got = phone.ask(call);
    assert_eq!(got.status(), 503, "{call:?}\n{}", got.0);
    let time: u32 = got.one("Retry-After").parse().expect("a number of seconds");
    assert!((5..=30).contains(&time), "{time}");
    got
}

#[test]
fn new_requests_are_refused_until_the_overload_ends() {
    let site = start(OPEN, &["bob"]);
    let phone = site.foreign_phone();
    let call = |method: &str, n: u32| with_id(&phone, method, "sip:unknown@example.org", &format!("new-{method}-{n}"));
    overload(&site);
    site.log_with("overload: requests are refused");
    for (n, method) in (0..).zip(["INVITE", "OPTIONS", "MESSAGE", "SUBSCRIBE", "NEW"]) {
        is_refused(&phone, &call(method, n));
    }
    site.settle();
    let counts = site.counts();
    assert_eq!((counts.overload_calls, counts.overload_other, counts.overload_acks), (1, 4, 1));
    assert_eq!((counts.server_transactions, counts.overload_dropped, counts.relay_denied), (0, 0, 0));
    assert_eq!(counts.overload_percent, 100);
    site.report_wait(Duration::ZERO);
    site.wait(Duration::from_secs(3));
    let log = site.log_with("overload has ended");
    assert!(log.contains("refused=5"), "{log}");
    assert_eq!((site.counts().overloaded_shards, site.counts().overload_percent), (0, 0));
    for method in ["INVITE", "OPTIONS"] {
        assert_ne!(phone.ask(&call(method, 9)).status(), 503);
    }
}

/// Checks that the ACK of a refusal is no other message when the overload has ended.
#[test]
fn the_ack_of_a_refusal_is_absorbed_later() {
    let site = start(OPEN, &["bob"]);
    let phone = site.foreign_phone();
    overload(&site);
    let call = with_id(&phone, "INVITE", "sip:bob@example.org", "late-ACK");
    let refusal = is_refused(&phone, &call);
    site.report_wait(Duration::ZERO);
    site.wait(Duration::from_secs(3));
    let ack = phone.text(&Call { method: "ACK".into(), to: refusal.one("To").into(), ..call });
    let before = site.counts().overload_acks;
    phone.send(&ack);
    phone.hears_nothing();
    assert_eq!((site.counts().overload_acks, site.counts().relay_denied), (before, 0));
}

#[test]
fn a_call_in_progress_is_never_refused() {
    for lines in ["", "dialogs.track = true\n"] {
        let site = start(lines, &["alice", "bob"]);
        let (alice, bob) = (site.phone("alice"), site.phone("bob"));
        bob.register();
        let (call, invite, ok) = answered(&alice, &bob, "in-progress");
        let ringing = with_id(&alice, "INVITE", "sip:bob@example.org", "ringing");
        let ringing = alice.authorized(&ringing, &alice.ask(&ringing), "alice", "alice");
        alice.send(&alice.text(&ringing));
        let second = bob.next();
        bob.respond(&second, 180, "");
        assert_eq!(alice.answer().status(), 180);
        overload(&site);
        // A retransmission.
        alice.send(&alice.text(&ringing));
        assert_eq!(alice.answer().status(), 180);
        // An offer in either direction.
        alice.send(&alice.text(&call.within(&ok, "INVITE", call.cseq + 1)));
        let offer = bob.next();
        bob.respond(&offer, 200, "");
        assert_eq!((offer.method(), alice.answer().status()), ("INVITE", 200));
        alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq + 1)));
        assert_eq!(bob.next().method(), "ACK");
        bob.send(&bob.text(&Call { cseq: 999, ..bob.backwards(&invite, &ok, "UPDATE") }));
        let update = alice.next();
        assert_eq!(update.method(), "UPDATE");
        alice.respond(&update, 200, "");
        assert_eq!(bob.answer().status(), 200);
        let later = Call { cseq: call.cseq + 1, ..call };
        alice.continues_and_ends(&bob, &(later, invite, ok));
        // A CANCEL, and the failure of its INVITE.
        alice.send(&alice.text(&ringing).replace("INVITE", "CANCEL"));
        assert_eq!(alice.answer().status(), 200);
        let cancel = bob.next();
        assert_eq!(cancel.method(), "CANCEL");
        bob.respond(&cancel, 200, "");
        bob.respond(&second, 487, "");
        assert_eq!(alice.answer().status(), 487);
        assert_eq!(bob.next().method(), "ACK");
        let counts = site.counts();
        assert_eq!((counts.overload_calls, counts.overload_other), (0, 0));
    }
}

#[test]
fn forged_dialogs_gain_nothing() {
    for lines in ["", "dialogs.track = true\n"] {
        let site = start(lines, &["alice", "bob"]);
        let (alice, bob, outsider) = (site.phone("alice"), site.phone("bob"), site.foreign_phone());
        bob.register();
        let (call, _, ok) = answered(&alice, &bob, "stolen");
        overload(&site);
        let stolen = call.within(&ok, "INVITE", 9);
        let (alone, changed) = (String::new(), stolen.lines.replace("d=", "d=A"));
        assert_ne!(changed, stolen.lines);
        for forged in [
            // A To tag alone, of no call and of this call with another From tag.
            Call {
                to: "<sip:bob@example.org>;tag=1".into(),
                ..with_id(&outsider, "INVITE", "sip:bob@example.org", "tag")
            },
            Call { lines: alone, from: "<sip:mallory@example.net>;tag=m".into(), ..stolen.clone() },
            // The Route of this call in another one, with another To tag, and changed.
            Call { call_id: "another".into(), ..stolen.clone() },
            Call { to: "<sip:bob@example.org>;tag=forged".into(), cseq: 10, ..stolen.clone() },
            Call { lines: changed, from: "<sip:mallory@example.net>;tag=m".into(), cseq: 11, ..stolen.clone() },
        ] {
            is_refused(&outsider, &forged);
        }
        bob.hears_nothing();
    }
}

#[test]
fn registrations_are_refused_after_calls_and_refreshes_last() {
    let site = start("", &["bob", "carol", "dave"]);
    let (bob, carol) = (site.phone("bob"), site.phone("carol"));
    bob.register();
    let register =
        |phone: &Phone, call_id: &str| Call { call_id: call_id.into(), ..phone.register_call("Expires: 600\n") };
    overload(&site);
    is_refused(&carol, &with_id(&carol, "INVITE", "sip:bob@example.org", "before-registrations"));
    // Registrations and their challenges pass while calls are refused.
    assert_eq!(carol.ask_as(&register(&carol, "first-registration"), "carol").status(), 200);
    // Now the server knows that there are registrations, and admits few of them.
    site.wait(Duration::from_millis(70));
    let dave = site.phone("dave");
    is_refused(&dave, &register(&dave, "second-registration"));
    // A binding was made from the address of this phone, and one has this Call-ID.
    bob.register();
    let other_address = site.phone("carol");
    assert_eq!(other_address.ask(&register(&other_address, "first-registration")).status(), 401);
    is_refused(&other_address, &register(&other_address, "third-registration"));
    assert_eq!(site.counts().overload_registrations, 2);
}

#[test]
fn an_emergency_call_is_never_refused() {
    let lines = "emergency.numbers = [\"112\"]\nemergency.target = \"sip:127.0.0.1:5070\"\n";
    let site = start(lines, &["alice"]);
    let (alice, gateway) = (site.phone("alice"), phone_at(&site, "127.0.0.1:5070"));
    overload(&site);
    for (uri, call_id) in [("sip:112@example.org", "112"), ("urn:service:sos", "sos")] {
        alice.send(&alice.text(&with_id(&alice, "INVITE", uri, call_id)));
        let invite = gateway.next();
        assert_eq!(invite.method(), "INVITE");
        gateway.respond(&invite, 200, "");
        assert_eq!(alice.answer().status(), 200);
    }
    is_refused(&alice, &with_id(&alice, "INVITE", "sip:113@example.org", "113"));
}

#[test]
fn of_an_old_datagram_and_its_copy_one_is_answered() {
    let site = start(OPEN, &[]);
    let datagrams = site.foreign_phone();
    let stream = Phone::new(site.connect(Transport::Tcp), "sip:mallory@example.net");
    overload(&site);
    site.report_wait(Duration::from_millis(600));
    let call = with_id(&datagrams, "OPTIONS", "sip:unknown@example.org", "old");
    datagrams.send(&datagrams.text(&call));
    datagrams.hears_nothing();
    assert_eq!((site.counts().overload_dropped, site.counts().overload_other), (1, 0));
    // A connection has no copies.
    is_refused(&stream, &with_id(&stream, "OPTIONS", "sip:unknown@example.org", "old-on-a-stream"));
    site.report_wait(Duration::from_millis(400));
    is_refused(&datagrams, &call);
    assert_eq!((site.counts().overload_dropped, site.counts().overload_other), (1, 2));
}

/// Checks each beginning of a message, and each message with a changed byte.
#[test]
fn no_message_ends_the_process() {
    let site = start(OPEN, &["bob"]);
    let (phone, other) = (site.foreign_phone(), phone_at(&site, "127.0.0.98:0"));
    overload(&site);
    for method in ["INVITE", "REGISTER", "ACK", "OPTIONS"] {
        let call = Call {
            to: "<sip:bob@example.org>;tag=1".into(),
            lines: format!("Route: <sip:{};lr;d=AAAA>\n", site.udp()),
            ..with_id(&phone, method, "sip:bob@example.org", "changed")
        };
        let text = phone.text(&call);
        for at in 0..text.len() {
            phone.send(&text[..at]);
            for byte in ["\r", "\0", ";", "<", "%"] {
                let mut changed = text.clone();
                changed.replace_range(at..=at, byte);
                phone.send(&changed);
            }
        }
    }
    site.settle();
    is_refused(&other, &with_id(&other, "OPTIONS", "sip:bob@example.org", "after-them"));
}
