//! Comma-separated parameters of challenges and credentials (RFC 7235 section 2.1), read leniently.

use std::borrow::Cow;
use std::fmt;

/// Value of a parameter as a view into the header field, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    /// Creates the value of a quoted-string from the bytes between its quotes.
    pub fn new(raw: &'a [u8]) -> Self {
        Self { raw, escaped: raw.contains(&b'\\') }
    }

    /// Returns the bytes as received, with escapes.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Returns the value with every quoted-pair resolved; the bytes are copied only if there is a quoted-pair.
    pub fn value(&self) -> Cow<'a, [u8]> {
        self.plain().map_or_else(|| self.bytes().collect(), Cow::Borrowed)
    }

    /// Returns the value, if it has no quoted-pair.
    pub fn plain(&self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.raw)
    }

    /// Returns the bytes of the value, with every quoted-pair resolved.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'a> {
        let (mut raw, escaped) = (self.raw.iter().copied(), self.escaped);
        std::iter::from_fn(move || match raw.next() {
            Some(b'\\') if escaped => raw.next(),
            byte => byte,
        })
    }

    /// Tells whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Tells whether the value is this token, in any case.
    pub(super) fn is(&self, token: &str) -> bool {
        self.raw.eq_ignore_ascii_case(token.as_bytes())
    }
}

/// Reason why a header value has no usable Digest credentials or challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Another scheme than Digest: ignore the header field.
    Scheme,
    /// The parameter list is malformed at this offset after the scheme.
    Syntax(usize),
    /// A mandatory parameter is missing.
    Missing(&'static str),
    /// A parameter occurs twice.
    Twice(&'static str),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("the scheme is not Digest"),
            Self::Syntax(at) => write!(f, "the parameters cannot be read from offset {at} on"),
            Self::Missing(name) => write!(f, "the parameter {name} is missing"),
            Self::Twice(name) => write!(f, "the parameter {name} occurs twice"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Malformed parameter list: offset of the error in the given text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub usize);

/// Splits a header value into scheme and parameters.
pub(super) fn scheme(value: &[u8]) -> (&[u8], &[u8]) {
    let value = skip_space(value);
    let end = value.iter().position(|&b| is_space(b)).unwrap_or(value.len());
    value.split_at(end)
}

/// Iterator over `name = value` pairs. Quotes are optional around every value, empty elements are skipped.
#[derive(Clone, Debug)]
pub(super) struct Params<'a> {
    whole: usize,
    rest: &'a [u8],
}

impl<'a> Params<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { whole: text.len(), rest: text }
    }

    fn broken(&mut self) -> Option<Result<(&'a [u8], Text<'a>), Malformed>> {
        let at = self.whole - self.rest.len();
        self.rest = &[];
        Some(Err(Malformed(at)))
    }
}

impl<'a> Iterator for Params<'a> {
    type Item = Result<(&'a [u8], Text<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [first, rest @ ..] = self.rest {
            if !is_space(*first) && *first != b',' {
                break;
            }
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&b| b == b'=' || b == b',' || b == b'"' || is_space(b));
        let (name, rest) = match end {
            Some(end) if end > 0 => self.rest.split_at(end),
            _ => return self.broken(),
        };
        self.rest = skip_space(rest);
        let [b'=', rest @ ..] = self.rest else { return self.broken() };
        self.rest = skip_space(rest);
        let value = if let [b'"', inner @ ..] = self.rest {
            let mut escaped = false;
            let mut at = 0;
            loop {
                match inner.get(at) {
                    Some(b'"') => break,
                    Some(b'\\') => {
                        escaped = true;
                        at += 2;
                    }
                    Some(_) => at += 1,
                    None => return self.broken(),
                }
            }
            let (raw, rest) = inner.split_at(at);
            self.rest = &rest[1..];
            Text { raw, escaped }
        } else {
            let end = self.rest.iter().position(|&b| b == b',' || is_space(b)).unwrap_or(self.rest.len());
            let (raw, rest) = self.rest.split_at(end);
            self.rest = rest;
            Text { raw, escaped: false }
        };
        self.rest = skip_space(self.rest);
        match self.rest.first() {
            None | Some(b',') => Some(Ok((name, value))),
            Some(_) => self.broken(),
        }
    }
}

/// Writes a quoted-string. Control characters, which could end the header line, become `?`.
pub(super) fn write_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..=0x1f | 0x7f => out.push(b'?'),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Tells whether a byte is white space of a header value; CR and LF occur if the line was folded (RFC 3261 section 7.3.1).
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn skip_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&b| !is_space(b)).unwrap_or(text.len());
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<(String, String)>, Malformed> {
        Params::new(text.as_bytes())
            .map(|param| {
                let (name, value) = param?;
                Ok((String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(&value.value()).into_owned()))
            })
            .collect()
    }

    #[test]
    fn quoted_bare_folded_and_empty_elements() {
        let read = all(" a=\"x, \\\"y\\\"\" ,, b =\tc:d/e ,\r\n f=\"\",").expect("lenient");
        let want = [("a", "x, \"y\""), ("b", "c:d/e"), ("f", "")];
        assert_eq!(read, want.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn broken_lists_name_the_offset() {
        assert_eq!(all("a=\"x"), Err(Malformed(2)));
        assert_eq!(all("a=\"x\\\""), Err(Malformed(2)));
        assert_eq!(all("a=\"x\\"), Err(Malformed(2)));
        assert_eq!(all("ab"), Err(Malformed(0)));
        assert_eq!(all("=x"), Err(Malformed(0)));
        assert_eq!(all("a=x b=y"), Err(Malformed(4)));
    }

    #[test]
    fn written_strings_read_back_and_cannot_end_the_line() {
        let mut out = b"a=".to_vec();
        write_quoted(&mut out, b"say \"hi\" \\ now");
        assert_eq!(all(std::str::from_utf8(&out).expect("ASCII")).expect("own writing")[0].1, "say \"hi\" \\ now");
        out.clear();
        write_quoted(&mut out, b"x\r\nVia: y");
        assert_eq!(out, b"\"x??Via: y\"");
    }
}
