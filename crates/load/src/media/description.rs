//! Formats and direction of each medium in a session description (RFC 8866).

use super::formats::Formats;

/// Formats and direction of one medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) formats: Formats,
    pub(super) direction: Direction,
}

/// Direction of a medium (RFC 8866 section 6.7), as its describer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Direction {
    pub(super) sends: bool,
    pub(super) receives: bool,
}

impl Default for Direction {
    fn default() -> Self {
        Self { sends: true, receives: true }
    }
}

impl Description {
    /// Reads the part of a description about a medium, `audio` or `video`. Of several m= lines of this medium the first gives the direction.
    pub(super) fn read(description: &[u8], medium: &[u8]) -> Self {
        let mut formats = Formats::default();
        let (mut of_session, mut of_medium, mut sections) = (None, None, 0);
        for (name, line) in lines(description) {
            if name.is_some_and(|name| name != medium) {
                continue;
            }
            sections += usize::from(line.starts_with(b"m="));
            formats.line(line);
            match (Direction::read(line), name) {
                (Some(direction), None) => of_session = Some(direction),
                (Some(direction), Some(_)) if sections == 1 => of_medium = Some(direction),
                _ => (),
            }
        }
        Self { formats, direction: of_medium.or(of_session).unwrap_or_default() }
    }
}

impl Direction {
    fn read(line: &[u8]) -> Option<Self> {
        let (sends, receives) = match line.strip_prefix(b"a=")? {
            b"sendrecv" => (true, true),
            b"sendonly" => (true, false),
            b"recvonly" => (false, true),
            b"inactive" => (false, false),
            _ => return None,
        };
        Some(Self { sends, receives })
    }
}

/// Yields the lines of a description, each with the name of its medium; `None`: a line of the session.
fn lines(description: &[u8]) -> impl Iterator<Item = (Option<&[u8]>, &[u8])> {
    let mut medium = None;
    description.split(|byte| *byte == b'\n').map(move |line| {
        let line = line.trim_ascii_end();
        if let Some(value) = line.strip_prefix(b"m=") {
            medium = value.split(|byte| *byte == b' ').next();
        }
        (medium, line)
    })
}

#[cfg(test)]
mod tests {
    use super::super::formats::Format;
    use super::*;

    #[test]
    fn each_medium_has_its_own_payload_types() {
        let text = b"v=0\r\nm=audio 6000 RTP/AVP 96\r\na=rtpmap:96 opus/48000/2\r\nm=video 6002 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
        let of = |medium: &[u8]| Description::read(text, medium).formats.of(96);
        assert_eq!((of(b"audio"), of(b"video")), (Format::Clock(48_000), Format::Clock(90_000)));
    }

    #[test]
    fn a_medium_has_the_direction_of_the_session_unless_it_has_its_own() {
        let text = b"v=0\na=sendonly\nm=audio 6000 RTP/AVP 0\nm=video 6002 RTP/AVP 99\na=inactive\nm=video 6004 RTP/AVP 99\na=sendrecv\n";
        let of = |medium: &[u8]| {
            let Direction { sends, receives } = Description::read(text, medium).direction;
            (sends, receives)
        };
        assert_eq!((of(b"audio"), of(b"video"), of(b"image")), ((true, false), (false, false), (true, false)));
        assert!(!Description::read(b"m=audio 1 RTP/AVP 0\r\na=recvonly\r\n", b"audio").direction.sends);
        assert_eq!(Description::read(b"m=audio 1 RTP/AVP 0\r\n", b"audio").direction, Direction::default());
    }
}
