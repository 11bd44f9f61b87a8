//! The mark in our Record-Route: proof that a later request belongs to a dialog that we let through.
//!
//! It is a keyed hash of Call-ID and the tag of the party that made the dialog, so it opens this dialog
//! and no other; a To tag alone opens nothing. Whether that party might have gone anywhere, or only to
//! whom it called, stands in it too.

use sha2::{Digest, Sha256};

/// Characters of the mark: 96 bits in base64url.
pub(super) const LEN: usize = 16;

/// Makes and checks marks. Every shard, and every server that shall let this dialog through, has the same secret.
#[derive(Clone)]
pub struct RouteMac {
    keyed: Sha256,
}

/// What the mark of a dialog proves of who began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// One for whom requests are relayed wherever they go.
    Trusted,
    /// Anybody: let through only because a user of ours was called.
    Stranger,
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

    pub fn mark(&self, began: Began, call_id: &[u8], tag: &[u8]) -> [u8; LEN] {
        let mut hash = self.keyed.clone();
        if began == Began::Stranger {
            // No Call-ID is so long.
            hash.update(u32::MAX.to_be_bytes());
        }
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

    /// Who began the call, if `mark` is that of this call and of one of the two tags.
    pub fn holds(&self, mark: &[u8], call_id: &[u8], from_tag: &[u8], to_tag: &[u8]) -> Option<Began> {
        use subtle::ConstantTimeEq;
        let is_of = |began, tag: &[u8]| bool::from(self.mark(began, call_id, tag)[..].ct_eq(mark));
        [Began::Trusted, Began::Stranger]
            .into_iter()
            .find(|began| [from_tag, to_tag].iter().any(|tag| !tag.is_empty() && is_of(*began, tag)))
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_opens_its_dialog_only() {
        let mac = RouteMac::new(b"secret");
        for began in [Began::Trusted, Began::Stranger] {
            let mark = mac.mark(began, b"call", b"alice");
            assert_eq!(mac.holds(&mark, b"call", b"alice", b"bob"), Some(began));
            assert_eq!(mac.holds(&mark, b"call", b"bob", b"alice"), Some(began));
            assert_eq!(mac.holds(&mark, b"other", b"alice", b"bob"), None);
            assert_eq!(mac.holds(&mark, b"call", b"mallory", b"bob"), None);
            assert_eq!(mac.holds(&mark[..15], b"call", b"alice", b"bob"), None);
            assert_eq!(RouteMac::new(b"other").holds(&mark, b"call", b"alice", b"bob"), None);
            assert_eq!(mac.holds(&mac.mark(began, b"call", b""), b"call", b"alice", b""), None);
        }
    }
}
