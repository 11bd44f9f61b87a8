//! Parse errors: reason and offset.

use std::fmt;

/// Parse error: the reason and the offset (bytes from the start of the message) of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Kind of fault; determines the status code of the response.
    pub reason: Reason,
    /// Offset in bytes. A view that was parsed from a single value counts from the start of that value.
    pub offset: usize,
}

impl Error {
    /// Creates an error; `offset` is in bytes, as in [`Error::offset`].
    pub const fn new(reason: Reason, offset: usize) -> Self {
        Self { reason, offset }
    }

    /// Status code of the response to such a request (RFC 3261 section 21.4).
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
        /// Kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Status code of the response to a request with this fault.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Returns a description for operators, in lower case, without full stop.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// Only line ends and keep-alives, or nothing at all.
    Empty, 400, "nothing but line ends";
    /// Neither form of start line (RFC 3261 section 7).
    StartLine, 400, "start line is neither a request nor a status line";
    /// SIP of another version (RFC 3261 section 21.5.6).
    Version, 505, "SIP version is not 2.0";
    /// Method that is not a token (RFC 3261 section 7.1).
    Method, 400, "method is not a token";
    /// Empty, or contains white space or control characters, or violates the grammar of its scheme (RFC 3261 section
    /// 19.1.1).
    RequestUri, 400, "Request-URI is malformed";
    /// Longer than [`Limits::uri`](crate::Limits::uri).
    UriTooLong, 414, "Request-URI is longer than the limit";
    /// Scheme that this crate does not route (RFC 3261 section 21.4.14).
    UriScheme, 416, "URI scheme is not supported";
    /// Status code outside the six classes 1xx to 6xx (RFC 3261 section 7.2).
    StatusCode, 400, "status code is not three digits from 100 to 699";
    /// A line that is no header field (RFC 3261 section 7.3.1).
    HeaderName, 400, "header name is not a token followed by a colon";
    /// More lines, or in a large header more values, than [`Limits::headers`](crate::Limits::headers).
    TooManyHeaders, 400, "more header lines than the limit";
    /// Longer than [`Limits::message`](crate::Limits::message).
    MessageTooLarge, 513, "message is larger than the limit";
    /// Longer than [`Limits::body`](crate::Limits::body), by Content-Length or by actual size.
    BodyTooLarge, 413, "body is larger than the limit";
    /// Line end that other readers take for a part of the line (RFC 3261 section 7 demands CRLF).
    LineEnd, 400, "a line of the header does not end with CRLF";
    /// The blank line that ends the header is missing.
    Unterminated, 400, "the blank line after the header is missing";
    /// Other characters than digits, too large a number, or two lines that differ (RFC 3261 section 20.14).
    ContentLength, 400, "Content-Length is not one number";
    /// Content-Length larger than the received body.
    BodyTooShort, 400, "Content-Length is larger than the body that came";
    /// Missing mandatory header field (RFC 3261 section 8.1.1).
    Missing, 400, "a mandatory header field is missing";
    /// Missing Via (RFC 3261 section 8.1.1.7).
    NoVia, 400, "Via is missing";
    /// Missing From (RFC 3261 section 8.1.1.3).
    NoFrom, 400, "From is missing";
    /// Missing To (RFC 3261 section 8.1.1.2).
    NoTo, 400, "To is missing";
    /// Missing Call-ID (RFC 3261 section 8.1.1.4).
    NoCallId, 400, "Call-ID is missing";
    /// Missing CSeq (RFC 3261 section 8.1.1.5).
    NoCSeq, 400, "CSeq is missing";
    /// Two different values of a single-valued header field.
    Repeated, 400, "a header field that may stand once stands twice";
    /// Header field that violates its grammar.
    Malformed, 400, "a header field does not follow its grammar";
    /// CSeq method that differs from the method of the request (RFC 3261 section 8.1.1.5).
    MethodMismatch, 400, "CSeq method differs from the request's";
    /// Malformed session description; [`SdpError`](crate::sdp::SdpError) has the details.
    Sdp, 400, "session description is malformed";
}
