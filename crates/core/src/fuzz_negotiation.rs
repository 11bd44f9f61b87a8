//! Invariants of negotiation (RFC 3264) for any descriptions, as a function that panics on a violation. Only mutators and cargo-fuzz call it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use strowger_message::sdp::{Codec, Sdp};

use crate::b2bua::negotiation::{
    BridgedStream, CodecName, Leg, LegPolicy, LegState, LocalStream, Refusal, answer, bridged_streams, endpoint_answer,
    offer,
};

/// Own addresses of the near and of the far leg.
const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9))];

/// Formats of the endpoint.
const CAPABILITIES: [Codec<'static>; 3] = [Codec::PCMU, Codec::PCMA, Codec::TELEPHONE_EVENT];

/// Exchanges descriptions between two legs, and offers each to an endpoint. The first byte selects the policies, the second one which leg offers and
/// which offers are refused. Descriptions follow, with a zero byte after each: an offer, its answer, the next offer.
///
/// # Panics
/// An invariant does not hold.
pub fn negotiation(data: &[u8]) {
    let [policies, course, texts @ ..] = data else { return };
    let mut call = Call::new(*policies);
    let mut endpoint = LegState::new(9, ADDRESSES[0]);
    let (mut texts, mut course) = (texts.split(|&byte| byte == 0), *course);
    while let Some(offered) = texts.next() {
        let answered = texts.next().unwrap_or_default();
        call.exchange(usize::from(course & 1), course & 6 == 6, offered, answered);
        course = course.rotate_right(3);
        answer_here(&mut endpoint, offered);
        answer_here(&mut endpoint, answered);
    }
}

/// Both legs of a call, near and far.
struct Call {
    legs: [LegState; 2],
    policies: [LegPolicy; 2],
    /// Streams for which a leg has ports.
    ports: usize,
}

impl Call {
    fn new(bits: u8) -> Self {
        let has = |bit: u8| bits >> bit & 1 == 1;
        let policy = |side: u8, codecs: &[&str]| LegPolicy {
            codecs: codecs.iter().filter(|_| has(side)).filter_map(|name| CodecName::parse(name)).collect(),
            media_types: ["video", "image", "application"].into_iter().filter(|_| has(2)).map(Into::into).collect(),
            has_secure_rtp: has(3 + side),
            has_rtcp_mux: has(5 + side),
        };
        Self {
            legs: [LegState::new(7, ADDRESSES[0]), LegState::new(8, ADDRESSES[1])],
            policies: [policy(0, &["PCMA", "telephone-event"]), policy(1, &["telephone-event", "PCMU", "PCMA"])],
            ports: if has(7) { 1 } else { 16 },
        }
    }

    fn streams(&self) -> Vec<Option<BridgedStream>> {
        bridged_streams(&self.legs[0], &self.legs[1])
    }

    /// Takes an offer of the peer of the leg `from`, and the answer of the other peer.
    fn exchange(&mut self, from: usize, is_refused: bool, offered: &[u8], answered: &[u8]) {
        let Ok(offered) = Sdp::parse(offered) else { return };
        let (to, agreed) = (1 - from, self.streams());
        let before = self.legs[to].clone();
        let written = self.offer(from, &offered);
        assert_eq!(self.streams(), agreed, "an offer is not agreed before its answer");
        // No exchange begins after an error.
        let Ok(written) = written else { return };
        check_text(&written, to, |place, port| Some(port) == port_of(to, place));
        check_version(&before, &self.legs[to], &written);
        let lines = |text: &[u8]| Sdp::parse(text).map_or(0, |sdp| sdp.media_count());
        assert!(lines(&written) >= lines(before.sent()), "a line of an earlier offer is missing");
        let answered = match Sdp::parse(answered) {
            Ok(answered) if !is_refused => answered,
            _ => {
                self.legs[from].refuse_offer();
                return assert_eq!(self.streams(), agreed, "a refused offer changes nothing");
            }
        };
        let before = self.legs[from].clone();
        let text = match self.answer(from, &answered) {
            Ok(text) => text,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::TooLarge);
                self.legs[from].refuse_offer();
                return assert_eq!(self.streams(), agreed, "a refused answer changes nothing");
            }
        };
        check_text(&text, from, |place, port| Some(port) == port_of(from, place));
        check_version(&before, &self.legs[from], &text);
        check_answer(&offered, &text);
        self.streams().iter().flatten().for_each(check_stream);
        // The answer of a 200 after one of a 183.
        assert_eq!(self.answer(from, &answered), Ok(text));
    }

    fn offer(&mut self, from: usize, offered: &Sdp<'_>) -> Result<Vec<u8>, Refusal> {
        let [near, far] = &mut self.legs;
        let near = Leg { state: near, policy: &self.policies[0] };
        let far = Leg { state: far, policy: &self.policies[1] };
        let (offerer, answerer) = if from == 0 { (near, far) } else { (far, near) };
        let ports = self.ports;
        offer(offerer, answerer, offered, &mut |place| local(1 - from, place).filter(|_| place < ports))
    }

    fn answer(&mut self, from: usize, answered: &Sdp<'_>) -> Result<Vec<u8>, Refusal> {
        let [near, far] = &mut self.legs;
        let (offerer, answerer) = if from == 0 { (near, far) } else { (far, near) };
        let offerer = Leg { state: offerer, policy: &self.policies[from] };
        answer(offerer, answerer, answered, &mut |place| local(from, place))
    }
}

/// Returns the port of a stream of a leg.
fn port_of(side: usize, place: usize) -> Option<u16> {
    u16::try_from(20_000 + 10_000 * side + 2 * place).ok()
}

fn local(side: usize, place: usize) -> Option<LocalStream> {
    Some(LocalStream { address: ADDRESSES[side], port: port_of(side, place)? })
}

/// Offers a description to an endpoint of the near address.
fn answer_here(leg: &mut LegState, offered: &[u8]) {
    let Ok(offered) = Sdp::parse(offered) else { return };
    let before = leg.clone();
    let places: Vec<LocalStream> = (0..2).filter_map(|place| local(0, place)).collect();
    let Ok(answer) = endpoint_answer(leg, &offered, &CAPABILITIES, &places) else {
        return assert_eq!(*leg, before, "a refused offer changes nothing");
    };
    check_text(&answer.description, 0, |_, port| places.iter().any(|place| place.port == port));
    check_version(&before, leg, &answer.description);
    check_answer(&offered, &answer.description);
    assert_eq!(answer.streams.len(), offered.media_count());
}

/// Checks that a strict reader takes an own description, and that it names own addresses and ports alone.
fn check_text(text: &[u8], side: usize, is_own: impl Fn(usize, u16) -> bool) {
    let sdp = Sdp::parse(text).expect("an own description");
    assert_eq!(sdp.check(), Ok(()));
    let address = ADDRESSES[side];
    assert_eq!(sdp.origin().map(|origin| origin.address.to_vec()), Some(address.to_string().into_bytes()));
    for (place, section) in sdp.all_media().enumerate() {
        let media = section.media().expect("an own line");
        assert!(media.port == 0 || is_own(place, media.port), "{media:?}");
        assert_eq!(sdp.connection_of(place).and_then(|connection| connection.ip()), Some(address));
        assert!(["rtcp", "candidate", "mid"].into_iter().all(|name| section.attribute(name).is_none()));
    }
}

/// Checks that the version rises by one exactly if the description differs from the last one.
fn check_version(before: &LegState, after: &LegState, text: &[u8]) {
    let is_same = before.sent() == text;
    assert_eq!(after.version(), before.version() + u64::from(!is_same));
    assert_eq!(after.sent(), text);
}

/// Checks an answer against its offer: lines, formats and directions (RFC 3264 sections 6 and 6.1).
fn check_answer(offered: &Sdp<'_>, text: &[u8]) {
    let answer = Sdp::parse(text).expect("an own description");
    assert_eq!(answer.media_count(), offered.media_count());
    for (place, (ours, theirs)) in answer.all_media().zip(offered.all_media()).enumerate() {
        let line = ours.media().expect("an own line");
        if line.port == 0 {
            continue;
        }
        let offered_line = theirs.media().expect("a line that cannot be read is refused");
        assert_ne!(offered_line.port, 0, "a refused stream stays refused");
        assert_eq!((line.kind, line.protocol), (offered_line.kind, offered_line.protocol));
        let is_rtp = line.protocol.to_ascii_uppercase().starts_with(b"RTP/AVP");
        for format in line.formats() {
            let is_offered = match is_rtp {
                true => offered_line.payloads().any(|payload| payload.to_string().as_bytes() == format),
                false => offered_line.formats().any(|known| known.eq_ignore_ascii_case(format)),
            };
            assert!(is_offered, "{line:?} for {offered_line:?}");
        }
        for payload in line.payloads().filter(|_| is_rtp) {
            let map = ours.rtpmap(payload).expect("each format has its name");
            let is_meant = theirs.rtpmap(payload).is_none_or(|offered| {
                map.encoding.eq_ignore_ascii_case(offered.encoding)
                    && (map.clock_rate, map.channels()) == (offered.clock_rate, offered.channels())
            });
            assert!(is_meant, "{map:?} in {line:?}");
        }
        let (direction, wanted) = (answer.direction_of(place), offered.direction_of(place));
        assert!(!direction.sends() || wanted.receives(), "{direction:?} for {wanted:?}");
        assert!(!direction.receives() || wanted.sends(), "{direction:?} for {wanted:?}");
    }
}

/// Checks that each payload type of a leg has one meaning, and goes on as one that the other leg knows.
fn check_stream(stream: &BridgedStream) {
    for (one, other) in [(&stream.near, &stream.far), (&stream.far, &stream.near)] {
        let mut is_seen = [false; 128];
        for format in &one.formats {
            assert!(!std::mem::replace(&mut is_seen[usize::from(format.payload_type)], true), "{:?}", one.formats);
            let is_known = |number: u8| other.formats.iter().any(|there| there.payload_type == number);
            assert!(format.other.is_none_or(is_known), "{format:?} to {:?}", other.formats);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n";

    /// Lines of descriptions, right ones and wrong ones.
    const LINES: [&str; 40] = [
        "m=audio 4000 RTP/AVP 0 8 101",
        "m=audio 4000 RTP/AVP 8 0",
        "m=audio 4000 RTP/AVPF 96 97 98 00 8",
        "m=audio 4000/2 RTP/AVP 3 4 9 18 8 8 0",
        "m=audio 0 RTP/AVP 0",
        "m=audio 4000 RTP/SAVP 8",
        "m=audio x RTP/AVP 8",
        "m=audio",
        "m=video 4002 RTP/AVP 34 96 97",
        "m=video 0 RTP/AVP 96",
        "m=image 4004 udptl t38",
        "m=image 4004 UDPTL T38 x",
        "m=application 4006 UDP/BFCP *",
        "m=application 4006 TCP/X x",
        "c=IN IP4 0.0.0.0",
        "c=IN IP6 2001:db8::1",
        "c=IN IP4 name.example",
        "c=IN IP4 233.252.0.1/127",
        "a=rtpmap:101 telephone-event/8000",
        "a=rtpmap:8 telephone-event/8000",
        "a=rtpmap:96 opus/48000/2",
        "a=rtpmap:96 VP8/90000",
        "a=rtpmap:97 PCMA/8000",
        "a=rtpmap:97 H264/90000",
        "a=rtpmap:98 pcmu/8000/1",
        "a=rtpmap:0 PCMU/0",
        "a=fmtp:97 packetization-mode=1;profile-level-id=42e01f",
        "a=fmtp:101 0-16",
        "a=sendonly",
        "a=recvonly",
        "a=inactive",
        "a=sendrecv",
        "a=rtcp-mux",
        "a=rtcp:4009 IN IP4 192.0.2.2",
        "a=ptime:30",
        "a=maxptime:99999999999999999999",
        "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:key",
        "a=T38FaxVersion:0",
        "b=AS:64",
        "b=RS:800",
    ];

    #[test]
    fn exchanges_of_random_lines_keep_the_invariants() {
        let mut state = 1_u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % bound
        };
        for _ in 0..3_000 {
            let mut data = vec![below(256) as u8, below(256) as u8];
            for _ in 0..2 * (1 + below(4)) {
                data.extend_from_slice(HEAD.as_bytes());
                for _ in 0..below(16) {
                    data.extend_from_slice(LINES[below(LINES.len())].as_bytes());
                    data.extend_from_slice(b"\r\n");
                }
                data.push(0);
            }
            negotiation(&data);
        }
    }
}
