//! INVITEs that are refused before a callee hears of them.

use super::*;

#[test]
fn a_call_that_the_bridge_refuses_has_a_record_and_a_log_line() {
    for (lines, description, status, reason) in [
        ("", sdp(4_000, 1, "").replace("m=audio", "m=video"), 488, "no stream or codec of the offer may pass"),
        ("Replaces: 1;to-tag=2;from-tag=3\n", sdp(4_000, 1, ""), 481, "Replaces names no call that could be replaced"),
    ] {
        let site = bridge("", "");
        let alice = site.phone("alice");
        let call = Call { lines: lines.into(), ..alice.call("INVITE", "sip:bob@example.org") };
        let challenge = alice.ask(&call);
        assert_eq!(challenge.status(), 407, "{}", challenge.0);
        say(&alice, &alice.authorized(&call, &challenge, "alice", "alice"), &description);
        assert_eq!(alice.answer().status(), status);
        site.log_with(reason);
        assert_eq!(record(&site).status, status);
        assert_eq!(site.media_orders(), [], "its ports are free");
    }
}

/// The operator sees whether the phone or the rule has to change.
#[test]
fn a_refused_offer_is_logged_with_what_may_pass() {
    let encrypted = sdp(4_000, 1, "").replace("RTP/AVP", "RTP/SAVP");
    let other = sdp(4_000, 1, "").replace("m=audio", "m=video");
    for (description, texts) in [
        (
            encrypted,
            ["only encrypted RTP (SRTP)", "offered=\"audio RTP/SAVP ", "allowed=\"audio RTP/AVP PCMA telephone-event"],
        ),
        (other, ["no stream or codec", "offered=\"video RTP/AVP ", "allowed=\"audio RTP/AVP PCMA telephone-event"]),
    ] {
        let site = bridge("", "codecs = [\"PCMA\", \"telephone-event\"]\n");
        let phone = site.foreign_phone();
        assert_eq!(refused(&phone, &description).status(), 488);
        texts.into_iter().for_each(|text| drop(site.log_with(text)));
    }
}

/// An operator knows the Call-ID of the caller, and no other one.
#[test]
fn a_call_that_leads_nowhere_is_logged_with_its_call_id() {
    // Ports for one call.
    let site = bridge_at("20000-20003", "", "");
    for _ in 0..2 {
        let phone = site.foreign_phone();
        let call = phone.call("INVITE", "sip:bob@example.org");
        say(&phone, &call, &sdp(4_000, 1, ""));
        assert_eq!(phone.answer().status(), 480);
        site.log_with(&call.call_id);
    }
}

#[test]
fn a_call_that_ends_for_its_descriptions_has_a_log_line() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, call, far) = invited(&site, &bob);
    respond(bob, &far, 200, "");
    gets(bob, "ACK");
    assert_eq!(alice.answer().status(), 502);
    bob.respond(&gets(bob, "BYE"), 200, "");
    let log = site.log_with("a description of one party does not suit the other one");
    let line = log.lines().find(|line| line.contains("bridged call ended")).expect("a line");
    assert!(line.contains(&call.call_id) && line.contains(far.one("Call-ID")) && line.contains("callee"), "{line}");
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by, record.status), ("failed", "server", 502));
    assert_eq!(record.answer, None, "the caller got no 200");
}

/// RFC 3261 section 9.1: the caller has 487, and the callee an ACK and a BYE.
#[test]
fn a_200_that_crosses_the_cancel_is_no_answer_in_the_record() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, call, far) = invited(&site, &bob);
    respond(bob, &far, 180, "");
    assert_eq!(alice.answer().status(), 180);
    alice.send(&alice.text(&call).replace("INVITE", "CANCEL"));
    assert_eq!([(); 2].map(|()| alice.answer().status()), [200, 487]);
    let cancel = gets(bob, "CANCEL");
    respond(bob, &far, 200, &sdp(5_000, 1, ""));
    gets(bob, "ACK");
    let bye = gets(bob, "BYE");
    bob.respond(&cancel, 200, "");
    bob.respond(&bye, 200, "");
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by, record.status), ("cancelled", "caller", 487));
    assert_eq!((record.answer, site.media_orders()), (None, Vec::new()));
}

/// RFC 3261 section 16.7 step 6: the 503 of a next hop says nothing about this server.
#[test]
fn a_503_is_that_of_this_server_alone() {
    let site = bridge("dialogs.calls = 1\n", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let refusal = refused(&site.foreign_phone(), &sdp(4_000, 1, ""));
    assert_eq!((refusal.status(), refusal.all("Retry-After")), (503, vec!["5"]), "{}", refusal.0);
    call.end();

    let site = bridge("", "when = \"request.user == '4711'\"\nto = [\"sip:127.0.0.1:7101\"]\n");
    let (alice, gateway) = (site.phone("alice"), phone_at(&site, "127.0.0.1:7101"));
    say(&alice, &invite_of(&alice, "4711"), &sdp(4_000, 1, ""));
    gateway.respond(&gets(&gateway, "INVITE"), 503, "");
    gets(&gateway, "ACK");
    assert_eq!(alice.answer().status(), 500);
    assert_eq!(record(&site).status, 500);
}

/// A next hop that writes another INVITE, without the Via header fields of this server.
#[test]
fn a_call_that_comes_back_again_and_again_is_a_loop() {
    let keys = "registrar.authenticate = false\nauth.calls = false\n";
    let rule = "when = \"request.user == '4711'\"\nto = [\"sip:127.0.0.1:7101\"]\nrelay_for = \"everyone\"\n";
    let site = bridge(keys, rule);
    let (caller, gateway) = (site.foreign_phone(), phone_at(&site, "127.0.0.1:7101"));
    say(&caller, &caller.call("INVITE", "sip:4711@example.org"), &sdp(4_000, 1, ""));
    let mut passes = 0;
    let status = loop {
        let got = gateway.next();
        match got.status() {
            0 => {
                passes += 1;
                let via = format!("Via: SIP/2.0/UDP {};branch=z9hG4bKpass{passes}", gateway.address);
                let rest = got.0.split("\r\n").skip(1).filter(|line| !line.starts_with("Via: "));
                let lines: Vec<&str> =
                    ["INVITE sip:4711@example.org SIP/2.0", via.as_str()].into_iter().chain(rest).collect();
                gateway.send(&lines.join("\r\n"));
            }
            100 => (),
            status => break status,
        }
    };
    assert_eq!((status, passes), (482, 4));
}
