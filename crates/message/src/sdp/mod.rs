//! Session descriptions: SDP of RFC 8866, read, edited and written, and the simple audio case of RFC 3264.
//!
//! [`Sdp::parse`] only finds the lines; a [`Section`] creates typed views ([`Origin`], [`Connection`], [`Media`],
//! [`RtpMap`], ...) on demand. [`Sdp::check`] reports the faults that a strict reader would refuse - order, missing
//! lines, malformed values - with the number of the line. [`SdpEdit`] changes lines and leaves all others byte for
//! byte; [`SdpBuilder`] writes a description from typed values; [`answer()`] answers an offer of audio.
//!
//! ```
//! use strowger_message::sdp::{Direction, Part, Sdp, SdpEdit};
//!
//! let body = b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 8\r\n";
//! let sdp = Sdp::parse(body)?;
//! let audio = sdp.media(0).expect("there is one");
//! assert_eq!(audio.media().expect("well formed").port, 4000);
//!
//! let mut edit = SdpEdit::new(&sdp);
//! edit.set_port(0, 5000);
//! edit.set_direction(Part::Media(0), Direction::SendOnly);
//! assert!(edit.to_vec().ends_with(b"m=audio 5000 RTP/AVP 0 8\r\na=sendonly\r\n"));
//! # Ok::<(), strowger_message::sdp::SdpError>(())
//! ```

mod answer;
mod attribute;
mod build;
mod check;
mod codec;
mod connection;
mod description;
mod edit;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod media;
mod origin;
mod timing;

pub use answer::{Audio, Local, answer, audio, offer};
pub use attribute::{Attribute, Direction, Fmtp, Rtcp, RtpMap};
pub use build::SdpBuilder;
pub use codec::Codec;
pub use connection::{Bandwidth, Connection, Key, address_type};
pub use description::{Sdp, SdpLimits, SdpLine, Section};
pub use edit::{Part, SdpEdit};
pub use error::{SdpError, SdpReason};
pub use media::Media;
pub use origin::Origin;
pub use timing::{Repeat, Timing, ZoneAdjustment, seconds, zones};

/// Returns the fields of a line, between which there should be one space but may be several.
fn fields(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| is_blank(b)).filter(|field| !field.is_empty())
}

/// Tells whether this octet separates fields. A form feed, which `trim_ascii` removes too, does not: a field that
/// consists of it must not vanish between reading and writing.
fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Removes blanks at both ends.
fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&b| !is_blank(b)).unwrap_or(text.len());
    trim_end(&text[start..])
}

/// Removes blanks at the end.
fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&b| !is_blank(b)).map_or(0, |last| last + 1);
    &text[..end]
}

/// Returns the first field and the rest, both trimmed.
fn split_first(text: &[u8]) -> (&[u8], &[u8]) {
    let text = trim(text);
    let end = text.iter().position(|&b| is_blank(b)).unwrap_or(text.len());
    (&text[..end], trim(&text[end..]))
}

/// Parses an unsigned decimal number that consists only of digits.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b - b'0')))
}

fn write_number(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}
