//! Changes to a message as patches on the received bytes.

use crate::{Index, Message, Name};
use std::ops::Range;

/// A list of patches: at each, some received bytes go and some text comes. What no patch names leaves
/// byte for byte as it came. Made once and cleared for each message, it allocates nothing once warm.
///
/// Patches must not overlap; those at the same place apply in the order in which they were added.
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
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.patches.clear();
        self.text.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// `range` goes, what `write` writes comes in its place. An empty range inserts, writing nothing removes.
    pub fn replace(&mut self, range: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.text.len() as u32;
        write(&mut self.text);
        self.patches.push(Patch { at: range.start as u32, remove: range.len() as u32, text: (from, self.text.len() as u32) });
    }

    pub fn insert(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.replace(at..at, write);
    }

    pub fn remove(&mut self, range: Range<usize>) {
        self.replace(range, |_| ());
    }

    /// The Request-URI becomes what `write` writes.
    pub fn request_uri(&mut self, message: &Message<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        if let crate::index::Start::Request { uri, .. } = message.index().start() {
            self.replace(uri.0 as usize..uri.1 as usize, write);
        }
    }

    /// A line `Name: value` before the first header line of the message.
    pub fn prepend(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.line_at(index.headers_start(), name, write);
    }

    /// A line `Name: value` after the last header line.
    pub fn append(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.line_at(index.headers_end(), name, write);
    }

    /// A line `Name: value` before the first line of this name, or after the last header line.
    pub fn before_first(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        let at = index.first(name).map_or(index.headers_end(), |l| l.start as usize);
        self.line_at(at, name, write);
    }

    /// The value of the first line of this name becomes what `write` writes; without one, a line is appended.
    pub fn set(&mut self, index: &Index, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        match index.first(name) {
            Some(l) => self.replace(l.value as usize..l.value_end as usize, write),
            None => self.append(index, name, write),
        }
    }

    /// All lines of this name go.
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

    /// The edited message, appended to `out`.
    pub fn write(&mut self, message: &Message<'_>, out: &mut Vec<u8>) {
        let bytes = message.bytes();
        if !self.patches.is_sorted_by_key(|p| p.at) {
            // Few patches and stable: insertion order decides at the same place.
            self.patches.sort_by_key(|p| p.at);
        }
        out.reserve(bytes.len() + self.text.len());
        let mut at = 0usize;
        for patch in &self.patches {
            let from = patch.at as usize;
            debug_assert!(from >= at, "patches overlap");
            out.extend_from_slice(&bytes[at..from.max(at)]);
            out.extend_from_slice(&self.text[patch.text.0 as usize..patch.text.1 as usize]);
            at = at.max(from + patch.remove as usize);
        }
        out.extend_from_slice(&bytes[at.min(bytes.len())..]);
    }
}
