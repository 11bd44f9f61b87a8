//! Branch parameter of our own Via. One part tells a loop from a spiral (RFC 3261 section 16.6 step 8, RFC 5393 section
//! 4.2), another has the number of branches that the request may still have.
//!
//! Format: `z9hG4bK`, then hexadecimal digits. The first 16 digits are unique. The next 16 are a hash that is equal if
//! the same server takes the same routing decision for the same request. The next 4 are the remaining number of
//! branches. The last 8 prove that a server with our secret wrote all of them.
//!
//! Servers with one secret may form a chain: a request that passes both unchanged is no loop. The number of branches
//! counts for all of them.
//!
//! Max-Breadth (RFC 5393 section 5) bounds simultaneous branches. A request that returns by several paths, tried one
//! after the other, could still pass every permutation of these paths. So the number of all branches is fixed when the
//! request first arrives, and each branch carries its share.

use crate::entropy::hex;
use crate::siphash::SipKey;
use std::hash::{BuildHasher, Hasher};

/// Length of our branch parameter in bytes.
pub(crate) const LEN: usize = MAGIC.len() + 44;
const MAGIC: &[u8] = b"z9hG4bK";

/// Writer and reader of branch parameters.
#[derive(Clone)]
pub(crate) struct BranchKey {
    of_request: foldhash::quality::FixedState,
    proof: SipKey,
}

impl std::fmt::Debug for BranchKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BranchKey")
    }
}

/// Content of our branch parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    /// [`BranchKey::of_request`] of the forwarded request.
    pub(crate) of_request: u64,
    /// Further branches that the copy may become.
    pub(crate) left: u16,
}

impl BranchKey {
    /// Creates the key of a server. `name`: unique among servers with the same secret.
    pub(crate) fn new(secret: &[u8], name: &[u8]) -> Self {
        use sha2::{Digest, Sha256};
        let seed = Sha256::new().chain_update(secret).chain_update(b"strowger loop 2").chain_update(name).finalize();
        let seed = u64::from_le_bytes(seed[..8].try_into().expect("eight of thirty-two bytes"));
        Self {
            of_request: foldhash::quality::FixedState::with_seed(seed),
            proof: SipKey::derive(secret, b"strowger branch 2"),
        }
    }

    /// Returns the hash of the input of the routing decision: Request-URI and Route values as received, and the identity of the request.
    pub(crate) fn of_request<'a>(
        &self,
        uri: &[u8],
        routes: impl Iterator<Item = &'a [u8]>,
        call_id: &[u8],
        from_tag: &[u8],
        cseq: u32,
    ) -> u64 {
        let mut hasher = self.of_request.build_hasher();
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

    /// Writes a branch parameter with this content.
    pub(crate) fn write(&self, unique: u64, visit: Visit) -> [u8; LEN] {
        let mut branch = [0; LEN];
        let tail = u64::from(visit.left) << 32 | u64::from(self.proof(unique, visit));
        let parts = [MAGIC, &hex(unique)[..], &hex(visit.of_request), &hex(tail)[4..]];
        let mut at = 0;
        for part in parts {
            branch[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        branch
    }

    /// Parses a branch parameter of [`BranchKey::write`]; returns `None` if another element wrote it.
    pub(crate) fn read(&self, branch: &[u8]) -> Option<Visit> {
        let digits = branch.strip_prefix(MAGIC).filter(|_| branch.len() == LEN)?;
        // A sign is not accepted as a digit.
        let digits = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let number = |range| u64::from_str_radix(digits.get(range)?, 16).ok();
        let (unique, of_request, tail) = (number(0..16)?, number(16..32)?, number(32..44)?);
        let visit = Visit { of_request, left: (tail >> 32) as u16 };
        (tail as u32 == self.proof(unique, visit)).then_some(visit)
    }

    fn proof(&self, unique: u64, visit: Visit) -> u32 {
        let mut hash = self.proof.begin();
        for word in [unique, visit.of_request, visit.left.into()] {
            hash.word(word);
        }
        u32::from_le_bytes(hash.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spiral_is_no_loop() {
        let key = BranchKey::new(b"secret", b"one");
        let hash = |uri: &[u8], route: &[u8]| key.of_request(uri, [route].into_iter(), b"c", b"t", 1);
        let visit = Visit { of_request: hash(b"sip:a@b", b""), left: 7 };
        assert_eq!(key.read(&key.write(1, visit)), Some(visit));
        assert_ne!(visit.of_request, hash(b"sip:a@c", b""));
        assert_ne!(visit.of_request, hash(b"sip:a@b", b"<sip:p;lr>"));
    }

    #[test]
    fn servers_with_one_secret_know_their_own_loops() {
        let [one, other] = [b"one", b"two"].map(|name| BranchKey::new(b"secret", name));
        let hash = |key: &BranchKey| key.of_request(b"sip:a@b", std::iter::empty(), b"c", b"t", 1);
        let visit = Visit { of_request: hash(&one), left: 7 };
        let read = other.read(&one.write(1, visit));
        assert_eq!(read, Some(visit), "what is left counts for both");
        assert_ne!(read.map(|visit| visit.of_request), Some(hash(&other)));
    }

    #[test]
    fn only_own_branches_are_read() {
        let key = BranchKey::new(b"secret", b"one");
        let visit = Visit { of_request: u64::MAX, left: u16::MAX };
        let branch = key.write(0, visit);
        assert_eq!(key.read(&branch), Some(visit));
        for at in 0..LEN {
            let mut other = branch;
            other[at] = if other[at] == b'1' { b'2' } else { b'1' };
            assert_eq!(key.read(&other), None, "byte {at}");
        }
        assert_eq!(BranchKey::new(b"other", b"one").read(&branch), None);
        assert_eq!(key.read(&branch[..LEN - 1]), None);
        assert_eq!(key.read(b"z9hG4bK1"), None);
        assert_eq!(key.read(&[b'+'; LEN]), None);
    }
}
