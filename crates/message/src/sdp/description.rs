//! The index of a description: lines, the session section and the media sections (RFC 8866 section 5).

use std::ops::Range;

use super::attribute::{Attribute, Direction, Fmtp, Rtcp, RtpMap};
use super::connection::{Bandwidth, Connection};
use super::error::{SdpError, SdpReason};
use super::media::Media;
use super::origin::Origin;
use super::timing::Timing;
use super::{fields, number, trim};

/// Bounds of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpLimits {
    /// Lines of every type, blank ones excluded; default 4,096.
    pub lines: usize,
    /// `m=` lines.
    pub media: usize,
}

impl Default for SdpLimits {
    fn default() -> Self {
        Self { lines: 4_096, media: 256 }
    }
}

/// A description: the received bytes and the positions of their lines. Lines may end with CRLF, LF or CR.
#[derive(Clone, Debug)]
pub struct Sdp<'a> {
    bytes: &'a [u8],
    lines: Vec<Span>,
    /// Indexes of the `m=` lines.
    media: Vec<u32>,
    /// Index of the session's first `c=` line, and the session's direction. They are cached, because each of many media
    /// without a line of its own needs them.
    connection: Option<u32>,
    direction: Option<Direction>,
}

/// Span of a line: its letter is at `start`, its value ends at `end`; only line ends follow until the next line.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpLine<'a> {
    /// Letter before the equals sign.
    pub kind: u8,
    /// Value after the equals sign, without the line end.
    pub value: &'a [u8],
    /// Line number, counted from 1, blank lines excluded.
    pub number: usize,
    /// The whole line with its line end and the blank lines after it.
    pub raw: &'a [u8],
}

impl<'a> Sdp<'a> {
    /// Finds the lines of a body, with the default limits.
    ///
    /// # Errors
    /// No line, a line without type, a first line that is not `v=`, or more lines than a limit. Order and values are
    /// not checked: see [`Sdp::check`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SdpError> {
        Self::parse_within(bytes, SdpLimits::default())
    }

    /// Finds the lines of a body.
    ///
    /// # Errors
    /// As [`Sdp::parse`].
    pub fn parse_within(bytes: &'a [u8], limits: SdpLimits) -> Result<Self, SdpError> {
        let fault = |line, reason| Err(SdpError { line, reason });
        if u32::try_from(bytes.len()).is_err() {
            return fault(1, SdpReason::TooLong);
        }
        let mut lines = Vec::new();
        let mut media = Vec::new();
        let (mut connection, mut direction) = (None, None);
        let mut start = 0;
        while start < bytes.len() {
            let rest = &bytes[start..];
            let length = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
            let number = lines.len() + 1;
            match &rest[..length] {
                [kind, b'=', value @ ..] if kind.is_ascii_alphabetic() => {
                    if number == 1 && *kind != b'v' {
                        return fault(number, SdpReason::Start);
                    }
                    if lines.len() >= limits.lines {
                        return fault(number, SdpReason::TooManyLines);
                    }
                    match kind {
                        b'm' if media.len() >= limits.media => return fault(number, SdpReason::TooManyMedia),
                        b'm' => media.push(lines.len() as u32),
                        b'c' if media.is_empty() && connection.is_none() => connection = Some(lines.len() as u32),
                        b'a' if media.is_empty() && direction.is_none() => {
                            direction = Direction::of(&Attribute::parse(value));
                        }
                        _ => {}
                    }
                    // The length was checked above, so no offset is truncated.
                    lines.push(Span { start: start as u32, end: (start + length) as u32 });
                }
                // No line end may precede the first line, because the lines together are all the bytes.
                [] if number > 1 => {}
                [] if rest.iter().all(|b| matches!(b, b'\r' | b'\n')) => return fault(1, SdpReason::Empty),
                _ => return fault(number, SdpReason::Line),
            }
            start += length;
            start += match &bytes[start..] {
                [b'\r', b'\n', ..] => 2,
                [_, ..] => 1,
                [] => 0,
            };
        }
        if lines.is_empty() {
            return fault(1, SdpReason::Empty);
        }
        Ok(Self { bytes, lines, media, connection, direction })
    }

    /// Returns the parsed bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns all lines in order.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = SdpLine<'a>> + ExactSizeIterator + '_ {
        (0..self.lines.len()).map(|index| self.line(index))
    }

    /// Returns the session section: the lines before the first `m=`.
    pub fn session(&self) -> Section<'_, 'a> {
        self.section(0..self.media.first().map_or(self.lines.len(), |&first| first as usize))
    }

    /// Returns the number of `m=` lines.
    pub fn media_count(&self) -> usize {
        self.media.len()
    }

    /// Returns the section of the `m=` line with this index, counted from 0.
    pub fn media(&self, index: usize) -> Option<Section<'_, 'a>> {
        let from = *self.media.get(index)? as usize;
        let to = self.media.get(index + 1).map_or(self.lines.len(), |&next| next as usize);
        Some(self.section(from..to))
    }

    /// Sections of all media in order, which an answer must keep (RFC 3264 section 6).
    pub fn all_media(&self) -> impl ExactSizeIterator<Item = Section<'_, 'a>> {
        (0..self.media.len()).map(|index| self.media(index).expect("the index is below the count"))
    }

    /// Returns the version, `v=`; must be 0.
    pub fn version(&self) -> Option<u64> {
        number(self.session().value(b'v')?)
    }

    /// Returns the origin, `o=`.
    pub fn origin(&self) -> Option<Origin<'a>> {
        Origin::parse(self.session().value(b'o')?)
    }

    /// Returns the session name, `s=`.
    pub fn name(&self) -> Option<&'a [u8]> {
        self.session().value(b's')
    }

    /// Returns the URI, `u=`.
    pub fn uri(&self) -> Option<&'a [u8]> {
        self.session().value(b'u')
    }

    /// Returns the values of all `e=` lines.
    pub fn emails(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.session().values(b'e')
    }

    /// Returns the values of all `p=` lines.
    pub fn phones(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.session().values(b'p')
    }

    /// Returns all `t=` lines that can be read.
    pub fn timings(&self) -> impl Iterator<Item = Timing> + '_ {
        self.session().values(b't').filter_map(Timing::parse)
    }

    /// Returns the connection of a medium: its own `c=` or the session's (RFC 8866 section 5.7).
    pub fn connection_of(&self, media: usize) -> Option<Connection<'a>> {
        let session = || Connection::parse(self.line(self.connection? as usize).value);
        self.media(media)?.connection().or_else(session)
    }

    /// Returns the direction of a medium: its own, the session's, or sendrecv (RFC 8866 section 6.7).
    pub fn direction_of(&self, media: usize) -> Direction {
        let own = self.media(media).and_then(|section| section.direction());
        own.or(self.direction).unwrap_or_default()
    }

    fn section(&self, lines: Range<usize>) -> Section<'_, 'a> {
        Section { sdp: self, from: lines.start, to: lines.end }
    }

    fn line(&self, index: usize) -> SdpLine<'a> {
        let Span { start, end } = self.lines[index];
        let (start, end) = (start as usize, end as usize);
        let next = self.lines.get(index + 1).map_or(self.bytes.len(), |next| next.start as usize);
        SdpLine {
            kind: self.bytes[start],
            value: &self.bytes[start + 2..end],
            number: index + 1,
            raw: &self.bytes[start..next],
        }
    }
}

/// Tells whether the descriptions have the same lines; line ends are ignored.
impl PartialEq for Sdp<'_> {
    fn eq(&self, other: &Self) -> bool {
        let content = |line: SdpLine<'_>| (line.kind, line.value.to_owned());
        self.lines().map(content).eq(other.lines().map(content))
    }
}

impl Eq for Sdp<'_> {}

/// The lines of the session, or of one medium from its `m=` on.
#[derive(Clone, Copy, Debug)]
pub struct Section<'s, 'a> {
    sdp: &'s Sdp<'a>,
    from: usize,
    to: usize,
}

impl<'s, 'a> Section<'s, 'a> {
    /// Returns all lines of this section in order; the first line of a medium is its `m=`.
    pub fn lines(self) -> impl DoubleEndedIterator<Item = SdpLine<'a>> + ExactSizeIterator + 's {
        (self.from..self.to).map(move |index| self.sdp.line(index))
    }

    /// Returns the values of all lines of this type.
    pub fn values(self, kind: u8) -> impl Iterator<Item = &'a [u8]> + 's {
        self.lines().filter(move |line| line.kind == kind).map(|line| line.value)
    }

    /// Returns the value of the first line of this type.
    pub fn value(self, kind: u8) -> Option<&'a [u8]> {
        self.values(kind).next()
    }

    /// Returns the `m=` line; `None` in the session's section or if it cannot be read.
    pub fn media(self) -> Option<Media<'a>> {
        Media::parse(self.value(b'm')?)
    }

    /// Returns the line that refuses this medium in an answer, with as many fields of its `m=` as can be read (RFC 3264
    /// section 6).
    pub fn refused(self) -> Media<'a> {
        if let Some(media) = self.media() {
            return Media { port: 0, count: None, ..media };
        }
        let mut rest = fields(self.value(b'm').unwrap_or_default());
        let kind = rest.next().unwrap_or(b"audio");
        let protocol = rest.nth(1).unwrap_or(b"RTP/AVP");
        Media::new(kind, 0, protocol, rest.next().unwrap_or(b"0"))
    }

    /// Returns the information, `i=`.
    pub fn information(self) -> Option<&'a [u8]> {
        self.value(b'i')
    }

    /// Returns the first `c=` of this section.
    pub fn connection(self) -> Option<Connection<'a>> {
        Connection::parse(self.value(b'c')?)
    }

    /// Returns all `b=` lines that can be read.
    pub fn bandwidths(self) -> impl Iterator<Item = Bandwidth<'a>> + 's {
        self.values(b'b').filter_map(Bandwidth::parse)
    }

    /// Returns all `a=` lines.
    pub fn attributes(self) -> impl Iterator<Item = Attribute<'a>> + 's {
        self.values(b'a').map(Attribute::parse)
    }

    /// Returns the values of the attributes of this name; a property attribute has an empty one. Names are
    /// case-sensitive (RFC 8866 section 5.13).
    pub fn attributes_named<'n: 's>(self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + 's {
        self.attributes()
            .filter(move |attribute| attribute.name == name.as_bytes())
            .map(|attribute| attribute.value.unwrap_or_default())
    }

    /// Returns the value of the first attribute of this name.
    pub fn attribute(self, name: &str) -> Option<&'a [u8]> {
        let mut all = self.attributes();
        all.find(|attribute| attribute.name == name.as_bytes()).map(|attribute| attribute.value.unwrap_or_default())
    }

    /// Returns all `a=rtpmap` attributes that can be read.
    pub fn rtpmaps(self) -> impl Iterator<Item = RtpMap<'a>> + 's {
        self.attributes_named("rtpmap").filter_map(RtpMap::parse)
    }

    /// Returns the `a=rtpmap` of a payload type.
    pub fn rtpmap(self, payload: u8) -> Option<RtpMap<'a>> {
        self.rtpmaps().find(|map| map.payload == payload)
    }

    /// Returns all `a=fmtp` attributes that can be read.
    pub fn fmtps(self) -> impl Iterator<Item = Fmtp<'a>> + 's {
        self.attributes_named("fmtp").filter_map(Fmtp::parse)
    }

    /// Returns the parameters of a format.
    pub fn fmtp(self, format: &[u8]) -> Option<&'a [u8]> {
        self.fmtps().find(|fmtp| fmtp.format == format).map(|fmtp| fmtp.parameters)
    }

    /// `a=ptime` in milliseconds (RFC 8866 section 6.4).
    pub fn ptime(self) -> Option<u64> {
        number(trim(self.attribute("ptime")?))
    }

    /// `a=maxptime` in milliseconds (RFC 8866 section 6.5).
    pub fn maxptime(self) -> Option<u64> {
        number(trim(self.attribute("maxptime")?))
    }

    /// Returns the first direction attribute of this section.
    pub fn direction(self) -> Option<Direction> {
        self.attributes().find_map(|attribute| Direction::of(&attribute))
    }

    /// `a=rtcp` (RFC 3605).
    pub fn rtcp(self) -> Option<Rtcp<'a>> {
        Rtcp::parse(self.attribute("rtcp")?)
    }

    /// `a=mid` (RFC 5888).
    pub fn mid(self) -> Option<&'a [u8]> {
        self.attribute("mid")
    }

    /// Returns the raw values of `a=candidate` (RFC 8839).
    pub fn candidates(self) -> impl Iterator<Item = &'a [u8]> + 's {
        self.attributes_named("candidate")
    }

    /// Returns the raw values of `a=crypto` (RFC 4568).
    pub fn cryptos(self) -> impl Iterator<Item = &'a [u8]> + 's {
        self.attributes_named("crypto")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "v=0\r\n\
        o=jdoe 3724394400 3724394405 IN IP4 198.51.100.1\r\n\
        s=Call to John Smith\r\n\
        i=SDP Offer #1\r\n\
        u=http://www.jdoe.example.com/home.html\r\n\
        e=Jane Doe <jane@jdoe.example.com>\r\n\
        p=+1 617 555-6011\r\n\
        c=IN IP4 198.51.100.1\r\n\
        b=CT:154798\r\n\
        t=0 0\r\n\
        a=sendonly\r\n\
        m=audio 49170 RTP/AVP 0 101\r\n\
        a=rtpmap:101 telephone-event/8000\r\n\
        a=fmtp:101 0-15\r\n\
        a=ptime:20\r\n\
        a=rtcp:53020 IN IP6 2001:2345:6789:ABCD:EF01:2345:6789:ABCD\r\n\
        a=candidate:1 1 UDP 2130706431 203.0.113.1 8998 typ host\r\n\
        a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR|2^20|1:4\r\n\
        a=mid:a1\r\n\
        m=video 51372/2 RTP/AVP 99\r\n\
        i=the camera\r\n\
        c=IN IP6 2001:db8::2\r\n\
        a=inactive\r\n\
        a=rtpmap:99 h263-1998/90000\r\n";

    #[test]
    fn the_views_of_a_whole_description() {
        let sdp = Sdp::parse(BODY.as_bytes()).expect("valid");
        assert_eq!(sdp.check(), Ok(()));
        assert_eq!((sdp.version(), sdp.media_count(), sdp.lines().len()), (Some(0), 2, 24));
        assert_eq!(sdp.name(), Some(&b"Call to John Smith"[..]));
        assert_eq!(sdp.origin().expect("there").session_version, b"3724394405");
        assert_eq!(sdp.uri(), Some(&b"http://www.jdoe.example.com/home.html"[..]));
        assert_eq!((sdp.emails().count(), sdp.phones().count(), sdp.timings().count()), (1, 1, 1));
        assert_eq!(sdp.session().bandwidths().next(), Some(Bandwidth { kind: b"CT", value: 154_798 }));
        assert_eq!(sdp.session().media(), None);
        let audio = sdp.media(0).expect("there");
        assert_eq!(audio.rtpmap(101).expect("there").encoding, b"telephone-event");
        assert_eq!(audio.fmtp(b"101"), Some(&b"0-15"[..]));
        assert_eq!((audio.ptime(), audio.maxptime(), audio.mid()), (Some(20), None, Some(&b"a1"[..])));
        assert_eq!(audio.rtcp().expect("there").port, 53_020);
        assert_eq!((audio.candidates().count(), audio.cryptos().count()), (1, 1));
        assert_eq!((sdp.direction_of(0), sdp.direction_of(1)), (Direction::SendOnly, Direction::Inactive));
        assert_eq!(sdp.connection_of(0).expect("session's").address, b"198.51.100.1");
        assert_eq!(sdp.connection_of(1).expect("own").address, b"2001:db8::2");
        assert_eq!(sdp.media(1).and_then(Section::information), Some(&b"the camera"[..]));
        assert!(sdp.media(2).is_none() && sdp.connection_of(2).is_none());
    }

    #[test]
    fn any_line_end_and_blank_lines_behind() {
        let want = Sdp::parse(BODY.as_bytes()).expect("valid");
        for end in ["\n", "\r", "\r\n\r\n", "\n\n"] {
            let text = BODY.replace("\r\n", end);
            assert_eq!(Sdp::parse(text.as_bytes()).expect("lenient"), want, "{end:?}");
            let cut = text.trim_end();
            assert_eq!(Sdp::parse(cut.as_bytes()).expect("lenient"), want, "{end:?}");
        }
    }

    #[test]
    fn the_lines_together_are_all_the_bytes() {
        for text in [BODY, "v=0", "v=0\r\n\r\n", "v=\n\n\na=\r\rx="] {
            let sdp = Sdp::parse(text.as_bytes()).expect("lenient");
            assert_eq!(sdp.lines().flat_map(|line| line.raw).copied().collect::<Vec<_>>(), text.as_bytes());
        }
    }

    #[test]
    fn many_media_ask_the_session_once() {
        let text = format!("v=0\n{}c=IN IP4 192.0.2.1\na=inactive\n{}", "a=x\n".repeat(30_000), "m=\n".repeat(30_000));
        let sdp = Sdp::parse_within(text.as_bytes(), SdpLimits { lines: 100_000, media: 100_000 }).expect("lenient");
        let started = std::time::Instant::now();
        for media in 0..sdp.media_count() {
            assert_eq!(sdp.connection_of(media).expect("the session's").address, b"192.0.2.1");
            assert_eq!(sdp.direction_of(media), Direction::Inactive);
        }
        // A walk through the session for each medium would take nearly two billion steps.
        assert!(started.elapsed().as_secs() < 5);
    }

    #[test]
    fn refusals_name_the_line() {
        let parse = |text: &str| Sdp::parse(text.as_bytes()).map(|_| ()).map_err(|e| (e.line, e.reason));
        assert_eq!(parse(""), Err((1, SdpReason::Empty)));
        assert_eq!(parse("\r\n\r\n"), Err((1, SdpReason::Empty)));
        assert_eq!(parse("o=- 1 1 IN IP4 h\r\nv=0\r\n"), Err((1, SdpReason::Start)));
        assert_eq!(parse("v=0\r\nnonsense\r\n"), Err((2, SdpReason::Line)));
        assert_eq!(parse("v=0\r\n\r\n=x\r\n"), Err((2, SdpReason::Line)));
        assert_eq!(parse("v=0\r\n1=x\r\n"), Err((2, SdpReason::Line)));
        let limits = SdpLimits { lines: 2, media: 1 };
        let within =
            |text: &str| Sdp::parse_within(text.as_bytes(), limits).map(|_| ()).map_err(|e| (e.line, e.reason));
        assert_eq!(within("v=0\na=1\na=2\n"), Err((3, SdpReason::TooManyLines)));
        assert_eq!(within("v=0\nm=\n"), Ok(()));
        let limits = SdpLimits { lines: 9, media: 1 };
        let fault = Sdp::parse_within(b"v=0\nm=\nm=\n", limits).expect_err("two media");
        assert_eq!(fault.to_string(), "line 3: more m= lines than the limit");
    }
}
