//! Why a description was refused, and at which line.

use std::fmt;

/// A fault of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpError {
    /// The line, counted from 1; for something missing, the line at which that was seen.
    pub line: usize,
    /// With the type of the line, where that matters.
    pub reason: SdpReason,
}

/// What is wrong. Types of lines are the letters before `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SdpReason {
    /// There is no line at all.
    Empty,
    /// Not a letter, `=` and a value.
    Line,
    /// The first line is not `v=`.
    Start,
    /// More lines than the limit.
    TooManyLines,
    /// More `m=` lines than the limit.
    TooManyMedia,
    /// More bytes than a description is indexed for (4 GiB).
    TooLong,
    /// A version other than 0 (RFC 8866 section 5.1).
    Version,
    /// A type that RFC 8866 does not know at this place.
    Unknown(char),
    /// The line of this type stands behind one that must follow it (RFC 8866 section 5).
    Order(char),
    /// The line of this type may stand only once in its section.
    Twice(char),
    /// The line of this type must be there.
    Missing(char),
    /// The value of the line of this type cannot be read.
    Malformed(char),
}

impl fmt::Display for SdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.reason {
            SdpReason::Empty => f.write_str("the description is empty"),
            SdpReason::Line => f.write_str("not a letter, an equals sign and a value"),
            SdpReason::Start => f.write_str("a description starts with v="),
            SdpReason::TooManyLines => f.write_str("more lines than the limit"),
            SdpReason::TooManyMedia => f.write_str("more m= lines than the limit"),
            SdpReason::TooLong => f.write_str("longer than 4 GiB"),
            SdpReason::Version => f.write_str("the version is not 0"),
            SdpReason::Unknown(kind) => write!(f, "{kind}= is unknown here"),
            SdpReason::Order(kind) => write!(f, "{kind}= stands too late"),
            SdpReason::Twice(kind) => write!(f, "{kind}= occurs twice"),
            SdpReason::Missing(kind) => write!(f, "{kind}= is missing"),
            SdpReason::Malformed(kind) => write!(f, "the value of {kind}= cannot be read"),
        }
    }
}

impl std::error::Error for SdpError {}
