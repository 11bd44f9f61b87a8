//! The mark in our Record-Route: proof that a later request belongs to a dialog that we let through.
//!
//! It is a keyed hash of Call-ID and the tag of the party that made the dialog, so it opens this dialog
//! and no other; a To tag alone opens nothing.

use sha2::{Digest, Sha256};

/// Characters of the mark: 96 bits in base64url.
pub(super) const LEN: usize = 16;

/// Makes and checks marks. Every shard, and every server that shall let this dialog through, has the same secret.
#[derive(Clone)]
pub struct RouteMac {
    keyed: Sha256,
}

impl std::fmt::Debug for RouteMac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RouteMac")
    }
}

impl RouteMac {
    pub fn new(secret: &[u8]) -> Self {
        // One whole block first: the key's state is computed once.
        let mut keyed = Sha256::new();
        let mut block = [0u8; 64];
        block[..32].copy_from_slice(&Sha256::digest(secret));
        block[32..].copy_from_slice(&Sha256::digest(b"strowger record-route"));
        keyed.update(block);
        Self { keyed }
    }

    pub fn mark(&self, call_id: &[u8], tag: &[u8]) -> [u8; LEN] {
        let mut hash = self.keyed.clone();
        hash.update((call_id.len() as u32).to_be_bytes());
        hash.update(call_id);
        hash.update(tag);
        let digest = hash.finalize();
        let mut out = [0; LEN];
        for (four, three) in out.chunks_exact_mut(4).zip(digest.chunks_exact(3)) {
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for (i, c) in four.iter_mut().enumerate() {
                *c = ALPHABET[(bits >> (18 - 6 * i)) as usize & 63];
            }
        }
        out
    }

    /// `mark` is that of this call and of one of the two tags.
    pub fn holds(&self, mark: &[u8], call_id: &[u8], from_tag: &[u8], to_tag: &[u8]) -> bool {
        use subtle::ConstantTimeEq;
        [from_tag, to_tag].iter().any(|tag| !tag.is_empty() && bool::from(self.mark(call_id, tag)[..].ct_eq(mark)))
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_opens_its_dialog_only() {
        let mac = RouteMac::new(b"secret");
        let mark = mac.mark(b"call", b"alice");
        assert!(mac.holds(&mark, b"call", b"alice", b"bob"));
        assert!(mac.holds(&mark, b"call", b"bob", b"alice"));
        assert!(!mac.holds(&mark, b"other", b"alice", b"bob"));
        assert!(!mac.holds(&mark, b"call", b"mallory", b"bob"));
        assert!(!mac.holds(&mark[..15], b"call", b"alice", b"bob"));
        assert!(!RouteMac::new(b"other").holds(&mark, b"call", b"alice", b"bob"));
        assert!(!mac.holds(&mac.mark(b"call", b""), b"call", b"alice", b""));
    }
}
