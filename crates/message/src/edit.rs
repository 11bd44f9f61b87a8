//! Changes to a message as patches on the received bytes.

use crate::{Index, Message, Name};
use std::ops::Range;

/// A list of patches, each of which removes received bytes and inserts text. The bytes outside the patches stay
/// unchanged. Create it once and clear it for each message: once warm, it allocates nothing.
///
/// Patches must not overlap. Patches at the same place apply in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    patches: Vec<Patch>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Patch {
    at: u32,
    remove: u32,
    text: (u32, u32),
}

impl Edit {
    /// Creates an empty list; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all patches and keeps the memory.
    pub fn clear(&mut self) {
        self.patches.clear();
        self.text.clear();
    }

    /// Tells whether there are no patches; [`Edit::write`] then copies the message.
    pub fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// Replaces `range` with the output of `write`. An empty range inserts; empty output removes.
    pub fn replace(&mut self, range: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.text.len() as u32;
        write(&mut self.text);
        self.patches.push(Patch {
            at: range.start as u32,
            remove: range.len() as u32,
            text: (from, self.text.len() as u32),
        });
    }

    /// Inserts the output of `write` before the byte at offset `at` of the message.
    pub fn insert(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.replace(at..at, write);
    }

    /// Removes these bytes of the message.
    pub fn remove(&mut self, range: Range<usize>) {
        self.replace(range, |_| ());
    }

    /// Replaces the Request-URI with the output of `write`.
    pub fn request_uri(&mut self, message: &Message<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        if let crate::index::Start::Request { uri, .. } = message.index().start() {
            self.replace(uri.0 as usize..uri.1 as usize, write);
        }
    }

    /// Inserts a line `Name: value` before the first header line of the message.
    pub fn prepend(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.line_at(index.headers_start(), name, write);
    }

    /// Inserts a line `Name: value` after the last header line.
    pub fn append(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.line_at(index.headers_end(), name, write);
    }

    /// Inserts a line `Name: value` before the first line of this name, or after the last header line.
    pub fn before_first(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        let at = index.first(name).map_or_else(|| index.headers_end(), |l| l.start as usize);
        self.line_at(at, name, write);
    }

    /// Replaces the value of the first line of this name with the output of `write`; without such a line, appends one.
    pub fn set(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        match index.first(name) {
            Some(l) => self.replace(l.value as usize..l.value_end as usize, write),
            None => self.append(index, name, write),
        }
    }

    /// Removes all lines of this name.
    pub fn remove_all(&mut self, index: &Index, name: Name) {
        for line in index.lines_of(name) {
            self.remove(line.start as usize..line.end as usize);
        }
    }

    fn line_at(&mut self, at: usize, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.insert(at, |out| {
            out.extend_from_slice(name.text().as_bytes());
            out.extend_from_slice(b": ");
            write(out);
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Appends the edited message to `out`.
    pub fn write(&mut self, message: &Message<'_>, out: &mut Vec<u8>) {
        let bytes = message.bytes();
        if !self.patches.is_sorted_by_key(|p| p.at) {
            // There are few patches, and the sort is stable, so that insertion order decides at the same place.
            self.patches.sort_by_key(|p| p.at);
        }
        out.reserve(bytes.len() + self.text.len());
        let mut at = 0usize;
        for patch in &self.patches {
            let from = patch.at as usize;
            debug_assert!(from >= at, "patches overlap");
            if from > at {
                Self::keep_apart(bytes, at, out);
                out.extend_from_slice(&bytes[at..from]);
            }
            out.extend_from_slice(&self.text[patch.text.0 as usize..patch.text.1 as usize]);
            at = at.max(from + patch.remove as usize);
        }
        Self::keep_apart(bytes, at, out);
        out.extend_from_slice(&bytes[at.min(bytes.len())..]);
    }
    /// Keeps two line ends apart where bytes between them were removed: a bare CR that ended the line before must not
    /// join a bare LF that follows, because the LF may be the blank line.
    fn keep_apart(bytes: &[u8], at: usize, out: &mut Vec<u8>) {
        if at > 0 && bytes.get(at) == Some(&b'\n') && bytes[at - 1] != b'\r' && out.last() == Some(&b'\r') {
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn edited(text: &str, edit: impl FnOnce(&mut Edit, &Message<'_>)) -> String {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("written here");
        let message = Message::new(text.as_bytes(), &index);
        let (mut patches, mut out) = (Edit::new(), Vec::new());
        edit(&mut patches, &message);
        patches.write(&message, &mut out);
        String::from_utf8(out).expect("text")
    }

    const TEXT: &str = "OPTIONS sip:a SIP/2.0\r\nVia: one\r\nROUTE : two\r\n  three\r\nX: y\r\nRoute: four\r\n\r\nbody";

    #[test]
    fn unedited_is_byte_equal() {
        assert_eq!(edited(TEXT, |_, _| ()), TEXT);
    }

    #[test]
    fn each_edit_touches_only_its_own() {
        let out = edited(TEXT, |e, m| {
            e.append(m.index(), Name::MaxForwards, |o| o.extend_from_slice(b"70"));
            e.remove_all(m.index(), Name::Route);
            e.prepend(m.index(), Name::RecordRoute, |o| o.extend_from_slice(b"<sip:p;lr>"));
            e.before_first(m.index(), Name::Via, |o| o.extend_from_slice(b"zero"));
            e.request_uri(m, |o| o.extend_from_slice(b"sip:b"));
            e.set(m.index(), Name::Via, |o| o.extend_from_slice(b"1"));
        });
        let want = "OPTIONS sip:b SIP/2.0\r\nRecord-Route: <sip:p;lr>\r\nVia: zero\r\nVia: 1\r\nX: y\r\nMax-Forwards: 70\r\n\r\nbody";
        assert_eq!(out, want);
    }

    #[test]
    fn a_bare_cr_and_a_bare_lf_stay_two_line_ends() {
        let out = edited("OPTIONS sip:a SIP/2.0\r\nX: y\rRoute: a\nRoute: b\n\nbody", |e, m| {
            e.remove_all(m.index(), Name::Route);
        });
        assert_eq!(out, "OPTIONS sip:a SIP/2.0\r\nX: y\r\n\nbody");
    }
}
