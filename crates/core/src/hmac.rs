//! HMAC-SHA-256 (RFC 2104): keyed hash for values that a machine writes into messages and verifies later.

use hmac::{KeyInit, Mac};
use sha2::Sha256;

/// Key of the hash. Both padded forms are hashed in advance, so that a short text costs two compressions instead of
/// four.
#[derive(Clone)]
pub(crate) struct Hmac(hmac::Hmac<Sha256>);

impl Hmac {
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(KeyInit::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    /// Derives the key for one purpose from the secret of a server.
    pub(crate) fn derive(secret: &[u8], purpose: &[u8]) -> Self {
        Self::new(&Self::new(secret).mac(&[purpose]))
    }

    /// Computes the code of the concatenated parts. If the same concatenation could result from other parts, the
    /// lengths of the parts must be among the parts.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mac = parts.iter().fold(self.0.clone(), Mac::chain_update);
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_rfc_4231() {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(Hmac::new(&[0x0b; 20]).mac(&[b"Hi ", b"There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(Hmac::new(b"Jefe").mac(&[b"what do ya want for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(Hmac::new(&[0xaa; 131]).mac(&[b"Test Using Larger Than Block-Size Key - Hash Key First"])),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
