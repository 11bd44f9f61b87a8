//! Capabilities that a user agent states: methods, option tags, content types (RFC 3261 sections 8.2.1 to 8.2.3, 13.2.1).

use serde::{Deserialize, Serialize};

use super::content::media_type;
use super::session_timer::SessionTimerSettings;

/// Capabilities of the owner of a call, as values of header fields. Requests beyond them are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Value of Allow. A request of another method gets 405, unless [`super::UserAgentSettings::other_methods`] is set.
    /// INVITE, ACK, CANCEL, BYE, PRACK and UPDATE are handled by the agent, other methods by its owner.
    pub allow: Vec<u8>,
    /// Value of Supported. A request that requires another option tag gets 420. `100rel` is served by the agent.
    pub supported: Vec<u8>,
    /// Value of Accept: content types of session descriptions. An INVITE, UPDATE or PRACK with another one gets 415. With `multipart/mixed`
    /// or `*/*` the owner looks for the description itself.
    pub accept: Vec<u8>,
    /// Session timers (RFC 4028), which add `timer` to Supported; `None` if they are not used.
    pub session_timer: Option<SessionTimerSettings>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            allow: b"INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, MESSAGE, PRACK, UPDATE".to_vec(),
            supported: b"100rel".to_vec(),
            accept: b"application/sdp".to_vec(),
            session_timer: None,
        }
    }
}

impl Capabilities {
    /// Tells whether requests of this method are taken; methods compare with case (section 7.1).
    pub fn allows(&self, method: &[u8]) -> bool {
        listed(&self.allow).any(|allowed| allowed == method)
    }

    /// Tells whether the option tag is supported.
    pub fn supports(&self, option: &[u8]) -> bool {
        let is_timer = self.session_timer.is_some() && option.eq_ignore_ascii_case(TIMER);
        is_timer || listed(&self.supported).any(|supported| supported.eq_ignore_ascii_case(option))
    }

    /// Tells whether a value of Content-Type is accepted; parameters of the value are ignored.
    pub fn accepts(&self, content_type: &[u8]) -> bool {
        let kind = media_type(content_type);
        listed(&self.accept).map(media_type).any(|range| match range.strip_suffix(b"/*") {
            Some(b"*") => true,
            Some(group) => kind.split(|&b| b == b'/').next().is_some_and(|kind| kind.eq_ignore_ascii_case(group)),
            None => range.eq_ignore_ascii_case(kind),
        })
    }

    /// Writes Allow and Supported, for requests and responses that create a dialog (section 13.2.1).
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_allow(out);
        let adds_timer = self.session_timer.is_some() && !listed(&self.supported).any(|option| option == TIMER);
        if self.supported.is_empty() && !adds_timer {
            return;
        }
        out.extend_from_slice(b"Supported: ");
        out.extend_from_slice(&self.supported);
        if adds_timer {
            out.extend_from_slice(if self.supported.is_empty() { b"" } else { b", " });
            out.extend_from_slice(TIMER);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Writes Allow.
    pub(super) fn write_allow(&self, out: &mut Vec<u8>) {
        write_line(b"Allow: ", &self.allow, out);
    }

    /// Writes Accept.
    pub(super) fn write_accept(&self, out: &mut Vec<u8>) {
        write_line(b"Accept: ", &self.accept, out);
    }
}

/// Option tag of session timers.
const TIMER: &[u8] = b"timer";

fn write_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        out.extend_from_slice(name);
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

fn listed(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_lists() {
        let own = Capabilities { accept: b"application/sdp, multipart/*;q=0.5".to_vec(), ..Capabilities::default() };
        assert!(own.allows(b"INFO") && !own.allows(b"info") && !own.allows(b"REFER"));
        assert!(own.supports(b"100REL") && !own.supports(b"timer") && !own.supports(b"rel"));
        for (content_type, expected) in [
            (&b"Application/SDP; charset=utf-8"[..], true),
            (b"multipart/mixed;boundary=x", true),
            (b"multi/mixed", false),
            (b"text/plain", false),
            (b"", false),
        ] {
            assert_eq!(own.accepts(content_type), expected, "{}", String::from_utf8_lossy(content_type));
        }
        assert!(Capabilities { accept: b"*/*".to_vec(), ..own }.accepts(b"text/plain"));
    }

    #[test]
    fn an_empty_value_has_no_line() {
        let mut out = Vec::new();
        Capabilities { supported: Vec::new(), allow: b"INVITE".to_vec(), ..Capabilities::default() }.write(&mut out);
        assert_eq!(out, b"Allow: INVITE\r\n");
    }

    /// RFC 4028 section 7.1.
    #[test]
    fn session_timers_are_an_option() {
        for (supported, line) in [
            ("", "Supported: timer\r\n"),
            ("100rel", "Supported: 100rel, timer\r\n"),
            ("timer, 100rel", "Supported: timer, 100rel\r\n"),
        ] {
            let session_timer = Some(SessionTimerSettings::default());
            let supported = supported.as_bytes().to_vec();
            let own = Capabilities { supported, allow: Vec::new(), session_timer, ..Capabilities::default() };
            let mut out = Vec::new();
            own.write(&mut out);
            assert_eq!(String::from_utf8(out).expect("text"), line);
            assert!(own.supports(b"Timer"));
        }
    }
}
