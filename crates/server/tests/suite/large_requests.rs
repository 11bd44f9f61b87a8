//! Large requests: requests that are too large for UDP are first sent by TCP (RFC 3261 section 18.1.1), and by UDP if
//! the peer accepts no connection. All shards remember such a peer for ten minutes.

use crate::accounting::rows;
use crate::peer::answer;
use crate::site::Site;
use strowger_core::proxy::UdpOnly;
use strowger_core::{Now, Target, Transport};

const SENDER: &str = "198.51.100.7:5060";
const PEER: &str = "198.51.100.8:5060";

fn site() -> Site {
    Site::start(
        Now { mono: 10_000, wall: 1_700_000_000_000 },
        &["udp:192.0.2.1:5060", "tcp:192.0.2.1:5060"],
        "proxy.relay_for = \"everyone\"\nauth.calls = false\naccounting.cdr = true\n",
    )
}

/// Request that was sent: its target, its token, whether it has a fallback, and its text.
type Left = (Target, u64, bool, String);

fn left(site: &Site) -> Left {
    let requests: Vec<Left> = (site.out.sends().iter())
        .map(|s| {
            let text = String::from_utf8_lossy(&site.out.bytes[s.range()]).into_owned();
            (s.target, s.token, s.has_fallback, text)
        })
        .filter(|(.., text)| text.starts_with("MESSAGE "))
        .collect();
    let [one] = &requests[..] else { panic!("{requests:?}") };
    one.clone()
}

/// Sends a large request for the peer to this shard.
fn ask(site: &mut Site, shard: usize) -> Left {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let text = format!(
        "MESSAGE sip:y@{PEER} SIP/2.0\r\nVia: SIP/2.0/UDP {SENDER};branch=z9hG4bKl{number};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:x@example.net>;tag=a\r\nTo: <sip:y@example.net>\r\nCall-ID: l{number}\r\nCSeq: 1 MESSAGE\r\n\
         Content-Type: text/plain\r\nContent-Length: 1300\r\n\r\n{}",
        "x".repeat(1_300)
    );
    let remote = SENDER.parse().expect("an address");
    let arrival = strowger_core::Arrival {
        transport: Transport::Udp,
        listener: strowger_core::ListenerId(0),
        remote,
        flow: None,
    };
    site.work_at(shard, |engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out));
    left(site)
}

/// Reports that the connection for this request could not be made.
fn fails(site: &mut Site, token: u64, by_peer: bool) -> Left {
    site.work(|engine, now, out| engine.unsent(now, token, "connection not made", by_peer, out));
    left(site)
}

fn branch(text: &str) -> &str {
    text.split(";branch=").nth(1).and_then(|rest| rest.split([';', '\r']).next()).expect("a branch")
}

#[test]
fn a_peer_that_takes_no_connection_costs_one_request_its_wait() {
    let mut site = site();
    let (to, token, has_fallback, by_tcp) = ask(&mut site, 0);
    assert_eq!((to.transport, has_fallback), (Transport::Tcp, true));
    let (to, _, has_fallback, by_udp) = fails(&mut site, token, true);
    assert_eq!((to.transport, to.address.to_string().as_str(), has_fallback), (Transport::Udp, PEER, false));
    // The copy by UDP has its own transaction and Via.
    assert!(by_tcp.contains("Via: SIP/2.0/TCP ") && by_udp.contains("Via: SIP/2.0/UDP 192.0.2.1"), "{by_udp}");
    assert_ne!(branch(&by_tcp), branch(&by_udp));
    assert_eq!((site.shared.udp_only_peers(), site.shared.targets_aside()), (1, 0), "no next hop has failed");
    // Each shard knows it.
    for shard in [0, 1] {
        let (to, _, has_fallback, _) = ask(&mut site, shard);
        assert_eq!((to.transport, has_fallback), (Transport::Udp, false), "shard {shard}");
    }
    // The next hop is remembered as UDP-only for a while.
    site.wait(UdpOnly::TIME - 1);
    assert_eq!(ask(&mut site, 0).0.transport, Transport::Udp);
    site.wait(1);
    assert_eq!(ask(&mut site, 0).0.transport, Transport::Tcp);
    site.shared.tidy(site.now);
    assert_eq!(site.shared.udp_only_peers(), 0);
}

#[test]
fn a_failure_of_this_machine_says_nothing_about_the_peer() {
    let mut site = site();
    let (_, token, ..) = ask(&mut site, 0);
    assert_eq!(fails(&mut site, token, false).0.transport, Transport::Udp);
    assert_eq!(site.shared.udp_only_peers(), 0);
    assert_eq!(ask(&mut site, 0).0.transport, Transport::Tcp);
}

/// Writes a request of a large call.
fn of_call(method: &str, large: usize) -> String {
    format!(
        "{method} sip:y@{PEER} SIP/2.0\r\nVia: SIP/2.0/UDP {SENDER};branch=z9hG4bKcancel;rport\r\nMax-Forwards: 70\r\n\
         From: <sip:x@example.net>;tag=a\r\nTo: <sip:y@example.net>\r\nCall-ID: c\r\nCSeq: 1 {method}\r\n\
         Contact: <sip:x@{SENDER}>\r\nSubject: {}\r\nContent-Length: 0\r\n\r\n",
        "x".repeat(large)
    )
}

/// Checks that the copies by TCP and by UDP are one attempt, for the record and for the metrics of the gateway.
#[test]
fn a_call_by_udp_after_tcp_has_tried_its_peer_once() {
    let mut site = site();
    site.receive(SENDER, &of_call("INVITE", 1_300));
    let sends = site.out.sends().to_vec();
    let invite = sends.iter().find(|send| send.target.transport == Transport::Tcp).expect("it goes by TCP");
    let sent = site.work(|engine, now, out| engine.unsent(now, invite.token, "connection not made", true, out));
    assert!(sent.starts_with("INVITE sip:"), "{sent}");
    let sent = site.receive(PEER, &answer(&sent, 486, ""));
    assert!(sent.contains("SIP/2.0 486 "), "{sent}");
    let (cdrs, _) = rows(&mut site);
    assert!(matches!(&cdrs[..], [cdr] if cdr.status == 486 && cdr.attempts == 1 && &*cdr.gateway == PEER), "{cdrs:?}");
}

/// Covers a caller that has cancelled before the connection attempt was abandoned.
#[test]
fn a_request_that_was_cancelled_goes_nowhere_else_and_its_peer_is_remembered() {
    let mut site = site();
    site.receive(SENDER, &of_call("INVITE", 1_300));
    let sends = site.out.sends().to_vec();
    let invite = sends.iter().find(|send| send.target.transport == Transport::Tcp).expect("it goes by TCP");
    site.receive(SENDER, &of_call("CANCEL", 1));
    let sent = site.work(|engine, now, out| engine.unsent(now, invite.token, "connection not made", true, out));
    assert!(sent.starts_with("SIP/2.0 487 ") && !sent.contains("INVITE sip:"), "{sent}");
    assert_eq!((site.shared.udp_only_peers(), site.shared.targets_aside()), (1, 0));
}
