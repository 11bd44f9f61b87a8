//! Text of peers for the log: on one line, printable, and short.

use std::fmt::{self, Display, Formatter, Write};

/// Maximum bytes of one value in a log line.
pub const LONGEST: usize = 128;

/// Mark of a cut value.
const MORE: &str = "...";
/// Escaped space.
const SPACE: &str = "\\x20";

/// Returns bytes of a peer, escaped as in a Rust string: at most [`LONGEST`] bytes, with `...` at the end of a cut
/// value. If a value contains an equals sign, spaces are escaped too, so that no part of the value looks like another
/// field of the line.
pub fn shown(bytes: &[u8]) -> impl Display + '_ {
    Shown(bytes)
}

/// Maximum bytes of a reason in a log line.
pub const LONGEST_REASON: usize = 400;

/// Returns displayed text without control characters: at most [`LONGEST_REASON`] bytes, with `...` at the end of a cut
/// text. To be used for errors that may quote a peer.
pub fn brief(value: &impl Display) -> impl Display + '_ {
    Brief(value)
}

struct Shown<'a>(&'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\\\"'".contains(byte);
        let field_like = self.0.contains(&b' ') && self.0.contains(&b'=');
        if self.0.len() <= LONGEST && !field_like && self.0.iter().all(plain) {
            // All of it is ASCII.
            return f.write_str(str::from_utf8(self.0).unwrap_or_default());
        }
        let mut line = Line::<LONGEST>::default();
        for byte in self.0 {
            let escaped = std::ascii::escape_default(*byte);
            let is_space = field_like && *byte == b' ';
            let length = if is_space { SPACE.len() } else { escaped.len() };
            if line.length + length + MORE.len() > LONGEST {
                line.put(MORE);
                break;
            }
            // Enough room was left for it.
            match is_space {
                true => line.put(SPACE),
                false => drop(write!(line, "{escaped}")),
            }
        }
        f.write_str(line.text())
    }
}

struct Brief<'a, T>(&'a T);

impl<T: Display> Display for Brief<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut line = Line::<LONGEST_REASON>::default();
        // The only error is that of a full line.
        let _ = write!(line, "{}", self.0);
        f.write_str(line.text())
    }
}

/// Text of bounded length, on the stack.
struct Line<const MOST: usize> {
    bytes: [u8; MOST],
    length: usize,
}

impl<const MOST: usize> Default for Line<MOST> {
    fn default() -> Self {
        Self { bytes: [0; MOST], length: 0 }
    }
}

impl<const MOST: usize> Line<MOST> {
    fn text(&self) -> &str {
        // Only whole characters were added.
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    fn put(&mut self, text: &str) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
    }
}

impl<const MOST: usize> Write for Line<MOST> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.length + text.len() + MORE.len() <= MOST && !text.contains(char::is_control) {
            self.put(text);
            return Ok(());
        }
        for character in text.chars() {
            let character = if character.is_control() { ' ' } else { character };
            if self.length + character.len_utf8() + MORE.len() > MOST {
                self.put(MORE);
                return Err(fmt::Error);
            }
            self.put(character.encode_utf8(&mut [0; 4]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_is_escaped_and_short() {
        for (bytes, text) in
            [(&b"alice@example.org"[..], "alice@example.org"), (b"a\r\nb\"\xff\0", "a\\r\\nb\\\"\\xff\\x00"), (b"", "")]
        {
            assert_eq!(shown(bytes).to_string(), text);
        }
        assert_eq!(shown(b"Phone 1.0 (a)").to_string(), "Phone 1.0 (a)");
        assert_eq!(shown(b"a source=6.6.6.6").to_string(), "a\\x20source=6.6.6.6");
        assert_eq!(shown(&[b'a'; LONGEST]).to_string(), "a".repeat(LONGEST));
        for part in [&b"a"[..], b"\"", b"\xff", b"\n", b" ="] {
            let text = shown(&part.repeat(58_000)).to_string();
            assert!(text.len() <= LONGEST && text.ends_with("...") && text.is_ascii(), "{text}");
        }
    }

    #[test]
    fn displayed_text_is_one_short_line() {
        assert_eq!(brief(&"no such host").to_string(), "no such host");
        assert_eq!(brief(&"one\ntwo\x1b[31m").to_string(), "one two [31m");
        for text in ["é".repeat(1_000), "x\n".repeat(1_000)] {
            let text = brief(&text).to_string();
            assert!(text.len() <= LONGEST_REASON && text.ends_with("...") && !text.contains('\n'), "{text}");
        }
    }
}
