//! Classes of octets (RFC 3261 section 25.1).

/// Tells whether no line may contain this octet (RFC 3261 section 25.1), except in a quoted pair; some readers end a
/// line or a text at such an octet.
#[inline]
pub(crate) const fn is_control(b: u8) -> bool {
    b < b' ' && !matches!(b, b'\t' | b'\r' | b'\n')
}

/// Tells whether this is a token character (RFC 3261 section 25.1).
#[inline]
pub(crate) const fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0u8;
    while b < 128 {
        table[b as usize] = b.is_ascii_alphanumeric()
            || matches!(b, b'-' | b'.' | b'!' | b'%' | b'*' | b'_' | b'+' | b'`' | b'\'' | b'~');
        b += 1;
    }
    table
};
