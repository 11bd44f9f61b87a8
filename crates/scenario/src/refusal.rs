//! Refusal of a document: place, cause, and cure.

use std::fmt;

/// Fault at an offset of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub offset: usize,
    pub what: String,
    pub hint: Option<String>,
    pub cause: Cause,
}

impl Fault {
    pub(super) fn new(offset: usize, what: impl Into<String>) -> Self {
        Self { offset, what: what.into(), hint: None, cause: Cause::Document }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn cause(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }
}

/// Origin of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The document itself.
    Document,
    /// A missing `-key`, or a misspelt keyword.
    Keyword,
    /// A missing `-inf`.
    InjectionFile,
    /// A media file that is missing or unreadable.
    MediaFile,
    /// `-3pcc`, `-master` or `-slave` is missing or does not fit.
    ThirdParty,
    /// The document cannot be read.
    Unreadable,
}

/// Error of a document that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Document, as the caller named it.
    pub file: String,
    /// Line from 1; 0 without a place in the document.
    pub line: u32,
    /// Byte of the line, from 1.
    pub column: u32,
    pub what: String,
    /// Cure.
    pub hint: Option<String>,
    pub cause: Cause,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
