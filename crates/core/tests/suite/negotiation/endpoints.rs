//! Answers and offers of an endpoint of this server, such as an echo.

use strowger_core::b2bua::negotiation::{
    AgreedFormat, LegState, LocalStream, Refusal, StreamTransport, endpoint_answer, endpoint_answered, endpoint_offer,
    endpoint_streams,
};
use strowger_message::sdp::Direction::{self, Inactive, RecvOnly, SendOnly, SendRecv};
use strowger_message::sdp::{Codec, Sdp};

use super::{NEAR, TO_NEAR, direction, payload_types, place, read};

const CAPABILITIES: &[Codec<'_>] = &[
    Codec::PCMA,
    Codec::PCMU,
    Codec { channels: 2, ..Codec::new(96, "opus", 48_000) },
    Codec::TELEPHONE_EVENT,
    Codec { parameters: Some("0-15"), ..Codec::new(102, "telephone-event", 48_000) },
];

fn leg() -> LegState {
    LegState::new(7, "198.51.100.9".parse().expect("an address"))
}

fn places(count: usize) -> Vec<LocalStream> {
    (0..count).filter_map(|index| place(true, index)).collect()
}

fn answer_of(leg: &mut LegState, offered: &str) -> Result<String, Refusal> {
    let offered = Sdp::parse(offered.as_bytes()).expect("a description");
    let answer = endpoint_answer(leg, &offered, CAPABILITIES, &places(1))?;
    assert_eq!(answer.streams, endpoint_streams(leg), "a kept call has the same streams");
    assert_eq!(answer.streams.len(), offered.media_count());
    read(answer.description)
}

#[test]
fn an_answer_byte_for_byte() {
    let offered = format!(
        "{NEAR}m=video 4004 RTP/AVP 31\r\nm=audio 4000 RTP/AVPF 97 18 0 96 8 98\r\na=rtpmap:97 iLBC/8000\r\n\
         a=rtpmap:96 telephone-event/8000\r\na=fmtp:96 0-16\r\na=rtpmap:98 telephone-event/48000\r\na=ptime:30\r\n\
         a=rtcp-mux\r\nm=audio 4002 RTP/AVP 8\r\n"
    )
    .replace("t=0 0", "t=3724394400 3724398000");
    let mut leg = leg();
    assert_eq!(
        answer_of(&mut leg, &offered).expect("common"),
        format!(
            "{}m=video 0 RTP/AVP 31\r\nm=audio 20000 RTP/AVPF 0 96 8\r\na=rtpmap:0 PCMU/8000\r\n\
             a=rtpmap:96 telephone-event/8000\r\na=fmtp:96 0-15\r\na=rtpmap:8 PCMA/8000\r\na=rtcp-mux\r\na=sendrecv\r\n\
             m=audio 0 RTP/AVP 8\r\n",
            TO_NEAR.replace("t=0 0", "t=3724394400 3724398000")
        )
    );
    let streams = endpoint_streams(&leg);
    assert!(streams[0].is_none() && streams[2].is_none());
    let stream = streams[1].as_ref().expect("accepted");
    assert_eq!((stream.transport, stream.ptime), (StreamTransport::Rtp, Some(30)));
    assert_eq!((stream.rtp, stream.rtcp), (Some("192.0.2.77:4000".parse().expect("an address")), stream.rtp));
    let format = |number: u8, encoding: &str| AgreedFormat {
        payload_type: number,
        other: Some(number),
        clock_rate: 8_000,
        is_event: number == 96,
        encoding: encoding.into(),
    };
    assert_eq!(stream.formats, [format(0, "PCMU"), format(96, "telephone-event"), format(8, "PCMA")]);
}

/// Events stay for each clock rate of a sound format (RFC 4733 section 2.1).
#[test]
fn events_of_each_clock_rate() {
    let maps = "a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\n\
                a=rtpmap:102 telephone-event/48000\r\n";
    let table: [(&str, &[u8]); 4] =
        [("96 8 101 102", &[96, 8, 101, 102]), ("8 101 102", &[8, 101]), ("102 101 96", &[102, 96]), ("0 102", &[0])];
    for (offered, answered) in table {
        let offered = format!("{NEAR}m=audio 4000 RTP/AVP {offered}\r\n{maps}");
        assert_eq!(payload_types(&answer_of(&mut leg(), &offered).expect("common")), answered, "{offered}");
    }
}

/// Each direction, and hold by address (RFC 3264 sections 6.1 and 8.4).
#[test]
fn directions() {
    let mut leg = leg();
    let line = |direction: Direction| format!("{NEAR}m=audio 4000 RTP/AVP 8\r\na={}\r\n", direction.name());
    for (offered, answered) in [(SendRecv, SendRecv), (SendOnly, RecvOnly), (RecvOnly, SendOnly), (Inactive, Inactive)]
    {
        assert_eq!(direction(&answer_of(&mut leg, &line(offered)).expect("common")), answered);
        let stream = endpoint_streams(&leg).remove(0).expect("a stream on hold stays");
        assert_eq!((stream.sends, stream.receives), (offered.sends(), offered.receives()));
    }
    let old = format!("{NEAR}m=audio 4000 RTP/AVP 8\r\nc=IN IP4 0.0.0.0\r\n");
    let answer = answer_of(&mut leg, &old).expect("common");
    assert!(direction(&answer) == RecvOnly && !answer.contains("0.0.0.0"));
    let stream = endpoint_streams(&leg).remove(0).expect("a stream on hold stays");
    assert_eq!((stream.rtp, stream.sends, stream.receives), (None, true, false));
    assert_eq!(leg.version(), 5);
}

/// Offers without a stream that the endpoint takes, and offers in which all streams have ended.
#[test]
fn refusals() {
    for media in [
        "m=audio 4000 RTP/SAVP 8",
        "m=audio 4000 UDP/TLS/RTP/SAVPF 8",
        "m=audio 4000 RTP/AVP 18",
        "m=audio 4000 RTP/AVP 101\r\na=rtpmap:101 telephone-event/8000",
        "m=audio 4000 RTP/AVP 0\r\na=rtpmap:0 EVRC/8000",
        "m=video 4000 RTP/AVP 31",
        "m=image 4000 udptl t38",
    ] {
        let mut leg = leg();
        let before = leg.clone();
        assert_eq!(answer_of(&mut leg, &format!("{NEAR}{media}\r\n")), Err(Refusal::NothingInCommon), "{media}");
        assert_eq!(leg, before, "a refused offer leaves no trace");
    }
    let audio = format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n");
    let many = format!("{NEAR}{}", "m=audio 4000 RTP/AVP 8\r\n".repeat(17));
    let mut leg = leg();
    let offered = Sdp::parse(audio.as_bytes()).expect("a description");
    assert_eq!(endpoint_answer(&mut leg, &offered, CAPABILITIES, &[]), Err(Refusal::NoPorts));
    assert_eq!(answer_of(&mut leg, &many), Err(Refusal::TooLarge));
    let ended = answer_of(&mut leg, &format!("{NEAR}m=audio 0 RTP/AVP 8\r\n")).expect("nothing is active");
    assert_eq!(ended, format!("{TO_NEAR}m=audio 0 RTP/AVP 8\r\n"));
    assert_eq!(answer_of(&mut leg, NEAR).expect("nothing is active"), TO_NEAR.replace("- 7 1", "- 7 2"));
}

/// A re-INVITE with another codec gets that codec; one without a change gets the same description.
#[test]
fn later_offers() {
    let mut leg = leg();
    let audio = |formats: &str| format!("{NEAR}m=audio 4000 RTP/AVP {formats}\r\n");
    let first = answer_of(&mut leg, &audio("8 0")).expect("common");
    assert_eq!(answer_of(&mut leg, &audio("8 0")).expect("common"), first);
    let second = answer_of(&mut leg, &audio("0")).expect("common");
    assert_eq!((payload_types(&second), leg.version()), (vec![0], 2));
    assert_eq!(answer_of(&mut leg, &audio("18")), Err(Refusal::NothingInCommon));
    assert_eq!((leg.refresh(), leg.version()), (second.into_bytes(), 2));
    // Two streams for which there are two places.
    let two = format!("{NEAR}m=audio 4000 RTP/AVP 18\r\nm=audio 4002 RTP/AVP 0\r\nm=audio 4004 RTP/AVP 8\r\n");
    let offered = Sdp::parse(two.as_bytes()).expect("a description");
    let answer = endpoint_answer(&mut leg, &offered, CAPABILITIES, &places(2)).expect("common");
    let text = read(answer.description).expect("text");
    assert!(text.contains("m=audio 0 RTP/AVP 18\r\nm=audio 20000 RTP/AVP 0\r\n"), "{text}");
    assert!(text.contains("m=audio 20002 RTP/AVP 8\r\n"), "{text}");
}

/// A request without offer: our offer goes out in the 2xx, the answer comes in the ACK.
#[test]
fn offers() {
    let mut leg = leg();
    let offer = endpoint_offer(&mut leg, CAPABILITIES, &places(1)).and_then(read).expect("a place");
    assert_eq!(
        offer,
        format!(
            "{TO_NEAR}m=audio 20000 RTP/AVP 8 0 96 101 102\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:0 PCMU/8000\r\n\
             a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n\
             a=rtpmap:102 telephone-event/48000\r\na=fmtp:102 0-15\r\na=sendrecv\r\n"
        )
    );
    assert!(endpoint_streams(&leg).is_empty());
    let answered = format!("{NEAR}m=audio 4000 RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\na=sendonly\r\n");
    let answered = Sdp::parse(answered.as_bytes()).expect("a description");
    let streams = endpoint_answered(&mut leg, &answered).expect("small");
    let stream = streams[0].as_ref().expect("accepted");
    assert_eq!(stream.formats.iter().map(|format| format.payload_type).collect::<Vec<_>>(), [0, 101]);
    assert!(stream.sends && !stream.receives);
    // The peer has other numbers and a second stream in its own offer; our next offer has these numbers.
    let offered = format!(
        "{NEAR}m=video 4002 RTP/AVP 31\r\nm=audio 4000 RTP/AVP 101 8\r\na=rtpmap:101 opus/48000/2\r\na=rtcp-mux\r\n"
    );
    answer_of(&mut leg, &offered).expect("common");
    let offer = endpoint_offer(&mut leg, CAPABILITIES, &places(1)).and_then(read).expect("a place");
    assert!(offer.contains("m=video 0 RTP/AVP 31\r\nm=audio 20000 RTP/AVP 8 0 101 96 102\r\n"), "{offer}");
    assert!(offer.contains("a=rtpmap:101 opus/48000/2\r\na=rtpmap:96 telephone-event/8000\r\n"), "{offer}");
    assert!(offer.contains("a=rtcp-mux\r\n") && offer.contains("o=- 7 3 "), "{offer}");
    assert_eq!(endpoint_offer(&mut leg, CAPABILITIES, &[]), Err(Refusal::NoPorts));
}
