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
    MaxBreadth = "Max-Breadth";
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
    RemotePartyId = "Remote-Party-ID";
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
    /// A proxy acts upon it, and it is no list: two lines of it that differ would mean one thing to us and another to the
    /// next one.
    pub const fn stands_once(self) -> bool {
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

    /// The name of these bytes, in any case, long or compact.
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

    /// Like [`Name::of`] for `bytes[at..at + len]`, quicker where more bytes follow the name. The bytes of the
    /// name must not hold CR.
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
            // With the bit of lower case set, letters are equal in any case, and besides letters only CR (which
            // no name holds here) and the hyphen could be taken for each other.
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

/// Words of eight bytes that the longest name fills.
const FOLDED: usize = 3;

/// A name in lower case, in words, ready to be compared.
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

/// Length, first, middle and last letter, case folded: no two names of the table share a slot, which is proved
/// when the table is compiled.
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
            // One byte of each replaced by any other, CR apart, which a name in place never holds.
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
