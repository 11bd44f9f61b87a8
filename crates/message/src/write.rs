//! Output of views: text in normal form.

use crate::scan;

/// A value with a normal form on the wire: one space where white space is mandatory, none elsewhere, nothing folded.
pub trait Write {
    /// Appends the value to `out`.
    fn write(&self, out: &mut Vec<u8>);
}

impl Write for [u8] {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl Write for str {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl<const N: usize> Write for [u8; N] {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl Write for u32 {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
    }
}

impl<T: Write + ?Sized> Write for &T {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

/// Appends text, each fold as one space (RFC 3261 section 7.3.1).
#[inline]
pub(crate) fn unfolded(text: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr2(b'\r', b'\n', text).is_none() {
        out.extend_from_slice(text);
        return;
    }
    let mut at = 0;
    while let Some(n) = memchr::memchr2(b'\r', b'\n', &text[at..]) {
        let mut end = at + n;
        // Not `trim_ascii_end`: a form feed is not white space here, and a line of it alone must not vanish.
        while end > at && scan::is_blank(text[end - 1]) {
            end -= 1;
        }
        out.extend_from_slice(&text[at..end]);
        out.push(b' ');
        at += n;
        while text.get(at).is_some_and(|&b| scan::is_blank(b)) {
            at += 1;
        }
    }
    out.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Index, Limits, Message, Name, view};

    #[test]
    fn folds_become_one_space() {
        for (text, want) in [
            ("a b", "a b"),
            ("a\r\n b", "a b"),
            ("a \t\r\n \t b\n c", "a b c"),
            ("\x0c\r\n b", "\x0c b"),
            ("a\n \x0c\n b", "a \x0c b"),
        ] {
            let mut out = Vec::new();
            unfolded(text.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want, "{text:?}");
        }
    }

    #[test]
    fn a_line_of_form_feeds_stays_between_folds() {
        // A scheme, then a rest that begins with a form feed: a former bug wrote two spaces, and one when read again.
        let bytes = b"OPTIONS sip:a SIP/2.0\r\nAuthorization: Other\r\n \x0c\r\n x\r\n\r\n";
        let mut index = Index::new();
        index.parse(bytes, &Limits::default()).expect("a message");
        let mut out = Vec::new();
        view::all(&Message::new(bytes, &index), |line, view| {
            assert_eq!(line.name, Name::Authorization);
            view.write(&mut out);
        })
        .expect("any scheme can be read");
        assert_eq!(String::from_utf8_lossy(&out), "Other \x0c x");
    }
}
