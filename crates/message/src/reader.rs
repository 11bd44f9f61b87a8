//! The tokenizer under every view: a position in the bytes, and the character classes.

use crate::{Error, Reason};

/// A position in one header value or URI. A successful read moves it forward; after a refusal it is the position of the
/// fault.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// A header field value with a grammar of its own.
pub trait Field<'a>: Sized {
    /// Reads one value and stops after it, before a comma or at the end. Returns `None` if the value violates its
    /// grammar; `scan` is then at the fault.
    fn read(scan: &mut Reader<'a>) -> Option<Self>;
}

// Functions that are not always inlined take text and position instead of a reader, so that the compiler keeps a reader
// in registers.

/// Returns the offset after the white space at `at`.
#[inline(never)]
fn past_spaces(text: &[u8], at: usize) -> usize {
    let mut scan = Reader { text, at };
    scan.span(WS);
    scan.at
}

/// Returns the offset after the quoted string that starts at `from`.
fn past_quotes(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Reads a whole value; only white space may follow.
#[inline]
pub(crate) fn whole<'a, T: Field<'a>>(text: &'a [u8]) -> Result<T, Error> {
    whole_at(text, 0)
}

/// Reads a whole text that begins at `start` in a message. Positions in errors count from the start of the message.
#[inline]
pub(crate) fn whole_at<'a, T: Field<'a>>(text: &'a [u8], start: usize) -> Result<T, Error> {
    let mut scan = Reader::new(text);
    scan.ws();
    let value = T::read(&mut scan);
    if value.is_some() {
        scan.ws();
    }
    match value {
        Some(value) if scan.is_done() => Ok(value),
        _ => Err(Error::new(Reason::Malformed, start + scan.at)),
    }
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the offset from the start of the text.
    #[inline(always)]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to a position.
    #[inline(always)]
    pub(crate) fn go(&mut self, at: usize) {
        self.at = at;
    }

    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.text.len()
    }

    #[inline(always)]
    pub(crate) fn error(&self) -> Error {
        Error::new(Reason::Malformed, self.at)
    }

    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline(always)]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns the bytes from `from` to the current position.
    #[inline(always)]
    pub(crate) fn since(&self, from: usize) -> &'a [u8] {
        self.text.get(from..self.at).unwrap_or_default()
    }

    /// Returns the bytes from `from` to the end of `last`, which is a part of this text.
    #[inline(always)]
    pub(crate) fn between(&self, from: usize, last: &'a [u8]) -> &'a [u8] {
        let end = (last.as_ptr() as usize + last.len()).wrapping_sub(self.text.as_ptr() as usize);
        self.text.get(from..end).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Skips white space; the CRLF of a folded line is white space (RFC 3261 section 7.3.1).
    #[inline(always)]
    pub(crate) fn ws(&mut self) {
        // Usually there is none.
        if let Some(&b) = self.text.get(self.at)
            && b <= b' '
        {
            self.at = past_spaces(self.text, self.at);
        }
    }

    /// Returns a reader of the same text up to `end`, at the same position.
    #[inline(always)]
    pub(crate) fn until(&self, end: usize) -> Self {
        Self { text: &self.text[..end], at: self.at }
    }

    /// Skips this byte if it is next; returns whether it was.
    #[inline(always)]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += found as usize;
        found
    }

    /// Reads all following bytes of this class, maybe none.
    #[inline(always)]
    pub(crate) fn span(&mut self, class: u16) -> &'a [u8] {
        let from = self.at;
        // A local copy stays in a register.
        let mut at = from;
        while let Some(&b) = self.text.get(at)
            && CLASS[b as usize] & class != 0
        {
            at += 1;
        }
        self.at = at;
        &self.text[from..at]
    }

    /// Reads at least one byte of this class.
    #[inline(always)]
    pub(crate) fn some(&mut self, class: u16) -> Option<&'a [u8]> {
        let found = self.span(class);
        if found.is_empty() { None } else { Some(found) }
    }

    #[inline(always)]
    pub(crate) fn token(&mut self) -> Option<&'a [u8]> {
        self.some(TOKEN)
    }

    /// Reads at least one decimal digit and returns the number; 2^32 if it exceeds `u32`.
    #[inline(always)]
    pub(crate) fn decimal(&mut self) -> Option<u64> {
        let from = self.at;
        let (mut at, mut n) = (from, 0u64);
        while let Some(&b) = self.text.get(at)
            && b.is_ascii_digit()
        {
            n = (n * 10 + (b - b'0') as u64).min(1 << 32);
            at += 1;
        }
        self.at = at;
        (at > from).then_some(n)
    }

    /// Reads a number of at most ten digits that fits `u32`.
    #[inline(always)]
    pub(crate) fn strict_decimal(&mut self) -> Option<u32> {
        let from = self.at;
        let n = self.decimal()?;
        if self.at - from > 10 { None } else { u32::try_from(n).ok() }
    }

    /// Reads bytes of this class and escapes of two hexadecimal digits, maybe none (RFC 3261 section 25.1).
    #[inline(always)]
    pub(crate) fn escaped(&mut self, class: u16) -> Option<&'a [u8]> {
        let from = self.at;
        loop {
            self.span(class);
            if self.peek() != Some(b'%') {
                return Some(&self.text[from..self.at]);
            }
            match self.text.get(self.at + 1..self.at + 3) {
                Some([a, b]) if CLASS[*a as usize] & CLASS[*b as usize] & HEX != 0 => self.at += 3,
                _ => return None,
            }
        }
    }

    /// Reads a quoted string with its quotes, starting at the opening one (RFC 3261 section 25.1).
    #[inline(always)]
    pub(crate) fn quoted(&mut self) -> Option<&'a [u8]> {
        let from = self.at;
        self.at = past_quotes(self.text, from)?;
        self.text.get(from..self.at)
    }

    /// Runs a function that is not inlined on this reader.
    #[inline(always)]
    pub(crate) fn lend<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let mut other = self.clone();
        let result = read(&mut other);
        self.at = other.at;
        result
    }

    /// Reads `<...>` with its brackets; within them any URI character is allowed.
    pub(crate) fn bracketed(&mut self) -> Option<&'a [u8]> {
        let from = self.at;
        if !self.take(b'<') {
            return None;
        }
        self.some(ANY_URI)?;
        if self.take(b'>') { Some(self.since(from)) } else { None }
    }

    /// Reads a comment in parentheses, which nest (RFC 3261 section 25.1), without the outer ones.
    pub(crate) fn comment(&mut self) -> Option<&'a [u8]> {
        let from = self.at + 1;
        let mut depth = 0u32;
        loop {
            match self.peek()? {
                b'(' => depth += 1,
                b')' => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return self.text.get(from..self.at - 1);
                    }
                }
                b'\\' => self.at += 1,
                _ => (),
            }
            self.at += 1;
        }
    }

    /// Skips to the comma that ends this value, or to the end; commas in quotes and angle brackets do not count.
    pub(crate) fn skip_to_comma(&mut self) -> Option<()> {
        loop {
            let Some(skipped) = memchr::memchr3(b',', b'"', b'<', self.rest()) else {
                self.at = self.text.len();
                return Some(());
            };
            self.at += skipped;
            match self.text[self.at] {
                b',' => return Some(()),
                b'"' => {
                    self.quoted()?;
                }
                _ => self.at += memchr::memchr(b'>', self.rest())? + 1,
            }
        }
    }
}

/// Returns the value of decimal digits; saturates at the maximum of `u32`.
#[inline]
pub(crate) fn number(digits: &[u8]) -> u32 {
    if digits.len() < 10 {
        return digits.iter().fold(0, |n, d| n * 10 + (d & 15) as u32);
    }
    digits.iter().fold(0u32, |n, d| n.saturating_mul(10).saturating_add((d & 15) as u32))
}

/// Parses a text of only decimal digits that fits `u32`.
pub(crate) fn strict_number(text: &[u8]) -> Option<u32> {
    let plain = !text.is_empty() && text.len() <= 10 && text.iter().all(u8::is_ascii_digit);
    if !plain {
        return None;
    }
    u32::try_from(text.iter().fold(0u64, |n, d| n * 10 + (d & 15) as u64)).ok()
}

/// Tells whether this name, in any case, is `lower`, which is in lower case.
#[inline]
pub(crate) fn is<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    match <&[u8; N]>::try_from(name) {
        Ok(name) => {
            let mut different = 0;
            let mut i = 0;
            while i < N {
                different |= (name[i] | 0x20) ^ lower[i];
                i += 1;
            }
            different == 0
        }
        Err(_) => false,
    }
}

pub(crate) const TOKEN: u16 = 1;
pub(crate) const WS: u16 = 1 << 1;
pub(crate) const HOST: u16 = 1 << 2;
/// Bytes of a user part, except escapes (RFC 3261 section 25.1: unreserved, user-unreserved).
pub(crate) const USER: u16 = 1 << 3;
pub(crate) const PASSWORD: u16 = 1 << 4;
/// Bytes of a URI parameter (paramchar).
pub(crate) const URI_PARAM: u16 = 1 << 5;
/// Bytes of a URI header (hnv-unreserved, unreserved), with `=` and `&`.
pub(crate) const URI_HEADER: u16 = 1 << 6;
pub(crate) const DIGIT: u16 = 1 << 7;
/// Bytes of a Call-ID: `word` and `@`.
pub(crate) const WORD: u16 = 1 << 8;
/// Bytes of an unquoted header parameter value: token, IP address, and other harmless text that occurs without quotes
/// (base64, URIs).
pub(crate) const VALUE: u16 = 1 << 9;
pub(crate) const HEX: u16 = 1 << 10;
/// Bytes of any absolute URI: visible ASCII except quotes and angle brackets.
pub(crate) const ANY_URI: u16 = 1 << 11;
/// Bytes of a telephone number (RFC 3966): digits and visual separators, hexadecimal digits, `*`, `#`.
pub(crate) const PHONE: u16 = 1 << 12;
pub(crate) const ALPHA: u16 = 1 << 14;
/// Token or white space within a display name.
pub(crate) const DISPLAY: u16 = 1 << 13;
/// Bytes of a URI without angle brackets: none that ends it.
pub(crate) const BARE: u16 = 1 << 15;

pub(crate) static CLASS: [u16; 256] = {
    const fn any(set: &[u8], b: u8) -> bool {
        let mut i = 0;
        while i < set.len() {
            if set[i] == b {
                return true;
            }
            i += 1;
        }
        false
    }
    let mut table = [0u16; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let alnum = b.is_ascii_alphanumeric();
        let unreserved = alnum || any(b"-_.!~*'()", b);
        let token = alnum || any(b"-.!%*_+`'~", b);
        let mut class = 0;
        if token {
            class |= TOKEN | DISPLAY;
        }
        if any(b" \t\r\n", b) {
            class |= WS | DISPLAY;
        }
        if alnum || any(b"-._", b) {
            class |= HOST;
        }
        if unreserved || any(b"&=+$,;?/", b) {
            class |= USER;
        }
        // '#' is not in the grammar, but phones send it in feature codes.
        if b == b'#' {
            class |= USER;
        }
        if unreserved || any(b"&=+$,", b) {
            class |= PASSWORD;
        }
        if unreserved || any(b"[]/:&+$", b) {
            class |= URI_PARAM;
        }
        if unreserved || any(b"[]/?:+$=&", b) {
            class |= URI_HEADER;
        }
        if b.is_ascii_digit() {
            class |= DIGIT;
        }
        if b.is_ascii_alphabetic() {
            class |= ALPHA;
        }
        if token || any(b"()<>:\\\"/[]?{}@", b) {
            class |= WORD;
        }
        if token || any(b"[]:/=@?&$#{}|^", b) {
            class |= VALUE;
        }
        if b.is_ascii_hexdigit() {
            class |= HEX;
        }
        if b > b' ' && b < 0x7f && !any(b"\"<>", b) {
            class |= ANY_URI;
        }
        if b.is_ascii_hexdigit() || any(b"-.()*#", b) {
            class |= PHONE;
        }
        if !any(b";,? \t\r\n", b) {
            class |= BARE;
        }
        table[i] = class;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_saturate() {
        for (text, decimal, strict) in [
            ("0", Some(0), Some(0)),
            ("4294967295", Some(u32::MAX as u64), Some(u32::MAX)),
            ("4294967296", Some(1 << 32), None),
            ("99999999999999999999999999", Some(1 << 32), None),
            ("0000000007", Some(7), Some(7)),
            ("00000000007", Some(7), None),
            ("12a", Some(12), Some(12)),
            ("", None, None),
            ("x1", None, None),
        ] {
            assert_eq!(Reader::new(text.as_bytes()).decimal(), decimal, "{text}");
            assert_eq!(Reader::new(text.as_bytes()).strict_decimal(), strict, "{text}");
        }
        let mut reader = Reader::new(b"12a");
        assert_eq!((reader.decimal(), reader.at()), (Some(12), 2));
    }

    proptest! {
        #[test]
        fn a_span_ends_at_the_first_byte_of_another_class(
            text in prop::collection::vec(prop_oneof![
                4 => prop::sample::select(&b"abcXYZ019-._"[..]),
                1 => any::<u8>(),
            ], 0..80),
            at in 0..80usize,
        ) {
            let at = at.min(text.len());
            for class in (0..16).map(|bit| 1u16 << bit) {
                let mut reader = Reader::new(&text);
                reader.go(at);
                let want = text[at..].iter().take_while(|&&b| CLASS[b as usize] & class != 0).count();
                prop_assert_eq!(reader.span(class), &text[at..at + want]);
                prop_assert_eq!(reader.at(), at + want);
            }
        }
    }
}
