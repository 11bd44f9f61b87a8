//! Payload types of each leg (RFC 3264 sections 5.1, 6.1 and 8.3.2, RFC 4733).

use strowger_core::b2bua::negotiation::AgreedFormat;

use super::{Bridge, FAR, NEAR, payload_types};

type Numbers = Vec<(u8, Option<u8>)>;

/// Payload types with which the packets of the first stream go on: from the near peer, and from the far peer.
fn numbers(bridge: &Bridge) -> (Numbers, Numbers) {
    let streams = bridge.streams();
    let stream = streams[0].as_ref().expect("agreed");
    let pairs = |formats: &[AgreedFormat]| -> Numbers {
        formats.iter().map(|format| (format.payload_type, format.other)).collect()
    };
    (pairs(&stream.near.formats), pairs(&stream.far.formats))
}

/// The far leg has its numbers since its own offer; the near peer has others for the same formats.
#[test]
fn each_leg_has_its_numbers() {
    let mut bridge = Bridge::new();
    let far = format!(
        "{FAR}m=audio 5000 RTP/AVP 97 98 96\r\na=rtpmap:97 opus/48000/2\r\na=rtpmap:98 telephone-event/48000\r\n\
         a=rtpmap:96 telephone-event/8000\r\n"
    );
    bridge.offer(false, &far).expect("common");
    bridge.answer(false, &far.replace(FAR, NEAR)).expect("open");
    // A phone that gives its old numbers to other formats is followed on its own leg, and on no other.
    let near = format!(
        "{NEAR}m=audio 4000 RTP/AVP 96 97 101\r\na=rtpmap:96 opus/48000/2\r\na=rtpmap:97 telephone-event/8000\r\n\
         a=rtpmap:101 telephone-event/48000\r\n"
    );
    let answered = format!(
        "{FAR}m=audio 5000 RTP/AVP 97 96 98\r\na=rtpmap:97 opus/48000/2\r\na=rtpmap:98 telephone-event/48000\r\n\
         a=rtpmap:96 telephone-event/8000\r\n"
    );
    let (offer, answer) = bridge.exchange(&near, &answered);
    assert_eq!(payload_types(&offer), [97, 96, 98]);
    assert!(offer.contains("a=rtpmap:97 opus/48000/2\r\n") && offer.contains("a=rtpmap:96 telephone-event/8000\r\n"));
    assert!(offer.contains("a=rtpmap:98 telephone-event/48000\r\n"));
    assert_eq!(payload_types(&answer), [96, 97, 101]);
    let (from_near, from_far) = numbers(&bridge);
    assert_eq!(from_near, [(96, Some(97)), (97, Some(96)), (101, Some(98))]);
    assert_eq!(from_far, [(97, Some(96)), (96, Some(97)), (98, Some(101))]);
}

/// A number that one format had on a leg is never offered there for another format.
#[test]
fn a_number_keeps_its_format() {
    let mut bridge = Bridge::new();
    let audio = |head: &str, map: &str| format!("{head}m=audio 4000 RTP/AVP 96\r\na=rtpmap:96 {map}\r\n");
    bridge.exchange(&audio(NEAR, "opus/48000/2"), &audio(FAR, "opus/48000/2"));
    let answered = format!("{FAR}m=audio 5000 RTP/AVP 97\r\na=rtpmap:97 iLBC/8000\r\n");
    let (offer, answer) = bridge.exchange(&audio(NEAR, "iLBC/8000"), &answered);
    assert_eq!((payload_types(&offer), payload_types(&answer)), (vec![97], vec![96]));
    assert_eq!(numbers(&bridge), (vec![(96, Some(97))], vec![(97, Some(96))]));
    // Opus has its old number again.
    assert_eq!(payload_types(&bridge.offer(true, &audio(NEAR, "opus/48000/2")).expect("common")), [96]);
    // So it is for a fixed number that a phone has given to another format.
    bridge.exchange(
        &format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n"),
        &format!("{FAR}m=audio 5000 RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\n"),
    );
    bridge.offer(false, &format!("{FAR}m=audio 5000 RTP/AVP 0 8\r\na=rtpmap:0 EVRC/8000\r\n")).expect("common");
    bridge.answer(false, &format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n")).expect("open");
    let offer = bridge.offer(true, &format!("{NEAR}m=audio 4000 RTP/AVP 0 8\r\n")).expect("common");
    assert!(offer.contains("a=rtpmap:98 PCMU/8000\r\n"), "{offer}");
}

/// All numbers are taken in time: the 32 of the dynamic range, then 29 unassigned ones, and then a format is left out.
#[test]
fn numbers_come_to_an_end() {
    let mut bridge = Bridge::new();
    let mut seen = std::collections::BTreeSet::new();
    for index in 0..70 {
        let offered = format!("{NEAR}m=audio 4000 RTP/AVP 96 8\r\na=rtpmap:96 x-{index}/8000\r\n");
        let offer = bridge.offer(true, &offered).expect("common");
        let numbers = payload_types(&offer);
        if index < 61 {
            assert!(seen.insert(numbers[0]), "{numbers:?}");
            assert!((96..=127).contains(&numbers[0]) || (35..=63).contains(&numbers[0]));
        } else {
            assert_eq!(numbers, [8]);
        }
    }
}

/// Formats of one name: telephone events for each clock rate, and formats that parameters make incompatible.
#[test]
fn formats_of_one_name() {
    let mut bridge = Bridge::new();
    let offered = format!(
        "{NEAR}m=audio 4000 RTP/AVP 96 97 98 99\r\na=rtpmap:96 AMR/8000\r\na=fmtp:96 octet-align=1\r\n\
         a=rtpmap:97 AMR/8000/1\r\na=rtpmap:98 telephone-event/8000\r\na=rtpmap:99 telephone-event/16000\r\n"
    );
    let answered = format!(
        "{FAR}m=audio 5000 RTP/AVP 97 99\r\na=rtpmap:97 AMR/8000\r\na=fmtp:97 mode-set=7\r\n\
         a=rtpmap:99 telephone-event/16000\r\n"
    );
    let (offer, answer) = bridge.exchange(&offered, &answered);
    assert_eq!(payload_types(&offer), [96, 97, 98, 99]);
    assert_eq!(payload_types(&answer), [97, 99]);
    assert!(answer.contains("a=fmtp:97 mode-set=7\r\n"));
}

/// Formats that pass: no second number of a format, no number without a name, none whose packets have numbers in them.
#[test]
fn formats_that_do_not_pass() {
    let offered = format!(
        "{NEAR}m=audio 4000 RTP/AVP 8 8 96 97 98 99 100 200 x\r\na=rtpmap:96 PCMA/8000\r\na=rtpmap:98 red/8000\r\n\
         a=fmtp:98 8/8\r\na=rtpmap:99 secret/8000\r\na=rtpmap:99 PCMU/8000\r\na=rtpmap:100 zero/0\r\n"
    );
    let offer = Bridge::new().offer(true, &offered).expect("common");
    assert_eq!(payload_types(&offer), [8, 99]);
    assert!(offer.contains("a=rtpmap:99 secret/8000\r\n"), "an unknown format passes unread");
}

/// An answer may have other numbers than its offer: packets to the peer have the peer's, packets of the peer have either.
#[test]
fn an_answer_with_other_numbers() {
    let mut bridge = Bridge::new();
    let opus =
        |head: &str, number: u8| format!("{head}m=audio 4000 RTP/AVP {number}\r\na=rtpmap:{number} opus/48000/2\r\n");
    bridge.exchange(&opus(NEAR, 96), &opus(FAR, 111));
    assert_eq!(numbers(&bridge), (vec![(96, Some(111))], vec![(96, Some(96)), (111, Some(96))]));
    // The peer's number is not given to another format.
    let other = format!("{NEAR}m=audio 4000 RTP/AVP 111\r\na=rtpmap:111 iLBC/8000\r\n");
    assert_eq!(payload_types(&bridge.offer(true, &other).expect("common")), [97]);
}
