//! Descriptions of one leg from those of the other.

use strowger_core::b2bua::negotiation::{AgreedFormat, CodecName, Leg, LegState, Refusal, offer_agreed};
use strowger_message::sdp::{Direction, Sdp};

use super::{Bridge, FAR, NEAR, TO_FAR, TO_NEAR, direction, payload_types, place, read};

fn codecs(names: &str) -> Vec<CodecName> {
    names.split_ascii_whitespace().map(|name| CodecName::parse(name).expect("a name")).collect()
}

fn format(payload_type: u8, other: u8, encoding: &str, clock_rate: u32) -> AgreedFormat {
    let is_event = encoding == "telephone-event";
    AgreedFormat { payload_type, other: Some(other), clock_rate, is_event, encoding: encoding.into() }
}

/// All that passes and all that does not, byte for byte.
#[test]
fn a_plain_call() {
    let mut bridge = Bridge::new();
    let offered = "v=0\r\no=alice 99 99 IN IP4 192.0.2.77\r\ns=inside\r\ni=inside\r\nu=http://inside/\r\ne=a@inside\r\n\
         p=+1 inside\r\nc=IN IP4 192.0.2.77\r\nb=CT:512\r\nb=RS:800\r\nt=0 0\r\na=tool:inside\r\na=group:BUNDLE 1\r\n\
         m=audio 4000 RTP/AVP 0 97 101\r\ni=inside\r\nb=AS:80\r\nb=RR:0\r\na=rtpmap:97 opus/48000/2\r\n\
         a=fmtp:97 useinbandfec=1\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\na=ptime:20\r\n\
         a=maxptime:60\r\na=mid:1\r\na=rtcp:4005 IN IP4 192.0.2.78\r\na=rtcp-fb:97 nack\r\na=ssrc:1 cname:inside\r\n\
         a=ice-ufrag:inside\r\na=candidate:1 1 UDP 1 192.0.2.77 4000 typ host\r\n";
    assert_eq!(
        bridge.offer(true, offered).expect("common"),
        format!(
            "v=0\r\no=- 8 1 IN IP6 2001:db8::9\r\ns=-\r\nc=IN IP6 2001:db8::9\r\nb=CT:512\r\nt=0 0\r\n\
             m=audio 30000 RTP/AVP 0 97 101\r\nb=AS:80\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:97 opus/48000/2\r\n\
             a=fmtp:97 useinbandfec=1\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\na=ptime:20\r\n\
             a=maxptime:60\r\na=sendrecv\r\n"
        )
    );
    let answered = format!(
        "{FAR}m=audio 5000 RTP/AVP 101 0\r\nb=AS:64\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n\
         a=ptime:30\r\n"
    );
    assert_eq!(
        bridge.answer(true, &answered).expect("open"),
        format!(
            "{TO_NEAR}m=audio 20000 RTP/AVP 0 101\r\nb=AS:64\r\na=rtpmap:0 PCMU/8000\r\n\
             a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\na=ptime:30\r\na=sendrecv\r\n"
        )
    );
    let streams = bridge.streams();
    let stream = streams[0].as_ref().expect("agreed");
    assert_eq!(stream.near.rtp, Some("192.0.2.77:4000".parse().expect("an address")));
    assert_eq!(stream.near.rtcp, Some("192.0.2.78:4005".parse().expect("an address")));
    assert_eq!(stream.far.rtp, Some("[2001:db8:f::1]:5000".parse().expect("an address")));
    assert_eq!(stream.far.rtcp, Some("[2001:db8:f::1]:5001".parse().expect("an address")));
    let formats = [format(0, 0, "PCMU", 8_000), format(101, 101, "telephone-event", 8_000)];
    assert_eq!(stream.near.formats, formats);
    // The far answer lists events first.
    assert_eq!(stream.far.formats, [formats[1].clone(), formats[0].clone()]);
    assert_eq!((stream.near.ptime, stream.far.ptime), (Some(20), Some(30)));
}

/// An INVITE without offer: the far peer offers, the near peer answers in its ACK.
#[test]
fn a_late_offer() {
    let mut bridge = Bridge::new();
    let offered = format!("{FAR}m=audio 5000 RTP/AVP 8 96\r\na=rtpmap:96 telephone-event/8000\r\n");
    assert_eq!(
        bridge.offer(false, &offered).expect("common"),
        format!(
            "{TO_NEAR}m=audio 20000 RTP/AVP 8 96\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:96 telephone-event/8000\r\n\
             a=sendrecv\r\n"
        )
    );
    assert_eq!(
        bridge.answer(false, &format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n")).expect("open"),
        format!("{TO_FAR}m=audio 30000 RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\na=sendrecv\r\n")
    );
}

/// A peer offers another codec: the answer is made from this offer, not from what was agreed before.
#[test]
fn an_answer_is_from_its_offer() {
    let mut bridge = Bridge::new();
    let audio = |head: &str, formats: &str| format!("{head}m=audio 4000 RTP/AVP {formats}\r\n");
    bridge.exchange(&audio(NEAR, "0 8"), &audio(FAR, "0"));
    let (offer, answer) = bridge.exchange(&audio(NEAR, "9 8"), &audio(FAR, "8"));
    assert_eq!((payload_types(&offer), payload_types(&answer)), (vec![9, 8], vec![8]));
    // An answer with a format that was agreed before, but is not in this offer.
    let (_, answer) = bridge.exchange(&audio(NEAR, "9 18"), &audio(FAR, "8 18 0"));
    assert_eq!(payload_types(&answer), [18]);
}

/// Formats that pass, and their order: that of the offer unless a policy has one.
#[test]
fn policies_of_both_legs() {
    let offered = format!(
        "{NEAR}m=audio 4000 RTP/AVP 9 0 101 8 96 102\r\na=rtpmap:101 telephone-event/8000\r\n\
         a=rtpmap:96 opus/48000/2\r\na=rtpmap:102 telephone-event/48000\r\n"
    );
    let answered = |formats: &str| {
        format!(
            "{FAR}m=audio 5000 RTP/AVP {formats}\r\na=rtpmap:101 TELEPHONE-EVENT/8000\r\n\
             a=rtpmap:96 OPUS/48000/2\r\n"
        )
    };
    let numbers = |text: &str| payload_types(text).iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    for (near, far, offer, answer) in [
        ("", "", "9 0 101 8 96 102", "0 101 8 96"),
        ("", "PCMA PCMU telephone-event", "8 0 101 102", "0 101 8"),
        ("PCMA PCMU", "", "0 8", "8 0"),
        ("pcmu pcma", "PCMA G722 pcmu", "8 0", "0 8"),
        ("", "telephone-event/48000 opus/48000/2", "102 96", "96"),
        ("", "opus/48000/1 PCMA", "8", "8"),
    ] {
        let mut bridge = Bridge::new();
        bridge.near_policy.codecs = codecs(near);
        bridge.far_policy.codecs = codecs(far);
        let (offered, answered) = bridge.exchange(&offered, &answered("8 0 101 96"));
        assert_eq!((numbers(&offered).as_str(), numbers(&answered).as_str()), (offer, answer), "{near} {far}");
    }
    let mut bridge = Bridge::new();
    bridge.far_policy.codecs = codecs("iLBC telephone-event");
    assert_eq!(bridge.offer(true, &offered), Err(Refusal::NothingInCommon));
    assert_eq!((bridge.far.version(), bridge.streams().len()), (0, 0));
}

/// The first target fails; the next one has a leg of its own.
#[test]
fn a_second_target() {
    let mut bridge = Bridge::new();
    let offered = format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n");
    let first = bridge.offer(true, &offered).expect("common");
    let fresh = Bridge::new().far;
    bridge.far = fresh;
    assert_eq!(bridge.offer(true, &offered).expect("common"), first);
    assert!(bridge.answer(true, &format!("{FAR}m=audio 5000 RTP/AVP 8\r\n")).expect("open").contains("m=audio 20000 "));
}

/// Each branch of a fork answers the same offer; streams go to the branch that is asked about.
#[test]
fn branches_of_a_fork() {
    let mut bridge = Bridge::new();
    bridge.offer(true, &format!("{NEAR}m=audio 4000 RTP/AVP 8 0\r\n")).expect("common");
    let mut other = bridge.far.clone();
    let first = bridge.answer(true, &format!("{FAR}m=audio 5000 RTP/AVP 8 0\r\n")).expect("open");
    let answered = format!("{FAR}m=audio 6000 RTP/AVP 0\r\n");
    other.receive_answer(&Sdp::parse(answered.as_bytes()).expect("a description")).expect("small");
    bridge.far = other;
    let streams = bridge.streams();
    let stream = streams[0].as_ref().expect("agreed");
    assert_eq!(stream.far.rtp.map(|address| address.port()), Some(6_000));
    assert_eq!(stream.near.formats.iter().map(|format| format.other).collect::<Vec<_>>(), [None, Some(0)]);
    // The 200 of this branch repeats its answer: the near answer changes, and so does its version.
    let second = bridge.answer(true, &answered).expect("open");
    assert_eq!((payload_types(&first), payload_types(&second)), (vec![8, 0], vec![0]));
    assert_eq!(bridge.near.version(), 2);
}

/// The agreed description of a party goes to the party that replaces the other.
#[test]
fn a_transfer() {
    let mut bridge = Bridge::new();
    // The far peer holds the call, then a third party replaces it.
    bridge.exchange(&format!("{NEAR}m=audio 4000 RTP/AVP 8 0\r\n"), &format!("{FAR}m=audio 5000 RTP/AVP 8\r\n"));
    bridge.offer(false, &format!("{FAR}m=audio 5000 RTP/AVP 8\r\na=sendonly\r\n")).expect("common");
    bridge.answer(false, &format!("{NEAR}m=audio 4000 RTP/AVP 8\r\na=recvonly\r\n")).expect("open");
    let mut third = LegState::new(9, "2001:db8::9".parse().expect("an address"));
    bridge.near.unpair();
    let from = Leg { state: &mut bridge.near, policy: &bridge.near_policy };
    let to = Leg { state: &mut third, policy: &bridge.far_policy };
    let offer = offer_agreed(from, to, &mut |index| place(false, index)).and_then(read).expect("common");
    assert_eq!((payload_types(&offer), direction(&offer)), (vec![8], Direction::SendRecv));
    let answered = format!("{FAR}m=audio 7000 RTP/AVP 8\r\n");
    third.receive_answer(&Sdp::parse(answered.as_bytes()).expect("a description")).expect("small");
    bridge.far = third;
    let streams = bridge.streams();
    assert_eq!(streams[0].as_ref().expect("agreed").far.rtp.map(|address| address.port()), Some(7_000));
    let mut fresh = Bridge::new().near;
    let from = Leg { state: &mut fresh, policy: &bridge.near_policy };
    let to = Leg { state: &mut bridge.far, policy: &bridge.far_policy };
    assert_eq!(offer_agreed(from, to, &mut |_| None), Err(Refusal::NoOffer));
}

/// No offer of the leg is open: nothing was offered, or the last offer was ours.
#[test]
fn an_answer_to_no_offer() {
    let mut bridge = Bridge::new();
    let answered = format!("{FAR}m=audio 5000 RTP/AVP 8\r\n");
    assert_eq!(bridge.answer(true, &answered), Err(Refusal::NoOffer));
    bridge.offer(false, &answered).expect("common");
    bridge.answer(false, &format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n")).expect("open");
    assert_eq!(bridge.answer(true, &answered), Err(Refusal::NoOffer));
}
