//! Header parameters: `;name=value` (RFC 3261 section 25.1, generic-param).

use crate::reader::{Reader, TOKEN, VALUE, is};
use crate::write;
use std::borrow::Cow;

/// The parameters of a header value, from the first semicolon on; checked to be well formed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params<'a> {
    text: &'a [u8],
    /// True if white space surrounds semicolons or equals signs; writing omits it.
    spaced: bool,
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// Name; compares in any case.
    pub name: &'a [u8],
    /// Raw value, a quoted string with its quotes; `None` if there is no equals sign.
    pub value: Option<&'a [u8]>,
}

impl<'a> Params<'a> {
    /// Parses text that starts with a semicolon; an empty text has no parameters.
    ///
    /// # Errors
    /// A name is missing, or a value is empty or contains bytes that must be quoted.
    pub fn parse(text: &'a [u8]) -> Result<Self, crate::Error> {
        let mut scan = Reader::new(text);
        match Self::read(&mut scan, |_, _| true) {
            Some(params) if scan.is_done() => Ok(params),
            _ => Err(scan.error()),
        }
    }

    /// Reads parameters and reports each to `on`, which returns whether its value is acceptable. The position moves
    /// past the last parameter and the white space after it.
    #[inline(always)]
    pub(crate) fn read(scan: &mut Reader<'a>, mut on: impl FnMut(&'a [u8], Option<&'a [u8]>) -> bool) -> Option<Self> {
        Self::read_telling(scan, |name, value, _| on(name, value))
    }

    /// Acts as [`Params::read`], and also tells `on` whether the value is a token.
    #[inline(always)]
    pub(crate) fn read_telling(
        scan: &mut Reader<'a>,
        mut on: impl FnMut(&'a [u8], Option<&'a [u8]>, bool) -> bool,
    ) -> Option<Self> {
        scan.ws();
        if scan.peek() != Some(b';') {
            return Some(Self::default());
        }
        let from = scan.at();
        let mut end = from;
        // Number of bytes of the parameters without white space; if it is less than the number of all bytes, there was
        // white space.
        let mut bytes = 0;
        while scan.take(b';') {
            scan.ws();
            let name = scan.token()?;
            end = scan.at();
            bytes += 1 + name.len();
            scan.ws();
            let (mut value, mut token) = (None, false);
            if scan.take(b'=') {
                scan.ws();
                let text;
                (text, token) = read_value(scan, name)?;
                end = scan.at();
                bytes += 1 + text.len();
                value = Some(text);
                scan.ws();
            }
            if !on(name, value, token) {
                return None;
            }
        }
        let after = scan.at();
        scan.go(end);
        let text = scan.since(from);
        scan.go(after);
        Some(Self { text, spaced: bytes != text.len() })
    }

    /// Returns the raw parameters, from the first semicolon on.
    #[inline]
    pub const fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Tells whether there is no parameter.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns all parameters in order. A name may occur twice.
    pub fn iter(&self) -> ParamIter<'a> {
        ParamIter { scan: Reader::new(self.text) }
    }

    /// Returns the first parameter of this name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<Param<'a>> {
        self.iter().find(|p| p.name.eq_ignore_ascii_case(name))
    }

    /// Tells whether a parameter has this name, in any case, with or without a value.
    pub fn has(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
    }

    /// Returns the raw value of the first parameter of this name; `None` also if it has no value.
    pub fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.find(name)?.value
    }

    /// Writes the parameters without white space between them and unfolded.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        if !self.spaced {
            // A fold can only be inside quotes.
            write::unfolded(self.text, out);
            return;
        }
        for param in *self {
            param.write(out);
        }
    }
}

/// Reads a token or similar text, a quoted string, or a URI in angle brackets (Identity's `info`). Returns also whether
/// it is a token.
#[inline(always)]
fn read_value<'a>(scan: &mut Reader<'a>, name: &[u8]) -> Option<(&'a [u8], bool)> {
    match scan.peek() {
        Some(b'"') => Some((scan.quoted()?, false)),
        Some(b'<') => Some((scan.lend(Reader::bracketed)?, false)),
        _ => {
            let from = scan.at();
            let word = scan.span(TOKEN);
            // Usually the value ends here.
            let token = scan.span(VALUE).is_empty();
            // Some clients ask for `rport` with an equals sign and no value. The proxy fills the value in, which
            // repairs it.
            let is_missing = token && word.is_empty() && !is(name, b"rport");
            if is_missing { None } else { Some((scan.since(from), token)) }
        }
    }
}

/// Tells whether the same parameters have the same values in the same order; white space between them is ignored.
impl PartialEq for Params<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text || self.iter().map(|p| (p.name, p.value)).eq(other.iter().map(|p| (p.name, p.value)))
    }
}

impl Eq for Params<'_> {}

impl<'a> IntoIterator for Params<'a> {
    type Item = Param<'a>;
    type IntoIter = ParamIter<'a>;

    fn into_iter(self) -> ParamIter<'a> {
        self.iter()
    }
}

impl<'a> Param<'a> {
    /// Returns the value without quotes and backslashes; empty if there is none.
    pub fn unquoted(&self) -> Cow<'a, [u8]> {
        unquote(self.value.unwrap_or_default())
    }

    /// Writes `;name=value`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b';');
        out.extend_from_slice(self.name);
        if let Some(value) = self.value {
            out.push(b'=');
            write::unfolded(value, out);
        }
    }
}

/// Removes quotes and backslashes from a quoted string; other text stays.
pub fn unquote(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(inner) = text.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\"")) else { return Cow::Borrowed(text) };
    if memchr::memchr3(b'\\', b'\r', b'\n', inner).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut plain = Vec::with_capacity(inner.len());
    write::unfolded(inner, &mut plain);
    let mut escaped = false;
    plain.retain(|&b| {
        escaped = !escaped && b == b'\\';
        !escaped
    });
    Cow::Owned(plain)
}

/// Writes text as a quoted string.
pub fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &b in text {
        if matches!(b, b'"' | b'\\') {
            out.push(b'\\');
        }
        // A header value cannot contain a line end, escaped or not.
        out.push(if matches!(b, b'\r' | b'\n') { b' ' } else { b });
    }
    out.push(b'"');
}

/// Iterator of [`Params::iter`].
#[derive(Clone, Debug)]
pub struct ParamIter<'a> {
    scan: Reader<'a>,
}

impl<'a> Iterator for ParamIter<'a> {
    type Item = Param<'a>;

    #[inline]
    fn next(&mut self) -> Option<Param<'a>> {
        let scan = &mut self.scan;
        if !scan.take(b';') {
            return None;
        }
        scan.ws();
        let name = scan.token()?;
        scan.ws();
        let mut value = None;
        if scan.take(b'=') {
            scan.ws();
            value = Some(read_value(scan, name)?.0);
            scan.ws();
        }
        Some(Param { name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaced_folded_quoted() {
        let params = Params::parse(b"; a = 1 ;b;\r\n c=\"x;\\\"y\" ;d=[::1]").unwrap();
        let names: Vec<_> = params.iter().map(|p| p.name).collect();
        assert_eq!(names, [b"a", b"b", b"c", b"d"]);
        assert_eq!(params.value(b"A"), Some(&b"1"[..]));
        assert!(params.has(b"B") && params.value(b"b").is_none());
        assert_eq!(params.find(b"c").unwrap().unquoted().as_ref(), b"x;\"y");
        let mut out = Vec::new();
        params.write(&mut out);
        assert_eq!(out, b";a=1;b;c=\"x;\\\"y\";d=[::1]");
        assert_eq!(Params::parse(&out).unwrap(), params);
    }

    #[test]
    fn malformed_parameters_are_refused() {
        for text in [&b";"[..], b";;a", b";a=", b";a=\"x", b";a b", b";a=1;", b"a", b";=1"] {
            assert!(Params::parse(text).is_err(), "{}", text.escape_ascii());
        }
        assert!(Params::parse(b"").unwrap().is_empty());
    }

    #[test]
    fn quoting_and_unquoting() {
        let mut out = Vec::new();
        write_quoted(b"a\"b\\c", &mut out);
        assert_eq!(out, b"\"a\\\"b\\\\c\"");
        assert_eq!(unquote(&out).as_ref(), b"a\"b\\c");
        assert_eq!(unquote(b"plain").as_ref(), b"plain");
    }
}
