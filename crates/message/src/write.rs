//! The writer's side of views: text in normal form.

/// Something that is written as it stands on the wire, in normal form: one space where white space must
/// be, none elsewhere, nothing folded.
pub trait Write {
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

/// Text that may be folded: each fold becomes one space (RFC 3261 section 7.3.1).
#[inline]
pub(crate) fn unfolded(text: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr2(b'\r', b'\n', text).is_none() {
        out.extend_from_slice(text);
        return;
    }
    let mut at = 0;
    while let Some(n) = memchr::memchr2(b'\r', b'\n', &text[at..]) {
        out.extend_from_slice(text[at..at + n].trim_ascii_end());
        out.push(b' ');
        at += n;
        while text.get(at).is_some_and(|b| matches!(b, b'\r' | b'\n' | b' ' | b'\t')) {
            at += 1;
        }
    }
    out.extend_from_slice(&text[at..]);
}
