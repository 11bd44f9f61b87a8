//! Request-URI as sent to a next hop, without consumed parts (RFC 3261 sections 16.4 and 16.6 step 2).

use super::Routing;
use super::seal::NAME;
use strowger_message::{SipUri, Uri};

impl Routing<'_> {
    /// Returns the Request-URI with another user part, or another number of a tel URI, without consumed parts; `None`
    /// if it has neither.
    pub fn uri_with_user(&self, user: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        match self.uri {
            Uri::Sip(uri) => {
                uri.user?;
                write_clean(&SipUri { user: Some(user), ..uri }, self.spent, self.own_maddr, &mut text);
            }
            Uri::Tel(tel) => {
                let (scheme, number) = self.uri_text.split_at_checked("tel:".len())?;
                text = [scheme, user, number.get(tel.number.len()..)?].concat();
            }
            _ => return None,
        }
        Some(text)
    }

    /// Returns the URI of this place with the user of the Request-URI, or the number of a tel URI (RFC 3261 section
    /// 19.1.6); `None` if the place has a user of its own, or the Request-URI has none.
    pub fn at_place(&self, place: &[u8]) -> Option<Vec<u8>> {
        let Ok(Uri::Sip(place)) = Uri::parse(place) else { return None };
        if place.user.is_some() {
            return None;
        }
        let (user, is_number) = match self.uri {
            Uri::Sip(uri) => (uri.user?, uri.params.user().is_some_and(|kind| kind.eq_ignore_ascii_case(b"phone"))),
            Uri::Tel(_) => (self.uri_text.get("tel:".len()..)?, true),
            _ => return None,
        };
        let mut text = Vec::new();
        SipUri { user: Some(user), ..place }.write(&mut text);
        if is_number && place.params.user().is_none() && place.headers.is_empty() {
            text.extend_from_slice(b";user=phone");
        }
        Some(text)
    }
}

/// Tells whether the URI of a binding has parts that a Request-URI must not have (section 19.1.1 table 1).
pub(crate) fn is_unfit(uri: &[u8]) -> bool {
    const METHOD: &[u8] = b";method=";
    uri.contains(&b'?') || uri.windows(METHOD.len()).any(|w| w.eq_ignore_ascii_case(METHOD))
}

/// Writes a Request-URI without headers and method, without the consumed seal, and, if `maddr` names this server, without port, `maddr` and
/// transport (section 16.4).
pub(crate) fn write_clean(uri: &SipUri<'_>, spent: Option<&[u8]>, maddr: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(uri.scheme());
    out.push(b':');
    if let Some(user) = uri.user {
        out.extend_from_slice(user);
        if let Some(password) = uri.password {
            out.push(b':');
            out.extend_from_slice(password);
        }
        out.push(b'@');
    }
    uri.host.write(out);
    if let Some(port) = uri.port.filter(|_| !maddr) {
        out.push(b':');
        out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
    }
    for (name, value) in uri.params.iter() {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let sealed = spent.is_some() && value == spent && is(NAME);
        if is(b"method") || sealed || (maddr && (is(b"maddr") || is(b"transport"))) {
            continue;
        }
        out.push(b';');
        out.extend_from_slice(name);
        if let Some(value) = value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
}
