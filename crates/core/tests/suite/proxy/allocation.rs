//! Relaying allocates nothing once warm: dialogs between two networks, devices behind NAT, a second proxy in front.

use super::rig::*;
pub(crate) use strowger_allocations::of_thread as count;
use strowger_core::Transport;

const OUTER: &str = "10.50.0.1:40001";
const INSIDE: &str = "192.168.0.9:40002";

/// INVITE, 180, 200, ACK, BYE, 200 from one network into another, both ends behind NAT.
fn call(rig: &mut Rig, n: u64) {
    let own = |text: String| text.replace("call@", &format!("{n}@")).replace("bKa", &format!("bKa{n}x"));
    let mut tries = vec![Try {
        uri: Some("sip:bob@172.16.8.8".into()),
        at: vec![at(INSIDE)],
        q: 1000,
        fixed: true,
        ..Try::default()
    }];
    tries[0].at[0].listener = INNER;
    let invite = own(alice("INVITE", "sip:bob@example.org", "X: y\n"));
    let sent = only(rig.request(&invite, udp(OUTER), &tries));
    only(rig.answer(&sent, 180, ""));
    let ok = only(rig.answer(&sent, 200, "Contact: <sip:bob@172.16.8.8>\n"));
    let uri = ok.one("Contact").split(['<', '>']).nth(1).expect("a URI").to_owned();
    assert!(uri.contains(";x-strowger="));
    let recorded = ok.all("Record-Route");
    let routes = format!("Route: {}\nRoute: {}\n", recorded[1], recorded[0]);
    let within = |method: &str, cseq: u32| {
        own(alice(method, &uri, &routes))
            .replace("<sip:bob@example.org>", "<sip:bob@example.org>;tag=at40002")
            .replace("CSeq: 1", &format!("CSeq: {cseq}"))
    };
    let ack = only(rig.request(&within("ACK", 1), udp(OUTER), &[]));
    let bye = only(rig.request(&within("BYE", 2), udp(OUTER), &[]));
    assert_eq!((ack.uri(), bye.uri()), ("sip:bob@172.16.8.8", "sip:bob@172.16.8.8"));
    only(rig.answer(&bye, 200, ""));
}

/// Relays a request that another server of this kind forwarded here.
fn behind_a_proxy(rig: &mut Rig, n: u64) {
    let via = format!("Via: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bK{n:032x}\n");
    let text = alice("MESSAGE", "sip:bob@10.2.2.2", "")
        .replacen("Via: ", &format!("{via}Via: "), 1)
        .replace("call@", &format!("m{n}@"));
    let sent = only(rig.request(&text, by(UDP, Transport::Udp, "10.9.9.9:5060"), &to(BOB)));
    only(rig.answer(&sent, 200, ""));
}

#[test]
fn warm_dialogs_allocate_nothing() {
    let mut rig = Rig::new();
    let run = |rig: &mut Rig, from: u64, to: u64| {
        for n in from..to {
            call(rig, n);
            behind_a_proxy(rig, n);
            rig.pass(50);
        }
    };
    // Past the 32 s that the longest transaction lives.
    run(&mut rig, 0, 900);
    let before = rig.allocations;
    run(&mut rig, 900, 1_500);
    assert_eq!(rig.allocations - before, 0, "in 600 calls");
    rig.end();
}
