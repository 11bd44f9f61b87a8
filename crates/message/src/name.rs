//! Header field names with their compact forms: the one table of them (RFC 3261 section 7.3.3, 20).

use std::fmt;

macro_rules! names {
    ($($name:ident = $text:literal $(, $compact:literal)?;)*) => {
        /// A header field name. One that no table names is [`Name::Other`]; its text stands in the message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Name { $($name,)* Other }

        impl Name {
            /// Every name of the table.
            pub const KNOWN: &'static [Self] = &[$(Self::$name,)*];
            /// How many values this enum has, [`Name::Other`] included.
            pub const COUNT: usize = Self::Other as usize + 1;

            /// Its usual spelling; empty for [`Name::Other`].
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* Self::Other => "" }
            }

            /// Its compact form (RFC 3261 section 7.3.3), if it has one.
            pub const fn compact(self) -> Option<u8> {
                match self { $($(Self::$name => Some($compact),)?)* _ => None }
            }
        }
    };
}

names! {
    Accept = "Accept";
    AcceptContact = "Accept-Contact", b'a';
    AcceptEncoding = "Accept-Encoding";
    AcceptLanguage = "Accept-Language";
    AlertInfo = "Alert-Info";
    Allow = "Allow";
    AllowEvents = "Allow-Events", b'u';
    AuthenticationInfo = "Authentication-Info";
    Authorization = "Authorization";
    CallId = "Call-ID", b'i';
    CallInfo = "Call-Info";
    Contact = "Contact", b'm';
    ContentDisposition = "Content-Disposition";
    ContentEncoding = "Content-Encoding", b'e';
    ContentLanguage = "Content-Language";
    ContentLength = "Content-Length", b'l';
    ContentType = "Content-Type", b'c';
    CSeq = "CSeq";
    Date = "Date";
    Diversion = "Diversion";
    ErrorInfo = "Error-Info";
    Event = "Event", b'o';
    Expires = "Expires";
    FlowTimer = "Flow-Timer";
    From = "From", b'f';
    HistoryInfo = "History-Info";
    Identity = "Identity", b'y';
    IdentityInfo = "Identity-Info", b'n';
    InReplyTo = "In-Reply-To";
    MaxForwards = "Max-Forwards";
    MimeVersion = "MIME-Version";
    MinExpires = "Min-Expires";
    MinSe = "Min-SE";
    Organization = "Organization";
    PAssertedIdentity = "P-Asserted-Identity";
    PPreferredIdentity = "P-Preferred-Identity";
    Path = "Path";
    Priority = "Priority";
    Privacy = "Privacy";
    ProxyAuthenticate = "Proxy-Authenticate";
    ProxyAuthorization = "Proxy-Authorization";
    ProxyRequire = "Proxy-Require";
    RAck = "RAck";
    Reason = "Reason";
    RecordRoute = "Record-Route";
    ReferTo = "Refer-To", b'r';
    ReferredBy = "Referred-By", b'b';
    RejectContact = "Reject-Contact", b'j';
    Replaces = "Replaces";
    ReplyTo = "Reply-To";
    RequestDisposition = "Request-Disposition", b'd';
    Require = "Require";
    RetryAfter = "Retry-After";
    Route = "Route";
    RSeq = "RSeq";
    Server = "Server";
    ServiceRoute = "Service-Route";
    SessionExpires = "Session-Expires", b'x';
    SipETag = "SIP-ETag";
    SipIfMatch = "SIP-If-Match";
    Subject = "Subject", b's';
    SubscriptionState = "Subscription-State";
    Supported = "Supported", b'k';
    Timestamp = "Timestamp";
    To = "To", b't';
    Unsupported = "Unsupported";
    UserAgent = "User-Agent";
    Via = "Via", b'v';
    Warning = "Warning";
    WwwAuthenticate = "WWW-Authenticate";
}

impl Name {
    /// The name of these bytes, in any case, long or compact.
    #[inline]
    pub fn of(text: &[u8]) -> Self {
        match text {
            [letter] => COMPACT[(letter | 0x20) as usize & 0x7f],
            [] => Self::Other,
            _ => {
                let slot = SLOTS[hash(text)];
                if slot != Self::Other && slot.text().as_bytes().eq_ignore_ascii_case(text) {
                    return slot;
                }
                Self::KNOWN.iter().copied().find(|n| n.text().as_bytes().eq_ignore_ascii_case(text)).unwrap_or(Self::Other)
            }
        }
    }
}

/// Length, first and last letters, case folded: spreads the names of the table well.
#[inline]
const fn hash(text: &[u8]) -> usize {
    let n = text.len();
    let first = (text[0] | 0x20) as usize;
    let last = (text[n - 1] | 0x20) as usize;
    let middle = (text[n / 2] | 0x20) as usize;
    (first.wrapping_mul(31) ^ last.wrapping_mul(131) ^ middle.wrapping_mul(517) ^ n.wrapping_mul(1031)) & (SLOTS_LEN - 1)
}

const SLOTS_LEN: usize = 1024;

static SLOTS: [Name; SLOTS_LEN] = {
    let mut slots = [Name::Other; SLOTS_LEN];
    let mut i = 0;
    while i < Name::KNOWN.len() {
        slots[hash(Name::KNOWN[i].text().as_bytes())] = Name::KNOWN[i];
        i += 1;
    }
    slots
};

static COMPACT: [Name; 128] = {
    let mut letters = [Name::Other; 128];
    let mut i = 0;
    while i < Name::KNOWN.len() {
        if let Some(letter) = Name::KNOWN[i].compact() {
            letters[letter as usize] = Name::KNOWN[i];
        }
        i += 1;
    }
    letters
};

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case_and_compact() {
        for &name in Name::KNOWN {
            assert_eq!(Name::of(name.text().as_bytes()), name);
            assert_eq!(Name::of(name.text().to_uppercase().as_bytes()), name);
            assert_eq!(Name::of(name.text().to_lowercase().as_bytes()), name);
            if let Some(letter) = name.compact() {
                assert_eq!(Name::of(&[letter]), name);
                assert_eq!(Name::of(&[letter.to_ascii_uppercase()]), name);
            }
        }
        assert_eq!(Name::of(b"X-Unknown"), Name::Other);
        assert_eq!(Name::of(b"q"), Name::Other);
        assert_eq!(Name::of(b""), Name::Other);
    }
}
