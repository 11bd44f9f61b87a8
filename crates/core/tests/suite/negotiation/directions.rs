//! Directions of offers and answers, hold and resume (RFC 3264 sections 6.1 and 8.4).

use strowger_message::sdp::Direction::{self, Inactive, RecvOnly, SendOnly, SendRecv};

use super::{Bridge, FAR, NEAR, direction};

fn audio(head: &str, direction: Direction) -> String {
    format!("{head}m=audio 4000 RTP/AVP 8\r\na={}\r\n", direction.name())
}

/// Each offer with each answer: a peer that answers more than the offer allows is not believed.
#[test]
fn answers_stay_within_the_offer() {
    let table = [
        (SendRecv, [SendRecv, SendOnly, RecvOnly, Inactive]),
        (SendOnly, [RecvOnly, Inactive, RecvOnly, Inactive]),
        (RecvOnly, [SendOnly, SendOnly, Inactive, Inactive]),
        (Inactive, [Inactive, Inactive, Inactive, Inactive]),
    ];
    for (offered, expected) in table {
        for (answered, expected) in [SendRecv, SendOnly, RecvOnly, Inactive].into_iter().zip(expected) {
            for is_from_near in [true, false] {
                let (from, to) = if is_from_near { (NEAR, FAR) } else { (FAR, NEAR) };
                let mut bridge = Bridge::new();
                let offer = bridge.offer(is_from_near, &audio(from, offered)).expect("common");
                assert_eq!(direction(&offer), offered);
                let answer = bridge.answer(is_from_near, &audio(to, answered)).expect("open");
                assert_eq!(direction(&answer), expected, "{offered:?} {answered:?}");

                let streams = bridge.streams();
                let stream = streams[0].as_ref().expect("agreed");
                let (offerer, answerer) =
                    if is_from_near { (&stream.near, &stream.far) } else { (&stream.far, &stream.near) };
                assert_eq!((offerer.sends, offerer.receives), (expected.receives(), expected.sends()));
                assert_eq!((answerer.sends, answerer.receives), (expected.sends(), expected.receives()));
            }
        }
    }
}

/// Each way to hold a call, by each side, and its end.
#[test]
fn hold_and_resume() {
    let old = |head: &str| format!("{head}m=audio 4000 RTP/AVP 8\r\nc=IN IP4 0.0.0.0\r\n");
    let old_inactive = |head: &str| format!("{head}m=audio 4000 RTP/AVP 8\r\nc=IN IP4 0.0.0.0\r\na=inactive\r\n");
    let of_session = |head: &str| format!("{head}a=sendonly\r\nm=audio 4000 RTP/AVP 8\r\n");
    for is_from_near in [true, false] {
        let (from, to) = if is_from_near { (NEAR, FAR) } else { (FAR, NEAR) };
        let mut bridge = Bridge::new();
        for (hold, offered, answered) in [
            (audio(from, SendOnly), SendOnly, RecvOnly),
            (audio(from, Inactive), Inactive, Inactive),
            (of_session(from), SendOnly, RecvOnly),
            (old(from), SendOnly, RecvOnly),
            (old_inactive(from), Inactive, Inactive),
        ] {
            for (text, offered, answered) in
                [(audio(from, SendRecv), SendRecv, SendRecv), (hold.clone(), offered, answered)]
            {
                let offer = bridge.offer(is_from_near, &text).expect("common");
                assert_eq!(direction(&offer), offered, "{text}");
                assert!(!offer.contains("0.0.0.0"), "the other leg has an address");
                // The other peer answers as if nothing was on hold.
                let answer = bridge.answer(is_from_near, &audio(to, SendRecv)).expect("open");
                assert_eq!(direction(&answer), answered, "{text}");
                assert!(!answer.contains("0.0.0.0"), "an answer to a hold has an address");
            }
            let streams = bridge.streams();
            let stream = streams[0].as_ref().expect("a stream on hold stays");
            let holder = if is_from_near { &stream.near } else { &stream.far };
            assert_eq!((holder.sends, holder.receives), (answered.receives(), false), "{hold}");
            assert_eq!(holder.rtp.is_none(), hold.contains("0.0.0.0"));
        }
    }
}

/// Both sides hold: the second hold meets the first, and the end of one leaves the other.
#[test]
fn hold_of_both_sides() {
    let mut bridge = Bridge::new();
    bridge.exchange(&audio(NEAR, SendRecv), &audio(FAR, SendRecv));
    bridge.exchange(&audio(NEAR, SendOnly), &audio(FAR, RecvOnly));
    assert_eq!(direction(&bridge.offer(false, &audio(FAR, SendOnly)).expect("common")), SendOnly);
    assert_eq!(direction(&bridge.answer(false, &audio(NEAR, Inactive)).expect("open")), Inactive);
    let (offer, answer) = bridge.exchange(&audio(NEAR, SendRecv), &audio(FAR, SendOnly));
    assert_eq!((direction(&offer), direction(&answer)), (SendRecv, SendOnly));
}

/// The answer of a peer on hold by address.
#[test]
fn hold_in_an_answer() {
    let mut bridge = Bridge::new();
    let held = format!("{FAR}m=audio 4000 RTP/AVP 8\r\nc=IN IP4 0.0.0.0\r\n");
    let (_, answer) = bridge.exchange(&audio(NEAR, SendRecv), &held);
    assert_eq!(direction(&answer), SendOnly);
    let streams = bridge.streams();
    let far = &streams[0].as_ref().expect("agreed").far;
    assert_eq!((far.rtp, far.sends, far.receives), (None, true, false));
}
