//! HMAC-SHA-256 (RFC 2104): the keyed hash under everything that a machine writes into messages to believe it later.

use sha2::{Digest, Sha256};

/// A key. Both padded forms are hashed beforehand: a short text costs two compressions, not four.
#[derive(Clone)]
pub(crate) struct Hmac {
    inner: Sha256,
    outer: Sha256,
}

impl Hmac {
    pub(crate) fn new(key: &[u8]) -> Self {
        let mut block = [0u8; 64];
        if key.len() > block.len() {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let keyed = |pad: u8| Sha256::new().chain_update(block.map(|byte| byte ^ pad));
        Self { inner: keyed(0x36), outer: keyed(0x5c) }
    }

    /// The key for one purpose, made from the secret of a server.
    pub(crate) fn derive(secret: &[u8], purpose: &[u8]) -> Self {
        Self::new(&Self::new(secret).mac(&[purpose]))
    }

    /// Of the parts one behind the other: where they may be cut differently, their lengths must be among them.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut inner = self.inner.clone();
        for part in parts {
            inner.update(part);
        }
        let mut outer = self.outer.clone();
        outer.update(inner.finalize());
        outer.finalize().into()
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
