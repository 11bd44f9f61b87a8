//! Values of a list header field: several per line, several lines (RFC 3261 section 7.3.1).

use crate::reader::{Field, Reader};
use crate::{Error, Line, Message, Name};
use std::ops::{Deref, Range};

/// One value of a list and its position.
#[derive(Clone, Copy, Debug)]
pub struct Placed<T> {
    /// View of the value.
    pub value: T,
    /// Offset of the first byte of the value, from the start of the message.
    start: u32,
    end: u32,
    /// Number of the value's line in [`crate::Index::lines`].
    line: u32,
    /// Range that [`Placed::cut`] returns.
    cut: (u32, u32),
}

impl<T> Placed<T> {
    /// Returns the range of the value within the message.
    pub const fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the range to remove from the message so that this value goes and the others stay: its whole line if it
    /// is the only one there, else the value and one comma. For several neighbours see [`Message::cut_first`].
    pub const fn cut(&self) -> Range<usize> {
        self.cut.0 as usize..self.cut.1 as usize
    }

    /// Returns the number of the value's line in [`crate::Index::lines`].
    pub const fn line(&self) -> usize {
        self.line as usize
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// All values of one name in order. Ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct Values<'a, T> {
    bytes: &'a [u8],
    lines: &'a [Line],
    /// Number of the next line.
    next: usize,
    name: Name,
    /// The line that is being read.
    open: Option<Open<'a>>,
    of: std::marker::PhantomData<fn() -> T>,
}

#[derive(Clone, Debug)]
struct Open<'a> {
    reader: Reader<'a>,
    line: usize,
    /// Offset after the last value read of this line; 0 before the first.
    after: u32,
}

impl<'a, T: Field<'a>> Values<'a, T> {
    #[inline]
    pub(crate) fn new(message: &Message<'a>, name: Name) -> Self {
        let lines = message.index().lines();
        Self {
            bytes: message.bytes(),
            lines,
            next: first_number(message, name).unwrap_or(lines.len()),
            name,
            open: None,
            of: std::marker::PhantomData,
        }
    }

    #[cold]
    fn fail(&mut self, offset: usize) -> Option<Result<Placed<T>, Error>> {
        self.open = None;
        self.next = self.lines.len();
        Some(Err(Error::new(crate::Reason::Malformed, offset)))
    }
}

impl<'a, T: Field<'a>> Iterator for Values<'a, T> {
    type Item = Result<Placed<T>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.open.is_none() {
            let line = loop {
                let line = self.lines.get(self.next)?;
                self.next += 1;
                if line.name == self.name {
                    // An empty line is an empty list if the grammar allows one; other readers ignore it.
                    if line.value < line.value_end {
                        break line;
                    }
                }
            };
            let reader = Reader::new(&self.bytes[line.value as usize..line.value_end as usize]);
            self.open = Some(Open { reader, line: self.next - 1, after: 0 });
        }
        let open = self.open.as_mut()?;
        let line = &self.lines[open.line];
        let base = line.value;
        let mut scan = open.reader.clone();
        scan.ws();
        let start = scan.at();
        let Some(value) = T::read(&mut scan) else {
            let at = base as usize + scan.at();
            return self.fail(at);
        };
        let mut end = scan.at();
        while end > start && matches!(self.bytes[base as usize + end - 1], b' ' | b'\t' | b'\r' | b'\n') {
            end -= 1;
        }
        scan.ws();
        let (start, end) = (base + start as u32, base + end as u32);
        let before = open.after;
        let number = open.line as u32;
        let cut = if scan.is_done() {
            self.open = None;
            // The last value of its line takes the comma before it along.
            if before == 0 { (line.start, line.end) } else { (before, end) }
        } else if scan.take(b',') {
            scan.ws();
            open.after = end;
            // Nothing after the comma: the next call reports the missing value.
            let next = base + scan.at() as u32;
            open.reader = scan;
            if before == 0 { (start, next) } else { (before, end) }
        } else {
            let at = base as usize + scan.at();
            return self.fail(at);
        };
        Some(Ok(Placed { value, start, end, line: number, cut }))
    }
}

/// Returns the number of the first line of this name.
#[inline]
pub(crate) fn first_number(message: &Message<'_>, name: Name) -> Option<usize> {
    (message.index().first[name as usize] as usize).checked_sub(1)
}
