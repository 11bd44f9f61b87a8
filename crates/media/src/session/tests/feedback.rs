//! Feedback that a relay carries over.

use super::*;
use crate::rtcp::{PAYLOAD_FEEDBACK, TRANSPORT_FEEDBACK};

const NEAR_RTCP: &str = "192.0.2.1:4001";
const FAR_RTCP: &str = "198.51.100.2:6001";

/// Returns a relay whose near peer, of SSRC 7, has sent packets 500 and 501, and the last header towards the far peer.
fn call() -> (Call, Header) {
    let mut call = Call::new(relay());
    call.hear(0, Side::Near, NEAR, &rtp(97, 7, 500));
    let last = call.hear(20, Side::Near, NEAR, &rtp(97, 7, 501))[0].header();
    (call, last)
}

impl Call {
    /// Takes RTCP of the far peer.
    fn ask(&mut self, from: &str, packets: &[u8]) -> Vec<Sent> {
        self.ask_from(Side::Far, from, packets)
    }

    fn ask_from(&mut self, side: Side, from: &str, packets: &[u8]) -> Vec<Sent> {
        let mut compound = Vec::new();
        CompoundWriter::new(&mut compound).receiver_report(8, &[]);
        compound.extend_from_slice(packets);
        let port = LegPort { stream: 0, side, is_rtcp: true };
        self.session.packet(40_000, port, at(from), &compound, &mut self.out);
        self.take()
    }
}

fn feedback(packet_type: u8, format: u8, media: u32, control: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    CompoundWriter::new(&mut out).feedback(packet_type, format, (8, media), |out| out.extend_from_slice(control));
    out
}

/// Returns the feedback of a packet: its type, format, and body without the SSRC of the sender.
fn feedback_of(sent: &Sent) -> Vec<(u8, u8, Vec<u8>)> {
    let packets: Vec<_> = read(&sent.bytes).map(|packet| packet.expect("it is right")).collect();
    let [RtcpPacket::ReceiverReport { .. }, RtcpPacket::Description(_), rest @ ..] = &packets[..] else {
        panic!("no compound packet: {packets:?}")
    };
    let feedback = rest.iter().map(|packet| match packet {
        RtcpPacket::Other { packet_type, count, body } => (*packet_type, *count, body[4..].to_vec()),
        other => panic!("{other:?}"),
    });
    feedback.collect()
}

#[test]
fn requests_reach_the_sender_with_its_numbers() {
    let (mut call, last) = call();
    let lost = [&last.sequence.to_be_bytes()[..], &[0x80, 0x01]].concat();
    let full = [&last.source.to_be_bytes()[..], &[9, 0, 0, 0]].concat();
    let asked = [
        feedback(TRANSPORT_FEEDBACK, 1, last.source, &lost),
        feedback(PAYLOAD_FEEDBACK, 1, last.source, &[]),
        feedback(PAYLOAD_FEEDBACK, 4, 0, &full),
    ];
    let sent = call.ask(FAR_RTCP, &asked.concat());
    let [sent] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((sent.to, sent.port, sent.is_rtcp_port), (at(NEAR_RTCP), NEAR_PORT, true));
    let expected = [
        (TRANSPORT_FEEDBACK, 1, vec![0, 0, 0, 7, 1, 0xf5, 0x80, 0x01]),
        (PAYLOAD_FEEDBACK, 1, vec![0, 0, 0, 7]),
        (PAYLOAD_FEEDBACK, 4, vec![0, 0, 0, 0, 0, 0, 0, 7, 9, 0, 0, 0]),
    ];
    assert_eq!(feedback_of(sent), expected);
}

#[test]
fn other_feedback_is_not_carried_over() {
    let (mut call, last) = call();
    let picture_loss = feedback(PAYLOAD_FEEDBACK, 1, last.source, &[]);
    // Another SSRC, another source, other formats, a packet without control information.
    assert!(call.ask(FAR_RTCP, &feedback(PAYLOAD_FEEDBACK, 1, 7, &[])).is_empty());
    assert!(call.ask(STRANGER, &picture_loss).is_empty());
    assert!(call.ask(FAR_RTCP, &feedback(PAYLOAD_FEEDBACK, 15, last.source, b"REMB")).is_empty());
    assert!(call.ask(FAR_RTCP, &feedback(PAYLOAD_FEEDBACK, 4, last.source, &[])).is_empty());
    assert!(call.ask(FAR_RTCP, b"\x81\xce\0\x01\0\0\0\x08").is_empty());
    assert_eq!(call.ask(FAR_RTCP, &picture_loss).len(), 1);
    // A flood of requests.
    let sent: usize = (0..1_000).map(|_| call.ask(FAR_RTCP, &picture_loss).len()).sum();
    assert_eq!(sent, 99);
    // The other side is heard all the same.
    let to_near = call.hear(40, Side::Far, FAR, &rtp(112, 8, 1))[0].header();
    let picture_loss = feedback(PAYLOAD_FEEDBACK, 1, to_near.source, &[]);
    assert_eq!(call.ask_from(Side::Near, NEAR_RTCP, &picture_loss).len(), 1);
}
