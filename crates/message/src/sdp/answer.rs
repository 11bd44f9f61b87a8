//! Offer and answer for one stream of audio (RFC 3264 section 5 and 6).

use std::net::IpAddr;

use super::attribute::{Direction, Fmtp, RtpMap};
use super::build::SdpBuilder;
use super::codec::Codec;
use super::connection::{Connection, address_type};
use super::description::Sdp;
use super::media::Media;
use super::origin::Origin;
use super::write_number;

/// Description of this side of a call.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    /// Session id: the same in every description of a call (RFC 3264 section 8).
    pub session_id: u64,
    /// Version: rises by one with each change of the description.
    pub session_version: u64,
    /// Address at which audio is received.
    pub address: IpAddr,
    /// Port of RTP, 1 to 65,535; RTCP uses the next one.
    pub port: u16,
    /// Desired direction; an answer narrows it to the direction that the offer allows.
    pub direction: Direction,
    /// Codecs, the preferred one first.
    pub codecs: &'a [Codec<'a>],
    /// Milliseconds of audio per packet, if it matters.
    pub ptime: Option<u32>,
}

/// Audio that both sides support, from the other side's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audio<'a, 'c> {
    /// Index of its `m=` line.
    pub media: usize,
    /// Destination of media; `None` on hold or if it cannot be read.
    pub connection: Option<Connection<'a>>,
    /// Destination port of RTP, never 0.
    pub port: u16,
    /// Direction as the other side sees it. A hold by `0.0.0.0` counts as a direction without receiving.
    pub direction: Direction,
    /// Payload types of the common formats, in the other side's order.
    pub formats: Vec<(u8, &'c Codec<'c>)>,
    /// Milliseconds of audio per packet that the other side wants (RFC 8866 section 6.4).
    pub ptime: Option<u64>,
}

impl<'c> Audio<'_, 'c> {
    /// Returns the format to send: the first format that carries sound.
    pub fn sound(&self) -> Option<(u8, &'c Codec<'c>)> {
        self.formats.iter().copied().find(|(_, codec)| codec.is_sound())
    }

    /// Returns the payload type of telephone events, if both support them.
    pub fn events(&self) -> Option<u8> {
        let is = |codec: &Codec<'_>| codec.encoding.eq_ignore_ascii_case("telephone-event");
        self.formats.iter().find(|(_, codec)| is(codec)).map(|&(payload, _)| payload)
    }
}

/// Finds the first accepted medium of audio over plain RTP with a sound format among `codecs`. `None` in an offer:
/// refuse it with 488. `None` in an answer: no common format is left.
pub fn audio<'a, 'c>(sdp: &Sdp<'a>, codecs: &'c [Codec<'c>]) -> Option<Audio<'a, 'c>> {
    (0..sdp.media_count()).find_map(|index| {
        let section = sdp.media(index)?;
        let media = section.media()?;
        if media.kind != b"audio" || media.port == 0 || !media.protocol.eq_ignore_ascii_case(b"RTP/AVP") {
            return None;
        }
        // Each payload type is examined once, however often a long line repeats it.
        let mut maps = [None; 128];
        section.rtpmaps().for_each(|map| {
            maps[usize::from(map.payload)].get_or_insert(map);
        });
        let mut seen = [false; 128];
        let formats: Vec<_> = media
            .payloads()
            .filter(|&payload| !std::mem::replace(&mut seen[usize::from(payload)], true))
            .filter_map(|payload| {
                let map = maps[usize::from(payload)].as_ref();
                Some((payload, codecs.iter().find(|codec| means(map, payload, codec))?))
            })
            .collect();
        if !formats.iter().any(|(_, codec)| codec.is_sound()) {
            return None;
        }
        let connection = sdp.connection_of(index);
        let hold = connection.is_some_and(|connection| connection.is_hold());
        let direction = sdp.direction_of(index);
        Some(Audio {
            media: index,
            connection: connection.filter(|_| !hold),
            port: media.port,
            direction: Direction::from_parts(direction.sends(), direction.receives() && !hold),
            formats,
            ptime: section.ptime(),
        })
    })
}

/// Tells whether a payload type means the codec: by its mapping, else by the table of RFC 3551.
fn means(map: Option<&RtpMap<'_>>, payload: u8, codec: &Codec<'_>) -> bool {
    match map {
        Some(map) => codec.is(map),
        None => Codec::of_payload(payload).is_some_and(|fixed| {
            fixed.encoding.eq_ignore_ascii_case(codec.encoding)
                && fixed.clock_rate == codec.clock_rate
                && fixed.channels == codec.channels
        }),
    }
}

/// Creates the answer to an offer: one `m=` line for each line of the offer in the same order. The medium that
/// [`audio`] finds is accepted with the offer's payload types, all others are refused with port 0.
pub fn answer(offer: &Sdp<'_>, local: &Local<'_>) -> Vec<u8> {
    let accepted = audio(offer, local.codecs);
    let mut builder = begin(local);
    // RFC 3264 section 6: the answer repeats the offer's times.
    for timing in offer.session().values(b't') {
        builder = builder.session_text(b't', timing);
    }
    for (index, section) in offer.all_media().enumerate() {
        builder = match &accepted {
            Some(audio) if audio.media == index => {
                let direction = audio.direction.answered(local.direction);
                medium(builder, local, &audio.formats, direction)
            }
            _ => builder.media(&section.refused()),
        };
    }
    builder.build()
}

/// Creates an offer of audio with all codecs of this side.
pub fn offer(local: &Local<'_>) -> Vec<u8> {
    let formats: Vec<_> = local.codecs.iter().map(|codec| (codec.payload, codec)).collect();
    medium(begin(local), local, &formats, local.direction).build()
}

fn begin(local: &Local<'_>) -> SdpBuilder {
    let (mut id, mut version) = (Vec::new(), Vec::new());
    write_number(local.session_id, &mut id);
    write_number(local.session_version, &mut version);
    let address = local.address.to_string();
    let origin = Origin {
        username: b"-",
        session_id: &id,
        session_version: &version,
        net_type: b"IN",
        address_type: address_type(local.address).as_bytes(),
        address: address.as_bytes(),
    };
    let connection = Connection {
        net_type: origin.net_type,
        address_type: origin.address_type,
        address: origin.address,
        ttl: None,
        count: None,
    };
    SdpBuilder::new(&origin, b"").connection(&connection)
}

fn medium(
    mut builder: SdpBuilder,
    local: &Local<'_>,
    formats: &[(u8, &Codec<'_>)],
    direction: Direction,
) -> SdpBuilder {
    let list: Vec<_> = formats.iter().map(|(payload, _)| payload.to_string()).collect();
    builder = builder.media(&Media::new(b"audio", local.port, b"RTP/AVP", list.join(" ").as_bytes()));
    for (payload, codec) in formats {
        let channels = codec.channels.to_string();
        let map = RtpMap {
            payload: *payload,
            encoding: codec.encoding.as_bytes(),
            clock_rate: codec.clock_rate,
            parameters: (codec.channels != 1).then_some(channels.as_bytes()),
        };
        builder = builder.value_attribute("rtpmap", &map);
        if let Some(parameters) = codec.parameters {
            let format = payload.to_string();
            let fmtp = Fmtp { format: format.as_bytes(), parameters: parameters.as_bytes() };
            builder = builder.value_attribute("fmtp", &fmtp);
        }
    }
    if let Some(ptime) = local.ptime {
        builder = builder.attribute("ptime", Some(ptime.to_string().as_bytes()));
    }
    builder.attribute(direction.name(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: &[Codec<'_>] = &[Codec::PCMA, Codec::PCMU, Codec::TELEPHONE_EVENT];

    fn local() -> Local<'static> {
        Local {
            session_id: 7,
            session_version: 1,
            address: "192.0.2.9".parse().expect("an address"),
            port: 6_000,
            direction: Direction::SendRecv,
            codecs: CODECS,
            ptime: Some(20),
        }
    }

    fn answered(offer: &str) -> String {
        let offer = Sdp::parse(offer.as_bytes()).expect("indexed");
        let text = answer(&offer, &local());
        let read = Sdp::parse(&text).expect("own writing");
        assert_eq!(read.check(), Ok(()));
        assert_eq!(read.media_count(), offer.media_count());
        String::from_utf8(text).expect("ASCII")
    }

    const HEAD: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=3724394400 3724398000\r\n";
    const OWN_HEAD: &str =
        "v=0\r\no=- 7 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=3724394400 3724398000\r\n";

    #[test]
    fn the_offers_order_and_payload_types() {
        let offer = format!(
            "{HEAD}m=video 5000 RTP/AVP 31\r\nm=audio 4000 RTP/AVP 97 0 96 8\r\na=rtpmap:97 iLBC/8000\r\n\
             a=rtpmap:96 telephone-event/8000\r\na=sendonly\r\nm=audio 4002 RTP/AVP 0\r\nm=image 4004 udptl t38\r\n"
        );
        assert_eq!(
            answered(&offer),
            format!(
                "{OWN_HEAD}m=video 0 RTP/AVP 31\r\nm=audio 6000 RTP/AVP 0 96 8\r\na=rtpmap:0 PCMU/8000\r\n\
                 a=rtpmap:96 telephone-event/8000\r\na=fmtp:96 0-15\r\na=rtpmap:8 PCMA/8000\r\na=ptime:20\r\n\
                 a=recvonly\r\nm=audio 0 RTP/AVP 0\r\nm=image 0 udptl t38\r\n"
            )
        );
    }

    #[test]
    fn nothing_in_common_is_refused() {
        for media in [
            "m=audio 4000 RTP/AVP 18\r\n",
            "m=audio 4000 RTP/AVP 0\r\na=rtpmap:0 EVRC/8000\r\n",
            "m=audio 4000 RTP/AVP 101\r\na=rtpmap:101 telephone-event/8000\r\n",
            "m=audio 4000 RTP/SAVP 0\r\n",
            "m=audio 0 RTP/AVP 0\r\n",
            "m=audio x\r\n",
            "m=\r\n",
        ] {
            let offer = format!("{HEAD}{media}");
            assert!(audio(&Sdp::parse(offer.as_bytes()).expect("indexed"), CODECS).is_none(), "{media}");
            assert!(answered(&offer).contains(" 0 RTP/"), "{media}");
        }
        assert_eq!(answered(HEAD), OWN_HEAD);
    }

    #[test]
    fn a_refusal_keeps_odd_formats() {
        // A form feed is not a blank. Taken for one only at the end of a line, it left an answer without formats.
        let offer = format!("{HEAD}m=\x06 3 \x01 \x0c\x0c\r\nm=audio 4000 RTP/AVP \x0c\r\n");
        assert!(answered(&offer).ends_with("m=\x06 0 \x01 \x0c\x0c\r\nm=audio 0 RTP/AVP \x0c\r\n"));
    }

    #[test]
    fn hold_of_both_kinds() {
        let old = format!("{HEAD}m=audio 4000 RTP/AVP 8\r\nc=IN IP4 0.0.0.0\r\n");
        let sdp = Sdp::parse(old.as_bytes()).expect("indexed");
        let found = audio(&sdp, CODECS).expect("common");
        assert_eq!((found.direction, found.connection), (Direction::SendOnly, None));
        assert!(answered(&old).ends_with("a=recvonly\r\n"));
        let new = format!("{HEAD}a=inactive\r\nm=audio 4000 RTP/AVP 8\r\n");
        assert!(answered(&new).ends_with("a=inactive\r\n"));
    }

    #[test]
    fn long_lines_take_no_long_time() {
        let formats = "0 96 ".repeat(13_000);
        let maps = "a=rtpmap:96 x/8000\r\n".repeat(4_000);
        let offer = format!("{HEAD}m=audio 4000 RTP/AVP {formats}\r\n{maps}");
        let started = std::time::Instant::now();
        assert!(answered(&offer).contains("m=audio 6000 RTP/AVP 0\r\n"));
        // A search of all lines for each format would take minutes in a debug build; this takes milliseconds.
        assert!(started.elapsed().as_secs() < 10);
    }

    #[test]
    fn own_offers_are_understood() {
        let text = offer(&local());
        let sdp = Sdp::parse(&text).expect("own writing");
        assert_eq!(sdp.check(), Ok(()));
        let found = audio(&sdp, CODECS).expect("our own codecs");
        assert_eq!((found.port, found.ptime, found.events()), (6_000, Some(20), Some(101)));
        assert_eq!(found.sound(), Some((8, &Codec::PCMA)));
        assert_eq!(found.connection.and_then(|connection| connection.ip()), Some(local().address));
        let answer = answer(&sdp, &local());
        let answer = Sdp::parse(&answer).expect("own writing");
        assert_eq!(audio(&answer, CODECS).expect("accepted").formats.len(), 3);
    }
}
