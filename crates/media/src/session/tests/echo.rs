//! Echo of a peer.

use super::*;

#[test]
fn an_echo_goes_back_to_its_peer() {
    let near = peer(NEAR_PORT, NEAR, &[(0, None), (101, None)]);
    let mut call = Call::new(StreamOrder { kind: StreamKind::Echo, near, far: None });
    let sent = call.hear(0, Side::Near, NEAR, &rtp(0, 7, 500));
    assert_eq!((sent[0].to, sent[0].port, sent[0].header().payload_type), (at(NEAR), NEAR_PORT, 0));
    assert!(sent[0].header().source != 7);
    assert_eq!(call.hear(20, Side::Near, NEAR, &rtp(101, 7, 501))[0].header().payload_type, 101);
    assert!(call.hear(20, Side::Near, STRANGER, &rtp(0, 7, 502)).is_empty());
    assert!(call.hear(20, Side::Far, NEAR, &rtp(0, 7, 502)).is_empty());
}

fn echo(address: &str) -> StreamOrder {
    StreamOrder { kind: StreamKind::Echo, near: peer(NEAR_PORT, address, &[(0, None)]), far: None }
}

#[test]
fn an_echo_has_the_payload_types_of_its_peer() {
    // This server has offered 111, and the peer has answered with 96 (RFC 3264 section 5.1).
    let near = peer(NEAR_PORT, NEAR, &[(111, Some(96)), (96, Some(96))]);
    let mut call = Call::new(StreamOrder { kind: StreamKind::Echo, near, far: None });
    for (sequence, payload_type) in [(1, 111), (2, 96)] {
        assert_eq!(call.hear(0, Side::Near, NEAR, &rtp(payload_type, 7, sequence))[0].header().payload_type, 96);
    }
}

#[test]
fn a_described_host_that_sends_nothing_gets_nothing() {
    let mut call = Call::new(echo(NEAR));
    assert!(call.poll(9_000_000).is_empty());
    assert_eq!(call.hear(9_010, Side::Near, NEAR, &rtp(0, 7, 1)).len(), 1);
    assert_eq!(call.poll(20_000_000).iter().map(|sent| sent.to).collect::<Vec<_>>(), [at("192.0.2.1:4001")]);
    // A known peer describes another host, and then another one for RTCP.
    assert!(call.set(20_010, echo("192.0.2.9:4000")).is_empty() && call.poll(29_000_000).is_empty());
    let mut order = echo(NEAR);
    order.near.rtcp = Some(at("203.0.113.3:4001"));
    assert!(call.set(29_010, order).is_empty());
    assert_eq!(call.hear(29_020, Side::Near, NEAR, &rtp(0, 7, 2)).len(), 1);
    assert!(call.poll(38_000_000).is_empty());
    let mut report = Vec::new();
    CompoundWriter::new(&mut report).receiver_report(8, &[]);
    call.hear_rtcp(38_010, Side::Near, "203.0.113.3:4001", &report);
    assert_eq!(call.poll(47_000_000).iter().map(|sent| sent.to).collect::<Vec<_>>(), [at("203.0.113.3:4001")]);
    // Nor does a BYE go to a host that was never heard.
    call.set(47_010, echo("192.0.2.9:4000"));
    let Call { session, mut out, .. } = call;
    session.close(moment(48_000_000), &mut out);
    assert!(out.packets.is_empty());
}

#[test]
fn two_echoes_lose_the_packets_between_them() {
    let [one, other] = [NEAR, FAR];
    // Each has the other one as peer. A third host sends a packet with the source of one.
    let mut calls = [Call::seeded(1, echo(other)), Call::seeded(2, echo(one))];
    let mut packet = rtp(0, 7, 1);
    let mut passes = 0;
    loop {
        let from = if passes % 2 == 0 { other } else { one };
        let sent = calls[passes as usize % 2].hear(passes, Side::Near, from, &packet);
        let Some(sent) = sent.into_iter().next() else { break };
        packet = sent.bytes;
        passes += 1;
        assert!(passes < 2_000, "without end");
    }
    // One that returns the packets as they are.
    let mut call = Call::new(echo(NEAR));
    let sent = call.hear(0, Side::Near, NEAR, &rtp(0, 7, 1));
    assert!(call.hear(1, Side::Near, NEAR, &sent[0].bytes).is_empty());
    assert_eq!((call.near().dropped, call.near().sent), (1, 1));
}
