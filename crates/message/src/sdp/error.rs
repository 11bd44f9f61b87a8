//! Faults of a description and their lines.

use std::fmt;

/// A fault of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpError {
    /// Line, counted from 1; for something missing, the line at which it was noticed.
    pub line: usize,
    /// Kind of fault, with the type of the line if it matters.
    pub reason: SdpReason,
}

/// Kind of fault. Types of lines are the letters before `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SdpReason {
    /// No line at all.
    Empty,
    /// Not a letter, `=` and a value.
    Line,
    /// The first line is not `v=`.
    Start,
    /// More lines than the limit.
    TooManyLines,
    /// More `m=` lines than the limit.
    TooManyMedia,
    /// Longer than the maximum of 4 GiB.
    TooLong,
    /// A version other than 0 (RFC 8866 section 5.1).
    Version,
    /// A type that RFC 8866 does not allow at this position.
    Unknown(char),
    /// A line of this type after one that must follow it (RFC 8866 section 5).
    Order(char),
    /// A second line of this type in a section that allows one.
    Twice(char),
    /// No line of this mandatory type.
    Missing(char),
    /// A line of this type whose value cannot be read.
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
