//! Recording: tone, places of packets, limit, pauses, floods.

use super::*;
use crate::g711::Law;
use crate::sound::Sound;
use std::path::Path;
use std::sync::Arc;

/// Order that records the near peer for this many microseconds, after a tone of 20 ms.
fn recording(limit: u64) -> StreamOrder {
    let sound = Arc::new(Sound::new([1_000; 160]));
    let tone = PlayedSound { sound, payload_type: 8, law: Law::A, packet_time: 20, repeats: false };
    let recorded = RecordedSound { tone, laws: vec![(8, Law::A)], file: Path::new("a.wav").into(), limit };
    let near = peer(NEAR_PORT, NEAR, &[(8, None), (101, None)]);
    StreamOrder { kind: StreamKind::Recording(recorded), near, far: None }
}

/// Returns a packet of 160 samples.
fn sound(source: u32, sequence: u16, timestamp: u32) -> Vec<u8> {
    let mut datagram = Vec::new();
    Header { payload_type: 8, marker: false, sequence, timestamp, source }.write(&mut datagram);
    datagram.extend([Law::A.encode(4_000); 160]);
    datagram
}

/// Polls at each deadline up to `end`, in microseconds; returns the number of packets of RTP.
fn run(call: &mut Call, end: u64) -> usize {
    let mut count = 0;
    while let Some(due) = call.session.deadline().filter(|due| *due <= end) {
        count += call.poll(due).into_iter().filter(|sent| !sent.is_rtcp_port).count();
    }
    count
}

/// Takes a packet; returns the place at which it is recorded.
fn place(call: &mut Call, ms: u64, datagram: &[u8]) -> Option<u64> {
    assert!(call.hear(ms, Side::Near, NEAR, datagram).is_empty());
    call.out.recorded.take()
}

/// Call whose recording begins after 220 ms: a packet of the tone, and 200 ms.
fn begun(limit: u64) -> Call {
    let mut call = Call::new(recording(limit));
    assert_eq!(run(&mut call, 219_000), 1);
    assert_eq!(place(&mut call, 219, &sound(7, 0, 0)), None);
    assert_eq!(run(&mut call, 220_000), 0);
    call
}

#[test]
fn packets_are_recorded_after_the_tone_at_the_places_of_their_timestamps() {
    let mut call = begun(60_000_000);
    assert_eq!(place(&mut call, 240, &sound(7, 1, 160)), Some(160));
    assert_eq!(call.out.samples, [Law::A.decode(Law::A.encode(4_000)); 160]);
    // The jitter of the arrival does not count, a lost packet leaves its place free, and a late one fills it.
    assert_eq!(place(&mut call, 291, &sound(7, 2, 320)), Some(320));
    assert_eq!(place(&mut call, 300, &sound(7, 4, 640)), Some(640));
    assert_eq!(place(&mut call, 301, &sound(7, 3, 480)), Some(480));
    // A pause of the sender.
    assert_eq!(place(&mut call, 1_301, &sound(7, 5, 8_800)), Some(8_800));
    // Telephone events are no sound.
    assert_eq!(place(&mut call, 1_320, &rtp(101, 7, 6)), None);
    // Another host.
    assert!(call.hear(1_321, Side::Near, STRANGER, &sound(7, 7, 8_960)).is_empty() && call.out.recorded.is_none());
}

#[test]
fn timestamps_that_begin_anew_do_not_move_the_sound() {
    let mut call = begun(60_000_000);
    assert_eq!(place(&mut call, 240, &sound(7, 1, 160)), Some(160));
    // Another source, and then timestamps an hour away.
    assert_eq!(place(&mut call, 1_220, &sound(8, 900, 77)), Some(8_000));
    assert_eq!(place(&mut call, 1_240, &sound(8, 901, 237)), Some(8_160));
    assert_eq!(place(&mut call, 2_220, &sound(8, 902, 28_800_000)), Some(16_000));
    assert_eq!(place(&mut call, 2_240, &sound(8, 903, 28_800_160)), Some(16_160));
}

#[test]
fn a_recording_ends_at_its_limit() {
    let mut call = begun(1_000_000);
    assert_eq!(place(&mut call, 240, &sound(7, 1, 160)), Some(160));
    // Only the samples before the limit are recorded.
    assert_eq!(place(&mut call, 1_210, &sound(7, 2, 7_920)), Some(7_920));
    assert_eq!(call.out.samples.len(), 80);
    run(&mut call, 1_219_000);
    let over = SessionEvent::Played { key: SessionKey(7), stream: 0 };
    assert!(!call.events().contains(&over));
    run(&mut call, 1_221_000);
    assert!(call.events().contains(&over));
    assert_eq!(place(&mut call, 1_222, &sound(7, 3, 8_000)), None);
    run(&mut call, 3_000_000);
    assert!(!call.events().contains(&over));
}

#[test]
fn a_peer_that_does_not_receive_is_recorded_at_once() {
    let mut order = recording(60_000_000);
    order.near.receives = false;
    let mut call = Call::new(order);
    assert_eq!(place(&mut call, 20, &sound(7, 1, 160)), Some(160));
    // A hold is silence.
    let mut held = recording(60_000_000);
    held.near.sends = false;
    call.set(40, held);
    assert_eq!(place(&mut call, 60, &sound(7, 2, 320)), None);
    call.set(1_000, recording(60_000_000));
    assert_eq!(place(&mut call, 1_020, &sound(7, 3, 8_160)), Some(8_160));
}

#[test]
fn a_flood_is_not_recorded() {
    let mut call = begun(60_000_000);
    let recorded = (0..1_000).filter(|_| place(&mut call, 240, &sound(7, 1, 160)).is_some()).count();
    assert_eq!(recorded, 100, "those that may come at once");
    assert!(call.near().dropped >= 900);
}
