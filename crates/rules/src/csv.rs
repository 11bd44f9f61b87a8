//! Sets from the text of CSV files (RFC 4180): cells between commas, in quotes where they hold commas, quotes or line ends.
//!
//! Own code, since the readers that there are take what is malformed: of a quote that is not closed they make one cell of the rest of the file,
//! and routing by that would be wrong without a word. Here each such place is a fault with its line.

use crate::fault::did_you_mean;
use crate::set::{Builder, Columns, EntryFault, Kind, Set};
use std::borrow::Cow;

/// Reads a set. The place of a fault is its line, from 1.
pub(crate) fn read(kind: Kind, text: &str, columns: Columns<'_>) -> Result<Set, EntryFault> {
    let mut records = Records { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    let Some((line, names)) = records.record()? else {
        return Err(EntryFault::new(
            1,
            "the file is empty",
            "its first line names the columns, such as prefix,carrier",
        ));
    };
    let column = |wanted: &str| {
        names.iter().position(|name| name == wanted).ok_or_else(|| {
            let near = did_you_mean(wanted, names.iter().map(AsRef::as_ref));
            let all = || format!("the first line names: {}", names.join(", "));
            EntryFault::new(line, format!("there is no column `{wanted}`"), near.unwrap_or_else(all))
        })
    };
    let key = column(columns.key)?;
    let value = columns.value.map(column).transpose()?;
    let mut builder = Builder::new(kind);
    while let Some((line, cells)) = records.record()? {
        if cells.len() != names.len() {
            let message = format!("cells of this line: {}, columns: {}", cells.len(), names.len());
            return Err(EntryFault::new(line, message, "write a cell for each column; one with a comma stands in \""));
        }
        let value = value.map(|value| &*cells[value]).filter(|value| !value.is_empty());
        builder.add(line, &cells[key], value)?;
    }
    builder.finish("line", 0)
}

/// The line where it begins, and its cells.
type Record<'t> = (usize, Vec<Cow<'t, str>>);

struct Records<'t> {
    rest: &'t str,
    /// Line where the rest begins.
    line: usize,
}

impl<'t> Records<'t> {
    /// The next record that is not blank.
    fn record(&mut self) -> Result<Option<Record<'t>>, EntryFault> {
        while let Some(rest) = self.rest.strip_prefix(['\r', '\n']) {
            self.line += usize::from(self.rest.starts_with('\n'));
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (line, mut cells) = (self.line, Vec::new());
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t']);
            cells.push(if self.rest.starts_with('"') { self.quoted()? } else { self.plain() });
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => return Ok(Some((line, cells))),
            }
        }
    }

    fn plain(&mut self) -> Cow<'t, str> {
        let end = self.rest.find([',', '\r', '\n']).unwrap_or(self.rest.len());
        let (cell, rest) = self.rest.split_at(end);
        self.rest = rest;
        Cow::Borrowed(cell.trim_end_matches([' ', '\t']))
    }

    /// Between quotes everything stands for itself, and two quotes for one.
    fn quoted(&mut self) -> Result<Cow<'t, str>, EntryFault> {
        let line = self.line;
        let mut cell = Cow::Borrowed("");
        let mut is_first = true;
        while let Some(inner) = self.rest.strip_prefix('"').filter(|_| is_first || self.rest.starts_with('"')) {
            let Some(end) = inner.find('"') else {
                return Err(EntryFault::new(
                    line,
                    "this quote is not closed",
                    "write \" behind the cell, and \"\" within it",
                ));
            };
            if !is_first {
                cell.to_mut().push('"');
            }
            if is_first {
                cell = Cow::Borrowed(&inner[..end])
            } else {
                cell.to_mut().push_str(&inner[..end])
            }
            self.line += inner[..end].matches('\n').count();
            self.rest = &inner[end + 1..];
            is_first = false;
        }
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        if self.rest.is_empty() || self.rest.starts_with([',', '\r', '\n']) {
            return Ok(cell);
        }
        Err(EntryFault::new(
            self.line,
            "something stands behind a quoted cell",
            "write a comma there, or \"\" for a quote within",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    const COLUMNS: Columns<'_> = Columns { key: "prefix", value: Some("carrier") };

    fn entries(text: &str) -> Vec<(String, Option<String>)> {
        let set = Set::read_csv(Kind::Texts, "p.csv", text, COLUMNS).expect(text);
        set.list("").map(|Entry { key, value }| (key, value)).collect()
    }

    fn fault(text: &str) -> String {
        Set::read_csv(Kind::Prefixes, "p.csv", text, COLUMNS).expect_err(text).to_string()
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
}
