//! Branch of our requests.

use crate::entropy::write_hex;

/// Branch of a Via: magic cookie and sixteen digits (RFC 3261 section 8.1.1.7).
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch([u8; 23]);

impl Branch {
    pub(super) fn new(number: u64) -> Self {
        let mut digits = Vec::with_capacity(23);
        digits.extend_from_slice(b"z9hG4bK");
        write_hex(number, &mut digits);
        Self(digits.try_into().expect("seven and sixteen bytes"))
    }

    pub(super) const fn text(&self) -> &[u8] {
        &self.0
    }
}
