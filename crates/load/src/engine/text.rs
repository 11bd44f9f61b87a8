//! Numbers and insertions in the text of a message.

/// Inserts bytes.
pub(super) fn insert(out: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out[at..].rotate_right(bytes.len());
}

/// Appends a decimal number.
#[inline]
pub(super) fn number(out: &mut Vec<u8>, value: i64) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&buffer[at..]);
}
