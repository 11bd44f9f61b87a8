//! Calls that the server answers by a sound of its own: test tone and announcement.

use super::*;
use strowger_media::g711::Law;
use strowger_media::session::PlayedSound;

/// Starts a server whose rule for `line` has these keys.
pub(super) fn line(keys: &str) -> Site {
    let lines = format!(
        "media.addresses = [\"{{ip}}\"]\nmedia.ports = \"20000-20199\"\naccounting.cdr = true\n\
         [[rule]]\nname = \"line\"\nwhen = \"request.user == 'line'\"\n{keys}\n"
    );
    start(&lines, &["alice"])
}

/// Calls the line with this description; returns the 200.
pub(super) fn call_line(site: &Site, description: &str) -> (Phone, Call, Got) {
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:line@example.org");
    let ok = say(&phone, &call, description);
    assert_eq!(ok.status(), 200, "{}", ok.0);
    acknowledge(&phone, &call, &ok, 1);
    (phone, call, ok)
}

fn played(stream: &StreamOrder) -> &PlayedSound {
    match &stream.kind {
        StreamKind::Playback(played) => played,
        kind => panic!("{kind:?}"),
    }
}

#[test]
fn a_tone_is_played_until_the_caller_hangs_up() {
    let site = line("answer = \"tone\"");
    let (phone, call, ok) = call_line(&site, &sdp(4_000, 1, "a=ptime:30\r\n"));
    assert!(body(&ok).contains("m=audio 20000 RTP/AVP 8 101\r\n"), "{}", ok.0);
    let (key, stream) = set(&site);
    let tone = played(&stream);
    assert_eq!((tone.payload_type, tone.law, tone.packet_time, tone.repeats), (8, Law::A, 30, true));
    // A second of 1,004 Hz, which passes zero twice in each period.
    assert_eq!(tone.sound.len(), 8_000);
    let mut samples = Vec::new();
    tone.sound.write(Law::A, 0, 8_000, true, &mut samples);
    let signs = samples.windows(2).filter(|pair| (pair[0] ^ pair[1]) & 0x80 != 0).count();
    assert!((2_006..=2_009).contains(&signs), "{signs}");
    // A phone that sends nothing first hears it: the address is that of its signalling.
    assert!(stream.near.may_send_first);
    assert_eq!(site.calls()[0].state, CallState::Answered);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
}

#[test]
fn a_call_ends_with_its_announcement() {
    let site = line("answer = \"announcement\"\nplay = \"/closed.wav\"");
    let (phone, ..) = call_line(&site, &sdp(4_000, 1, ""));
    let (key, stream) = set(&site);
    assert!(!played(&stream).repeats && stream.near.may_send_first);
    site.media_event(SessionEvent::Played { key, stream: 0 });
    let bye = hung_up(&phone);
    assert!(!bye.0.contains("Reason:"), "{}", bye.0);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by, record.cause), ("answered", "callee", 16));
    assert!(site.calls().is_empty());
    // The call is over.
    site.media_event(SessionEvent::Played { key, stream: 0 });
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
}

#[test]
fn a_moved_and_resumed_call_keeps_its_sound() {
    let site = line("answer = \"announcement\"\nplay = \"/queue.wav\"\nrepeat = true");
    let (phone, call, ok) = call_line(&site, &sdp(4_000, 1, ""));
    let (key, stream) = set(&site);
    assert!(played(&stream).repeats);
    site.move_calls();
    let hold = say(&phone, &call.within(&ok, "UPDATE", 2), &sdp(4_000, 2, "a=sendonly\r\n"));
    assert!(hold.status() == 200 && body(&hold).contains("a=recvonly\r\n"), "{}", hold.0);
    let (same, held) = set(&site);
    assert_eq!((same, &held.kind, held.near.receives), (key, &stream.kind, false));
    let resumed = say(&phone, &call.within(&ok, "UPDATE", 3), &sdp(4_000, 3, ""));
    assert_eq!(resumed.status(), 200, "{}", resumed.0);
    assert_eq!(set(&site).1, stream);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 4)).status(), 200);
}

#[test]
fn a_sound_has_the_formats_of_g711_alone() {
    let site = line("answer = \"tone\"");
    let offer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 9 96 0\r\n\
                 a=rtpmap:96 opus/48000/2\r\n";
    let (.., ok) = call_line(&site, offer);
    assert!(body(&ok).contains("m=audio 20000 RTP/AVP 0\r\n"), "{}", ok.0);
    let (_, stream) = set(&site);
    assert_eq!((played(&stream).payload_type, played(&stream).law), (0, Law::Mu));
    let phone = site.foreign_phone();
    let call = phone.call("INVITE", "sip:line@example.org");
    assert_eq!(say(&phone, &call, &offer.replace(" 9 96 0", " 9 96")).status(), 488);
    assert_eq!(site.media_orders(), []);
}
