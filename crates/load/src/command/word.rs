//! What controllers tell each other.

/// What comes over a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A word, without the byte that ends it.
    Word(Box<[u8]>),
    /// The connection to another controller has ended: it has gone. Its name, empty in the classic form.
    Ended(Box<str>),
}

/// The value of a line, by its long and its short name in small letters.
fn value<'a>(word: &'a [u8], long: &[u8], short: &[u8]) -> Option<&'a [u8]> {
    for line in word.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(colon) = memchr::memchr(b':', line) {
            let name = line[..colon].trim_ascii();
            if name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short) {
                return Some(line[colon + 1..].trim_ascii());
            }
        }
    }
    None
}

/// Of which call it is.
pub fn call_id(word: &[u8]) -> Option<&[u8]> {
    value(word, b"call-id", b"i").filter(|id| !id.is_empty())
}

/// Who says it, in the extended form.
pub fn sender(word: &[u8]) -> Option<&[u8]> {
    value(word, b"from", b"f")
}

/// The other controller has given the call up.
pub fn is_abort(word: &[u8]) -> bool {
    value(word, b"internal-cmd", b"internal-cmd") == Some(b"abort_call")
}

/// Without the empty lines at its end: they belong to the way, not to the word.
pub fn trimmed(mut word: &[u8]) -> &[u8] {
    while let Some(rest) = word.strip_suffix(b"\r\n") {
        word = rest;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_name() {
        let word = b"call-id:  1-2@h \r\nFROM: s1\r\nX: From: m\r\n\r\n";
        assert_eq!((call_id(word), sender(word)), (Some(&b"1-2@h"[..]), Some(&b"s1"[..])));
        assert!(!is_abort(word));
        assert!(is_abort(b"call-id: a\ninternal-cmd: abort_call\n\n"));
        assert_eq!(call_id(b"Call-ID:\r\n"), None);
        assert_eq!(trimmed(word), b"call-id:  1-2@h \r\nFROM: s1\r\nX: From: m");
    }
}
