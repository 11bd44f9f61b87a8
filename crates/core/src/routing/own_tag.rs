//! To tag of our own responses.
//!
//! The tag is a keyed hash of the Call-ID. Each shard, and each server with the same secret, writes the same tag into
//! all responses of a call, before and after a restart, and recognizes it. So an ACK for an own response is recognized
//! by its tag with any branch, and is not forwarded; and a refused request needs no memory (RFC 3261 section 8.2.7).
//!
//! A request that is refused without a transaction, because the server is overloaded, gets a tag of another key: no
//! transaction waits for its ACK, so the ACK is dropped at once.

use crate::entropy::hex;
use crate::siphash::SipKey;
use subtle::ConstantTimeEq;

/// Writer and verifier of own To tags.
#[derive(Clone)]
pub struct OwnTag {
    key: SipKey,
    /// Key of the tags of refusals without a transaction.
    refusals: SipKey,
}

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
        Self {
            key: SipKey::derive(secret, b"strowger to-tag 2"),
            refusals: SipKey::derive(secret, b"strowger to-tag of refusals 1"),
        }
    }

    /// Returns the tag of our responses to requests with this Call-ID.
    pub fn of(&self, call_id: &[u8]) -> [u8; LEN] {
        tag_of(&self.key, call_id)
    }

    /// Returns the tag of a refusal without a transaction.
    pub fn of_refusal(&self, call_id: &[u8]) -> [u8; LEN] {
        tag_of(&self.refusals, call_id)
    }

    /// Tells whether this is the tag of our responses to requests with this Call-ID, with or without a transaction.
    pub fn is(&self, tag: &[u8], call_id: &[u8]) -> bool {
        is_equal(tag, || self.of(call_id)) || self.is_refusal(tag, call_id)
    }

    /// Tells whether this is the tag of a refusal of requests with this Call-ID without a transaction.
    pub fn is_refusal(&self, tag: &[u8], call_id: &[u8]) -> bool {
        is_equal(tag, || self.of_refusal(call_id))
    }

    /// Tells whether an ACK with this Call-ID has the tag of a refusal without a transaction. The message is searched, not parsed: only a
    /// receiver of the refusal knows the tag.
    pub fn acknowledges_refusal(&self, ack: &[u8], call_id: &[u8]) -> bool {
        let mut parameter = *b"tag=................";
        parameter[4..].copy_from_slice(&self.of_refusal(call_id));
        memchr::memmem::find(ack, &parameter).is_some()
    }
}

fn tag_of(key: &SipKey, call_id: &[u8]) -> [u8; LEN] {
    let mut hash = key.begin();
    hash.part(call_id);
    hex(hash.finish()[0])
}

fn is_equal(tag: &[u8], own: impl Fn() -> [u8; LEN]) -> bool {
    tag.len() == LEN && own()[..].ct_eq(tag).into()
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

    #[test]
    fn the_tag_of_a_refusal_is_another_one() {
        let tags = OwnTag::new(b"secret");
        let refusal = tags.of_refusal(b"call");
        assert!(tags.is_refusal(&refusal, b"call") && tags.is(&refusal, b"call"));
        assert!(!tags.is_refusal(&tags.of(b"call"), b"call"));
        assert!(!tags.is_refusal(&refusal, b"other") && !tags.is_refusal(&refusal[1..], b"call"));
        assert!(!OwnTag::new(b"other").is(&refusal, b"call"));
        let ack = [b"ACK sip:a SIP/2.0\r\nTo: <sip:a>;tag=", &refusal[..], b"\r\nCall-ID: call\r\n\r\n"].concat();
        assert!(tags.acknowledges_refusal(&ack, b"call") && !tags.acknowledges_refusal(&ack, b"other"));
        assert!(!OwnTag::new(b"other").acknowledges_refusal(&ack, b"call"));
        assert!(!tags.acknowledges_refusal(&ack[..ack.len() - 23], b"call"));
    }
}
