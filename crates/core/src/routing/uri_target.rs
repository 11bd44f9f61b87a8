//! Target of a URI: the parts of a URI that select the machine and the user on it.

use super::route::known_transport;
use crate::Transport;
use crate::siphash::Strong;
use smallvec::SmallVec;
use strowger_message::Host;
use strowger_message::uri::SipUri;
use strowger_message::uri::sip::unescaped;

/// Scheme, user, host, port, transport and `maddr` of a URI, each in one form. Other parameters are ignored, because
/// peers add them to a Contact and remove them.
#[derive(Clone, Copy, Debug)]
pub struct UriTarget<'a> {
    secure: bool,
    user: Option<&'a [u8]>,
    password: Option<&'a [u8]>,
    host: Host<'a>,
    port: u16,
    /// Known transport, else its text.
    transport: Result<Transport, &'a [u8]>,
    maddr: Option<&'a [u8]>,
}

impl<'a> UriTarget<'a> {
    /// Returns the target of a URI; default port and transport if it names none.
    pub fn of(uri: &SipUri<'a>) -> Self {
        let default = if uri.secure { Transport::Tls } else { Transport::Udp };
        let transport =
            uri.params.transport().map_or(Ok(default), |text| known_transport(text, uri.secure).ok_or(text));
        Self {
            secure: uri.secure,
            user: uri.user,
            password: uri.password,
            host: uri.host,
            port: uri.port.unwrap_or_else(|| transport.unwrap_or(default).default_port()),
            transport,
            maddr: uri.params.maddr(),
        }
    }

    /// Feeds the parts into a hash. The first word contains bits for the parts that are present, and an IPv4 address if
    /// there is one; the present parts follow.
    pub(crate) fn feed(&self, hash: &mut Strong) {
        let transport = self.transport.map_or(0xff, |transport| transport as u8);
        let (kind, ip) = match self.host {
            Host::Name(_) => (0, 0),
            Host::V4(ip) => (1, u32::from(ip)),
            Host::V6(_) => (2, 0),
        };
        let [high, low] = self.port.to_be_bytes();
        let flags = u8::from(self.secure)
            | u8::from(self.user.is_some()) << 1
            | u8::from(self.password.is_some()) << 2
            | u8::from(self.maddr.is_some()) << 3
            | kind << 4;
        hash.word(u64::from(u32::from_be_bytes([flags, transport, high, low])) | u64::from(ip) << 32);
        match self.host {
            Host::Name(name) => hash.part_lower(name.strip_suffix(b".").unwrap_or(name)),
            Host::V4(_) => (),
            Host::V6(ip) => hash.part(&ip.octets()),
        }
        for part in [self.user, self.password].into_iter().flatten() {
            plain(part, hash);
        }
        for part in [self.maddr, self.transport.err()].into_iter().flatten() {
            hash.part_lower(part);
        }
    }
}

impl PartialEq for UriTarget<'_> {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: Option<&[u8]>, b: Option<&[u8]>| match (a, b) {
            (Some(a), Some(b)) => unescaped(a).eq(unescaped(b)),
            (a, b) => a.is_none() && b.is_none(),
        };
        let same_transport = match (self.transport, other.transport) {
            (Ok(a), Ok(b)) => a == b,
            (Err(a), Err(b)) => a.eq_ignore_ascii_case(b),
            _ => false,
        };
        let same_maddr = match (self.maddr, other.maddr) {
            (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        self.secure == other.secure
            && self.port == other.port
            && self.host == other.host
            && same_transport
            && same_maddr
            && same(self.user, other.user)
            && same(self.password, other.password)
    }
}

/// Hashes a part of a URI with its escapes decoded: some user agents write other escapes than they received.
pub(super) fn plain(text: &[u8], hash: &mut Strong) {
    if !text.contains(&b'%') {
        return hash.part(text);
    }
    let text: SmallVec<[u8; 64]> = unescaped(text).collect();
    hash.part(&text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::siphash::SipKey;
    use strowger_message::Uri;

    /// Compares by equality and by hash, which must agree.
    fn same(a: &str, b: &str) -> bool {
        let hash = |text: &str| {
            let uri = Uri::parse(text.as_bytes()).unwrap();
            let mut hash = SipKey::derive(b"secret", b"test").begin();
            UriTarget::of(uri.sip().unwrap()).feed(&mut hash);
            hash.finish()
        };
        let (x, y) = (Uri::parse(a.as_bytes()).unwrap(), Uri::parse(b.as_bytes()).unwrap());
        let same = UriTarget::of(x.sip().unwrap()) == UriTarget::of(y.sip().unwrap());
        assert_eq!(same, hash(a) == hash(b), "{a} {b}");
        same
    }

    #[test]
    fn equal_targets_have_one_hash() {
        for (a, b) in [
            ("sip:bob@10.0.0.1", "sip:bob@10.0.0.1:5060;transport=UDP;x=y;ob"),
            ("sip:bob@Host.Example.", "sip:bob@host.example:5060"),
            ("sip:b%6Fb@h", "sip:bob@h?Subject=x"),
            ("sips:bob@h", "sips:bob@h:5061;transport=tcp"),
            ("sip:bob@h;transport=TCP", "sip:bob@h:5060;transport=tcp"),
            ("sip:bob@[2001:DB8:0::1]", "sip:bob@[2001:db8::1]"),
            ("sip:bob@h;maddr=A.example", "sip:bob@h;maddr=a.example"),
            ("sip:bob@h;transport=SCTP", "sip:bob@h;transport=sctp"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn different_targets_differ_in_hash() {
        let one = "sip:bob@10.0.0.1";
        for other in [
            "sips:bob@10.0.0.1",
            "sip:Bob@10.0.0.1",
            "sip:bo@10.0.0.1",
            "sip:10.0.0.1",
            "sip:bob:pw@10.0.0.1",
            "sip:bob@10.0.0.2",
            "sip:bob@10.0.0.1:5061",
            "sip:bob@10.0.0.1;transport=tcp",
            "sip:bob@10.0.0.1;transport=sctp",
            "sip:bob@10.0.0.1;maddr=10.0.0.2",
            "sip:bob@10.0.0.1.example",
        ] {
            assert!(!same(one, other), "{other}");
        }
        // The hash must distinguish different divisions of the same text into parts.
        assert!(!same("sip:ab:c@h", "sip:a:bc@h"));
        assert!(!same("sip:a@h;maddr=b;transport=c", "sip:a@h;maddr=bc;transport=x"));
    }
}
