//! Content of a message of a call, given by the owner.

use serde::{Deserialize, Serialize};
use strowger_message::{Message, Name};

/// Header lines and a session description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content<'a> {
    /// Further header lines, each with its CRLF.
    pub headers: &'a [u8],
    /// Value of Content-Type. Empty: `application/sdp`.
    pub content_type: &'a [u8],
    /// Session description. Empty: none.
    pub body: &'a [u8],
}

impl<'a> Content<'a> {
    /// Returns content without additional header lines.
    pub(super) const fn of_body(body: &'a [u8]) -> Self {
        Self { headers: b"", content_type: b"", body }
    }

    /// Returns the content with this body, unless it has one.
    pub(super) fn or_body(self, other: Option<&'a HeldContent>) -> Self {
        match other {
            Some(other) if self.body.is_empty() => {
                Self { content_type: &other.content_type, body: &other.body, ..self }
            }
            _ => self,
        }
    }

    /// Tells whether there is a session description.
    pub(super) fn is_description(&self) -> bool {
        is_description(self.content_type, self.body)
    }

    /// Appends Content-Type, if there is a body.
    pub(super) fn write_type(&self, out: &mut Vec<u8>) {
        if !self.body.is_empty() {
            out.extend_from_slice(b"Content-Type: ");
            out.extend_from_slice(if self.content_type.is_empty() { b"application/sdp" } else { self.content_type });
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Tells whether a received message has a session description.
pub(super) fn has_description(message: &Message<'_>) -> bool {
    is_description(message.header(Name::ContentType).unwrap_or_default(), message.body())
}

/// Tells whether a body is a session description, or has one as a part. A body without a type is assumed to be a
/// description.
fn is_description(content_type: &[u8], body: &[u8]) -> bool {
    const SDP: &[u8] = b"application/sdp";
    let kind = media_type(content_type);
    if kind.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/")) {
        return body.windows(SDP.len()).any(|part| part.eq_ignore_ascii_case(SDP));
    }
    !body.is_empty() && (kind.is_empty() || kind.eq_ignore_ascii_case(SDP))
}

/// Returns a media type without its parameters.
pub(super) fn media_type(value: &[u8]) -> &[u8] {
    value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii()
}

/// Content of a message that cannot be sent yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HeldContent {
    headers: Vec<u8>,
    content_type: Vec<u8>,
    body: Vec<u8>,
}

impl HeldContent {
    pub(super) fn content(&self) -> Content<'_> {
        Content { headers: &self.headers, content_type: &self.content_type, body: &self.body }
    }
}

impl From<Content<'_>> for HeldContent {
    fn from(content: Content<'_>) -> Self {
        let Content { headers, content_type, body } = content;
        Self { headers: headers.to_vec(), content_type: content_type.to_vec(), body: body.to_vec() }
    }
}

impl<'a> From<&'a [u8]> for Content<'a> {
    fn from(body: &'a [u8]) -> Self {
        Self::of_body(body)
    }
}

impl<'a> From<&'a Vec<u8>> for Content<'a> {
    fn from(body: &'a Vec<u8>) -> Self {
        Self::of_body(body)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Content<'a> {
    fn from(body: &'a [u8; N]) -> Self {
        Self::of_body(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions() {
        let parts = b"--x\r\nContent-Type: Application/SDP\r\n\r\nv=0\r\n--x--\r\n";
        for (content_type, body, expected) in [
            (&b""[..], &b"v=0\r\n"[..], true),
            (b"application/sdp ; charset=utf-8", b"v=0\r\n", true),
            (b"application/sdp", b"", false),
            (b"text/plain", b"v=0\r\n", false),
            (b"Multipart/Mixed;boundary=x", parts, true),
            (b"multipart/mixed;boundary=x", b"--x\r\n\r\n5\r\n--x--\r\n", false),
        ] {
            let content = Content { content_type, ..Content::from(body) };
            assert_eq!(content.is_description(), expected, "{}", String::from_utf8_lossy(content_type));
        }
    }
}
