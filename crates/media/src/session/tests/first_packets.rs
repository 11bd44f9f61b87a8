//! First packets: those to a host from which none has come, and those of a new codec.

use super::*;

#[test]
fn a_relay_sends_first_only_where_it_may() {
    let mut order = relay();
    order.far.as_mut().expect("a far side").may_send_first = false;
    let mut call = Call::new(order.clone());
    let sound = |call: &mut Call, ms: u64| call.hear(ms, Side::Near, NEAR, &rtp(97, 7, (ms / 20) as u16)).len();
    assert_eq!((0..50).map(|place| sound(&mut call, 20 * place)).sum::<usize>(), 0);
    assert_eq!((call.out.dropped[DropReason::Unproven as usize], call.far().sent), (50, 0));
    // No report goes there either, and other hosts count for nothing.
    assert!(call.poll(9_000_000).iter().all(|sent| sent.port == NEAR_PORT));
    assert!(call.hear(9_000, Side::Far, STRANGER, &rtp(112, 8, 1)).is_empty());
    assert_eq!(sound(&mut call, 9_000), 0);
    // A packet of the host opens the way, by RTP or by RTCP.
    assert_eq!(call.hear(9_020, Side::Far, FAR, &rtp(112, 8, 1)).len(), 1);
    assert_eq!(sound(&mut call, 9_020), 1);
    let mut call = Call::new(order.clone());
    let mut report = Vec::new();
    CompoundWriter::new(&mut report).receiver_report(8, &[]);
    call.hear_rtcp(0, Side::Far, "198.51.100.2:6001", &report);
    assert_eq!(sound(&mut call, 0), 1);
    // Another description closes it again.
    order.far.as_mut().expect("a far side").rtp = Some(at("198.51.100.9:6000"));
    call.set(20, order);
    assert_eq!(sound(&mut call, 40), 0);
}

#[test]
fn few_packets_go_to_a_host_that_has_sent_none() {
    let mut call = Call::new(relay());
    let flood = |call: &mut Call, from: u64| -> usize {
        // 10,000 packets in a second.
        let sent = (0..10_000_u64).map(|place| {
            let at = LegPort { stream: 0, side: Side::Near, is_rtcp: false };
            let packet = rtp(97, 7, (from * 10 + place) as u16);
            call.session.packet(from * 1_000 + place * 100, at, super::at(NEAR), &packet, &mut call.out);
            call.take().len()
        });
        sent.sum()
    };
    assert_eq!(flood(&mut call, 0), 350);
    assert_eq!(call.out.dropped[DropReason::Rate as usize], 9_650);
    // A new description renews nothing.
    let mut order = relay();
    order.far.as_mut().expect("a far side").rtp = Some(at("198.51.100.9:6000"));
    call.set(1_000, order);
    assert!((249..=251).contains(&flood(&mut call, 1_000)));
    call.hear(2_000, Side::Far, "198.51.100.9:6000", &rtp(112, 8, 1));
    assert_eq!(flood(&mut call, 2_000), 10_000);
}

#[test]
fn the_number_of_events_may_be_that_of_a_codec_later() {
    let mut call = Call::new(relay());
    call.hear(0, Side::Near, NEAR, &rtp(101, 7, 1));
    let mut order = relay();
    order.near.formats[1].is_event = false;
    call.set(10, order);
    for (ms, sequence) in [(20, 2), (80, 3)] {
        call.hear(ms, Side::Near, NEAR, &rtp(101, 7, sequence));
    }
    assert!(call.near().figures.largest_jitter > 0, "a packet was late by 40 ms");
}

/// Packets of the codec before are still on their way after a change: they are counted, and the new codec is heard.
#[test]
fn a_packet_of_the_codec_before_changes_nothing() {
    let mut call = Call::new(relay());
    assert_eq!(call.hear(0, Side::Near, NEAR, &rtp(97, 7, 1)).len(), 1);
    let order = StreamOrder {
        near: peer(NEAR_PORT, NEAR, &[(8, Some(8))]),
        far: Some(peer(FAR_PORT, FAR, &[(8, Some(8))])),
        ..relay()
    };
    assert!(call.set(10, order).is_empty());
    assert!(call.hear(20, Side::Near, NEAR, &rtp(97, 7, 2)).is_empty());
    assert!(call.hear(20, Side::Far, FAR, &rtp(112, 8, 2)).is_empty());
    let sent = call.hear(40, Side::Near, NEAR, &rtp(8, 7, 3));
    assert_eq!((sent.len(), sent[0].header().payload_type, sent[0].to), (1, 8, at(FAR)));
    assert_eq!(call.hear(40, Side::Far, FAR, &rtp(8, 8, 3)).len(), 1);
    assert_eq!((call.near().dropped, call.far().dropped), (1, 1));
}
