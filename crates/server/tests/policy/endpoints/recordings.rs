//! Calls that the server records.

use super::sounds::{call_line, line};
use super::*;
use std::path::Path;
use strowger_media::g711::Law;
use strowger_media::session::RecordedSound;

const KEYS: &str = "answer = \"recording\"\nrecord_to = \"/notes\"";

fn recorded(stream: &StreamOrder) -> &RecordedSound {
    match &stream.kind {
        StreamKind::Recording(recorded) => recorded,
        kind => panic!("{kind:?}"),
    }
}

#[test]
fn each_caller_has_a_file_whose_name_says_nothing_of_the_caller() {
    let site = line(KEYS);
    let offer = sdp(4_000, 1, "").replace(" 8 101", " 0 8 101");
    let files = [(); 2].map(|()| {
        let (phone, call, ok) = call_line(&site, &offer);
        let (key, stream) = set(&site);
        let RecordedSound { tone, laws, file, limit } = recorded(&stream);
        assert_eq!((tone.repeats, tone.sound.len(), *limit), (false, 3_200, 600_000_000));
        assert!(laws.contains(&(8, Law::A)) && laws.contains(&(0, Law::Mu)) && laws.len() == 2, "{laws:?}");
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(name.len() == 37 && name.ends_with(".wav"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)), "{name}");
        assert_eq!(file.parent(), Some(Path::new("/notes")));
        let calls = site.calls();
        let [view] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(site.show_call(view.id).and_then(|view| view.recording).as_deref(), Some(&**file));
        let log = site.log_with("call recorded");
        assert!(log.contains(name), "{log}");
        // A hold changes the session, and not the file.
        site.media_orders();
        site.move_calls();
        let hold = say(&phone, &call.within(&ok, "UPDATE", 2), &sdp(4_000, 2, "a=sendonly\r\n"));
        assert_eq!(hold.status(), 200, "{}", hold.0);
        assert_eq!(recorded(&set(&site).1).file, *file);
        assert_eq!(phone.ask(&call.within(&ok, "BYE", 3)).status(), 200);
        assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
        file.clone()
    });
    assert_ne!(files[0], files[1]);
}

#[test]
fn a_call_ends_with_its_recording() {
    let site = line(&format!("{KEYS}\nrecord_limit = \"90s\""));
    let (phone, ..) = call_line(&site, &sdp(4_000, 1, ""));
    let (key, stream) = set(&site);
    assert_eq!(recorded(&stream).limit, 90_000_000);
    site.media_event(SessionEvent::Played { key, stream: 0 });
    let bye = hung_up(&phone);
    assert!(!bye.0.contains("Reason:"), "{}", bye.0);
    assert_eq!(record(&site).cause, 16);
}

#[test]
fn a_recording_that_fails_ends_its_call_alone() {
    let site = line(KEYS);
    let (phone, ..) = call_line(&site, &sdp(4_000, 1, ""));
    let (key, _) = set(&site);
    let (other, call, ok) = call_line(&site, &sdp(4_010, 1, ""));
    set(&site);
    site.media_event(SessionEvent::RecordingFailed { key });
    let bye = hung_up(&phone);
    assert_eq!(bye.one("Reason"), "Q.850;cause=41;text=\"recording failed\"");
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by, record.cause), ("answered", "callee", 41));
    assert_eq!(site.calls().len(), 1);
    assert_eq!(other.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    // The call is over.
    site.media_orders();
    site.media_event(SessionEvent::RecordingFailed { key });
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
}

#[test]
fn a_recording_goes_on_in_the_file_of_the_process_before() {
    let lines = "auth.secret = \"the secret of a site\"\ndialogs.folder = \"calls\"\nmedia.addresses = [\"{ip}\"]\n\
                 media.ports = \"20000-20199\"\n[[rule]]\nname = \"line\"\nwhen = \"request.user == 'line'\"\n";
    let site = start(&format!("{lines}{KEYS}\n"), &["alice"]);
    let (phone, ..) = call_line(&site, &sdp(4_000, 1, ""));
    let (_, before) = set(&site);
    site.restart();
    let orders = site.media_orders();
    let [SessionOrder::Claim { .. }, SessionOrder::Set { streams, .. }] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!(streams[..], [Some(before)]);
    assert_eq!(phone.next().method(), "OPTIONS");
}
