//! Builds a description from typed values.

use super::attribute::Attribute;
use super::check::rank;
use super::connection::{Bandwidth, Connection};
use super::edit::line;
use super::media::Media;
use super::origin::Origin;
use super::timing::{Repeat, Timing};
use crate::write::Write;

/// Collects the lines of a description and writes them in the order of RFC 8866 section 5; calls within a section may
/// come in any order. Bytes that would end a line are written as question marks.
#[derive(Clone, Debug)]
pub struct SdpBuilder {
    session: Vec<Vec<u8>>,
    /// Media sections, each beginning with its `m=` line.
    media: Vec<Vec<Vec<u8>>>,
}

impl SdpBuilder {
    /// Starts with `v=0`, `o=` and `s=`; an empty name becomes `-` (RFC 8866 section 5.3).
    pub fn new(origin: &Origin<'_>, name: &[u8]) -> Self {
        let mut builder = Self { session: vec![line(b'v', b"0")], media: Vec::new() };
        builder.add(b'o', origin);
        builder.add(b's', if name.is_empty() { &b"-"[..] } else { name });
        builder
    }

    /// Adds a connection to the current section: the session before the first medium, then the last medium.
    pub fn connection(mut self, connection: &Connection<'_>) -> Self {
        self.add(b'c', connection);
        self
    }

    /// Adds an `i=` to the current section: text for people about the session or medium (RFC 8866 section 5.4).
    pub fn information(mut self, text: &[u8]) -> Self {
        self.add(b'i', text);
        self
    }

    /// Adds a `b=` to the current section (RFC 8866 section 5.8).
    pub fn bandwidth(mut self, bandwidth: &Bandwidth<'_>) -> Self {
        self.add(b'b', bandwidth);
        self
    }

    /// Adds an `a=name:value`, or an `a=name` if there is no value, to the current section (RFC 8866 section 5.13).
    pub fn attribute(mut self, name: &str, value: Option<&[u8]>) -> Self {
        self.add(b'a', &Attribute { name: name.as_bytes(), value });
        self
    }

    /// Adds an attribute with a typed value, such as `rtpmap` and [`RtpMap`](super::RtpMap).
    pub fn value_attribute(self, name: &str, value: &impl Write) -> Self {
        let mut text = Vec::new();
        value.write(&mut text);
        self.attribute(name, Some(&text))
    }

    /// Adds a time to the session; without any, `t=0 0` is written.
    pub fn timing(mut self, timing: &Timing) -> Self {
        self.session_line(b't', timing);
        self
    }

    /// Adds a repetition to the last time.
    pub fn repeat(mut self, repeat: &Repeat<'_>) -> Self {
        self.session_line(b'r', repeat);
        self
    }

    /// Adds a `u=`, `e=`, `p=` or any other line to the session unchanged.
    pub fn session_text(mut self, kind: u8, text: &[u8]) -> Self {
        self.session_line(kind, text);
        self
    }

    /// Begins a medium; later calls add to it.
    pub fn media(mut self, media: &Media<'_>) -> Self {
        self.media.push(vec![written(b'm', media)]);
        self
    }

    /// Writes the description.
    pub fn write(mut self, out: &mut Vec<u8>) {
        if !self.session.iter().any(|line| line[0] == b't') {
            self.session_line(b't', &Timing::default());
        }
        for (index, section) in std::iter::once(&mut self.session).chain(&mut self.media).enumerate() {
            section.sort_by_key(|line| rank(line[0], index > 0).unwrap_or(usize::MAX));
            for line in section {
                out.extend_from_slice(line);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Returns the description.
    pub fn build(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.write(&mut out);
        out
    }

    fn add<V: Write + ?Sized>(&mut self, kind: u8, value: &V) {
        self.media.last_mut().unwrap_or(&mut self.session).push(written(kind, value));
    }

    fn session_line<V: Write + ?Sized>(&mut self, kind: u8, value: &V) {
        self.session.push(written(kind, value));
    }
}

fn written<V: Write + ?Sized>(kind: u8, value: &V) -> Vec<u8> {
    let mut text = Vec::new();
    value.write(&mut text);
    line(kind, &text)
}

#[cfg(test)]
mod tests {
    use super::super::{Direction, RtpMap, Sdp};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_come_in_the_order_of_the_rfc() {
        let origin = Origin::parse(b"- 1 1 IN IP4 192.0.2.1").expect("valid");
        let text = SdpBuilder::new(&origin, b"")
            .attribute("tool", Some(b"test"))
            .connection(&Connection::parse(b"IN IP4 192.0.2.1").expect("valid"))
            .information(b"x\r\nm=evil")
            .media(&Media::new(b"audio", 4_000, b"RTP/AVP", b"0"))
            .value_attribute("rtpmap", &RtpMap::parse(b"0 PCMU/8000").expect("valid"))
            .information(b"y")
            .build();
        assert_eq!(
            std::str::from_utf8(&text).expect("ASCII"),
            "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\ni=x??m=evil\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\na=tool:test\r\n\
             m=audio 4000 RTP/AVP 0\r\ni=y\r\na=rtpmap:0 PCMU/8000\r\n"
        );
        assert_eq!(Sdp::parse(&text).expect("own writing").check(), Ok(()));
    }

    fn token() -> impl Strategy<Value = String> {
        "[A-Za-z0-9.-]{1,12}"
    }

    /// Returns the text of a line: no byte that ends it.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>().prop_filter("no line end", |b| !matches!(b, 0 | b'\r' | b'\n')), 1..40)
    }

    proptest! {
        #[test]
        fn written_descriptions_are_read(
            (user, id, version, host) in (token(), any::<u64>(), any::<u64>(), token()),
            (name, info, email) in (text(), proptest::option::of(text()), proptest::option::of(text())),
            (ttl, count) in (proptest::option::of(any::<u8>()), any::<u32>()),
            timings in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..3),
            bandwidth in proptest::option::of((token(), any::<u64>())),
            media in proptest::collection::vec(
                (token(), any::<u16>(), proptest::option::of(any::<u32>()), proptest::collection::vec(token(), 1..5),
                 proptest::collection::vec((0u8..128, token(), any::<u32>(), proptest::option::of(token())), 0..4),
                 proptest::collection::vec((token(), proptest::option::of(text())), 0..4),
                 0usize..4),
                0..4),
        ) {
            let (id, version) = (id.to_string(), version.to_string());
            let origin = Origin {
                username: user.as_bytes(), session_id: id.as_bytes(), session_version: version.as_bytes(),
                net_type: b"IN", address_type: b"IP4", address: host.as_bytes(),
            };
            let connection = Connection {
                net_type: b"IN", address_type: b"IP4", address: host.as_bytes(), ttl, count: ttl.map(|_| count),
            };
            let mut builder = SdpBuilder::new(&origin, &name).connection(&connection);
            if let Some(info) = &info { builder = builder.information(info); }
            if let Some(email) = &email { builder = builder.session_text(b'e', email); }
            let bandwidth = bandwidth.as_ref().map(|(kind, value)| Bandwidth { kind: kind.as_bytes(), value: *value });
            if let Some(bandwidth) = &bandwidth { builder = builder.bandwidth(bandwidth); }
            let timings: Vec<_> = timings.into_iter().map(|(start, stop)| Timing { start, stop }).collect();
            for timing in &timings { builder = builder.timing(timing); }
            let formats: Vec<_> = media.iter().map(|medium| medium.3.join(" ")).collect();
            let lines: Vec<_> = media.iter().zip(&formats).map(|(medium, formats)| {
                let mut line = Media::new(medium.0.as_bytes(), medium.1, b"RTP/AVP", formats.as_bytes());
                line.count = medium.2;
                line
            }).collect();
            for (line, medium) in lines.iter().zip(&media) {
                builder = builder.media(line);
                for (payload, encoding, clock_rate, parameters) in &medium.4 {
                    let map = RtpMap {
                        payload: *payload, encoding: encoding.as_bytes(), clock_rate: *clock_rate,
                        parameters: parameters.as_ref().map(String::as_bytes),
                    };
                    builder = builder.value_attribute("rtpmap", &map);
                }
                for (name, value) in &medium.5 { builder = builder.attribute(name, value.as_deref()); }
                builder = builder.attribute(Direction::ALL[medium.6].name(), None);
            }
            let bytes = builder.build();

            let sdp = Sdp::parse(&bytes).expect("own writing");
            prop_assert_eq!(sdp.check(), Ok(()));
            prop_assert_eq!(sdp.origin(), Some(origin));
            prop_assert_eq!(sdp.name(), Some(&name[..]));
            prop_assert_eq!(sdp.session().connection(), Some(connection));
            prop_assert_eq!(sdp.session().information(), info.as_deref());
            prop_assert_eq!(sdp.emails().next(), email.as_deref());
            prop_assert_eq!(sdp.session().bandwidths().next(), bandwidth);
            prop_assert_eq!(sdp.timings().collect::<Vec<_>>(), timings);
            prop_assert_eq!(sdp.media_count(), media.len());
            for ((section, line), medium) in sdp.all_media().zip(&lines).zip(&media) {
                prop_assert_eq!(section.media(), Some(*line));
                let maps: Vec<_> = section.rtpmaps().map(|map| (
                    map.payload, map.encoding.to_vec(), map.clock_rate, map.parameters.map(<[u8]>::to_vec))).collect();
                let want: Vec<_> = medium.4.iter().map(|(payload, encoding, rate, parameters)| (
                    *payload, encoding.clone().into_bytes(), *rate, parameters.clone().map(String::into_bytes))).collect();
                prop_assert_eq!(maps, want);
                for (name, value) in &medium.5 {
                    prop_assert!(section.attributes().any(|read|
                        read.name == name.as_bytes() && read.value == value.as_deref()));
                }
                prop_assert_eq!(section.direction(), Some(Direction::ALL[medium.6]));
            }
            // The description is the same when it is written again from the parsed lines.
            let again: Vec<u8> = sdp.lines().flat_map(|line| line.raw).copied().collect();
            prop_assert_eq!(again, bytes);
        }
    }
}
