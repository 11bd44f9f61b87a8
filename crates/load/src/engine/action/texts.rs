//! Texts as actions compare, read and encode them.

/// Compares as C's strcmp does, and returns the difference of the first two bytes that differ.
pub(super) fn difference(left: &[u8], right: &[u8]) -> i32 {
    let byte = |text: &[u8], i: usize| text.get(i).copied().unwrap_or(0);
    let most = left.len().max(right.len());
    (0..most).map(|i| i32::from(byte(left, i)) - i32::from(byte(right, i))).find(|&d| d != 0).unwrap_or(0)
}

/// Parses a whole text as a number as C's `strtod` does: leading white space, hexadecimal with `0x`.
pub(super) fn whole_number(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let text = std::str::from_utf8(text).ok()?.trim_ascii_start();
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (if text.starts_with('-') { -1.0 } else { 1.0 }, digits),
        None => (1.0, text),
    };
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok().map(|number| sign * number as f64),
        None => text.parse().ok(),
    }
}

pub(super) fn url_encode(text: &[u8], out: &mut Vec<u8>) {
    use std::io::Write;
    for &b in text {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') {
            out.push(b);
        } else {
            let _ = write!(out, "%{b:02x}");
        }
    }
}

pub(super) fn url_decode(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(byte) if text[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
}
