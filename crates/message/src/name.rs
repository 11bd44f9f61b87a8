//! The table of header field names and their compact forms (RFC 3261 section 7.3.3, 20).

use std::fmt;

macro_rules! names {
    ($($name:ident = $text:literal $(, $compact:literal)? in $source:literal;)*) => {
        /// A header field name. One that the table does not list is [`Name::Other`]; its text is in the message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $text, "` (", $source, ")")] $name,)*
            /// A name without rules of its own; it is passed on unchanged.
            Other,
        }

        impl Name {
            /// Every name of the table.
            pub const KNOWN: &'static [Self] = &[$(Self::$name,)*];
            /// Number of values of this enum, [`Name::Other`] included.
            pub const COUNT: usize = Self::Other as usize + 1;

            /// Returns the usual spelling; empty for [`Name::Other`].
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* Self::Other => "" }
            }

            /// Returns the compact form (RFC 3261 section 7.3.3), if any.
            pub const fn compact(self) -> Option<u8> {
                match self { $($(Self::$name => Some($compact),)?)* _ => None }
            }
        }
    };
}

names! {
    Accept = "Accept" in "RFC 3261 section 20.1";
    AcceptContact = "Accept-Contact", b'a' in "RFC 3841";
    AcceptEncoding = "Accept-Encoding" in "RFC 3261 section 20.2";
    AcceptLanguage = "Accept-Language" in "RFC 3261 section 20.3";
    AlertInfo = "Alert-Info" in "RFC 3261 section 20.4";
    Allow = "Allow" in "RFC 3261 section 20.5";
    AllowEvents = "Allow-Events", b'u' in "RFC 6665";
    AuthenticationInfo = "Authentication-Info" in "RFC 3261 section 20.6";
    Authorization = "Authorization" in "RFC 3261 section 20.7";
    CallId = "Call-ID", b'i' in "RFC 3261 section 20.8";
    CallInfo = "Call-Info" in "RFC 3261 section 20.9";
    Contact = "Contact", b'm' in "RFC 3261 section 20.10";
    ContentDisposition = "Content-Disposition" in "RFC 3261 section 20.11";
    ContentEncoding = "Content-Encoding", b'e' in "RFC 3261 section 20.12";
    ContentLanguage = "Content-Language" in "RFC 3261 section 20.13";
    ContentLength = "Content-Length", b'l' in "RFC 3261 section 20.14";
    ContentType = "Content-Type", b'c' in "RFC 3261 section 20.15";
    CSeq = "CSeq" in "RFC 3261 section 20.16";
    Date = "Date" in "RFC 3261 section 20.17";
    Diversion = "Diversion" in "RFC 5806";
    ErrorInfo = "Error-Info" in "RFC 3261 section 20.18";
    Event = "Event", b'o' in "RFC 6665 section 8.2.1";
    Expires = "Expires" in "RFC 3261 section 20.19";
    FlowTimer = "Flow-Timer" in "RFC 5626";
    From = "From", b'f' in "RFC 3261 section 20.20";
    HistoryInfo = "History-Info" in "RFC 7044";
    Identity = "Identity", b'y' in "RFC 8224 section 4";
    IdentityInfo = "Identity-Info", b'n' in "RFC 4474";
    InReplyTo = "In-Reply-To" in "RFC 3261 section 20.21";
    MaxBreadth = "Max-Breadth" in "RFC 5393";
    MaxForwards = "Max-Forwards" in "RFC 3261 section 20.22";
    MimeVersion = "MIME-Version" in "RFC 3261 section 20.24";
    MinExpires = "Min-Expires" in "RFC 3261 section 20.23";
    MinSe = "Min-SE" in "RFC 4028 section 5";
    Organization = "Organization" in "RFC 3261 section 20.25";
    PAssertedIdentity = "P-Asserted-Identity" in "RFC 3325";
    PPreferredIdentity = "P-Preferred-Identity" in "RFC 3325";
    Path = "Path" in "RFC 3327";
    Priority = "Priority" in "RFC 3261 section 20.26";
    Privacy = "Privacy" in "RFC 3323 section 4.2";
    ProxyAuthenticate = "Proxy-Authenticate" in "RFC 3261 section 20.27";
    ProxyAuthorization = "Proxy-Authorization" in "RFC 3261 section 20.28";
    ProxyRequire = "Proxy-Require" in "RFC 3261 section 20.29";
    RAck = "RAck" in "RFC 3262 section 7.2";
    Reason = "Reason" in "RFC 3326";
    RecordRoute = "Record-Route" in "RFC 3261 section 20.30";
    ReferTo = "Refer-To", b'r' in "RFC 3515 section 2.1";
    ReferredBy = "Referred-By", b'b' in "RFC 3892";
    RejectContact = "Reject-Contact", b'j' in "RFC 3841";
    Replaces = "Replaces" in "RFC 3891 section 6.1";
    RemotePartyId = "Remote-Party-ID" in "draft-ietf-sip-privacy, never an RFC";
    ReplyTo = "Reply-To" in "RFC 3261 section 20.31";
    RequestDisposition = "Request-Disposition", b'd' in "RFC 3841";
    Require = "Require" in "RFC 3261 section 20.32";
    RetryAfter = "Retry-After" in "RFC 3261 section 20.33";
    Route = "Route" in "RFC 3261 section 20.34";
    RSeq = "RSeq" in "RFC 3262 section 7.1";
    Server = "Server" in "RFC 3261 section 20.35";
    ServiceRoute = "Service-Route" in "RFC 3608";
    SessionExpires = "Session-Expires", b'x' in "RFC 4028 section 4";
    SipETag = "SIP-ETag" in "RFC 3903 section 11.3.1";
    SipIfMatch = "SIP-If-Match" in "RFC 3903 section 11.3.2";
    Subject = "Subject", b's' in "RFC 3261 section 20.36";
    SubscriptionState = "Subscription-State" in "RFC 6665 section 8.2.3";
    Supported = "Supported", b'k' in "RFC 3261 section 20.37";
    Timestamp = "Timestamp" in "RFC 3261 section 20.38";
    To = "To", b't' in "RFC 3261 section 20.39";
    Unsupported = "Unsupported" in "RFC 3261 section 20.40";
    UserAgent = "User-Agent" in "RFC 3261 section 20.41";
    Via = "Via", b'v' in "RFC 3261 section 20.42";
    Warning = "Warning" in "RFC 3261 section 20.43";
    WwwAuthenticate = "WWW-Authenticate" in "RFC 3261 section 20.44";
}

impl Name {
    /// Tells whether this is a single-valued header field on which a proxy acts: two lines with different values would
    /// mean one thing to this element and another to the next one.
    pub const fn is_single_valued(self) -> bool {
        matches!(
            self,
            Self::CallId
                | Self::ContentLength
                | Self::CSeq
                | Self::From
                | Self::MaxBreadth
                | Self::MaxForwards
                | Self::To
        )
    }

    /// Returns the name of these bytes, in any case, long or compact.
    #[inline]
    pub fn of(text: &[u8]) -> Self {
        match text {
            [letter] => Self::of_letter(*letter),
            [] => Self::Other,
            _ => {
                let name = SLOTS[slot(text[0], text[text.len() / 2], text[text.len() - 1], text.len())];
                if name.text().as_bytes().eq_ignore_ascii_case(text) { name } else { Self::Other }
            }
        }
    }

    /// Acts as [`Name::of`] for `bytes[at..at + len]`, but faster if more bytes follow the name. The name must not
    /// contain CR.
    #[inline]
    pub(crate) fn of_at(bytes: &[u8], at: usize, len: usize) -> Self {
        if len == 1 {
            return Self::of_letter(bytes[at]);
        }
        let Some(chunk) = bytes[at..].first_chunk::<{ FOLDED * 8 }>() else {
            return Self::of(&bytes[at..at + len]);
        };
        if len == 0 || len > FOLDED * 8 {
            return Self::Other;
        }
        let name = SLOTS[slot(chunk[0], chunk[len / 2], chunk[len - 1], len)];
        let text = &TEXTS[name as usize];
        let mut different = len ^ text.len as usize;
        for (n, eight) in chunk.as_chunks::<8>().0.iter().enumerate() {
            // With the bit of lower case set, letters are equal in any case. Besides letters, only CR (which no name
            // contains here) and the hyphen become equal.
            let eight = (u64::from_le_bytes(*eight) | LOWER) & text.mask[n];
            different |= (eight ^ text.folded[n]) as usize;
        }
        if different == 0 { name } else { Self::Other }
    }

    #[inline]
    fn of_letter(letter: u8) -> Self {
        if letter.is_ascii_alphabetic() { COMPACT[(letter | 0x20) as usize] } else { Self::Other }
    }
}

const LOWER: u64 = 0x2020_2020_2020_2020;

/// Length of the longest name in words of eight bytes.
const FOLDED: usize = 3;

/// A name in lower case, as words that can be compared directly.
struct Text {
    folded: [u64; FOLDED],
    mask: [u64; FOLDED],
    len: u8,
}

static TEXTS: [Text; Name::COUNT] = {
    const NONE: Text = Text { folded: [0; FOLDED], mask: [0; FOLDED], len: 0 };
    let mut texts = [NONE; Name::COUNT];
    let mut i = 0;
    while i < Name::KNOWN.len() {
        let text = Name::KNOWN[i].text().as_bytes();
        assert!(text.len() <= FOLDED * 8);
        texts[i].len = text.len() as u8;
        let mut n = 0;
        while n < text.len() {
            texts[i].folded[n / 8] |= ((text[n] | 0x20) as u64) << (n % 8 * 8);
            texts[i].mask[n / 8] |= 0xff << (n % 8 * 8);
            n += 1;
        }
        i += 1;
    }
    texts
};

/// Returns the hash slot from length and first, middle and last letter, without case. No two names of the table share a
/// slot; the compiler proves it.
#[inline]
const fn slot(first: u8, middle: u8, last: u8, len: usize) -> usize {
    let mixed =
        (first | 0x20) as u32 | ((middle | 0x20) as u32) << 8 | ((last | 0x20) as u32) << 16 | (len as u32) << 24;
    (mixed.wrapping_mul(SEED) >> (32 - SLOTS_BITS)) as usize
}

const SLOTS_BITS: u32 = 10;
const SEED: u32 = 0xa4ac_75ab;

static SLOTS: [Name; 1 << SLOTS_BITS] = {
    let mut slots = [Name::Other; 1 << SLOTS_BITS];
    let mut i = 0;
    while i < Name::KNOWN.len() {
        let text = Name::KNOWN[i].text().as_bytes();
        let n = slot(text[0], text[text.len() / 2], text[text.len() - 1], text.len());
        assert!(matches!(slots[n], Name::Other), "two names share a slot: take another SEED");
        slots[n] = Name::KNOWN[i];
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
        assert_eq!(Name::of(b"\x16"), Name::Other);
    }

    #[test]
    fn in_place_is_like_alone() {
        let mut texts: Vec<Vec<u8>> = Name::KNOWN.iter().map(|n| n.text().as_bytes().to_vec()).collect();
        texts.extend((0..=255).map(|b| vec![b]));
        texts.extend([
            b"X-Some-Name".to_vec(),
            b"Content-Dispositions".to_vec(),
            vec![],
            vec![b'a'; 25],
            vec![b'v'; 2],
        ]);
        for text in texts {
            // Each byte is replaced by every other byte, except CR, which a name never contains here.
            for (at, byte) in
                (0..text.len()).flat_map(|at| (0..=255u8).map(move |b| (at, b))).filter(|(_, b)| *b != b'\r')
            {
                let mut text = text.clone();
                text[at] = byte;
                for behind in [&b""[..], b": and many more bytes behind it"] {
                    let bytes = [b"\r\n", &text[..], behind].concat();
                    assert_eq!(Name::of_at(&bytes, 2, text.len()), Name::of(&text), "{text:?}");
                }
            }
        }
    }
}
