//! Sets from CSV text (RFC 4180): cells between commas, quoted if they contain commas, quotes or line ends.
//!
//! The project has its own parser because the existing ones accept malformed input: after an unclosed quote they read
//! the remaining file as one cell, so that routing would be wrong without an error. Here each such place is a fault
//! with its line.

use crate::fault::did_you_mean;
use crate::set::{Builder, Columns, EntryFault, LookupKind, Set};
use std::io::{self, BufRead};

/// Reason for the refusal of a file.
pub(crate) enum Refusal {
    /// The source cannot be read.
    Unread(io::Error),
    /// A line is wrong; the place in the fault is the number of the line, from 1.
    Wrong(EntryFault),
}

impl From<EntryFault> for Refusal {
    fn from(fault: EntryFault) -> Self {
        Self::Wrong(fault)
    }
}

/// Reads a set. At most one record is in memory.
pub(crate) fn read(kind: LookupKind, source: impl BufRead, columns: Columns<'_>) -> Result<Set, Refusal> {
    let mut records = Records { source, text: String::new(), at: 0, line: 0 };
    let mut record = Record::default();
    if !records.read(&mut record)? {
        let cure = "its first line names the columns, such as prefix,carrier";
        return Err(EntryFault::new(1, "the file is empty", cure).into());
    }
    let column = |wanted: &str| {
        record.cells().position(|name| name == wanted).ok_or_else(|| {
            let near = did_you_mean(wanted, record.cells());
            let all = || format!("the first line names: {}", record.cells().collect::<Vec<_>>().join(", "));
            EntryFault::new(record.line, format!("there is no column `{wanted}`"), near.unwrap_or_else(all))
        })
    };
    let key = column(columns.key)?;
    let value = columns.value.map(column).transpose()?;
    let width = record.ends.len();
    let mut builder = Builder::new(kind);
    while records.read(&mut record)? {
        if record.ends.len() != width {
            let message = format!("cells of this line: {}, columns: {width}", record.ends.len());
            let cure = "write a cell for each column; one with a comma stands in \"";
            return Err(EntryFault::new(record.line, message, cure).into());
        }
        let value = value.map(|value| record.cell(value)).filter(|value| !value.is_empty());
        builder.add(record.line, record.cell(key), value)?;
    }
    Ok(builder.finish("line", 0)?)
}

/// A record: its cells in one text.
#[derive(Default)]
struct Record {
    /// Line of its beginning.
    line: usize,
    text: String,
    /// End of each cell in the text.
    ends: Vec<usize>,
}

impl Record {
    fn cell(&self, index: usize) -> &str {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[index]]
    }

    fn cells(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|index| self.cell(index))
    }
}

struct Records<R> {
    source: R,
    /// Current line, with its end.
    text: String,
    /// Offset in the line up to which it is parsed.
    at: usize,
    /// Line number, from 1.
    line: usize,
}

impl<R: BufRead> Records<R> {
    /// Reads the next record that is not blank. Returns false at the end.
    fn read(&mut self, record: &mut Record) -> Result<bool, Refusal> {
        loop {
            self.skip(&['\r', '\n']);
            if !self.rest().is_empty() {
                break;
            }
            if !self.next_line()? {
                return Ok(false);
            }
        }
        record.line = self.line;
        record.text.clear();
        record.ends.clear();
        loop {
            self.skip(&[' ', '\t']);
            match self.rest().starts_with('"') {
                true => self.quoted(&mut record.text)?,
                false => self.plain(&mut record.text),
            }
            record.ends.push(record.text.len());
            if !self.skip_one(',') {
                return Ok(true);
            }
        }
    }

    fn plain(&mut self, cell: &mut String) {
        let rest = self.rest();
        let end = rest.find([',', '\r', '\n']).unwrap_or(rest.len());
        cell.push_str(rest[..end].trim_end_matches([' ', '\t']));
        self.at += end;
    }

    /// Reads a quoted cell: no character but the quote is special, and two quotes mean one.
    fn quoted(&mut self, cell: &mut String) -> Result<(), Refusal> {
        let first = self.line;
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(end) = rest.find('"') else {
                cell.push_str(rest);
                if self.next_line()? {
                    continue;
                }
                let cure = "write \" behind the cell, and \"\" within it";
                return Err(EntryFault::new(first, "this quote is not closed", cure).into());
            };
            cell.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.skip_one('"') {
                break;
            }
            cell.push('"');
        }
        self.skip(&[' ', '\t']);
        let rest = self.rest();
        if rest.is_empty() || rest.starts_with([',', '\r', '\n']) {
            return Ok(());
        }
        let cure = "write a comma there, or \"\" for a quote within";
        Err(EntryFault::new(self.line, "something stands behind a quoted cell", cure).into())
    }

    /// Replaces the current line by the next one. Returns false at the end.
    fn next_line(&mut self) -> Result<bool, Refusal> {
        self.text.clear();
        self.at = 0;
        let read = self.source.read_line(&mut self.text);
        let has_one = read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                EntryFault::new(self.line + 1, "this line is not UTF-8", "save the file as UTF-8 text").into()
            }
            _ => Refusal::Unread(error),
        })? > 0;
        self.line += usize::from(has_one);
        if self.line == 1 && self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
        }
        Ok(has_one)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip(&mut self, what: &[char]) {
        self.at = self.text.len() - self.rest().trim_start_matches(what).len();
    }

    fn skip_one(&mut self, what: char) -> bool {
        let is_there = self.rest().starts_with(what);
        self.at += if is_there { what.len_utf8() } else { 0 };
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    const COLUMNS: Columns<'_> = Columns { key: "prefix", value: Some("carrier") };

    fn entries(text: &str) -> Vec<(String, Option<String>)> {
        let set = Set::read_csv(LookupKind::Texts, "p.csv", text.as_bytes(), COLUMNS).expect(text);
        set.list("").map(|Entry { key, value }| (key, value)).collect()
    }

    fn fault(text: &str) -> String {
        Set::read_csv(LookupKind::Prefixes, "p.csv", text.as_bytes(), COLUMNS).expect_err(text).to_string()
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let want = [("49".to_owned(), Some("west".to_owned())), ("50".to_owned(), None)];
        for text in [
            "prefix,carrier\n49,west\n50,\n",
            "carrier,note,prefix\r\nwest,x,49\r\n\r\n,,50",
            "\u{feff}\"prefix\" , carrier\n\n 49 ,\t\"west\" \n50,\"\"",
        ] {
            assert_eq!(entries(text), want, "{text}");
        }
    }

    #[test]
    fn quotes_hold_commas_quotes_and_line_ends() {
        let want = [("a,\"b\"\nc".to_owned(), Some("\"".to_owned()))];
        assert_eq!(entries("prefix,carrier\n\"a,\"\"b\"\"\nc\",\"\"\"\"\n"), want);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_cure() {
        for (text, want) in [
            ("", "p.csv:1: the file is empty: its first line names the columns, such as prefix,carrier"),
            ("prefx,carrier\n", "p.csv:1: there is no column `prefix`: did you mean `prefx`?"),
            ("a,b\n", "p.csv:1: there is no column `prefix`: the first line names: a, b"),
            (
                "prefix,carrier\n1,x\n\n2\n",
                "p.csv:4: cells of this line: 1, columns: 2: \
                 write a cell for each column; one with a comma stands in \"",
            ),
            (
                "prefix,carrier\n1,\"x\n\n",
                "p.csv:2: this quote is not closed: write \" behind the cell, and \"\" within it",
            ),
            (
                "prefix,carrier\n\"1\n\"x,y\n",
                "p.csv:3: something stands behind a quoted cell: write a comma there, or \"\" for a quote within",
            ),
            ("prefix,carrier\n1,x\n,y\n", "p.csv:3: the key is empty: write a key, or remove the entry"),
            ("prefix,carrier\n1,x\n\"1\",y\n", "p.csv:3: 1 has another value at line 2: give each key one value"),
        ] {
            assert_eq!(fault(text), want, "{text}");
        }
    }

    #[test]
    fn a_line_that_is_not_utf8_is_named_and_a_source_that_fails_says_why() {
        let read = |source: &mut dyn BufRead| {
            Set::read_csv(LookupKind::Prefixes, "p.csv", source, COLUMNS).expect_err("no set").to_string()
        };
        let want = "p.csv:3: this line is not UTF-8: save the file as UTF-8 text";
        assert_eq!(read(&mut &b"prefix,carrier\n1,x\n2,\xff\n"[..]), want);
        let fails = io::Read::chain(&b"prefix,carrier\n"[..], Fails);
        assert_eq!(read(&mut io::BufReader::new(fails)), "p.csv cannot be read: the disk is gone");
    }

    struct Fails;

    impl io::Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
}
