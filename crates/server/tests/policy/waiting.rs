//! Order of the messages of a call: messages wait for earlier messages that wait for a look-up.

use crate::site::*;

#[test]
fn a_cancel_does_not_overtake_its_invite() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    let text = alice.text(&call);
    // Alice has not been looked up yet: her INVITE waits for the database. All these messages arrive together.
    alice.send(&text);
    alice.send(&text);
    let cancel = text.replace("INVITE", "CANCEL");
    alice.send(&cancel);
    assert_eq!(alice.next().status(), 100);
    assert_eq!(alice.answer().one("CSeq"), format!("{} CANCEL", call.cseq));
    let invite = bob.next();
    assert_eq!(invite.method(), "INVITE");
    bob.respond(&invite, 180, "");
    // The INVITE had been forwarded when its CANCEL arrived.
    assert_eq!(bob.next().method(), "CANCEL");
    bob.respond(&invite, 487, "");
    loop {
        match alice.answer() {
            got if got.status() == 487 => break,
            got => assert!([180, 200].contains(&got.status()), "{}", got.0),
        }
    }
    assert_eq!(site.counts().held_dropped, 0);
}

#[test]
fn many_messages_of_one_call_keep_their_order() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let call = alice.call("MESSAGE", "sip:bob@example.org");
    let challenge = alice.ask(&call);
    let first = alice.authorized(&call, &challenge, "alice", "alice");
    // Later requests of the same sender need no look-up: their From is a user of a foreign domain.
    let from = call.from.replace(&alice.aor, "sip:x@example.net");
    let texts: Vec<String> = (0..20)
        .map(|n| {
            let later = Call { from: from.clone(), cseq: 100 + n, ..call.clone() };
            alice.text(&later)
        })
        .collect();
    alice.send(&alice.text(&first));
    for text in &texts {
        alice.send(text);
    }
    let cseqs: Vec<String> = (0..21).map(|_| bob.next().one("CSeq").to_owned()).collect();
    let wanted: Vec<String> = [2].into_iter().chain(100..120).map(|n| format!("{n} MESSAGE")).collect();
    assert_eq!(cseqs, wanted);
}

#[test]
fn a_name_that_cannot_be_resolved_is_no_way() {
    let site = start("proxy.relay_for = \"everyone\"", &[]);
    site.set_lookup_time(std::time::Duration::from_secs(1));
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:somebody@nowhere.invalid");
    phone.send(&phone.text(&call));
    assert_eq!(phone.next().status(), 100);
    phone.send(&phone.text(&call).replace("INVITE", "CANCEL"));
    let answers = [phone.answer(), phone.answer()];
    let of = |cseq: &str| answers.iter().find(|a| a.one("CSeq").ends_with(cseq)).expect(cseq).status();
    assert!((400..600).contains(&of("INVITE")), "{}", of("INVITE"));
    assert!(matches!(of("CANCEL"), 200 | 481), "{}", of("CANCEL"));
    assert_eq!(phone.ask(&phone.call("OPTIONS", "sip:example.org")).status(), 200);
}
