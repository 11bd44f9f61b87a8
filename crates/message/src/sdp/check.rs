//! Checks of a strict reader: order, presence and values of lines (RFC 8866 section 5 and 9).

use super::connection::{Bandwidth, Connection};
use super::description::{Sdp, SdpLine, Section};
use super::error::{SdpError, SdpReason};
use super::media::Media;
use super::origin::Origin;
use super::timing::{Repeat, Timing, zones};
use super::{fields, number, trim};

/// Order of the line types in the session section. `t=`, `r=` and `z=` alternate.
const SESSION: &[&[u8]] = &[b"v", b"o", b"s", b"i", b"u", b"e", b"p", b"c", b"b", b"trz", b"k", b"a"];
/// Order of the line types in a medium.
const MEDIA: &[&[u8]] = &[b"m", b"i", b"c", b"b", b"k", b"a"];

/// Returns the rank of a type in its section; `None` if the section does not allow it.
pub(super) fn rank(kind: u8, in_media: bool) -> Option<usize> {
    let order = if in_media { MEDIA } else { SESSION };
    order.iter().position(|kinds| kinds.contains(&kind))
}

impl Sdp<'_> {
    /// Checks order, presence and values of lines, which [`Sdp::parse`] does not.
    ///
    /// # Errors
    /// The first fault from the top; a missing line comes last in its section.
    pub fn check(&self) -> Result<(), SdpError> {
        section(self.session(), false)?;
        let lines = self.lines().len();
        let session = self.session();
        // The order is computed once, because the session may have thousands of lines, and many media may follow.
        let connected = session.value(b'c').is_some();
        for kind in [b'o', b's', b't'] {
            if session.value(kind).is_none() {
                let line = session.lines().len();
                return Err(SdpError { line, reason: SdpReason::Missing(char::from(kind)) });
            }
        }
        for media in self.all_media() {
            section(media, true)?;
            // There must be a c= for the session or one in each medium (RFC 8866 section 5.7).
            if !connected && media.value(b'c').is_none() {
                let line = media.lines().next_back().map_or(lines, |line| line.number);
                return Err(SdpError { line, reason: SdpReason::Missing('c') });
            }
        }
        Ok(())
    }
}

fn section(section: Section<'_, '_>, in_media: bool) -> Result<(), SdpError> {
    let mut last = 0;
    let mut before = 0;
    for line in section.lines() {
        let kind = char::from(line.kind);
        let fault = |reason| Err(SdpError { line: line.number, reason });
        let Some(rank) = rank(line.kind, in_media) else { return fault(SdpReason::Unknown(kind)) };
        if rank < last {
            return fault(SdpReason::Order(kind));
        }
        let may_repeat = match line.kind {
            b'e' | b'p' | b'b' | b't' | b'r' | b'z' | b'a' => true,
            b'c' => in_media,
            _ => false,
        };
        if line.kind == before && !may_repeat {
            return fault(SdpReason::Twice(kind));
        }
        // r= and z= belong to the t= before them.
        if matches!(line.kind, b'r' | b'z') && !matches!(before, b't' | b'r' | b'z') {
            return fault(SdpReason::Order(kind));
        }
        match value(&line) {
            Some(true) => {}
            Some(false) => return fault(SdpReason::Malformed(kind)),
            None => return fault(SdpReason::Version),
        }
        (last, before) = (rank, line.kind);
    }
    Ok(())
}

/// Tells whether the value can be parsed; returns `None` for another version.
fn value(line: &SdpLine<'_>) -> Option<bool> {
    let text = line.value;
    if text.contains(&0) {
        return Some(false);
    }
    Some(match line.kind {
        b'v' => match number(trim(text)) {
            Some(0) => true,
            Some(_) => return None,
            None => false,
        },
        b'o' => Origin::parse(text).is_some(),
        // The session name is not empty: it is a space or a dash if there is none (RFC 8866 section 5.3).
        b's' | b'i' | b'u' | b'e' | b'p' | b'k' => !text.is_empty(),
        b'c' => Connection::parse(text).is_some(),
        b'b' => Bandwidth::parse(text).is_some(),
        b't' => Timing::parse(text).is_some(),
        b'r' => Repeat::parse(text).is_some(),
        b'z' => zones(text).is_some(),
        b'm' => Media::parse(text).is_some(),
        b'a' => fields(text).next().is_some_and(|first| first[0] != b':'),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), (usize, SdpReason)> {
        Sdp::parse(text.as_bytes()).expect("indexed").check().map_err(|fault| (fault.line, fault.reason))
    }

    #[test]
    fn faults_name_line_and_type() {
        let head = "v=0\no=- 1 1 IN IP4 h\ns=-\n";
        assert_eq!(check(&format!("{head}t=0 0\n")), Ok(()));
        assert_eq!(check(&format!("{head}t=0 0\nr=7d 1h 0\nt=0 0\nr=7d 1h 0\nz=1 1h\na=x\n")), Ok(()));
        for (tail, line, reason) in [
            ("", 3, SdpReason::Missing('t')),
            ("t=0 0\nc=IN IP4 h\n", 5, SdpReason::Order('c')),
            ("c=IN IP4 h\nc=IN IP4 h\nt=0 0\n", 5, SdpReason::Twice('c')),
            ("t=0 0\nx=1\n", 5, SdpReason::Unknown('x')),
            ("b=AS:1\nr=7d 1h 0\n", 5, SdpReason::Order('r')),
            ("t=0 x\n", 4, SdpReason::Malformed('t')),
            ("t=0 0\na=:x\n", 5, SdpReason::Malformed('a')),
            ("t=0 0\nm=audio 1 RTP/AVP 0\na=x\n", 6, SdpReason::Missing('c')),
            ("t=0 0\nm=audio 1 RTP/AVP 0\nc=IN IP4 h\nc=IN IP4 h\nt=0 0\n", 8, SdpReason::Unknown('t')),
            ("t=0 0\nm=audio 1 RTP/AVP\n", 5, SdpReason::Malformed('m')),
            ("t=0 0\nm=audio 1 RTP/AVP 0\na=x\nc=IN IP4 h\n", 7, SdpReason::Order('c')),
        ] {
            assert_eq!(check(&format!("{head}{tail}")), Err((line, reason)), "{tail}");
        }
        assert_eq!(check("v=1\n"), Err((1, SdpReason::Version)));
        assert_eq!(check("v=x\n"), Err((1, SdpReason::Malformed('v'))));
        assert_eq!(check("v=0\ns=-\no=- 1 1 IN IP4 h\n"), Err((3, SdpReason::Order('o'))));
        assert_eq!(check("v=0\nv=0\n"), Err((2, SdpReason::Twice('v'))));
        assert_eq!(check("v=0\ns=-\nt=0 0\n"), Err((3, SdpReason::Missing('o'))));
        assert_eq!(check("v=0\no=- 1 1 IN IP4 h\ns=\n"), Err((3, SdpReason::Malformed('s'))));
    }
}
