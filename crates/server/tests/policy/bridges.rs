//! Calls that the server bridges.

mod ends;
mod families;
mod fax;
mod forgeries;
mod gateway_accounts;
mod referrals;
mod refusals;
mod restarts;
mod transfers;

use crate::site::*;
use std::net::SocketAddr;
use strowger_calls::CallState;
use strowger_media::session::{PortPair, SessionKey, SessionOrder, StreamKind, StreamOrder};
use strowger_store::accounting::{Cdr, Row};

/// Starts a server that bridges all calls, with these ports for media.
fn bridge_at(ports: &str, keys: &str, rule_keys: &str) -> Site {
    let lines = format!(
        "media.addresses = [\"{{ip}}\"]\nmedia.ports = \"{ports}\"\naccounting.cdr = true\n{keys}\
         [[rule]]\nname = \"bridge\"\nb2bua = true\n{rule_keys}"
    );
    start(&lines, &["alice", "bob"])
}

pub(crate) fn bridge(keys: &str, rule_keys: &str) -> Site {
    bridge_at("20000-20199", keys, rule_keys)
}

/// Sends a request with a description.
fn say(phone: &Phone, call: &Call, description: &str) {
    phone.send(&with_body(&phone.text(call), description));
}

/// Responds with a description; an empty one is left out.
fn respond(phone: &Phone, request: &Got, status: u16, description: &str) {
    let text = phone.response(request, status, &format!("Contact: <sip:phone@{}>\n", phone.address));
    phone.send(&if description.is_empty() { text } else { with_body(&text, description) });
}

/// Returns the next message of a phone, a request of this method.
fn gets(phone: &Phone, method: &str) -> Got {
    let got = phone.next();
    assert_eq!(got.method(), method, "{}", got.0);
    got
}

/// Returns an INVITE of alice to this user, with her password.
fn invite_of(alice: &Phone, user: &str) -> Call {
    let call = alice.call("INVITE", &format!("sip:{user}@example.org"));
    let challenge = alice.ask(&call);
    assert_eq!(challenge.status(), 407, "{}", challenge.0);
    alice.authorized(&call, &challenge, "alice", "alice")
}

/// Call of alice to a phone.
pub(crate) struct Bridged<'p> {
    alice: Phone,
    bob: &'p Phone,
    call: Call,
    /// INVITE that the callee got.
    far: Got,
    /// 200 that alice got.
    ok: Got,
}

/// INVITE of alice that rings: her phone and that of the callee, her INVITE, and the INVITE that the callee got.
type Ringing<'p> = (Phone, &'p Phone, Call, Got);

/// Registers the phone of bob.
pub(crate) fn registered(site: &Site) -> Phone {
    let bob = site.phone("bob");
    bob.register();
    bob
}

/// Sends an INVITE of alice to bob.
fn invited<'p>(site: &Site, bob: &'p Phone) -> Ringing<'p> {
    let alice = site.phone("alice");
    let call = invite_of(&alice, "bob");
    say(&alice, &call, &sdp(4_000, 1, ""));
    let far = gets(bob, "INVITE");
    (alice, bob, call, far)
}

/// Lets the callee ring and answer.
fn answer((alice, bob, call, far): Ringing<'_>) -> Bridged<'_> {
    respond(bob, &far, 180, "");
    assert_eq!(alice.answer().status(), 180);
    respond(bob, &far, 200, &sdp(5_000, 1, ""));
    gets(bob, "ACK");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    Bridged { alice, bob, call, far, ok }
}

pub(crate) fn answered<'p>(site: &Site, bob: &'p Phone) -> Bridged<'p> {
    answer(invited(site, bob))
}

/// Sends an INVITE with this description from a foreign phone, and returns its refusal.
fn refused(phone: &Phone, description: &str) -> Got {
    let call = phone.call("INVITE", "sip:bob@example.org");
    say(phone, &call, description);
    let got = phone.answer();
    let ack = phone.text(&call).replacen("INVITE", "ACK", 1).replace(" INVITE\r\n", " ACK\r\n");
    phone.send(&ack.replace(&format!("To: {}\r\n", call.to), &format!("To: {}\r\n", got.one("To"))));
    got
}

impl Bridged<'_> {
    /// Returns a request of alice in her dialog.
    fn of_alice(&self, method: &str, number: u32) -> Call {
        self.call.within(&self.ok, method, self.call.cseq + number)
    }

    /// Returns a request of bob in his dialog.
    fn of_bob(&self, method: &str) -> Call {
        let contact = self.far.one("Contact").split(['<', '>']).nth(1).expect("a URI").to_owned();
        Call {
            uri: contact,
            from: format!("{};tag=answer", self.far.one("To")),
            to: self.far.one("From").into(),
            call_id: self.far.one("Call-ID").into(),
            cseq: 1_000,
            ..self.bob.call(method, "sip:x")
        }
    }

    /// Ends the call by a BYE of alice.
    pub(crate) fn end(&self) {
        assert_eq!(self.alice.ask(&self.of_alice("BYE", 9)).status(), 200);
        self.bob.respond(&gets(self.bob, "BYE"), 200, "");
    }

    /// Returns the Reasons of the BYEs that both phones get, and answers them.
    fn hung_up(&self) -> [String; 2] {
        [&self.alice, self.bob].map(|phone| {
            let bye = gets(phone, "BYE");
            phone.respond(&bye, 200, "");
            bye.one("Reason").to_owned()
        })
    }
}

/// Returns the key and the stream of the only order, which opens or changes a session.
fn set(site: &Site) -> (SessionKey, StreamOrder) {
    let orders = site.media_orders();
    let [SessionOrder::Set { key, streams, .. }] = &orders[..] else { panic!("{orders:?}") };
    let [Some(stream)] = &streams[..] else { panic!("{streams:?}") };
    (*key, stream.clone())
}

/// Returns the only record of a call that has left nothing.
pub(crate) fn record(site: &Site) -> Cdr {
    let rows = site.rows();
    let [Row::Cdr(record)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((site.calls().len(), site.counts().calls_bridged), (0, 0));
    record.clone()
}

fn at(port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::from(([127, 0, 0, 1], port)))
}

#[test]
fn a_call_has_a_dialog_and_a_description_on_each_side() {
    for ends in ["caller", "callee"] {
        let site = bridge("", "");
        let bob = registered(&site);
        let call = answered(&site, &bob);
        let (offer, answer) = (body(&call.far), body(&call.ok));
        assert!(
            offer.contains("m=audio 20002 RTP/AVP 8 101\r\n") && offer.contains("c=IN IP4 127.0.100.1\r\n"),
            "{offer}"
        );
        assert!(answer.contains("m=audio 20000 RTP/AVP 8 101\r\n"), "{answer}");
        let (key, stream) = set(&site);
        let far = stream.far.expect("a far side");
        assert_eq!(stream.kind, StreamKind::Relay);
        let pair = |rtp| PortPair { thread: 0, address: 0, rtp };
        assert_eq!((stream.near.ports, far.ports), (pair(20_000), pair(20_002)));
        assert_eq!((stream.near.rtp, far.rtp, far.rtcp), (at(4_000), at(5_000), at(5_001)));
        for (peer, other) in [(&stream.near, &far), (&far, &stream.near)] {
            assert_eq!((peer.sends, peer.receives, peer.behind_nat, peer.formats.len()), (true, true, None, 2));
            assert!(peer.formats.iter().all(|format| format.other.is_some()), "{other:?}");
        }
        let calls = site.calls();
        assert_eq!((calls.len(), calls[0].state, site.counts().calls_bridged), (1, CallState::Answered, 1));

        if ends == "caller" {
            call.end();
        } else {
            assert_eq!(call.bob.ask(&call.of_bob("BYE")).status(), 200);
            call.alice.respond(&gets(&call.alice, "BYE"), 200, "");
        }
        assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
        let record = record(&site);
        assert_eq!((&*record.outcome, &*record.ended_by, record.status), ("answered", ends, 200));
        assert_eq!((&*record.call_id, &*record.far_call_id), (&*call.call.call_id, call.far.one("Call-ID")));
        call.alice.hears_nothing();
        call.bob.hears_nothing();
    }
}

#[test]
fn neither_side_learns_of_the_other() {
    let site = bridge("", "");
    let (caller, bob) = (site.foreign_phone(), &registered(&site));
    let mut invite = caller.call("INVITE", "sip:bob@example.org");
    invite.from = "<sip:mallory@example.net>;tag=near-tag".into();
    say(&caller, &invite, &sdp(4_000, 1, "a=x-near:1\r\n"));
    let far = gets(bob, "INVITE");
    // A host that the far side may not know, of a caller that is no local user.
    assert!(far.one("From").starts_with("<sip:mallory@foreign.invalid>;tag="), "{}", far.0);
    assert_eq!(far.one("To"), "<sip:bob@example.org>");
    let (far_call_id, far_branch) = (far.one("Call-ID").to_owned(), far.branch().to_owned());
    let near = [&*caller.address.to_string(), &invite.call_id, "near-tag", "example.net", "m=audio 4000", "x-near"];
    let others = [&*bob.address.to_string(), &far_call_id, &far_branch, "tag=answer", "m=audio 5000", "x-far"];
    let [near, others] = [near, others].map(|names| names.map(str::to_owned));
    let hides = |got: &Got, names: &[String]| {
        for name in names {
            assert!(!got.0.contains(&**name), "{name} is shown in {}", got.0);
        }
    };
    hides(&far, &near);
    respond(bob, &far, 180, "");
    hides(&caller.answer(), &others);
    respond(bob, &far, 200, &sdp(5_000, 1, "a=x-far:1\r\n"));
    hides(&gets(bob, "ACK"), &near);
    let ok = caller.answer();
    hides(&ok, &others);
    caller.send(&caller.text(&invite.within(&ok, "ACK", 1)));
    let call = Bridged { alice: caller, bob, call: invite, far, ok };

    // A change of each side, a request of each side, and the end.
    say(&call.alice, &call.of_alice("INVITE", 1), &sdp(4_000, 2, "a=sendonly\r\n"));
    let change = gets(call.bob, "INVITE");
    hides(&change, &near);
    respond(call.bob, &change, 488, "");
    hides(&gets(call.bob, "ACK"), &near);
    let refusal = call.alice.answer();
    assert_eq!(refusal.status(), 488);
    hides(&refusal, &others);
    let ack = call.alice.text(&call.of_alice("INVITE", 1)).replacen("INVITE", "ACK", 1);
    call.alice.send(&ack.replace(" INVITE\r\n", " ACK\r\n"));
    call.alice.send(&call.alice.text(&call.of_alice("INFO", 2)));
    let info = gets(call.bob, "INFO");
    hides(&info, &near);
    call.bob.respond(&info, 200, "");
    hides(&call.alice.answer(), &others);
    let reason = "Reason: Q.850;cause=16;text=\"127.0.0.1\"\n".to_owned();
    let bye = Call { lines: reason, ..call.of_bob("BYE") };
    assert_eq!(call.bob.ask(&bye).status(), 200);
    let bye = gets(&call.alice, "BYE");
    hides(&bye, &others);
    assert_eq!(bye.one("Reason"), "Q.850;cause=16");
    call.alice.respond(&bye, 200, "");
    assert_eq!(record(&site).cause, 16);
}

#[test]
fn a_caller_that_gives_up_and_a_busy_callee_leave_nothing() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, call, far) = invited(&site, &bob);
    respond(bob, &far, 180, "");
    assert_eq!(alice.answer().status(), 180);
    alice.send(&alice.text(&call).replace("INVITE", "CANCEL"));
    let statuses = [(); 2].map(|()| alice.answer().status());
    assert_eq!(statuses, [200, 487]);
    let cancel = gets(bob, "CANCEL");
    bob.respond(&cancel, 200, "");
    bob.respond(&far, 487, "");
    gets(bob, "ACK");
    assert_eq!(site.media_orders(), [], "no session was opened");
    assert_eq!(&*record(&site).outcome, "cancelled");

    let (alice, bob, _, far) = invited(&site, bob);
    bob.respond(&far, 486, "Reason: Q.850;cause=17\n");
    gets(bob, "ACK");
    let refusal = alice.answer();
    assert_eq!((refusal.status(), refusal.one("Reason")), (486, "Q.850;cause=17"));
    assert_eq!(site.media_orders(), []);
    let record = record(&site);
    assert_eq!((&*record.outcome, record.status), ("missed", 486));
}

#[test]
fn a_call_that_leads_nowhere_leaves_nothing() {
    let site = bridge("", "");
    let phone = site.foreign_phone();
    // Each takes two of 100 pairs of ports, and gives them back.
    for _ in 0..120 {
        let got = refused(&phone, &sdp(4_000, 1, ""));
        assert_eq!(got.status(), 480, "{}", got.0);
    }
    assert_eq!(refused(&phone, &sdp(4_000, 1, "").replace("m=audio", "m=video")).status(), 488);
    assert_eq!((site.media_orders(), site.calls().len(), site.counts().calls_bridged), (Vec::new(), 0, 0));
}

#[test]
fn a_call_counts_once_and_takes_two_pairs_of_ports() {
    let limit = "[[call_limit]]\nname = \"line\"\nmost = 1\nstatus = 486\n";
    let site = bridge_at("20000-20007", limit, "call_limits = [\"line\"]\n");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    assert_eq!(refused(&site.foreign_phone(), &sdp(4_000, 1, "")).status(), 486);
    call.end();
    site.settle();
    answered(&site, &bob).end();

    let site = bridge_at("20000-20003", "", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    assert_eq!(refused(&site.foreign_phone(), &sdp(4_000, 1, "")).status(), 503);
    site.log_with("no port for media is free");
    call.end();
    site.settle();
    answered(&site, &bob);
}

#[test]
fn the_next_gateway_gets_a_call_that_the_first_one_cannot_take() {
    let keys =
        "when = \"request.user == '4711'\"\nto = [\"sip:127.0.0.1:7101\", \"sip:127.0.0.1:7102\"]\ntry_next = [503]\n";
    let site = bridge("", keys);
    let [first, second] = ["127.0.0.1:7101", "127.0.0.1:7102"].map(|address| phone_at(&site, address));
    let alice = site.phone("alice");
    let call = invite_of(&alice, "4711");
    say(&alice, &call, &sdp(4_000, 1, ""));
    let refused = gets(&first, "INVITE");
    first.respond(&refused, 503, "");
    gets(&first, "ACK");
    let far = gets(&second, "INVITE");
    assert_eq!(far.one("Call-ID"), refused.one("Call-ID"));
    let call = answer((alice, &second, call, far));
    set(&site);
    call.end();
    assert_eq!(&*record(&site).outcome, "answered");
}

#[test]
fn a_hold_and_a_new_port_pass_to_the_other_side() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let (key, _) = set(&site);
    say(&call.alice, &call.of_alice("INVITE", 1), &sdp(4_002, 2, "a=sendonly\r\n"));
    let change = gets(call.bob, "INVITE");
    assert!(body(&change).contains("a=sendonly\r\n"), "{}", change.0);
    respond(call.bob, &change, 200, &sdp(5_000, 2, "a=recvonly\r\n"));
    gets(call.bob, "ACK");
    let ok = call.alice.answer();
    assert!(ok.status() == 200 && body(&ok).contains("a=recvonly\r\n"), "{}", ok.0);
    call.alice.send(&call.alice.text(&call.of_alice("ACK", 1)));
    let (same, stream) = set(&site);
    let far = stream.far.expect("a far side");
    assert_eq!((same, stream.near.rtp), (key, at(4_002)));
    assert_eq!((stream.near.sends, stream.near.receives, far.sends, far.receives), (true, false, false, true));
    call.end();
}

#[test]
fn requests_within_the_call_are_answered_by_the_other_side() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    for (number, method) in (1..).zip(["INFO", "MESSAGE", "OPTIONS", "FROBNICATE"]) {
        call.alice.send(&call.alice.text(&call.of_alice(method, number)));
        let carried = gets(call.bob, method);
        assert_eq!(carried.one("Call-ID"), call.far.one("Call-ID"));
        call.bob.respond(&carried, 202, "");
        assert_eq!(call.alice.answer().status(), 202, "{method}");
    }
    let refusal = call.alice.ask(&call.of_alice("SUBSCRIBE", 5));
    assert!(refusal.status() == 405 && refusal.one("Allow").contains("INVITE"), "{}", refusal.0);
    call.end();
}

#[test]
fn a_callee_that_is_referred_stays_up_until_the_outcome() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let (key, _) = set(&site);
    let refer = Call { lines: "Refer-To: <sip:carol@example.org>\n".into(), ..call.of_alice("REFER", 1) };
    call.alice.send(&call.alice.text(&refer));
    let carried = gets(call.bob, "REFER");
    assert_eq!(carried.one("Refer-To"), "<sip:carol@example.org>");
    call.bob.respond(&carried, 202, "");
    assert_eq!(call.alice.answer().status(), 202);
    assert_eq!(call.alice.ask(&call.of_alice("BYE", 2)).status(), 200);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    call.bob.hears_nothing();
    assert_eq!(site.calls().len(), 1);
    site.wait(std::time::Duration::from_secs(20));
    let lines = "Event: refer\nSubscription-State: terminated;reason=noresource\nContent-Type: message/sipfrag\n";
    let notify = call.bob.text(&Call { lines: lines.into(), ..call.of_bob("NOTIFY") });
    let outcome = "Content-Length: 16\r\n\r\nSIP/2.0 200 OK\r\n";
    call.bob.send(&notify.replace("Content-Length: 0\r\n\r\n", outcome));
    let [first, second] = [call.bob.next(), call.bob.next()];
    let (answer, bye) = if first.status() == 0 { (second, first) } else { (first, second) };
    assert_eq!((answer.status(), bye.method()), (200, "BYE"), "{} {}", answer.0, bye.0);
    call.bob.respond(&bye, 200, "");
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by), ("answered", "caller"));
    let (answer, end) = (record.answer.expect("an answer"), record.end.expect("an end"));
    assert!(
        (answer..answer + 10_000).contains(&end),
        "the wait for the outcome is no time of the call: {answer} {end}"
    );
}
