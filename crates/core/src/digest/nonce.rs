//! Nonces issued without state and authenticated by a key (RFC 7616 section 3.3 and 5.4).
//!
//! 27 bytes, as 36 characters of base64url: 4 of time, 8 of salt, 3 that name the source to which the nonce went, 12 of
//! HMAC-SHA-256 over those and the realm. Whoever knows the secret - each shard, each server that shares it - can
//! judge a nonce; nobody else can make one or move one to another realm.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::base64url;
use crate::hmac::Hmac;

/// Characters of a nonce.
pub const NONCE_LEN: usize = 36;

const BODY: usize = 15;
const BYTES: usize = 27;

/// A nonce as it goes into a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonceText([u8; NONCE_LEN]);

impl NonceText {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A nonce that was issued with our key. Only [`NonceKey::open`] makes one from received text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce {
    issued: u32,
    salt: u64,
    source: [u8; 3],
}

impl Nonce {
    /// When it was issued: Unix seconds, by the clock of the server that did.
    pub fn issued(&self) -> u32 {
        self.issued
    }

    /// What makes it different from others of the same second.
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// Whether at `now` (Unix seconds) it is no older than `life` seconds and, because servers that share a secret
    /// have different clocks, no more than `skew` seconds from the future.
    pub fn is_fresh(&self, now: u64, life: u32, skew: u32) -> bool {
        let issued = u64::from(self.issued);
        now <= issued + u64::from(life) && issued <= now + u64::from(skew)
    }
}

/// The key that makes and judges nonces, derived from a server's secret.
#[derive(Clone)]
pub struct NonceKey(Hmac);

impl NonceKey {
    /// `secret` should hold at least 16 bytes of entropy; any length is accepted.
    pub fn new(secret: &[u8]) -> Self {
        Self(Hmac::derive(secret, b"strowger digest nonce 1"))
    }

    /// Makes a nonce for a realm and a source (its address as bytes, or nothing).
    ///
    /// `entropy` must differ between any two nonces of one second, servers with the same secret included: 64 random bits.
    pub fn issue(&self, now: u64, realm: &[u8], source: &[u8], entropy: u64) -> NonceText {
        // Seconds wrap in 2106; a server that still runs then sees one generation of stale nonces.
        let issued = now as u32;
        let nonce = Nonce { issued, salt: entropy, source: self.source_tag(issued, entropy, source) };
        let mut bytes = [0; BYTES];
        bytes[..BODY].copy_from_slice(&nonce.body());
        bytes[BODY..].copy_from_slice(&self.tag(&nonce, realm));
        let mut text = [0; NONCE_LEN];
        base64url::encode(&bytes, &mut text);
        NonceText(text)
    }

    /// The nonce that this text is, or `None` if it was not issued with this key for this realm.
    pub fn open(&self, text: &[u8], realm: &[u8]) -> Option<Nonce> {
        let mut bytes = [0; BYTES];
        if !base64url::decode(text, &mut bytes) {
            return None;
        }
        let (issued, rest) = bytes.split_first_chunk::<4>()?;
        let (salt, rest) = rest.split_first_chunk::<8>()?;
        let (source, tag) = rest.split_first_chunk::<3>()?;
        let nonce = Nonce { issued: u32::from_be_bytes(*issued), salt: u64::from_be_bytes(*salt), source: *source };
        bool::from(self.tag(&nonce, realm)[..].ct_eq(tag)).then_some(nonce)
    }

    /// Whether the nonce was issued to this source. False for one stranger in 16 million by chance.
    pub fn was_issued_to(&self, nonce: &Nonce, source: &[u8]) -> bool {
        self.source_tag(nonce.issued, nonce.salt, source).ct_eq(&nonce.source).into()
    }

    fn source_tag(&self, issued: u32, salt: u64, source: &[u8]) -> [u8; 3] {
        let mac = self.0.mac(&[b"source", &issued.to_be_bytes(), &salt.to_be_bytes(), source]);
        [mac[0], mac[1], mac[2]]
    }

    fn tag(&self, nonce: &Nonce, realm: &[u8]) -> [u8; 12] {
        let mac = self.0.mac(&[b"nonce:", &nonce.body(), realm]);
        *mac.first_chunk().expect("an HMAC-SHA-256 has 32 bytes")
    }
}

impl Nonce {
    fn body(&self) -> [u8; BODY] {
        let mut body = [0; BODY];
        body[..4].copy_from_slice(&self.issued.to_be_bytes());
        body[4..12].copy_from_slice(&self.salt.to_be_bytes());
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
        let key = NonceKey::new(b"secret");
        let text = key.issue(1_000, b"example.org", b"\x7f\0\0\x01", 42);
        let nonce = key.open(text.as_bytes(), b"example.org").expect("just issued");
        assert_eq!((nonce.issued(), nonce.salt()), (1_000, 42));
        assert!(key.was_issued_to(&nonce, b"\x7f\0\0\x01") && !key.was_issued_to(&nonce, b"\x7f\0\0\x02"));
        assert!(NonceKey::new(b"secret").open(text.as_bytes(), b"example.org").is_some(), "another server");
        assert!(NonceKey::new(b"Secret").open(text.as_bytes(), b"example.org").is_none(), "another secret");
        assert!(key.open(text.as_bytes(), b"example.com").is_none(), "another realm");
        assert!(key.open(&text.as_bytes()[1..], b"example.org").is_none() && key.open(b"", b"example.org").is_none());
    }

    #[test]
    fn no_changed_character_is_accepted() {
        let key = NonceKey::new(b"secret");
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
        let key = NonceKey::new(b"secret");
        let nonce = key.open(key.issue(1_000, b"r", b"", 1).as_bytes(), b"r").expect("just issued");
        for (now, fresh) in [(989, false), (990, true), (1_000, true), (1_300, true), (1_301, false)] {
            assert_eq!(nonce.is_fresh(now, 300, 10), fresh, "{now}");
        }
    }
}
