//! Nonces issued without state and authenticated by a key (RFC 7616 section 3.3 and 5.4).
//!
//! A nonce has 27 bytes, as 36 characters of base64: 4 of time, 3 of the issuing process, 5 of salt, 3 of the source that it was sent to,
//! 12 of HMAC-SHA-256 over those and the realm. Each shard, and each server with the same secret, can verify a nonce. Without the secret,
//! no nonce can be made or moved to another realm.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::base64;
use crate::hmac::Hmac;

/// Length of a nonce in characters.
pub const NONCE_LEN: usize = 36;

const BODY: usize = 15;
const BYTES: usize = 27;

/// Nonce as written into a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonceText([u8; NONCE_LEN]);

impl NonceText {
    /// Returns [`NONCE_LEN`] characters of base64; none needs an escape between quotes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Verified nonce of our key. Only [`NonceKey::open`] makes one from received text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce {
    /// Unix seconds, lower 32 bits.
    issued: u32,
    process: [u8; 3],
    salt: [u8; 5],
    source: [u8; 3],
}

impl Nonce {
    /// Returns the time of issue in Unix seconds, by the clock of the issuing server. The nonce has the lower 32 bits
    /// of the time, which wrap in 2106; the result is the matching moment nearest to `now`.
    pub fn issued_at(&self, now: u64) -> u64 {
        now.saturating_add_signed(-self.age(now))
    }

    /// Returns the seconds since the issue of the nonce; negative if the issuing clock is ahead of ours.
    fn age(&self, now: u64) -> i64 {
        (now as u32).wrapping_sub(self.issued).cast_signed().into()
    }

    /// Returns the nonce's identity: process and salt, and the second of issue.
    pub(super) fn identity(&self) -> (u64, u32) {
        let [a, b, c] = self.process;
        let [d, e, f, g, h] = self.salt;
        (u64::from_be_bytes([a, b, c, d, e, f, g, h]), self.issued)
    }

    /// Tells whether at `now` (Unix seconds) the nonce is at most `life` seconds old. Its time of issue may be up to
    /// `skew` seconds after `now`, because servers that share a secret have different clocks.
    pub fn is_fresh(&self, now: u64, life: u32, skew: u32) -> bool {
        (-i64::from(skew)..=i64::from(life)).contains(&self.age(now))
    }
}

/// Key that writes and verifies nonces, derived from a server's secret.
#[derive(Clone)]
pub struct NonceKey {
    key: Hmac,
    process: [u8; 3],
}

impl NonceKey {
    /// Derives the key. `secret` should have at least 16 bytes of entropy; any length is accepted. The lower 24 bits of `process` go into
    /// each nonce; they should be random and differ between processes.
    pub fn new(secret: &[u8], process: u32) -> Self {
        let [_, a, b, c] = process.to_be_bytes();
        Self { key: Hmac::derive(secret, b"strowger digest nonce 2"), process: [a, b, c] }
    }

    /// Creates a nonce for a realm and a source (bytes of its address, or empty).
    ///
    /// The lower 40 bits of `entropy` should be random: they distinguish nonces of the same second.
    pub fn issue(&self, now: u64, realm: &[u8], source: &[u8], entropy: u64) -> NonceText {
        let issued = now as u32;
        let [_, _, _, salt @ ..] = entropy.to_be_bytes();
        let source = self.source_tag(issued, salt, source);
        let nonce = Nonce { issued, process: self.process, salt, source };
        let mut bytes = [0; BYTES];
        bytes[..BODY].copy_from_slice(&nonce.body());
        bytes[BODY..].copy_from_slice(&self.tag(&nonce, realm));
        let mut text = [0; NONCE_LEN];
        base64::encode(&bytes, &mut text);
        NonceText(text)
    }

    /// Verifies a nonce; returns `None` if it was not issued with this key for this realm.
    pub fn open(&self, text: &[u8], realm: &[u8]) -> Option<Nonce> {
        let mut bytes = [0; BYTES];
        if !base64::decode(text, &mut bytes) {
            return None;
        }
        let (issued, rest) = bytes.split_first_chunk::<4>()?;
        let (process, rest) = rest.split_first_chunk::<3>()?;
        let (salt, rest) = rest.split_first_chunk::<5>()?;
        let (source, tag) = rest.split_first_chunk::<3>()?;
        let issued = u32::from_be_bytes(*issued);
        let nonce = Nonce { issued, process: *process, salt: *salt, source: *source };
        bool::from(self.tag(&nonce, realm)[..].ct_eq(tag)).then_some(nonce)
    }

    /// Tells whether this process issued the nonce, rather than another server with the same secret or an earlier run.
    pub fn is_own(&self, nonce: &Nonce) -> bool {
        nonce.process == self.process
    }

    /// Tells whether the nonce was issued to this source. By chance this is true for one other source in 16 million.
    pub fn was_issued_to(&self, nonce: &Nonce, source: &[u8]) -> bool {
        self.source_tag(nonce.issued, nonce.salt, source).ct_eq(&nonce.source).into()
    }

    fn source_tag(&self, issued: u32, salt: [u8; 5], source: &[u8]) -> [u8; 3] {
        let mac = self.key.mac(&[b"source", &issued.to_be_bytes(), &salt, source]);
        [mac[0], mac[1], mac[2]]
    }

    fn tag(&self, nonce: &Nonce, realm: &[u8]) -> [u8; 12] {
        let mac = self.key.mac(&[b"nonce:", &nonce.body(), realm]);
        *mac.first_chunk().expect("an HMAC-SHA-256 has 32 bytes")
    }
}

impl Nonce {
    fn body(&self) -> [u8; BODY] {
        let mut body = [0; BODY];
        body[..4].copy_from_slice(&self.issued.to_be_bytes());
        body[4..7].copy_from_slice(&self.process);
        body[7..12].copy_from_slice(&self.salt);
        body[12..].copy_from_slice(&self.source);
        body
    }
}

impl fmt::Debug for NonceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonceKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_nonces_open_and_others_do_not() {
        let key = NonceKey::new(b"secret", 7);
        let text = key.issue(1_000, b"example.org", b"\x7f\0\0\x01", 42);
        let nonce = key.open(text.as_bytes(), b"example.org").expect("just issued");
        assert_eq!((nonce.issued_at(1_100), nonce.identity()), (1_000, (7 << 40 | 42, 1_000)));
        assert!(key.was_issued_to(&nonce, b"\x7f\0\0\x01") && !key.was_issued_to(&nonce, b"\x7f\0\0\x02"));
        let other = NonceKey::new(b"secret", 8);
        assert_eq!(other.open(text.as_bytes(), b"example.org"), Some(nonce), "another server");
        assert!(key.is_own(&nonce) && !other.is_own(&nonce));
        assert!(NonceKey::new(b"Secret", 7).open(text.as_bytes(), b"example.org").is_none(), "another secret");
        assert!(key.open(text.as_bytes(), b"example.com").is_none(), "another realm");
        assert!(key.open(&text.as_bytes()[1..], b"example.org").is_none() && key.open(b"", b"example.org").is_none());
    }

    #[test]
    fn no_changed_character_is_accepted() {
        let key = NonceKey::new(b"secret", 7);
        let text = key.issue(1_000, b"example.org", b"", 42);
        for at in 0..NONCE_LEN {
            for character in 0..=255 {
                let mut forged = *text.as_bytes().first_chunk::<NONCE_LEN>().expect("whole");
                if forged[at] != character {
                    forged[at] = character;
                    assert!(key.open(&forged, b"example.org").is_none(), "{at} {character}");
                }
            }
        }
    }

    #[test]
    fn freshness_at_both_ends() {
        let key = NonceKey::new(b"secret", 7);
        // This holds also when 32 bits of seconds wrap, on 7 February 2106.
        for issued in [1_000, 1 << 32, (1 << 32) - 150, (3 << 32) + 5] {
            let nonce = key.open(key.issue(issued, b"r", b"", 1).as_bytes(), b"r").expect("just issued");
            for (later, fresh) in [(-11, false), (-10, true), (0, true), (300, true), (301, false)] {
                let now = issued.saturating_add_signed(later);
                assert_eq!(nonce.is_fresh(now, 300, 10), fresh, "{issued} {later}");
                assert_eq!(nonce.issued_at(now), issued);
            }
        }
    }
}
