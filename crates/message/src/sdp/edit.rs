//! Changes to a received description; lines that are not changed are kept byte for byte.

use std::borrow::Cow;
use std::net::IpAddr;

use super::attribute::{Attribute, Direction};
use super::check::rank;
use super::connection::{Connection, address_type};
use super::description::{Sdp, SdpLine};
use super::media::Media;
use super::origin::Origin;
use super::{fields, write_number};
use crate::write::Write;

/// Section to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Session section: the lines before the first `m=`, which apply to each medium without its own.
    Session,
    /// Medium with this index, counted from 0.
    Media(usize),
}

/// A description under edit. Each change returns false if it could not be applied: the medium does not exist or the
/// line cannot be read.
#[derive(Clone, Debug)]
pub struct SdpEdit<'a> {
    /// Lines of the session, then of each medium from its `m=` on; none is empty. One vector per section, so that the
    /// cost of a change depends on one medium, not on all.
    sections: Vec<Vec<EditLine<'a>>>,
    /// Line end of the first line, used for new ones.
    end: &'a [u8],
}

#[derive(Clone, Debug)]
struct EditLine<'a> {
    kind: u8,
    /// Letter, equals sign and value.
    text: Cow<'a, [u8]>,
    /// Line end and following blank lines.
    end: &'a [u8],
}

impl EditLine<'_> {
    fn value(&self) -> &[u8] {
        &self.text[2..]
    }

    fn set(&mut self, value: &[u8]) {
        self.text = Cow::Owned(line(self.kind, value));
    }
}

impl<'a> SdpEdit<'a> {
    /// Creates an edit without changes; a line is copied only when it changes.
    pub fn new(sdp: &Sdp<'a>) -> Self {
        let line = |line: SdpLine<'a>| {
            let (text, end) = line.raw.split_at(line.value.len() + 2);
            EditLine { kind: line.kind, text: Cow::Borrowed(text), end }
        };
        let sections = std::iter::once(sdp.session()).chain(sdp.all_media());
        let sections: Vec<Vec<_>> = sections.map(|section| section.lines().map(line).collect()).collect();
        let end: &[u8] = match sections.first().and_then(|session| session.first()).map(|line| line.end) {
            Some([b'\r', b'\n', ..] | []) | None => b"\r\n",
            Some([first, ..]) => std::slice::from_ref(first),
        };
        Self { sections, end }
    }

    /// Writes the edited description.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut lines = self.sections.iter().flatten().peekable();
        while let Some(line) = lines.next() {
            out.extend_from_slice(&line.text);
            // A last line without a line end may no longer be the last line.
            out.extend_from_slice(if line.end.is_empty() && lines.peek().is_some() { self.end } else { line.end });
        }
    }

    /// Returns the edited description.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Replaces the connection address of a section, or adds one.
    pub fn set_connection(&mut self, part: Part, ip: IpAddr) -> bool {
        self.set_line(part, b'c', connection(ip).as_bytes())
    }

    /// Replaces every connection address. The addresses of an RFC 2543 hold (`0.0.0.0`, `::`) are kept, because they
    /// are a state and not an address. Returns the number of replacements.
    pub fn replace_connections(&mut self, ip: IpAddr) -> usize {
        let value = connection(ip);
        let mut count = 0;
        for line in self.sections.iter_mut().flatten().filter(|line| line.kind == b'c') {
            if !Connection::parse(line.value()).is_some_and(|connection| connection.is_hold()) {
                line.set(value.as_bytes());
                count += 1;
            }
        }
        count
    }

    /// Replaces the address in `o=`.
    pub fn set_origin_address(&mut self, ip: IpAddr) -> bool {
        let address = ip.to_string();
        self.change_origin(|origin| {
            Some(
                Origin {
                    net_type: b"IN",
                    address_type: address_type(ip).as_bytes(),
                    address: address.as_bytes(),
                    ..*origin
                }
                .to_value(),
            )
        })
    }

    /// Replaces the version in `o=`: it rises by one with each changed offer or answer (RFC 3264 section 8).
    pub fn set_origin_version(&mut self, version: u64) -> bool {
        let mut digits = Vec::new();
        write_number(version, &mut digits);
        self.change_origin(|origin| Some(Origin { session_version: &digits, ..*origin }.to_value()))
    }

    /// Replaces the port of a medium; 0 refuses it.
    pub fn set_port(&mut self, media: usize, port: u16) -> bool {
        self.change_media(media, |media| Media { port, ..*media }.to_value())
    }

    /// Keeps the formats of a medium for which `keep` returns true, and removes the attributes of the others (`rtpmap`,
    /// `fmtp`, `rtcp-fb`). If no format is left, the medium is refused: port 0, with its first format as a placeholder.
    pub fn keep_formats(&mut self, media: usize, mut keep: impl FnMut(&[u8]) -> bool) -> bool {
        let mut dropped: Vec<Vec<u8>> = Vec::new();
        let changed = self.change_media(media, |media| {
            let mut kept = Vec::new();
            for format in media.formats() {
                if keep(format) {
                    kept.extend_from_slice(format);
                    kept.push(b' ');
                } else {
                    dropped.push(format.to_owned());
                }
            }
            let mut new = *media;
            let first = media.formats().next().unwrap_or(b"0");
            if kept.is_empty() {
                new.port = 0;
                kept.extend_from_slice(first);
            }
            let count = new.count;
            let mut new = Media::new(new.kind, new.port, new.protocol, &kept);
            new.count = count;
            new.to_value()
        });
        if changed && !dropped.is_empty() {
            dropped.sort_unstable();
            self.retain(Part::Media(media), |line| {
                let attribute = Attribute::parse(line.value());
                let of_format = matches!(attribute.name, b"rtpmap" | b"fmtp" | b"rtcp-fb");
                let format = fields(attribute.value.unwrap_or_default()).next().unwrap_or_default();
                line.kind != b'a'
                    || !of_format
                    || dropped.binary_search_by(|dropped| dropped.as_slice().cmp(format)).is_err()
            });
        }
        changed
    }

    /// Replaces the direction attributes of a section.
    pub fn set_direction(&mut self, part: Part, direction: Direction) -> bool {
        let is = |line: &EditLine<'_>| line.kind == b'a' && Direction::of(&Attribute::parse(line.value())).is_some();
        self.replace(part, b'a', is, direction.name().as_bytes())
    }

    /// Adds an attribute after all others of the section.
    pub fn add_attribute(&mut self, part: Part, name: &str, value: Option<&[u8]>) -> bool {
        self.insert(part, b'a', &Attribute { name: name.as_bytes(), value }.to_value())
    }

    /// Removes all attributes of this name from a section; returns their number.
    pub fn remove_attributes(&mut self, part: Part, name: &str) -> usize {
        self.retain(part, |line| line.kind != b'a' || Attribute::parse(line.value()).name != name.as_bytes())
    }

    /// Replaces all attributes of this name in a section by one.
    pub fn set_attribute(&mut self, part: Part, name: &str, value: Option<&[u8]>) -> bool {
        self.remove_attributes(part, name);
        self.add_attribute(part, name, value)
    }

    /// Replaces all lines of a type in a section by one, or adds one. Fails for `v=` and `m=`, which begin the
    /// sections, and for a type that the section does not allow.
    pub fn set_line(&mut self, part: Part, kind: u8, value: &[u8]) -> bool {
        if matches!(kind, b'v' | b'm') || rank(kind, part != Part::Session).is_none() {
            return false;
        }
        self.replace(part, kind, |line| line.kind == kind, value)
    }

    /// Removes all lines of a type from a section, except `v=` and `m=`; returns their number.
    pub fn remove_lines(&mut self, part: Part, kind: u8) -> usize {
        if matches!(kind, b'v' | b'm') {
            return 0;
        }
        self.retain(part, |line| line.kind != kind)
    }

    /// Returns the lines of a section, beginning with its first one.
    fn section(&mut self, part: Part) -> Option<&mut Vec<EditLine<'a>>> {
        self.sections.get_mut(match part {
            Part::Session => 0,
            Part::Media(index) => index.checked_add(1)?,
        })
    }

    fn retain(&mut self, part: Part, keep: impl FnMut(&EditLine<'a>) -> bool) -> usize {
        let Some(lines) = self.section(part) else { return 0 };
        let before = lines.len();
        lines.retain(keep);
        before - lines.len()
    }

    /// Sets the value of the first line for which `is` returns true and removes the others; adds a line if there is
    /// none.
    fn replace(&mut self, part: Part, kind: u8, is: impl Fn(&EditLine<'_>) -> bool, value: &[u8]) -> bool {
        let Some(lines) = self.section(part) else { return false };
        let Some(first) = lines.iter().position(&is) else { return self.insert(part, kind, value) };
        let mut index = 0;
        lines.retain(|line| {
            index += 1;
            index - 1 <= first || !is(line)
        });
        // All lines before the first one were kept, so its index is still valid.
        lines[first].set(value);
        true
    }

    /// Inserts a line at the position of its type (RFC 8866 section 5): after the last line that may precede it.
    fn insert(&mut self, part: Part, kind: u8, value: &[u8]) -> bool {
        let (end, in_media) = (self.end, part != Part::Session);
        let Some(lines) = self.section(part) else { return false };
        let own = rank(kind, in_media);
        let before = |line: &EditLine<'_>| rank(line.kind, in_media).is_none_or(|rank| Some(rank) <= own);
        let at = lines.iter().rposition(before).map_or(lines.len(), |last| last + 1);
        lines.insert(at, EditLine { kind, text: Cow::Owned(line(kind, value)), end });
        true
    }

    fn change_origin(&mut self, change: impl FnOnce(&Origin<'_>) -> Option<Vec<u8>>) -> bool {
        let Some(lines) = self.section(Part::Session) else { return false };
        let Some(line) = lines.iter_mut().find(|line| line.kind == b'o') else { return false };
        let Some(value) = Origin::parse(line.value()).and_then(|origin| change(&origin)) else { return false };
        line.set(&value);
        true
    }

    fn change_media(&mut self, media: usize, change: impl FnOnce(&Media<'_>) -> Vec<u8>) -> bool {
        let Some(line) = self.section(Part::Media(media)).and_then(|lines| lines.first_mut()) else { return false };
        let Some(value) = Media::parse(line.value()).map(|media| change(&media)) else { return false };
        line.set(&value);
        true
    }
}

/// Creates a line without its end. Bytes that could end it early become question marks.
pub(super) fn line(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len() + 2);
    text.extend_from_slice(&[kind, b'=']);
    text.extend(value.iter().map(|&b| if matches!(b, b'\r' | b'\n' | 0) { b'?' } else { b }));
    text
}

fn connection(ip: IpAddr) -> String {
    format!("IN {} {ip}", address_type(ip))
}

trait ToValue: Write {
    fn to_value(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

impl<T: Write> ToValue for T {}

#[cfg(test)]
mod tests {
    use super::super::SdpLimits;
    use super::*;
    use std::net::Ipv4Addr;

    const BODY: &str = "v=0\r\no=- 1 7 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\ny=odd\r\n\
        m=audio  4000 RTP/AVP 0 8 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=fmtp:101 0-15\r\n\
        a=rtpmap:101 telephone-event/8000\r\na=sendrecv\r\na=x-unknown: \u{fc}ber\r\n\
        m=video 4002 RTP/AVP 99\r\nc=IN IP4 0.0.0.0\r\na=inactive\r\na=sendonly";

    fn edited(change: impl FnOnce(&mut SdpEdit<'_>)) -> String {
        let sdp = Sdp::parse(BODY.as_bytes()).expect("valid");
        let mut edit = SdpEdit::new(&sdp);
        change(&mut edit);
        String::from_utf8(edit.to_vec()).expect("UTF-8")
    }

    /// Returns the lines that only the first text has, and the lines that only the second has.
    fn difference<'t>(old: &'t str, new: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
        let only = |a: &'t str, b: &str| a.split("\r\n").filter(|line| !b.split("\r\n").any(|l| l == *line)).collect();
        (only(old, new), only(new, old))
    }

    #[test]
    fn an_edit_without_changes_writes_the_same_bytes() {
        assert_eq!(edited(|_| {}), BODY);
        let text = edited(|edit| {
            assert!(!edit.set_port(2, 1) && !edit.set_direction(Part::Media(2), Direction::Inactive));
            assert!(!edit.set_line(Part::Session, b'm', b"x") && !edit.set_line(Part::Media(0), b't', b"0 0"));
            assert_eq!(edit.remove_lines(Part::Media(0), b'm') + edit.remove_lines(Part::Session, b'v'), 0);
            assert!(edit.keep_formats(0, |_| true));
        });
        assert_eq!(
            difference(BODY, &text),
            (vec!["m=audio  4000 RTP/AVP 0 8 101"], vec!["m=audio 4000 RTP/AVP 0 8 101"])
        );
    }

    #[test]
    fn addresses_and_ports() {
        let ip = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
        let text = edited(|edit| {
            assert_eq!(edit.replace_connections(ip), 1);
            assert!(edit.set_origin_address(ip) && edit.set_origin_version(8) && edit.set_port(1, 0));
        });
        let (old, new) = difference(BODY, &text);
        assert_eq!(old, ["o=- 1 7 IN IP4 192.0.2.1", "c=IN IP4 192.0.2.1", "m=video 4002 RTP/AVP 99"]);
        assert_eq!(new, ["o=- 1 8 IN IP4 203.0.113.9", "c=IN IP4 203.0.113.9", "m=video 0 RTP/AVP 99"]);
        let text = edited(|edit| assert!(edit.set_connection(Part::Media(0), "::1".parse().expect("an address"))));
        assert!(text.contains("m=audio  4000 RTP/AVP 0 8 101\r\nc=IN IP6 ::1\r\na=rtpmap:0"), "{text}");
    }

    #[test]
    fn formats_leave_with_their_attributes() {
        let text = edited(|edit| assert!(edit.keep_formats(0, |format| format != b"101")));
        let (old, new) = difference(BODY, &text);
        assert_eq!(old, ["m=audio  4000 RTP/AVP 0 8 101", "a=fmtp:101 0-15", "a=rtpmap:101 telephone-event/8000"]);
        assert_eq!(new, ["m=audio 4000 RTP/AVP 0 8"]);
        let text = edited(|edit| assert!(edit.keep_formats(0, |_| false)));
        assert!(text.contains("m=audio 0 RTP/AVP 0\r\n") && !text.contains("rtpmap"), "{text}");
    }

    #[test]
    fn a_change_costs_its_section() {
        let text = format!("v=0\n{}", "m=audio 1 RTP/AVP 0\na=sendonly\n".repeat(20_000));
        let limits = SdpLimits { lines: 100_000, media: 100_000 };
        let sdp = Sdp::parse_within(text.as_bytes(), limits).expect("valid");
        let mut edit = SdpEdit::new(&sdp);
        let started = std::time::Instant::now();
        for media in 0..sdp.media_count() {
            assert!(edit.set_port(media, 2) && edit.set_direction(Part::Media(media), Direction::Inactive));
            assert!(edit.set_connection(Part::Media(media), IpAddr::V4(Ipv4Addr::LOCALHOST)));
        }
        // A walk through all lines for each change would take billions of steps.
        assert!(started.elapsed().as_secs() < 5);
        let section = "m=audio 2 RTP/AVP 0\nc=IN IP4 127.0.0.1\na=inactive\n";
        assert_eq!(edit.to_vec(), format!("v=0\n{}", section.repeat(20_000)).into_bytes());
    }

    #[test]
    fn directions_and_attributes() {
        let text = edited(|edit| {
            assert!(edit.set_direction(Part::Media(0), Direction::RecvOnly));
            assert!(edit.set_direction(Part::Media(1), Direction::RecvOnly));
            assert!(edit.set_direction(Part::Session, Direction::SendOnly));
            assert!(edit.set_attribute(Part::Media(0), "x-unknown", Some(b"1\r\nm=evil")));
            assert!(edit.add_attribute(Part::Media(1), "rtcp-mux", None));
            assert_eq!(edit.remove_attributes(Part::Media(0), "rtpmap"), 3);
        });
        assert!(text.contains("a=fmtp:101 0-15\r\na=recvonly\r\na=x-unknown:1??m=evil\r\nm=video"), "{text}");
        assert!(text.ends_with("c=IN IP4 0.0.0.0\r\na=recvonly\r\na=rtcp-mux\r\n"), "{text}");
        assert!(text.contains("y=odd\r\na=sendonly\r\nm=audio"), "{text}");
    }

    #[test]
    fn new_lines_end_as_the_first_does() {
        for end in ["\n", "\r", "\r\n"] {
            let body = BODY.replace("\r\n", end);
            let sdp = Sdp::parse(body.as_bytes()).expect("valid");
            let mut edit = SdpEdit::new(&sdp);
            edit.add_attribute(Part::Media(1), "last", None);
            assert_eq!(edit.to_vec(), format!("{body}{end}a=last{end}").into_bytes());
        }
    }
}
