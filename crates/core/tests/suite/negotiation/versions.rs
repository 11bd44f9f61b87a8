//! Origin lines: the session id, and the version, which rises by one exactly with a change (RFC 3264 section 8).

use strowger_core::b2bua::negotiation::LegState;

use super::{Bridge, FAR, NEAR};

fn audio(head: &str, formats: &str) -> String {
    format!("{head}m=audio 4000 RTP/AVP {formats}\r\n")
}

fn kept(leg: &LegState) -> LegState {
    let bytes = postcard::to_extend(leg, Vec::new()).expect("a value");
    postcard::from_bytes(&bytes).expect("its bytes")
}

#[test]
fn versions_rise_with_changes() {
    let mut bridge = Bridge::new();
    let versions = |bridge: &Bridge| (bridge.near.version(), bridge.far.version());
    assert_eq!(versions(&bridge), (0, 0));
    let first = bridge.exchange(&audio(NEAR, "8 0"), &audio(FAR, "8"));
    assert_eq!(versions(&bridge), (1, 1));
    // The peers repeat what they said, as a refresh of the session does.
    assert_eq!(bridge.exchange(&audio(NEAR, "8 0"), &audio(FAR, "8")), first);
    assert_eq!(versions(&bridge), (1, 1));
    bridge.exchange(&audio(NEAR, "0 8"), &audio(FAR, "8"));
    assert_eq!(versions(&bridge), (1, 2));
    bridge.exchange(&audio(NEAR, "0 8"), &audio(FAR, "0"));
    assert_eq!(versions(&bridge), (2, 2));
    // Where the other peer is, what it is called and how it counts changes nothing.
    let moved = audio(NEAR, "0 8").replace("192.0.2.77", "192.0.2.99").replace("alice 1 1", "bob 7 9");
    bridge.exchange(&moved.replace(" 4000 ", " 4444 "), &audio(FAR, "0"));
    assert_eq!(versions(&bridge), (2, 2));
    let (offer, answer) = bridge.exchange(&audio(NEAR, "8"), &audio(FAR, "8"));
    assert!(offer.contains("o=- 8 3 IN IP6 2001:db8::9\r\n") && answer.contains("o=- 7 3 IN IP4 198.51.100.9\r\n"));
}

/// A refused offer changes nothing that was agreed. Its version is not used again.
#[test]
fn a_refused_offer() {
    let mut bridge = Bridge::new();
    bridge.exchange(&audio(NEAR, "8"), &audio(FAR, "8"));
    let (agreed, local, remote) = (bridge.streams(), bridge.far.local().to_vec(), bridge.near.remote().to_vec());
    let offer = bridge.offer(true, &audio(NEAR, "0")).expect("common");
    assert_eq!((bridge.streams(), bridge.far.local()), (agreed.clone(), &local[..]), "an open offer is not agreed");
    bridge.near.refuse_offer();
    assert_eq!((bridge.streams(), bridge.near.remote()), (agreed.clone(), &remote[..]));
    // The same offer once more has the same version, and what was agreed before has a new one.
    assert_eq!(bridge.offer(true, &audio(NEAR, "0")).expect("common"), offer);
    bridge.near.refuse_offer();
    let refreshed = String::from_utf8(bridge.far.refresh()).expect("ASCII");
    assert_eq!(refreshed.replace("o=- 8 3 ", "o=- 8 1 ").into_bytes(), local);
    assert_eq!((bridge.streams(), bridge.far.version()), (agreed, 3));
    assert_eq!(bridge.far.refresh(), refreshed.as_bytes());
    // The leg whose peer offered has sent nothing.
    assert_eq!(bridge.near.refresh(), bridge.near.sent());
    assert_eq!(bridge.near.version(), 1);
}

/// A kept call goes on with its streams, payload types and versions; its legs are small.
#[test]
fn kept_legs() {
    let mut bridge = Bridge::new();
    let opus =
        |head: &str, number: u8| format!("{head}m=audio 4000 RTP/AVP {number} 0\r\na=rtpmap:{number} opus/48000/2\r\n");
    bridge.exchange(&opus(NEAR, 96), &opus(FAR, 97));
    let mut next = bridge.clone();
    next.near = kept(&bridge.near);
    next.far = kept(&bridge.far);
    assert_eq!((&next.near, &next.far), (&bridge.near, &bridge.far));
    assert_eq!(next.streams(), bridge.streams());
    for (offered, answered) in [(opus(NEAR, 100), opus(FAR, 96)), (audio(NEAR, "8"), audio(FAR, "8"))] {
        assert_eq!(next.exchange(&offered, &answered), bridge.exchange(&offered, &answered));
    }
    let size = |leg: &LegState| postcard::to_extend(leg, Vec::new()).expect("a value").len();
    assert!(size(&next.near) < 512 && size(&next.far) < 512, "{} {}", size(&next.near), size(&next.far));
}
