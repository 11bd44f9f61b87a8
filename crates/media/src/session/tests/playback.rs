//! Playback: pace, numbers, hold, hosts that have not sent, end.

use super::*;
use crate::g711::Law;
use crate::sound::Sound;
use std::sync::Arc;

/// Order that plays this sound to the near peer, who may be sent to first.
fn playback(sound: &Arc<Sound>, repeats: bool) -> StreamOrder {
    let played = PlayedSound { sound: sound.clone(), payload_type: 8, law: Law::A, packet_time: 20, repeats };
    StreamOrder { kind: StreamKind::Playback(played), near: peer(NEAR_PORT, NEAR, &[(8, None)]), far: None }
}

/// Returns a sound of this many samples, none of which is silence.
fn sound(samples: i16) -> Arc<Sound> {
    Arc::new(Sound::new((0..samples).map(|sample| 8_000 + 16 * (sample % 100))))
}

/// Polls at each deadline before `end`, in microseconds; returns the packets of RTP with their times.
fn run(call: &mut Call, end: u64) -> Vec<(u64, Sent)> {
    run_from(call, 0, end)
}

/// Polls as [`run`] does, but not before `from`.
fn run_from(call: &mut Call, from: u64, end: u64) -> Vec<(u64, Sent)> {
    let mut all = Vec::new();
    while let Some(due) = call.session.deadline().map(|due| due.max(from)).filter(|due| *due < end) {
        let sent = call.poll(due).into_iter().filter(|sent| !sent.is_rtcp_port);
        all.extend(sent.map(|sent| (due, sent)));
    }
    all
}

fn is_over(call: &mut Call) -> bool {
    call.events().contains(&SessionEvent::Played { key: SessionKey(7), stream: 0 })
}

#[test]
fn a_sound_has_a_packet_each_packet_time_and_an_end() {
    let sound = sound(400);
    let mut call = Call::new(playback(&sound, false));
    let sent = run(&mut call, 60_000);
    let times: Vec<u64> = sent.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 20_000, 40_000]);
    let first = sent[0].1.header();
    assert_eq!((first.payload_type, first.marker, sent[0].1.to, sent[0].1.port), (8, true, at(NEAR), NEAR_PORT));
    for (place, (_, packet)) in (0_u16..).zip(&sent) {
        let header = packet.header();
        assert_eq!((header.source, header.marker), (first.source, place == 0));
        assert_eq!(header.sequence, first.sequence.wrapping_add(place));
        assert_eq!(header.timestamp, first.timestamp.wrapping_add(u32::from(place) * 160));
        assert_eq!(packet.bytes.len(), 12 + 160);
    }
    let mut whole = Vec::new();
    sound.write(Law::A, 0, 480, false, &mut whole);
    let heard: Vec<u8> = sent.iter().flat_map(|(_, packet)| packet.bytes[12..].to_vec()).collect();
    assert_eq!(heard, whole);
    // The end follows once the peer has played the last packet, and once.
    assert!(run(&mut call, 259_000).is_empty() && !is_over(&mut call));
    assert!(run(&mut call, 261_000).is_empty() && is_over(&mut call));
    assert!(run(&mut call, 29_000_000).is_empty() && !is_over(&mut call));
    assert_eq!(call.near().sent, 3);
}

#[test]
fn a_sound_that_repeats_has_no_end() {
    let mut call = Call::new(playback(&sound(100), true));
    assert_eq!(run(&mut call, 10_000_000).len(), 500);
    assert!(!is_over(&mut call));
    // Nothing can be repeated.
    let mut call = Call::new(playback(&sound(0), true));
    assert!(run(&mut call, 1_000).is_empty() && is_over(&mut call));
}

#[test]
fn packet_times_of_other_lengths_are_kept() {
    for (packet_time, length, count) in [(30, 240, 34), (10, 80, 100), (0, 80, 100), (500, 480, 17)] {
        let mut order = playback(&sound(100), true);
        let StreamKind::Playback(played) = &mut order.kind else { panic!("no playback") };
        played.packet_time = packet_time;
        let sent = run(&mut Call::new(order), 1_000_000);
        assert_eq!((sent.len(), sent[0].1.bytes.len()), (count, 12 + length), "{packet_time} ms");
    }
}

#[test]
fn a_sound_stands_still_while_its_peer_holds() {
    let sound = sound(1_600);
    let mut call = Call::new(playback(&sound, false));
    let before = run(&mut call, 90_000);
    let mut held = playback(&sound, false);
    held.near.receives = false;
    call.set(95, held);
    assert!(run(&mut call, 3_000_000).is_empty());
    call.set(3_000, playback(&sound, false));
    let after = run_from(&mut call, 3_000_000, 4_000_000);
    assert_eq!((before.len(), after.len(), is_over(&mut call)), (5, 5, true));
    let (last, next) = (before[4].1.header(), after[0].1.header());
    assert_eq!((after[0].1.bytes[12..].to_vec() == before[4].1.bytes[12..], next.marker), (false, true));
    assert_eq!(next.sequence, last.sequence.wrapping_add(1));
    // The hold is part of the time of the stream: 2.92 s from the last packet to the resumption.
    let ticks = next.timestamp.wrapping_sub(last.timestamp);
    assert!((23_300..23_800).contains(&ticks), "{ticks}");
}

#[test]
fn a_sound_begins_once_its_peer_may_be_sent_to() {
    let sound = sound(320);
    let mut order = playback(&sound, false);
    order.near.may_send_first = false;
    let mut call = Call::new(order);
    assert!(run(&mut call, 1_000_000).is_empty());
    assert!(call.hear(1_000, Side::Near, STRANGER, &rtp(8, 7, 1)).is_empty());
    assert!(run(&mut call, 2_000_000).is_empty());
    // Packets of the peer are judged, and do not come back.
    assert!(call.hear(2_000, Side::Near, NEAR, &rtp(8, 7, 1)).is_empty());
    let sent = run(&mut call, 3_000_000);
    assert!(sent.len() == 2 && sent[0].0 <= 2_020_000 && is_over(&mut call), "{sent:?}");
    let mut whole = Vec::new();
    sound.write(Law::A, 0, 160, false, &mut whole);
    assert_eq!(sent[0].1.bytes[12..], whole);
    assert_eq!((call.near().figures.packets, call.near().dropped), (1, 1));
}

#[test]
fn a_late_poll_sends_what_is_due_and_skips_no_sound() {
    let sound = sound(1_600);
    let mut call = Call::new(playback(&sound, false));
    assert_eq!(call.poll(0).len(), 1);
    // Three packets are due.
    assert_eq!(call.poll(65_000).len(), 3);
    // After a second without a poll the sound goes on at its place, at its pace.
    assert_eq!(call.poll(1_500_000).iter().filter(|sent| !sent.is_rtcp_port).count(), 1);
    let rest = run(&mut call, 2_500_000);
    assert_eq!((rest.len(), rest[0].0, is_over(&mut call)), (5, 1_520_000, true));
}

#[test]
fn another_sound_begins_at_its_start() {
    let mut call = Call::new(playback(&sound(1_600), false));
    let before = run(&mut call, 50_000);
    // The same samples in another place of the memory.
    call.set(55, playback(&sound(1_600), false));
    assert_eq!(run(&mut call, 100_000).len(), 2);
    let other = Arc::new(Sound::new([-20_000; 320]));
    call.set(105, playback(&other, false));
    let after = run(&mut call, 1_000_000);
    assert_eq!((after.len(), after[0].1.bytes[12]), (2, Law::A.encode(-20_000)));
    let (first, next) = (before[0].1.header(), after[0].1.header());
    assert_eq!((next.source, next.sequence), (first.source, first.sequence.wrapping_add(5)));
}

#[test]
fn a_listener_that_sends_nothing_at_all_is_gone() {
    let silent = SessionEvent::Silent { key: SessionKey(7), end: SessionEnd::Silence(Side::Near) };
    let mut order = playback(&sound(100), true);
    order.near.sends = false;
    let mut call = Call::new(order.clone());
    run(&mut call, TIMEOUT - 1);
    assert!(!call.events().contains(&silent));
    // A report is a sign of life.
    let mut report = Vec::new();
    CompoundWriter::new(&mut report).receiver_report(8, &[]);
    call.hear_rtcp(29_000, Side::Near, "192.0.2.1:4001", &report);
    run(&mut call, TIMEOUT + 28_000_000);
    assert!(!call.events().contains(&silent));
    // A hold lasts as long as the peer wants, and its end begins the time again.
    let held = StreamOrder { near: StreamPeer { receives: false, ..order.near.clone() }, ..order.clone() };
    call.set(58_000, held);
    run(&mut call, 200_000_000);
    call.set(200_000, order);
    run_from(&mut call, 200_000_000, 229_000_000);
    assert!(!call.events().contains(&silent));
    run(&mut call, 231_000_000);
    assert!(call.events().contains(&silent));
}
