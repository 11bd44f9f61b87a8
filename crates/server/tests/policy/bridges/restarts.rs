//! Bridged calls over a restart.

use super::*;
use std::time::Duration;
use strowger_calls::{anchor_of, with_anchor};
use strowger_core::Transport;
use strowger_media::session::{LatchedSource, SessionEvent, Side};

const KEPT: &str = "auth.secret = \"the secret of a site\"\ndialogs.folder = \"calls\"\n";

/// Returns the version of a description.
fn version(got: &Got) -> u64 {
    let origin = body(got).lines().find(|line| line.starts_with("o=")).expect("an origin");
    origin.split(' ').nth(2).and_then(|version| version.parse().ok()).expect("a number")
}

fn cseq(got: &Got) -> u32 {
    got.one("CSeq").split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Returns the key and the stream of the session that a process has opened at the ports of the process before.
fn reopened(site: &Site) -> (SessionKey, StreamOrder) {
    let orders = site.media_orders();
    let [SessionOrder::Claim { key: claimed, ports }, SessionOrder::Set { key, streams, .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    let [Some(stream)] = &streams[..] else { panic!("{streams:?}") };
    let far = stream.far.as_ref().expect("a far side");
    assert_eq!((claimed, &ports[..]), (key, &[stream.near.ports, far.ports][..]));
    (*key, stream.clone())
}

/// Holds a call by a re-INVITE of alice with this number, which bob gets. Returns the re-INVITE of bob, and the 200 of alice.
fn hold(call: &Bridged<'_>, number: u32) -> (Got, Got) {
    let direction = if number % 2 == 1 { "a=sendonly\r\n" } else { "a=sendrecv\r\n" };
    say(&call.alice, &call.of_alice("INVITE", number), &sdp(4_000, number + 1, direction));
    let change = gets(call.bob, "INVITE");
    let answer = if number % 2 == 1 { "a=recvonly\r\n" } else { "" };
    respond(call.bob, &change, 200, &sdp(5_000, number + 1, answer));
    gets(call.bob, "ACK");
    let ok = call.alice.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    call.alice.send(&call.alice.text(&call.of_alice("ACK", number)));
    (change, ok)
}

/// Sends an INFO of alice with this number. Returns it as bob gets it.
fn info(call: &Bridged<'_>, number: u32) -> Got {
    call.alice.send(&call.alice.text(&call.of_alice("INFO", number)));
    let info = gets(call.bob, "INFO");
    call.bob.respond(&info, 200, "");
    assert_eq!(call.alice.answer().status(), 200);
    info
}

#[test]
fn a_call_goes_on_in_the_next_process_at_the_same_ports() {
    for ends in ["caller", "callee"] {
        let site = bridge(&format!("server.shards = 2\n{KEPT}"), "");
        let bob = registered(&site);
        let call = answered(&site, &bob);
        let (_, before) = set(&site);
        site.wait(Duration::from_secs(60));
        site.restart();
        let (key, stream) = reopened(&site);
        assert_eq!(stream, before);
        assert_eq!((site.calls().len(), site.counts().calls_bridged), (1, 1));
        // Later ones have other ports and another session.
        let other = answered(&site, &bob);
        let (of_other, its) = set(&site);
        assert!(of_other != key && its.near.ports != stream.near.ports);
        other.end();
        site.rows();
        site.media_orders();

        let (change, ok) = hold(&call, 1);
        assert!(version(&change) > version(&call.far) && version(&ok) > version(&call.ok), "{}{}", change.0, ok.0);
        let port = format!("m=audio {} ", stream.far.as_ref().expect("a far side").ports.rtp);
        assert!(cseq(&change) > cseq(&call.far) && body(&change).contains(&port), "{}", change.0);
        let (same, held) = set(&site);
        assert_eq!((same, held.near.ports, held.near.receives), (key, before.near.ports, false));
        if ends == "caller" {
            assert_eq!(call.alice.ask(&call.of_alice("BYE", 9)).status(), 200);
            let bye = gets(call.bob, "BYE");
            assert!(cseq(&bye) > cseq(&change));
            call.bob.respond(&bye, 200, "");
        } else {
            assert_eq!(call.bob.ask(&call.of_bob("BYE")).status(), 200);
            call.alice.respond(&gets(&call.alice, "BYE"), 200, "");
        }
        assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
        let record = record(&site);
        assert_eq!((&*record.outcome, &*record.ended_by), ("answered", ends));
        assert!(record.end.zip(record.answer).is_some_and(|(end, answer)| end - answer >= 60_000), "{record:?}");
        assert!(site.kept_calls().is_empty());
    }
}

/// Covers a process that is killed before its last changes are written.
#[test]
fn numbers_rise_although_the_last_changes_are_lost() {
    let site = bridge(KEPT, "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let early = site.kept_calls();
    let (first, ok) = hold(&call, 1);
    let before = info(&call, 2);
    early.into_iter().for_each(|(key, state)| site.set_kept_call(key, state));
    site.restart();
    site.settle();
    assert!(cseq(&info(&call, 3)) > cseq(&before));
    let (second, later) = hold(&call, 5);
    assert!(version(&second) > version(&first) && version(&later) > version(&ok), "{}{}", second.0, later.0);
    // Once more, with what this process has written.
    site.settle();
    site.restart();
    site.settle();
    let third = info(&call, 6);
    assert!(cseq(&third) > cseq(&second), "{}", third.0);
    call.end();
    assert_eq!((&*record(&site).ended_by, site.kept_calls().len()), ("caller", 0));
}

#[test]
fn a_change_on_its_way_is_not_kept() {
    let site = bridge(KEPT, "");
    let bob = registered(&site);
    let (alice, bob, call, far) = invited(&site, &bob);
    respond(bob, &far, 180, "");
    assert_eq!(alice.answer().status(), 180);
    assert!(site.kept_calls().is_empty(), "it rings");
    respond(bob, &far, 200, &sdp(5_000, 1, ""));
    gets(bob, "ACK");
    let ok = alice.answer();
    assert!(site.kept_calls().is_empty(), "it has no ACK");
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    assert_eq!(site.kept_calls().len(), 1);
    let call = Bridged { alice, bob, call, far, ok };
    let before = set(&site).1;

    // A re-INVITE has no answer when the process ends. Its sender repeats it.
    say(&call.alice, &call.of_alice("INVITE", 1), &sdp(4_000, 2, "a=sendonly\r\n"));
    let lost = gets(call.bob, "INVITE");
    site.restart();
    assert_eq!(reopened(&site).1, before);
    let (again, _) = hold(&call, 1);
    assert!(cseq(&again) > cseq(&lost) && version(&again) > version(&lost), "{}", again.0);
    call.end();
    assert_eq!(&*record(&site).outcome, "answered");
}

/// Reports that the media of a side, described at the first port, come from the second one.
fn hears(site: &Site, key: SessionKey, side: Side, ports: (u16, u16)) -> LatchedSource {
    let [described, from] = [ports.0, ports.1].map(|port| at(port).expect("an address"));
    let source = LatchedSource { described, from, is_symmetric: described == from };
    site.media_event(SessionEvent::Heard { key, stream: 0, side, source });
    source
}

#[test]
fn the_next_process_knows_where_the_parties_were_heard() {
    let site = bridge(KEPT, "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let (key, before) = set(&site);
    hears(&site, key, Side::Near, (4_000, 4_100));
    let far = hears(&site, key, Side::Far, (5_000, 5_000));
    let near = hears(&site, key, Side::Near, (4_000, 4_200));
    site.settle();
    for _ in 0..2 {
        site.restart();
        let (_, stream) = reopened(&site);
        let its_far = stream.far.expect("a far side");
        assert_eq!((stream.near.heard, its_far.heard), (Some(near), Some(far)));
        assert_eq!((stream.near.rtp, its_far.rtp), (before.near.rtp, at(5_000)));
    }
    call.end();
}

/// Accepts the re-INVITE that a phone gets, with this port of the server. Returns it.
fn moves(phone: &Phone, port: u16, answer: &str) -> Got {
    let change = gets(phone, "INVITE");
    assert!(body(&change).contains(&format!("m=audio {port} ")), "{}", change.0);
    respond(phone, &change, 200, answer);
    gets(phone, "ACK");
    change
}

#[test]
fn a_call_whose_ports_another_program_has_gets_others() {
    let site = bridge(KEPT, "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let (key, before) = set(&site);
    hears(&site, key, Side::Near, (4_000, 4_000));
    site.settle();
    site.take_port(20_002);
    site.restart();
    let of_alice = moves(&call.alice, 20_004, &sdp(4_000, 2, ""));
    let of_bob = moves(call.bob, 20_006, &sdp(5_000, 2, ""));
    assert!(version(&of_alice) > version(&call.ok) && version(&of_bob) > version(&call.far));
    assert!(cseq(&of_bob) > cseq(&call.far) && body(&of_bob).contains("RTP/AVP 8 101\r\n"), "{}", of_bob.0);
    let orders = site.media_orders();
    let [SessionOrder::Claim { .. }, SessionOrder::Set { streams, .. }, ..] = &orders[..] else { panic!("{orders:?}") };
    let stream = streams[0].clone().expect("a stream");
    let far = stream.far.expect("a far side");
    assert_eq!((stream.near.ports.rtp, far.ports.rtp), (20_004, 20_006));
    assert_eq!((stream.near.rtp, far.rtp, stream.near.formats), (at(4_000), at(5_000), before.near.formats));
    assert_eq!(stream.near.heard, None, "a NAT may have another port towards other ports");
    // The call goes on, and so it does in the process after that.
    let (change, ok) = hold(&call, 1);
    assert!(body(&change).contains("m=audio 20006 ") && body(&ok).contains("m=audio 20004 "), "{}{}", change.0, ok.0);
    hold(&call, 2);
    site.settle();
    site.media_orders();
    site.restart();
    assert_eq!(reopened(&site).1.near.ports.rtp, 20_004);
    call.end();
    assert_eq!((&*record(&site).ended_by, site.kept_calls().len()), ("caller", 0));
}

#[test]
fn a_call_whose_party_refuses_the_other_ports_ends() {
    for refuses in ["caller", "callee"] {
        let site = bridge(KEPT, "");
        let bob = registered(&site);
        let call = answered(&site, &bob);
        site.settle();
        site.take_port(20_000);
        site.restart();
        let phone = if refuses == "caller" { &call.alice } else { call.bob };
        if refuses == "callee" {
            moves(&call.alice, 20_004, &sdp(4_000, 2, ""));
        }
        let change = gets(phone, "INVITE");
        respond(phone, &change, 488, "");
        gets(phone, "ACK");
        assert_eq!(call.hung_up(), [(); 2].map(|()| "Q.850;cause=31".to_owned()));
        assert!(matches!(site.media_orders()[..], [.., SessionOrder::Close { .. }]));
        assert_eq!((&*record(&site).ended_by, site.kept_calls().len()), ("server", 0));
    }
}

#[test]
fn a_party_that_makes_a_change_meanwhile_is_asked_again() {
    let site = bridge(KEPT, "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    site.settle();
    site.take_port(20_000);
    site.restart();
    let change = gets(&call.alice, "INVITE");
    respond(&call.alice, &change, 491, "");
    gets(&call.alice, "ACK");
    // Her own change names the new ports on both sides.
    let (change, ok) = hold(&call, 1);
    assert!(body(&change).contains("m=audio 20006 ") && body(&ok).contains("m=audio 20004 "), "{}{}", change.0, ok.0);
    call.end();
    assert_eq!(&*record(&site).ended_by, "caller");
}

#[test]
fn a_call_for_which_no_port_is_left_ends() {
    let site = bridge_at("20000-20003", KEPT, "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    site.settle();
    site.media_orders();
    site.take_port(20_002);
    site.restart();
    assert_eq!(call.hung_up(), [(); 2].map(|()| "Q.850;cause=31".to_owned()));
    assert!(matches!(site.media_orders()[..], [SessionOrder::Claim { .. }]));
    assert_eq!((&*record(&site).ended_by, site.kept_calls().len()), ("server", 0));
}

/// Covers a carrier whose certificate has its name, and not its address (RFC 5922).
#[test]
fn a_carrier_proves_its_name_in_the_next_process_too() {
    let site = Site::start(&format!(
        "listen = [\"udp:127.0.100.1:5060\", \"tls:127.0.100.1:5061\"]\nrealm = \"example.org\"\ndomains = [\"example.org\"]\n\
         tls.certificate = \"chain.pem\"\ntls.key = \"key.pem\"\nmedia.addresses = [\"127.0.100.1\"]\nmedia.ports = \"20000-20199\"\n\
         accounting.cdr = true\n{KEPT}[[rule]]\nname = \"out\"\nb2bua = true\nto = [\"sip:carrier.example.com;transport=tls\"]\n"
    ));
    site.add_user("alice@example.org", "alice");
    let address = "127.0.0.1:7061".parse().expect("an address");
    let carrier = site.listen_at(address);
    site.set_name("carrier.example.com", &[(Transport::Tls, address)]);
    let connected = || {
        let line = carrier.accept(Duration::from_secs(5)).expect("the server connects");
        Phone::new(line, "sip:bob@carrier.example.com")
    };
    let alice = site.phone("alice");
    let call = invite_of(&alice, "bob");
    say(&alice, &call, &sdp(4_000, 1, ""));
    let bob = connected();
    let far = gets(&bob, "INVITE");
    let text = bob.response(&far, 200, &format!("Contact: <sip:bob@{address};transport=tls>\n"));
    bob.send(&with_body(&text, &sdp(5_000, 1, "")));
    gets(&bob, "ACK");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    let kept = site.kept_calls();
    let name = b"carrier.example.com";
    assert!(kept.len() == 1 && kept[0].1.windows(name.len()).any(|part| part == name), "the name is kept");
    // The connection is lost, and the number of the name is another one.
    site.restart();
    let call = Bridged { alice, bob: &bob, call, far, ok };
    assert_eq!(call.alice.ask(&call.of_alice("BYE", 1)).status(), 200);
    let again = connected();
    again.respond(&gets(&again, "BYE"), 200, "");
    assert_eq!((&*record(&site).ended_by, site.kept_calls().len()), ("caller", 0));
}

#[test]
fn a_call_of_another_version_ends() {
    let site = bridge(KEPT, "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    site.media_orders();
    let (key, state) = site.kept_calls().remove(0);
    let mut anchor = anchor_of(&state).to_vec();
    anchor[0] -= 1;
    site.set_kept_call(key, with_anchor(&state, &anchor));
    site.restart();
    site.wait(Duration::from_secs(5));
    assert_eq!((&*record(&site).ended_by, site.kept_calls().len()), ("lost", 0));
    assert_eq!(site.media_orders(), []);
    // This server has no dialog left in which it could send a BYE.
    call.alice.hears_nothing();
}

#[test]
fn parties_that_have_lost_the_call_end_it() {
    let site = bridge(KEPT, "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    site.settle();
    site.restart();
    for (phone, status) in [(&call.alice, 200), (call.bob, 481)] {
        phone.respond(&gets(phone, "OPTIONS"), status, "");
    }
    call.alice.respond(&gets(&call.alice, "BYE"), 200, "");
    // The agent ends its dialog (RFC 3261 section 12.2.1.2).
    call.bob.respond(&gets(call.bob, "BYE"), 481, "");
    assert_eq!((&*record(&site).outcome, site.kept_calls().len()), ("answered", 0));
}

/// RFC 3261 section 15.1.1: the process does not wait for the end of the re-INVITE.
#[test]
fn a_party_with_an_open_re_invite_gets_bye_before_the_process_ends() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    site.settle();
    say(&call.alice, &call.of_alice("INVITE", 1), &sdp(4_000, 2, "a=sendonly\r\n"));
    gets(call.bob, "INVITE");
    site.end_unkept();
    let bye = gets(call.bob, "BYE");
    assert_eq!(bye.one("Reason"), "Q.850;cause=31");
    call.bob.respond(&bye, 200, "");
}

#[test]
fn calls_that_are_not_kept_end_with_the_process() {
    for (keys, ends) in [("", true), (KEPT, false)] {
        let site = bridge(keys, "");
        let bob = registered(&site);
        let call = answered(&site, &bob);
        site.settle();
        site.end_unkept();
        if ends {
            assert_eq!(call.hung_up(), [(); 2].map(|()| "Q.850;cause=31".to_owned()));
            assert_eq!(&*record(&site).ended_by, "server");
        } else {
            call.alice.hears_nothing();
            call.bob.hears_nothing();
            assert_eq!(site.calls().len(), 1);
        }
    }
}
