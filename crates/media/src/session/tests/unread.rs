//! Streams whose datagrams pass unread.

use super::*;

/// Stream whose datagrams pass unread, without RTCP.
fn unread() -> StreamOrder {
    let of = |peer: StreamPeer| StreamPeer { rtcp: None, ..peer };
    let far = Some(of(peer(FAR_PORT, FAR, &[])));
    StreamOrder { kind: StreamKind::Unread, near: of(peer(NEAR_PORT, NEAR, &[])), far }
}

#[test]
fn datagrams_pass_unread() {
    let mut call = Call::new(unread());
    // UDPTL begins with a sequence number; RTP as it is, and what looks like RTCP.
    for datagram in [b"\0\x01\x02fax".to_vec(), rtp(0, 7, 1), b"\x80\xc9\0\x01\0\0\0\x01".to_vec(), Vec::new()] {
        let sent = call.hear(0, Side::Near, NEAR, &datagram);
        let [sent] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((sent.port, sent.is_rtcp_port, sent.to, &sent.bytes), (FAR_PORT, false, at(FAR), &datagram));
    }
    assert!(call.hear(0, Side::Near, STRANGER, b"fax").is_empty());
    assert_eq!(call.hear(20, Side::Far, FAR, b"page")[0].to, at(NEAR));
    call.hear_rtcp(20, Side::Near, NEAR, b"\x80\xc9\0\x01\0\0\0\x01");
    let report = call.near();
    assert_eq!((report.unread, report.dropped, report.sent, report.figures.packets), (4, 2, 1, 0));
    assert!(!report.is_silent());
    assert_eq!(call.events().len(), 2);
    // No reports, no goodbye.
    assert!(call.poll(20_000_000).is_empty());
    let Call { session, mut out, .. } = call;
    session.close(moment(21_000_000), &mut out);
    assert!(out.packets.is_empty());
}

#[test]
fn unread_streams_obey_hold_and_the_reach_of_descriptions() {
    let mut order = unread();
    order.near.sends = false;
    let mut call = Call::new(order);
    assert!(call.hear(0, Side::Near, NEAR, b"fax").is_empty());
    assert_eq!(call.out.dropped[DropReason::Hold as usize], 1);
    let mut order = unread();
    order.far.as_mut().expect("a far side").may_send_first = false;
    let mut call = Call::new(order);
    assert!(call.hear(0, Side::Near, NEAR, b"fax").is_empty());
    assert_eq!(call.hear(20, Side::Far, FAR, b"fax").len(), 1);
    assert_eq!(call.hear(40, Side::Near, NEAR, b"fax").len(), 1);
}

#[test]
fn encrypted_rtcp_goes_by_the_ports_of_the_other_side() {
    let mut order = unread();
    order.near.rtcp = order.near.rtp;
    order.far.as_mut().expect("a far side").rtcp = Some(at("198.51.100.2:6001"));
    let mut call = Call::new(order);
    assert!(!call.hear(0, Side::Near, NEAR, b"\x80\0encrypted")[0].is_rtcp_port);
    let sent = call.hear(0, Side::Near, NEAR, b"\x80\xc8encrypted");
    assert_eq!((sent[0].is_rtcp_port, sent[0].to), (true, at("198.51.100.2:6001")));
    let port = LegPort { stream: 0, side: Side::Far, is_rtcp: true };
    call.session.packet(0, port, at("198.51.100.2:6001"), b"\x80\xc8encrypted", &mut call.out);
    let back = call.take();
    assert_eq!((back[0].is_rtcp_port, back[0].to, back[0].port), (false, at(NEAR), NEAR_PORT));
}

#[test]
fn a_fax_that_receives_a_page_is_not_silent() {
    let mut call = Call::new(unread());
    call.hear(1_000, Side::Far, FAR, b"ready");
    for second in 2..100 {
        call.hear(second * 1_000, Side::Near, NEAR, b"page");
        call.poll(second * 1_000_000);
    }
    assert!(call.events().iter().all(|event| matches!(event, SessionEvent::Heard { .. })));
    call.poll(99_000_000 + TIMEOUT);
    assert!(matches!(call.events()[..], [SessionEvent::Silent { .. }]));
}

#[test]
fn a_call_that_becomes_a_fax_says_goodbye_to_its_sound() {
    let mut call = Call::new(relay());
    call.hear(0, Side::Near, NEAR, &rtp(97, 7, 10));
    // One report follows, and nothing goes into encrypted RTCP.
    let encrypted = StreamOrder { kind: StreamKind::Unread, ..relay() };
    let sent = call.set(20, encrypted.clone());
    assert!(sent.len() == 1 && sent[0].port == FAR_PORT && sent[0].is_rtcp_port);
    assert!(call.set(30, encrypted).is_empty() && call.set(35, unread()).is_empty());
    assert_eq!(call.hear(40, Side::Near, NEAR, b"\0\x01fax")[0].bytes, b"\0\x01fax");
    // The sound comes back with the same numbering.
    assert!(call.set(60, relay()).is_empty());
    assert_eq!(call.hear(80, Side::Near, NEAR, &rtp(97, 7, 11))[0].header().payload_type, 112);
}
