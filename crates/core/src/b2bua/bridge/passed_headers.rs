//! Parts of a received message that pass to the other side, and facts about its sender.

use std::ops::Range;

use super::referral::Referral;
use strowger_message::header::{ReasonValue, RetryAfter, Warning};
use strowger_message::{Index, Limits, Message, Name, Write};

/// Facts of a received message.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Header lines for the other side, each with its CRLF.
    pub(super) passed: Vec<u8>,
    /// Whether the sender allows UPDATE; `None` if the message has no Allow.
    pub(super) allows_update: Option<bool>,
    /// Set if the sender supports 100rel.
    pub(super) supports_reliable: bool,
    /// Set if the sender requires 100rel.
    pub(super) requires_reliable: bool,
    /// Set if it has Replaces.
    pub(super) has_replaces: bool,
    /// Text of the method; empty for a response.
    pub(super) method: Vec<u8>,
    /// Header lines that describe the body, each with its CRLF.
    pub(super) content: Vec<u8>,
    /// Media type of the body in lower case, without parameters; empty without one.
    pub(super) media_type: Vec<u8>,
    /// Range of the body in the message.
    pub(super) body: Range<usize>,
    /// Number of CSeq.
    pub(super) cseq: u32,
    /// Reference of a REFER, or the status that refuses it.
    pub(super) referral: Option<Result<Referral, u16>>,
}

/// Warn-agent of passed warnings. The one of the peer names a host (RFC 3261 section 20.43).
const WARN_AGENT: &[u8] = b"b2bua";

impl Facts {
    /// Reads a message; empty bytes and a malformed message have no facts. `passed`: names of the header fields that pass.
    pub(super) fn of(bytes: &[u8], passed: &[Name]) -> Self {
        let mut index = Index::new();
        if bytes.is_empty() || index.parse(bytes, &Limits::UNLIMITED).is_err() {
            return Self::default();
        }
        let message = Message::new(bytes, &index);
        let mut lines = Vec::new();
        for &name in passed {
            pass(&message, name, &mut lines);
        }
        let mut content = Vec::new();
        for name in [Name::ContentType, Name::ContentDisposition, Name::ContentEncoding, Name::ContentLanguage] {
            copy(&message, name, &mut content);
        }
        if let Some(package) = message.header_named(b"Info-Package") {
            // RFC 6086 section 7.2: its name and parameters.
            write_line(b"Info-Package", package, &mut content);
        }
        let kind = message.header(Name::ContentType).unwrap_or_default();
        let kind = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        Self {
            passed: lines,
            allows_update: message
                .has(Name::Allow)
                .then(|| message.allow().flatten().any(|method| method.text == b"UPDATE")),
            supports_reliable: message.supports(b"100rel"),
            requires_reliable: message.require().flatten().any(|option| option.is(b"100rel")),
            has_replaces: message.has(Name::Replaces),
            method: message.method_text().to_vec(),
            content,
            media_type: kind.to_ascii_lowercase(),
            body: index.body(),
            cseq: message.cseq().map_or(0, |cseq| cseq.number),
            referral: None,
        }
    }

    /// Tells whether a body is a session description; one without a type is.
    pub(super) fn has_description(&self) -> bool {
        self.media_type.is_empty() || self.media_type == b"application/sdp"
    }

    /// Tells whether the body may pass in a request or response outside of the session: it describes no session and is no
    /// SIP message, which would name addresses of its side.
    pub(super) fn has_passing_body(&self) -> bool {
        let is_hidden = self.media_type == b"application/sdp"
            || self.media_type.starts_with(b"message/sip")
            || self.media_type.starts_with(b"multipart/");
        !is_hidden
    }
}

/// Appends the header field of this name as it passes to the other side.
fn pass(message: &Message<'_>, name: Name, out: &mut Vec<u8>) {
    match name {
        Name::RetryAfter => {
            let value = message.header(name).and_then(|value| RetryAfter::parse(value).ok());
            if let Some(value) = value {
                let mut seconds = Vec::new();
                value.seconds.write(&mut seconds);
                write_line(b"Retry-After", &seconds, out);
            }
        }
        Name::Reason => {
            for reason in message.values::<ReasonValue<'_>>(name).flatten() {
                let mut value = reason.protocol.to_vec();
                if let Some(cause) = reason.cause {
                    value.extend_from_slice(b";cause=");
                    cause.write(&mut value);
                }
                write_line(b"Reason", &value, out);
            }
        }
        Name::Warning => {
            for warning in message.values::<Warning<'_>>(name).flatten() {
                let mut value = Vec::new();
                Warning { code: warning.code, agent: WARN_AGENT, text: b"\"\"" }.write(&mut value);
                write_line(b"Warning", &value, out);
            }
        }
        _ => copy(message, name, out),
    }
}

fn copy(message: &Message<'_>, name: Name, out: &mut Vec<u8>) {
    for value in message.headers(name) {
        write_line(name.text().as_bytes(), value, out);
    }
}

/// Appends a line. A folded value becomes one line.
pub(super) fn write_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend(value.iter().map(|&b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] =
        b"SIP/2.0 503 Busy\r\nRetry-After: 7 (at 10.0.0.1);duration=3\r\nReason: Q.850;cause=17;text=\"10.0.0.1\"\r\n\
        Warning: 399 10.0.0.1:5060 \"host 10.0.0.1\"\r\nP-Asserted-Identity: <sip:a@b>\r\nAllow: INVITE, UPDATE\r\n\
        Content-Type: Application/SDP;x=y\r\nContent-Length: 0\r\n\r\n";

    #[test]
    fn listed_fields_pass_without_hosts() {
        let facts = Facts::of(MESSAGE, &[Name::Reason, Name::RetryAfter, Name::Warning]);
        let passed = String::from_utf8(facts.passed).expect("text");
        assert_eq!(passed, "Reason: Q.850;cause=17\r\nRetry-After: 7\r\nWarning: 399 b2bua \"\"\r\n");
        assert_eq!((facts.allows_update, facts.supports_reliable), (Some(true), false));
        let facts = Facts::of(MESSAGE, &[Name::PAssertedIdentity]);
        assert_eq!(facts.passed, b"P-Asserted-Identity: <sip:a@b>\r\n");
    }

    #[test]
    fn bodies_of_the_session_do_not_pass() {
        let facts = Facts::of(MESSAGE, &[]);
        assert!(facts.has_description() && !facts.has_passing_body());
        let none = Facts::of(b"", &[Name::Reason]);
        assert!(none.has_passing_body() && none.passed.is_empty());
    }
}
