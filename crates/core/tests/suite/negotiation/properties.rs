//! Laws of negotiation, over random calls.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use strowger_core::b2bua::negotiation::BridgedStream;
use strowger_message::sdp::{Direction, RtpMap, Sdp};

use super::{Bridge, FAR, NEAR};

/// Formats of the peers: `a=rtpmap` value and, for some, the payload type of RFC 3551.
const FORMATS: [(&str, Option<u8>); 8] = [
    ("PCMU/8000", Some(0)),
    ("PCMA/8000", Some(8)),
    ("G722/8000", Some(9)),
    ("opus/48000/2", None),
    ("telephone-event/8000", None),
    ("telephone-event/48000", None),
    ("x-unknown/16000", None),
    ("iLBC/8000", None),
];

/// Media types and protocols. The last one does not pass.
const KINDS: [(&str, &str); 3] = [("audio", "RTP/AVP"), ("video", "RTP/AVP"), ("application", "TCP/X")];

/// Stream of an offer: kind, formats, direction, whether it is in use.
type Stream = (usize, Vec<usize>, usize, bool);

/// One exchange: who offers, and the streams; formats that the answer to each stream accepts, as bits, and the direction that it
/// wants; whether the offer is refused.
#[derive(Clone, Debug)]
struct Exchange {
    is_from_near: bool,
    streams: Vec<Stream>,
    answers: Vec<(u8, usize)>,
    is_refused: bool,
}

fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
    let stream = (0..KINDS.len(), proptest::collection::vec(0..FORMATS.len(), 1..6), 0..4usize, any::<bool>());
    let exchange = (
        any::<bool>(),
        proptest::collection::vec(stream, 0..5),
        proptest::collection::vec((any::<u8>(), 0..4usize), 12),
        prop::bool::weighted(0.2),
    );
    let exchange = exchange.prop_map(|(is_from_near, streams, answers, is_refused)| Exchange {
        is_from_near,
        streams,
        answers,
        is_refused,
    });
    proptest::collection::vec(exchange, 1..10)
}

/// Peer of a leg. It keeps RFC 3264: its payload types keep their meaning, and its lines their number.
#[derive(Clone, Default)]
struct Phone {
    /// Formats by place of the stream and payload type.
    numbers: BTreeMap<(usize, u8), String>,
    /// Lines of its offers so far.
    lines: usize,
    /// Our last description.
    last: String,
}

impl Phone {
    /// Returns the payload type of a format: its earlier one, that of RFC 3551, or the first free one from `first` on.
    fn number(&mut self, place: usize, format: usize, first: u8) -> u8 {
        let (map, fixed) = FORMATS[format];
        let earlier = self.numbers.iter().find(|((at, _), known)| *at == place && *known == map);
        let number = earlier.map(|((_, number), _)| *number).or(fixed).unwrap_or_else(|| {
            let mut free = (first..=127).chain(96..first);
            free.find(|number| !self.numbers.contains_key(&(place, *number))).expect("few formats")
        });
        self.numbers.insert((place, number), map.to_owned());
        number
    }

    /// Returns an offer with these streams, and ended ones in place of missing ones.
    fn offer(&mut self, head: &str, streams: &[Stream], first: u8) -> String {
        let mut text = head.to_owned();
        for (place, (kind, formats, direction, is_active)) in streams.iter().enumerate() {
            let (media, protocol) = KINDS[*kind];
            let port = if *is_active { 4_000 } else { 0 };
            if *kind == 2 {
                text += &format!("m={media} {port} {protocol} x\r\n");
                continue;
            }
            let formats: BTreeSet<usize> = formats.iter().copied().collect();
            let numbers: Vec<_> =
                formats.iter().map(|&format| (self.number(place, format, first), FORMATS[format].0)).collect();
            let list: Vec<_> = numbers.iter().map(|(number, _)| number.to_string()).collect();
            text += &format!("m={media} {port} {protocol} {}\r\n", list.join(" "));
            for (number, map) in numbers {
                text += &format!("a=rtpmap:{number} {map}\r\n");
            }
            text += &format!("a={}\r\n", Direction::ALL[*direction].name());
        }
        for _ in streams.len()..self.lines {
            text += "m=audio 0 RTP/AVP 0\r\n";
        }
        self.lines = self.lines.max(streams.len());
        text
    }

    /// Returns an answer that keeps RFC 3264.
    fn answer(&self, head: &str, offer: &str, wishes: &[(u8, usize)]) -> String {
        let mut text = head.to_owned();
        for (line, (bits, wish)) in lines(offer).iter().zip(wishes) {
            let is_wanted = |index: usize| (bits >> (index % 8)) & 1 == 1;
            let accepted: Vec<_> =
                line.maps.iter().enumerate().filter(|(index, _)| is_wanted(*index)).map(|(_, map)| map).collect();
            if line.port == 0 || accepted.is_empty() {
                text += &format!("m={} 0 {} 0\r\n", line.media, line.protocol);
                continue;
            }
            let list: Vec<_> = accepted.iter().map(|(number, _)| number.to_string()).collect();
            text += &format!("m={} 5000 {} {}\r\n", line.media, line.protocol, list.join(" "));
            for (number, map) in accepted {
                text += &format!("a=rtpmap:{number} {map}\r\n");
            }
            text += &format!("a={}\r\n", line.direction.answered(Direction::ALL[*wish]).name());
        }
        text
    }

    /// Notes a description of ours. No payload type may have had another meaning, and an equal one has an equal version.
    fn receive(&mut self, text: &str, is_offer: bool) -> Result<(), TestCaseError> {
        for (place, line) in lines(text).iter().enumerate() {
            let mut seen = BTreeSet::new();
            for (number, map) in &line.maps {
                prop_assert!(seen.insert(map.clone()), "{map} twice: {text}");
                let known = self.numbers.entry((place, *number)).or_insert_with(|| map.clone());
                prop_assert_eq!(&*known, map, "{}", text);
            }
        }
        let (version, rest) = split(text);
        let (last_version, last) = split(&self.last);
        prop_assert_eq!(version, if rest == last { last_version } else { last_version + 1 });
        if is_offer {
            prop_assert!(lines(text).len() >= lines(&self.last).len(), "lines are missing: {text}");
            self.lines = self.lines.max(lines(text).len());
        }
        self.last = text.to_owned();
        Ok(())
    }
}

/// Returns the version and the text without it; of no text, zero.
fn split(text: &str) -> (u64, String) {
    let Some(line) = text.lines().find(|line| line.starts_with("o=")) else { return (0, String::new()) };
    let version = line.split(' ').nth(2).expect("a version");
    (version.parse().expect("a number"), text.replacen(line, "", 1))
}

/// One line of a description with its formats.
struct Line {
    media: String,
    protocol: String,
    port: u16,
    direction: Direction,
    maps: Vec<(u8, String)>,
}

fn lines(text: &str) -> Vec<Line> {
    let Ok(sdp) = Sdp::parse(text.as_bytes()) else { return Vec::new() };
    let lines = sdp.all_media().enumerate().map(|(place, section)| {
        let media = section.media().expect("a line");
        let word = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
        let name = |map: RtpMap<'_>| {
            let channels = if map.channels() == 1 { String::new() } else { format!("/{}", map.channels()) };
            (map.payload, format!("{}/{}{channels}", word(map.encoding), map.clock_rate))
        };
        let maps: Vec<_> = if media.port == 0 { Vec::new() } else { section.rtpmaps().map(name).collect() };
        assert!(media.port == 0 || maps.len() == media.payloads().count(), "a name for each format: {text}");
        Line {
            media: word(media.kind),
            protocol: word(media.protocol),
            port: media.port,
            direction: sdp.direction_of(place),
            maps,
        }
    });
    lines.collect()
}

/// Tells whether the stream should pass: audio with sound, or video.
fn passes((kind, formats, _, is_active): &Stream) -> bool {
    let has_sound = formats.iter().any(|&format| !FORMATS[format].0.starts_with("telephone-event"));
    *is_active && (*kind == 1 || *kind == 0 && has_sound)
}

/// Each format of a stream has one name on both legs, and directions do not contradict each other.
fn check_stream(stream: &BridgedStream) -> Result<(), TestCaseError> {
    for (one, other) in [(&stream.near, &stream.far), (&stream.far, &stream.near)] {
        for format in &one.formats {
            let Some(number) = format.other else { continue };
            let there = other.formats.iter().find(|there| there.payload_type == number);
            let there = there.expect("a payload type of the other leg");
            prop_assert_eq!(&there.encoding, &format.encoding);
            prop_assert_eq!(there.clock_rate, format.clock_rate);
            prop_assert_eq!(there.other, Some(format.payload_type));
        }
        prop_assert_eq!(one.sends, other.receives);
        prop_assert!(one.rtp.is_some() && one.rtcp.is_some());
    }
    Ok(())
}

/// Makes one exchange and checks all that both peers see of it.
fn run(bridge: &mut Bridge, phones: &mut [Phone; 2], exchange: &Exchange) -> Result<(), TestCaseError> {
    let (from, to) = if exchange.is_from_near { (0, 1) } else { (1, 0) };
    let (from_head, to_head) = if exchange.is_from_near { (NEAR, FAR) } else { (FAR, NEAR) };
    let agreed = bridge.streams();
    let before = phones[from].clone();
    let offered = phones[from].offer(from_head, &exchange.streams, if exchange.is_from_near { 96 } else { 110 });
    let passing = exchange.streams.iter().filter(|stream| passes(stream)).count();
    let Ok(offer) = bridge.offer(exchange.is_from_near, &offered) else {
        prop_assert!(passing == 0 && exchange.streams.iter().any(|stream| stream.3));
        prop_assert_eq!(bridge.streams(), agreed);
        phones[from] = before;
        return Ok(());
    };
    for secret in ["192.0.2.77", "2001:db8:f::1", "alice", "bob", "inside", "4000", "5000"] {
        prop_assert!(!offer.contains(secret), "{}", offer);
    }
    phones[to].receive(&offer, true)?;
    prop_assert_eq!(lines(&offer).iter().filter(|line| line.port != 0).count(), passing, "{}", offer);
    prop_assert_eq!(bridge.streams(), agreed.clone(), "an open offer is not agreed");
    if exchange.is_refused {
        let leg = if exchange.is_from_near { &mut bridge.near } else { &mut bridge.far };
        leg.refuse_offer();
        prop_assert_eq!(bridge.streams(), agreed);
        phones[from] = before;
        return Ok(());
    }
    let answered = phones[to].answer(to_head, &offer, &exchange.answers);
    let answer = bridge.answer(exchange.is_from_near, &answered).expect("an offer is open");
    phones[from].receive(&answer, false)?;

    // The answer has a line for each line of the offer, and no format that its line lacks.
    let (offered, answer) = (lines(&offered), lines(&answer));
    prop_assert_eq!(offered.len(), answer.len());
    for (offered, answered) in offered.iter().zip(&answer) {
        prop_assert_eq!((&offered.media, &offered.protocol), (&answered.media, &answered.protocol));
        prop_assert!(answered.port == 0 || offered.port != 0);
        prop_assert!(answered.maps.iter().all(|map| offered.maps.contains(map)));
        let order: Vec<_> = offered.maps.iter().filter(|map| answered.maps.contains(map)).collect();
        prop_assert!(answered.maps.iter().eq(order), "the order of the offer");
        if answered.port != 0 {
            prop_assert!(!answered.direction.sends() || offered.direction.receives());
            prop_assert!(!answered.direction.receives() || offered.direction.sends());
        }
    }
    // A stream is in use on both legs or on none.
    let streams = bridge.streams();
    let accepted = lines(&answered).iter().filter(|line| line.port != 0).count();
    prop_assert_eq!(answer.iter().filter(|line| line.port != 0).count(), accepted);
    prop_assert_eq!(streams.iter().flatten().count(), accepted);
    streams.iter().flatten().try_for_each(check_stream)
}

proptest! {
    #[test]
    fn descriptions_keep_the_laws(call in exchanges()) {
        let mut bridge = Bridge::new().with_media_types(&["video"]);
        let mut phones = [Phone::default(), Phone::default()];
        for exchange in &call {
            run(&mut bridge, &mut phones, exchange)?;
        }
    }

    /// Any text is answered or refused: nothing panics, and what is written can be read.
    #[test]
    fn any_text_is_answered_or_refused(
        offered in text(), answered in text(), is_from_near in any::<bool>(), is_liberal in any::<bool>(),
    ) {
        let count = |text: &str| text.lines().filter(|line| line.starts_with("m=")).count();
        let mut bridge = Bridge::new();
        if is_liberal {
            bridge = bridge.with_media_types(&["video", "image", "application"]);
            bridge.near_policy.has_secure_rtp = true;
            bridge.far_policy.has_secure_rtp = true;
        }
        for _ in 0..2 {
            if bridge.offer(is_from_near, &offered).is_ok() {
                let answer = bridge.answer(is_from_near, &answered).expect("an offer is open");
                prop_assert_eq!(count(&answer), count(&offered));
            }
            bridge.streams();
        }
    }
}

/// Returns descriptions of lines that are nearly right.
fn text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "m=(audio|video|image|x) [0-9]{1,5} (RTP/AVP|RTP/AVPF|RTP/SAVP|udptl|x)( [0-9]{1,3}){1,4}",
        "a=rtpmap:[0-9]{1,3} (PCMA|red|telephone-event|x)/(8000|0|48000)(/[0-9])?",
        "a=fmtp:[0-9]{1,3} [ -~]{0,12}",
        "a=(rtcp|ptime|maxptime|crypto|T38x):[ -~]{0,12}",
        "a=(sendonly|recvonly|inactive|rtcp-mux)",
        "b=(AS|RS|x):[0-9]{1,9}",
        "c=IN IP(4|6) (0\\.0\\.0\\.0|192\\.0\\.2\\.1|::|x)(/[0-9]{1,3})?",
        "t=[0-9]{1,12} [0-9]",
        "[a-z]=[ -~]{0,12}",
    ];
    proptest::collection::vec(line, 0..16).prop_map(|lines| format!("{NEAR}{}\r\n", lines.join("\r\n")))
}
