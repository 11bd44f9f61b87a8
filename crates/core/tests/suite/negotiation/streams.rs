//! Streams of a call: places, refused ones, media types beside audio (RFC 3264 sections 6 and 8).

use strowger_core::b2bua::negotiation::{MAX_STREAMS, Refusal, StreamTransport};
use strowger_message::sdp::Sdp;

use super::{Bridge, FAR, NEAR, TO_FAR, TO_NEAR};

/// Returns media type and port of each `m=` line.
fn ports(text: &str) -> Vec<(String, u16)> {
    let sdp = Sdp::parse(text.as_bytes()).expect("a description");
    let media = sdp.all_media().map(|section| section.media().expect("a line of ours"));
    media.map(|media| (String::from_utf8_lossy(media.kind).into_owned(), media.port)).collect()
}

fn expected(ports: &[(&str, u16)]) -> Vec<(String, u16)> {
    ports.iter().map(|(media, port)| ((*media).to_owned(), *port)).collect()
}

/// Streams that no rule allows: none goes to the other peer, each is refused in its place.
#[test]
fn streams_that_do_not_pass_are_refused_in_their_place() {
    let offered = format!(
        "{NEAR}m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nm=audio 4000 RTP/SAVP 8\r\n\
         m=audio 4002 RTP/AVP 8\r\nm=video 4004 RTP/AVP 31 99\r\na=rtpmap:99 H264/90000\r\n\
         m=image 4006 udptl t38\r\nm=audio 0 RTP/AVP 8\r\nm=audio x\r\nm=message 4008 TCP/MSRP *\r\n"
    );
    let mut bridge = Bridge::new();
    let offer = bridge.offer(true, &offered).expect("one stream passes");
    assert_eq!(ports(&offer), expected(&[("audio", 30_000)]));
    let answer = bridge.answer(true, &format!("{FAR}m=audio 5000 RTP/AVP 8\r\n")).expect("open");
    assert_eq!(
        answer,
        format!(
            "{TO_NEAR}m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\nm=audio 0 RTP/SAVP 8\r\n\
             m=audio 20004 RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\na=sendrecv\r\nm=video 0 RTP/AVP 31 99\r\n\
             m=image 0 udptl t38\r\nm=audio 0 RTP/AVP 8\r\nm=audio 0 RTP/AVP 0\r\nm=message 0 TCP/MSRP *\r\n"
        )
    );
    let streams = bridge.streams();
    let places: Vec<_> = (0..streams.len()).filter(|&place| streams[place].is_some()).collect();
    assert_eq!((places, streams.len()), (vec![2], 8));
    assert_eq!(streams[2].as_ref().expect("agreed").far_place, 0);
    // Streams that cannot pass are a refusal; an offer in which all have ended is none.
    for media in ["m=audio 4000 RTP/SAVP 8", "m=video 4000 RTP/AVP 31", "m=audio 4000 RTP/AVP 96"] {
        assert_eq!(Bridge::new().offer(true, &format!("{NEAR}{media}\r\n")), Err(Refusal::NothingInCommon), "{media}");
    }
    assert_eq!(Bridge::new().offer(true, &format!("{NEAR}m=audio 0 RTP/AVP 8\r\n")), Ok(TO_FAR.to_owned()));
    assert_eq!(Bridge::new().offer(true, NEAR), Ok(TO_FAR.to_owned()));
}

/// Streams come, end and come back. The number of lines never falls, and each stream keeps its place.
#[test]
fn a_stream_keeps_its_place() {
    let mut bridge = Bridge::new().with_media_types(&["video"]);
    let (audio, video) = ("m=audio 4000 RTP/AVP 8\r\n", "m=video 4002 RTP/AVP 31\r\n");
    let no_video = "m=video 0 RTP/AVP 31\r\n";
    let (offer, answer) = bridge.exchange(&format!("{NEAR}{video}{audio}"), &format!("{FAR}{no_video}{audio}"));
    assert_eq!(ports(&offer), expected(&[("video", 30_000), ("audio", 30_002)]));
    assert_eq!(ports(&answer), expected(&[("video", 0), ("audio", 20_002)]));
    // The far peer has video now.
    let offer = bridge.offer(false, &format!("{FAR}{video}{audio}")).expect("common");
    assert_eq!(ports(&offer), expected(&[("video", 20_000), ("audio", 20_002)]));
    bridge.answer(false, &format!("{NEAR}{video}{audio}")).expect("open");
    assert!(bridge.streams().iter().all(Option::is_some));
    // The video ends, then a second one begins.
    let (offer, answer) = bridge.exchange(&format!("{NEAR}{no_video}{audio}"), &format!("{FAR}{no_video}{audio}"));
    assert_eq!(ports(&offer), expected(&[("video", 0), ("audio", 30_002)]));
    assert_eq!(ports(&answer), expected(&[("video", 0), ("audio", 20_002)]));
    let offered = format!("{NEAR}{no_video}{audio}{video}");
    let (offer, answer) = bridge.exchange(&offered, &format!("{FAR}{no_video}{audio}{video}"));
    assert_eq!(ports(&offer), expected(&[("video", 0), ("audio", 30_002), ("video", 30_004)]));
    assert_eq!(ports(&answer), expected(&[("video", 0), ("audio", 20_002), ("video", 20_004)]));
    // An offer that forgets its last line: the other leg has all of its lines.
    let offer = bridge.offer(true, &format!("{NEAR}{no_video}{audio}")).expect("common");
    assert_eq!(ports(&offer), expected(&[("video", 0), ("audio", 30_002), ("video", 0)]));
}

/// An answer with too few lines refuses the others; surplus lines mean nothing.
#[test]
fn answers_with_wrong_numbers_of_lines() {
    let offered = format!("{NEAR}m=audio 4000 RTP/AVP 8\r\nm=audio 4002 RTP/AVP 8\r\n");
    let line = "m=audio 5000 RTP/AVP 8\r\n";
    for (lines, expected_ports) in [(0, [0, 0]), (1, [20_000, 0]), (2, [20_000, 20_002]), (3, [20_000, 20_002])] {
        let (_, answer) = Bridge::new().exchange(&offered, &format!("{FAR}{}", line.repeat(lines)));
        assert_eq!(ports(&answer), expected(&[("audio", expected_ports[0]), ("audio", expected_ports[1])]));
    }
}

/// Fax takes the line of the audio (RFC 3264 section 8.3.3), with the parameters of T.38 and nothing else.
#[test]
fn audio_becomes_fax() {
    let mut bridge = Bridge::new().with_media_types(&["image"]);
    bridge.exchange(&format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n"), &format!("{FAR}m=audio 5000 RTP/AVP 8\r\n"));
    let fax = "a=T38FaxVersion:0\r\na=T38MaxBitRate:14400\r\na=T38FaxUdpEC:t38UDPRedundancy\r\n";
    let offered = format!("{FAR}m=image 5002 udptl t38\r\n{fax}a=tool:inside\r\n");
    let offer = bridge.offer(false, &offered).expect("allowed");
    assert_eq!(offer, format!("{}m=image 20000 udptl t38\r\n{fax}a=sendrecv\r\n", TO_NEAR.replace("- 7 1", "- 7 2")));
    bridge.answer(false, &format!("{NEAR}m=image 4002 udptl t38\r\n{fax}")).expect("open");
    let streams = bridge.streams();
    let stream = streams[0].as_ref().expect("agreed");
    assert_eq!(stream.near.transport, StreamTransport::Datagram);
    assert_eq!((stream.near.rtcp, stream.near.formats.len()), (None, 0));
    assert_eq!(stream.far.rtp.map(|address| address.port()), Some(5_002));
    // And audio again.
    let (offer, _) =
        bridge.exchange(&format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n"), &format!("{FAR}m=audio 5000 RTP/AVP 8\r\n"));
    assert_eq!(ports(&offer), expected(&[("audio", 30_000)]));
    let streams = bridge.streams();
    assert_eq!(streams[0].as_ref().expect("agreed").near.transport, StreamTransport::Rtp);
}

/// Encrypted RTP passes unread where the policies of both legs say so: same formats, same keys.
#[test]
fn secure_rtp() {
    let mut bridge = Bridge::new();
    let media = "RTP/SAVP 96\r\na=rtpmap:96 opus/48000/2\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:abc\r\n";
    let offered = format!("{NEAR}m=audio 4000 {media}a=rtcp-mux\r\n");
    bridge.near_policy.has_secure_rtp = true;
    assert_eq!(bridge.offer(true, &offered), Err(Refusal::NothingInCommon));
    bridge.far_policy.has_secure_rtp = true;
    let offer = bridge.offer(true, &offered).expect("allowed");
    assert_eq!(offer, format!("{TO_FAR}m=audio 30000 {media}a=sendrecv\r\n"));
    let answer = bridge.answer(true, &format!("{FAR}m=audio 5000 {media}")).expect("open");
    assert_eq!(answer, format!("{TO_NEAR}m=audio 20000 {media}a=sendrecv\r\n"));
    let streams = bridge.streams();
    let near = &streams[0].as_ref().expect("agreed").near;
    assert_eq!(near.transport, StreamTransport::Datagram);
    assert_eq!(near.rtcp.map(|address| address.port()), Some(4_001));
    // Formats that were not offered do not pass, though their packets do.
    let answered = format!("{FAR}m=audio 5000 RTP/SAVP 8 96\r\na=rtpmap:96 opus/48000/2\r\n");
    let (_, answer) = bridge.exchange(&offered, &answered);
    assert!(answer.contains("m=audio 20000 RTP/SAVP 96\r\n"));
    // A peer that answers with another profile has refused.
    bridge.exchange(&offered, &format!("{FAR}m=audio 5000 RTP/AVP 8\r\n"));
    assert!(bridge.streams().iter().all(Option::is_none));
}

/// Each leg has its own profile of plain RTP.
#[test]
fn profiles() {
    let mut bridge = Bridge::new();
    let (avp, avpf) = ("m=audio 4000 RTP/AVP 8\r\n", "m=audio 4000 RTP/AVPF 8\r\n");
    let (offer, answer) = bridge.exchange(&format!("{NEAR}{avpf}"), &format!("{FAR}{avp}"));
    assert!(offer.contains(" RTP/AVP 8") && answer.contains(" RTP/AVPF 8"));
    let offer = bridge.offer(false, &format!("{FAR}{avp}")).expect("common");
    assert!(offer.contains(" RTP/AVPF 8"));
    let answer = bridge.answer(false, &format!("{NEAR}{avpf}")).expect("open");
    assert!(answer.contains(" RTP/AVP 8"));
}

/// Streams without ports, and descriptions that are too large.
#[test]
fn limits() {
    let audio = "m=audio 4000 RTP/AVP 8\r\n";
    let mut bridge = Bridge::new();
    bridge.ports = 1;
    let offer = bridge.offer(true, &format!("{NEAR}{}", audio.repeat(2))).expect("a port for one");
    assert_eq!(ports(&offer), expected(&[("audio", 30_000), ("audio", 0)]));
    let answer = bridge.answer(true, &format!("{FAR}{audio}m=audio 0 RTP/AVP 8\r\n")).expect("open");
    assert_eq!(ports(&answer), expected(&[("audio", 20_000), ("audio", 0)]));
    bridge.ports = 0;
    let before = bridge.streams();
    assert_eq!(bridge.offer(true, &format!("{NEAR}{audio}")), Err(Refusal::NoPorts));
    assert_eq!(bridge.streams(), before);

    let most = format!("{NEAR}{}", audio.repeat(MAX_STREAMS));
    assert_eq!(ports(&Bridge::new().offer(true, &most).expect("16 streams")).len(), MAX_STREAMS);
    assert_eq!(Bridge::new().offer(true, &format!("{most}{audio}")), Err(Refusal::TooLarge));
    let long = format!("{NEAR}{audio}{}", "a=x\r\n".repeat(3_500));
    assert_eq!(Bridge::new().offer(true, &long), Err(Refusal::TooLarge));
    // Refusals are answered by status codes.
    let all = [Refusal::NothingInCommon, Refusal::NoPorts, Refusal::TooLarge, Refusal::NoOffer];
    assert_eq!(all.map(Refusal::status), [488, 503, 413, 500]);
}
