//! Texts of rules: header lines, characters of a user part, names of accounts and of header fields.

use strowger_core::proxy::may_be_removed;
use strowger_message::Name as HeaderName;

use super::key::Text;

/// A header line to add to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderLine(String);

impl Text for HeaderLine {
    const EXPECTED: &'static str = "a header line such as \"P-Hint: outbound\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("is {text:?}, {what}"));
        let Some((name, value)) = text.split_once(':') else { return wrong("which has no colon") };
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            return wrong("whose name is no token (RFC 3261 section 25.1)");
        }
        if value.trim().is_empty() || text.chars().any(char::is_control) {
            return wrong("whose value is empty or has control characters");
        }
        let known = HeaderName::of(name.as_bytes());
        if known != HeaderName::Other && !may_be_removed(known) {
            return wrong("which the server writes itself");
        }
        Ok(Self(format!("{name}: {}", value.trim())))
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

impl HeaderLine {
    /// Joins the lines, and ends each with CRLF.
    pub(super) fn lines(lines: &[Self]) -> Box<[u8]> {
        lines.iter().flat_map(|line| [line.0.as_bytes(), b"\r\n"]).flatten().copied().collect()
    }
}

/// Characters of the user part of a URI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserText(String);

impl UserText {
    /// Returns the characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text for UserText {
    const EXPECTED: &'static str = "characters that may stand in the user part of a URI, such as \"+49\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match is_user_text(text.as_bytes()) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("is {text:?}, which may not stand in the user part of a URI as it is")),
        }
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

/// Tells whether a text may be in the user part of a URI without escapes (RFC 3261 section 25.1).
pub fn is_user_text(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/".contains(byte))
}

/// Text for the column `account` of accounting rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountName(Box<str>);

impl AccountName {
    /// Returns the characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text for AccountName {
    const EXPECTED: &'static str = "at most 64 characters, such as \"wholesale\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.chars().count() {
            0 => Err("is empty".to_owned()),
            1..=64 if !text.chars().any(char::is_control) => Ok(Self(text.into())),
            1..=64 => Err("has control characters".to_owned()),
            count => Err(format!("has {count} characters")),
        }
    }

    fn to_text(&self) -> String {
        self.0.to_string()
    }
}

/// Name of a header field that may be removed from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovableHeader(HeaderName);

impl Text for RemovableHeader {
    const EXPECTED: &'static str = "the name of a header field that a request can do without, such as \"User-Agent\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let name = HeaderName::of(text.as_bytes());
        match may_be_removed(name) {
            true => Ok(Self(name)),
            false => Err(format!("is {text:?}, which is not known or may not be taken off")),
        }
    }

    fn to_text(&self) -> String {
        self.0.text().to_owned()
    }
}

impl RemovableHeader {
    pub(super) fn names(headers: &[Self]) -> Box<[HeaderName]> {
        headers.iter().map(|header| header.0).collect()
    }
}
