//! Branches of our own Via, with a part that tells a loop from a spiral (RFC 3261 section 16.6 step 8, RFC
//! 5393 section 4.2).
//!
//! `z9hG4bK` + 16 digits that are unique + 16 digits that are the same whenever the same routing decision
//! would be made on the same request.

use crate::entropy::write_hex;
use std::hash::{BuildHasher, Hasher};

/// Bytes of a branch of ours.
pub(super) const LEN: usize = MAGIC.len() + 32;
const MAGIC: &[u8] = b"z9hG4bK";

/// Computes the part of the branch that depends on the request.
#[derive(Clone, Debug)]
pub(super) struct LoopKey {
    state: foldhash::quality::FixedState,
}

impl LoopKey {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: foldhash::quality::FixedState::with_seed(seed) }
    }

    /// The hash of everything that the routing decision depends on: the Request-URI and the Route values
    /// as received, besides what names the request.
    pub(super) fn of<'a>(
        &self,
        uri: &[u8],
        routes: impl Iterator<Item = &'a [u8]>,
        call_id: &[u8],
        from_tag: &[u8],
        cseq: u32,
    ) -> u64 {
        let mut hasher = self.state.build_hasher();
        for part in [uri, call_id, from_tag] {
            hasher.write(part);
            hasher.write_u8(0);
        }
        hasher.write_u32(cseq);
        for route in routes {
            hasher.write(route);
            hasher.write_u8(0);
        }
        hasher.finish()
    }
}

/// A branch, appended.
pub(super) fn write_branch(unique: u64, of_request: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    write_hex(unique, out);
    write_hex(of_request, out);
}

/// The branch was made by [`write_branch`] for a request with this hash: it has come round unchanged.
pub(super) fn is_loop(branch: &[u8], of_request: u64) -> bool {
    let digits = branch.strip_prefix(MAGIC).filter(|_| branch.len() == LEN).and_then(|hex| hex.get(16..));
    digits.and_then(|hex| u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) == Some(of_request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spiral_is_no_loop() {
        let key = LoopKey::new(7);
        let hash = |uri: &[u8], route: &[u8]| key.of(uri, [route].into_iter(), b"c", b"t", 1);
        let mut branch = Vec::new();
        write_branch(1, hash(b"sip:a@b", b""), &mut branch);
        assert_eq!(branch.len(), LEN);
        assert!(is_loop(&branch, hash(b"sip:a@b", b"")));
        assert!(!is_loop(&branch, hash(b"sip:a@c", b"")));
        assert!(!is_loop(&branch, hash(b"sip:a@b", b"<sip:p;lr>")));
        assert!(!is_loop(b"z9hG4bK1", hash(b"sip:a@b", b"")));
    }
}
