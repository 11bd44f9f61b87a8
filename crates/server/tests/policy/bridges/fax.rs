//! Fax by T.38 (UDPTL) in bridged calls.

use super::*;
use std::collections::BTreeSet;

const LISTED: &str = "media_types = [\"image\"]\n";

/// Returns the line of a fax stream at this port.
fn fax(port: u16) -> String {
    format!("m=image {port} udptl t38\r\na=T38FaxVersion:0\r\n")
}

/// Returns a description of a fax at this port in place of the audio.
fn fax_alone(port: u16, version: u32) -> String {
    format!("v=0\r\no=- 1 {version} IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n{}", fax(port))
}

/// Changes a call by these descriptions of alice and bob. Returns the streams of the order to the media thread.
fn changed(site: &Site, call: &Bridged<'_>, of_alice: &str, of_bob: &str) -> Vec<Option<StreamOrder>> {
    say(&call.alice, &call.of_alice("INVITE", 1), of_alice);
    let change = gets(call.bob, "INVITE");
    assert!(body(&change).contains(" udptl t38\r\na=T38FaxVersion:0\r\n"), "{}", change.0);
    respond(call.bob, &change, 200, of_bob);
    gets(call.bob, "ACK");
    let ok = call.alice.answer();
    assert!(ok.status() == 200 && body(&ok).contains(" udptl t38\r\n"), "{}", ok.0);
    call.alice.send(&call.alice.text(&call.of_alice("ACK", 1)));
    let orders = site.media_orders();
    let [SessionOrder::Set { streams, .. }] = &orders[..] else { panic!("{orders:?}") };
    streams.clone()
}

#[test]
fn a_fax_beside_the_audio_passes_unread_by_ports_of_its_own() {
    let site = bridge("", LISTED);
    let bob = registered(&site);
    let call = answered(&site, &bob);
    set(&site);
    let [of_alice, of_bob] = [(4_000, 4_010), (5_000, 5_010)].map(|(audio, image)| sdp(audio, 2, &fax(image)));
    let streams = changed(&site, &call, &of_alice, &of_bob);
    let [Some(audio), Some(image)] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((&audio.kind, &image.kind), (&StreamKind::Relay, &StreamKind::Unread));
    let far = image.far.as_ref().expect("a far side");
    assert_eq!((image.near.rtp, far.rtp, far.rtcp), (at(4_010), at(5_010), None));
    let sides = [audio, image].map(|stream| [Some(&stream.near), stream.far.as_ref()]);
    let ports: BTreeSet<u16> = sides.iter().flatten().flatten().map(|peer| peer.ports.rtp).collect();
    assert_eq!(ports.len(), 4, "{streams:?}");
    call.end();
}

#[test]
fn a_fax_may_take_the_place_of_the_audio() {
    let site = bridge("", LISTED);
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let (_, audio) = set(&site);
    let streams = changed(&site, &call, &fax_alone(4_010, 2), &fax_alone(5_010, 2));
    let [Some(image)] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((&image.kind, image.near.ports, image.near.rtp), (&StreamKind::Unread, audio.near.ports, at(4_010)));
    call.end();
}

#[test]
fn a_fax_that_no_rule_lists_is_refused() {
    let site = bridge("", "media_types = [\"video\"]\n");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    set(&site);
    let change = call.of_alice("INVITE", 1);
    say(&call.alice, &change, &fax_alone(4_010, 2));
    assert_eq!(call.alice.answer().status(), 488);
    call.alice.send(&call.alice.text(&change).replacen("INVITE", "ACK", 1).replace(" INVITE\r\n", " ACK\r\n"));
    call.bob.hears_nothing();
    assert_eq!(site.media_orders(), []);
    call.end();
}
