//! The To tag of our own answers.
//!
//! It is a keyed hash of the Call-ID: every shard, and every server with the same secret, writes the same one into every answer of a
//! call, before and after a restart, and knows it again. So an ACK that acknowledges an answer of ours is known by itself, with any
//! branch, and goes no further; and a refused request needs no memory (RFC 3261 section 8.2.7).

use crate::entropy::hex;
use crate::siphash::SipKey;
use subtle::ConstantTimeEq;

/// Makes and knows the tags.
#[derive(Clone)]
pub struct OwnTag(SipKey);

impl std::fmt::Debug for OwnTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnTag(..)")
    }
}

/// Characters of a tag.
const LEN: usize = 16;

impl OwnTag {
    /// `secret`: servers with the same one know each other's tags.
    pub fn new(secret: &[u8]) -> Self {
        Self(SipKey::derive(secret, b"strowger to-tag 2"))
    }

    /// The tag of our answers to requests with this Call-ID.
    pub fn of(&self, call_id: &[u8]) -> [u8; LEN] {
        let mut hash = self.0.begin();
        hash.part(call_id);
        hex(hash.finish()[0])
    }

    /// This tag is that of our answers to requests with this Call-ID.
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
