//! Size limits of the parser.

/// Upper bounds for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a whole message; a larger one is answered 513 (RFC 3261 section 21.5.7). Default 65,535.
    pub message: usize,
    /// Bytes of a body; a larger one is answered 413 (section 21.4.11). Default 65,535.
    pub body: usize,
    /// Number of header lines, where a folded line counts once and values count too in large headers; a request with
    /// more is answered 400. Default 256, at most 65,000.
    pub headers: usize,
    /// Bytes of a Request-URI; a longer one is answered 414 (section 21.4.12). Default 4,096.
    pub uri: usize,
}

impl Limits {
    /// Limits for messages that were accepted or created before, so that a message of any size can be parsed again.
    pub const UNLIMITED: Self =
        Self { message: usize::MAX, body: usize::MAX, headers: u16::MAX as usize - 1, uri: usize::MAX };
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 65_535, body: 65_535, headers: 256, uri: 4_096 }
    }
}
