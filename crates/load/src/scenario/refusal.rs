//! Why a document cannot be run: where, what, and what would be right.

use std::fmt;

/// Something wrong at an offset of the document.
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

/// Which side has to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The document itself.
    Document,
    /// `-key` is missing, or a keyword is misspelt.
    Keyword,
    /// `-inf` is missing.
    InjectionFile,
    /// A media file that the document names is missing or unreadable.
    MediaFile,
    /// `-3pcc`, `-master` or `-slave` is missing or does not fit.
    ThirdParty,
    /// The file of the document cannot be read.
    Unreadable,
}

/// A document that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The document, as the caller named it.
    pub file: String,
    /// 1 is the first line; 0 if no place in the document can be named.
    pub line: u32,
    /// In bytes, 1 is the first of a line.
    pub column: u32,
    pub what: String,
    /// What would be right.
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
