//! Why bytes were refused as a message, and where.

use std::fmt;

/// A refusal: the reason and the offset (bytes from the start of the message) at which it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong; the status code of the answer follows from it.
    pub reason: Reason,
    /// In bytes. Where a view read a value by itself, from the start of that value.
    pub offset: usize,
}

impl Error {
    /// `offset` in bytes, as in [`Error::offset`].
    pub const fn new(reason: Reason, offset: usize) -> Self {
        Self { reason, offset }
    }

    /// The status code with which a server answers such a request (RFC 3261 section 21.4).
    pub const fn status(&self) -> u16 {
        self.reason.status()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason.text(), self.offset)
    }
}

impl std::error::Error for Error {}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident, $status:literal, $text:literal;)*) => {
        /// What is wrong with the bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// The status code with which a request refused for this reason is answered.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The reason for people, in lower case, without full stop.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// Only line ends and keep-alives, or nothing at all.
    Empty, 400, "nothing but line ends";
    /// It follows neither form of RFC 3261 section 7.
    StartLine, 400, "start line is neither a request nor a status line";
    /// It names SIP, but another version (RFC 3261 section 21.5.6).
    Version, 505, "SIP version is not 2.0";
    /// It is no token (RFC 3261 section 7.1).
    Method, 400, "method is not a token";
    /// Empty, with white space or control characters in it, or against the grammar of its scheme (RFC 3261 section 19.1.1).
    RequestUri, 400, "Request-URI is malformed";
    /// Longer than [`Limits::uri`](crate::Limits::uri).
    UriTooLong, 414, "Request-URI is longer than the limit";
    /// Nothing here routes this scheme (RFC 3261 section 21.4.14).
    UriScheme, 416, "URI scheme is not supported";
    /// RFC 3261 section 7.2 has six classes, 1xx to 6xx.
    StatusCode, 400, "status code is not three digits from 100 to 699";
    /// A line that is no header field (RFC 3261 section 7.3.1).
    HeaderName, 400, "header name is not a token followed by a colon";
    /// More lines, or in a large header more values, than [`Limits::headers`](crate::Limits::headers).
    TooManyHeaders, 400, "more header lines than the limit";
    /// Longer than [`Limits::message`](crate::Limits::message).
    MessageTooLarge, 513, "message is larger than the limit";
    /// Longer than [`Limits::body`](crate::Limits::body), by Content-Length or in truth.
    BodyTooLarge, 413, "body is larger than the limit";
    /// A line end that other readers take for part of the line (RFC 3261 section 7 has CRLF).
    LineEnd, 400, "a line of the header does not end with CRLF";
    /// The blank line that ends the header is missing.
    Unterminated, 400, "the blank line after the header is missing";
    /// Not digits alone, too large a number, or two lines that differ (RFC 3261 section 20.14).
    ContentLength, 400, "Content-Length is not one number";
    /// Content-Length names more bytes than came.
    BodyTooShort, 400, "Content-Length is larger than the body that came";
    /// A header field that must be there is not (RFC 3261 section 8.1.1).
    Missing, 400, "a mandatory header field is missing";
    /// RFC 3261 section 8.1.1.7.
    NoVia, 400, "Via is missing";
    /// RFC 3261 section 8.1.1.3.
    NoFrom, 400, "From is missing";
    /// RFC 3261 section 8.1.1.2.
    NoTo, 400, "To is missing";
    /// RFC 3261 section 8.1.1.4.
    NoCallId, 400, "Call-ID is missing";
    /// RFC 3261 section 8.1.1.5.
    NoCSeq, 400, "CSeq is missing";
    /// A header field that may stand once stands twice with different values.
    Repeated, 400, "a header field that may stand once stands twice";
    /// A header field does not follow its grammar.
    Malformed, 400, "a header field does not follow its grammar";
    /// They must agree (RFC 3261 section 8.1.1.5).
    MethodMismatch, 400, "CSeq method differs from the request's";
    /// [`SdpError`](crate::sdp::SdpError) says more.
    Sdp, 400, "session description is malformed";
}
