//! Text of a peer for a terminal. A control byte in a reason phrase or a header field must not move the cursor, set the title or
//! type an answer on a terminal that shows the text now, or that shows a log with the text later.

use std::borrow::Cow;
use std::io::Write;

/// Escapes control characters of a text as `\x1b`. Tabs and line feeds stay, a carriage return stays before a line feed. The C1
/// control characters of ISO 6429 (0x80 to 0x9F) are escaped in UTF-8 and as single bytes.
pub fn printable_bytes(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    let escape = |out: &mut Vec<u8>, byte: u8| drop(write!(out, "\\x{byte:02x}"));
    let mut rest = text;
    while let Some(chunk) = rest.utf8_chunks().next() {
        let (valid, invalid) = (chunk.valid(), chunk.invalid());
        let behind = &rest[valid.len()..];
        for (at, letter) in valid.char_indices() {
            let next = valid.as_bytes().get(at + 1).or_else(|| behind.first());
            match letter {
                '\n' | '\t' => out.push(letter as u8),
                '\r' if next == Some(&b'\n') => out.push(b'\r'),
                _ if letter.is_control() => escape(&mut out, letter as u8),
                _ => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for &byte in invalid {
            match byte {
                0x80..=0x9f => escape(&mut out, byte),
                _ => out.push(byte),
            }
        }
        rest = &rest[valid.len() + invalid.len()..];
    }
    out.into()
}

/// Escapes control characters of a string, see [`printable_bytes`].
pub fn printable(text: &str) -> Cow<'_, str> {
    match printable_bytes(text.as_bytes()) {
        Cow::Borrowed(_) => text.into(),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_not_obeyed() {
        for (text, shown) in [
            ("Busy Here", "Busy Here"),
            ("\u{1b}]0;owned\u{7}", "\\x1b]0;owned\\x07"),
            ("a\tb\r\nc\n", "a\tb\r\nc\n"),
            ("safe\rowned", "safe\\x0downed"),
            ("\u{9b}31m \u{7f}\0", "\\x9b31m \\x7f\\x00"),
            ("Grüße 電話", "Grüße 電話"),
        ] {
            assert_eq!(printable(text), shown);
        }
        assert_eq!(&*printable_bytes(b"\x9b2J \xff\xc3\xbc\r"), b"\\x9b2J \xff\xc3\xbc\\x0d");
    }

    #[test]
    fn no_byte_sequence_keeps_a_control_character() {
        let obeyed = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let control = |(at, letter): (usize, char)| match letter {
                '\n' | '\t' => false,
                '\r' => !text[at..].starts_with("\r\n"),
                _ => letter.is_control(),
            };
            text.char_indices().any(control)
                || bytes.utf8_chunks().any(|chunk| chunk.invalid().iter().any(|byte| matches!(byte, 0x80..=0x9f)))
        };
        let mut random = 7u64;
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..6)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (random >> 33) as u8
                })
                .collect();
            let shown = printable_bytes(&bytes);
            assert!(!obeyed(&shown), "{bytes:02x?} became {shown:02x?}");
            assert_eq!(printable_bytes(&shown), shown, "what is printable stays");
        }
    }
}
