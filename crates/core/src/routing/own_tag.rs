//! To tag of our own responses.
//!
//! The tag is a keyed hash of the Call-ID. Each shard, and each server with the same secret, writes the same tag into
//! all responses of a call, before and after a restart, and recognizes it. So an ACK for an own response is recognized
//! by its tag with any branch, and is not forwarded; and a refused request needs no memory (RFC 3261 section 8.2.7).

use crate::entropy::hex;
use crate::siphash::SipKey;
use subtle::ConstantTimeEq;

/// Writer and verifier of own To tags.
#[derive(Clone)]
pub struct OwnTag(SipKey);

impl std::fmt::Debug for OwnTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnTag(..)")
    }
}

/// Length of a tag in characters.
const LEN: usize = 16;

impl OwnTag {
    /// Creates the key. `secret`: servers with the same secret recognize each other's tags.
    pub fn new(secret: &[u8]) -> Self {
        Self(SipKey::derive(secret, b"strowger to-tag 2"))
    }

    /// Returns the tag of our responses to requests with this Call-ID.
    pub fn of(&self, call_id: &[u8]) -> [u8; LEN] {
        let mut hash = self.0.begin();
        hash.part(call_id);
        hex(hash.finish()[0])
    }

    /// Tells whether this is the tag of our responses to requests with this Call-ID.
    pub fn is(&self, tag: &[u8], call_id: &[u8]) -> bool {
        tag.len() == LEN && self.of(call_id)[..].ct_eq(tag).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_by_its_call() {
        let tags = OwnTag::new(b"secret");
        let tag = tags.of(b"call");
        assert!(tag.iter().all(u8::is_ascii_hexdigit));
        assert!(tags.is(&tag, b"call") && OwnTag::new(b"secret").is(&tag, b"call"));
        assert!(!tags.is(&tag, b"other") && !OwnTag::new(b"other").is(&tag, b"call"));
        assert!(!tags.is(b"", b"call") && !tags.is(&tag[1..], b"call"));
    }
}
