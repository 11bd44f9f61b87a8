//! Markup of a document, parsed as SIPp 3.6 does, which is tolerant in some places and strict in others.
//!
//! Elements start and end at `<name`, `</name` and `/>`, even between quotes (but see [`Markup::AsMeant`]). Comments,
//! CDATA sections and `<!DOCTYPE …>` are skipped; text between elements is ignored. An attribute is found by its name
//! after white space anywhere in the start tag, which ends at the first `>` outside quotes. If an attribute occurs
//! twice, the first one is used. A value ends at the next quote without a backslash before it. So a raw `&`, a raw `>`
//! and repeated attributes are harmless.

use std::ops::Range;

use super::Warning;
use super::refusal::Fault;

/// Bytes of a document, without carriage returns.
pub(super) struct Document {
    text: Vec<u8>,
    /// Starts of lines.
    lines: Vec<usize>,
}

/// Element with its content.
#[derive(Debug)]
pub(super) struct Element {
    pub name: String,
    /// Offset of its `<`.
    pub start: usize,
    /// Offset of the `>` or `/>` that ends its start tag.
    tag_end: usize,
    pub children: Vec<Self>,
}

/// Reading of start tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Markup {
    /// As SIPp 3.6: `<` and `/>` in an attribute are markup, as they are outside.
    AsSipp,
    /// Quoted text belongs to the attribute, as in SIPp before 3.6.
    AsMeant,
}

/// Elements of a whole document.
pub(super) struct Tree {
    /// Elements at the top level; the first is the scenario.
    pub roots: Vec<Element>,
    pub warnings: Vec<Warning>,
}

const COMMENT: &[u8] = b"<!--";
const CDATA: &[u8] = b"<![CDATA[";

impl Document {
    /// Takes the bytes of a file.
    pub(super) fn new(bytes: &[u8]) -> Result<Self, Fault> {
        let mut text: Vec<u8> = bytes.iter().copied().filter(|b| *b != b'\r').collect();
        if let Some(nul) = memchr::memchr(0, &text) {
            text.truncate(nul);
        }
        let lines = std::iter::once(0).chain(memchr::memchr_iter(b'\n', &text).map(|i| i + 1)).collect();
        let document = Self { text, lines };
        if !document.text.starts_with(b"<?xml") {
            let what = if document.text.is_empty() {
                "the document is empty"
            } else if document.text.starts_with(b"\xef\xbb\xbf") {
                "a byte order mark precedes `<?xml`"
            } else {
                "the document does not start with `<?xml`"
            };
            return Err(Fault::new(0, what).hint("its first bytes must be <?xml version=\"1.0\"?>"));
        }
        if memchr::memmem::find(&document.text, b"?>").is_none() {
            return Err(Fault::new(0, "the XML declaration has no end").hint("it ends in `?>`"));
        }
        Ok(document)
    }

    /// Returns line and column of an offset, both from 1; columns are bytes.
    pub(super) fn place(&self, offset: usize) -> (u32, u32) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let column = offset - self.lines[line - 1] + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }

    pub(super) fn warning(&self, offset: usize, text: impl Into<String>) -> Warning {
        let (line, column) = self.place(offset);
        Warning { line, column, text: text.into() }
    }

    /// Parses all elements. Markup that SIPp cannot read is a fault.
    pub(super) fn tree(&self, markup: Markup) -> Result<Tree, Fault> {
        let begin = memchr::memmem::find(&self.text, b"?>").map_or(0, |i| i + 2);
        let mut walk = Walk { document: self, markup, at: begin, over: false, warnings: Vec::new() };
        let mut roots = Vec::new();
        walk.children(&mut roots, None, 0)?;
        if let Some(second) = roots.get(1) {
            // SIPp looks for a second root only after the first is read. So the fault of a first root that is no
            // scenario is reported first.
            if roots[0].name == "scenario" {
                return Err(Fault::new(second.start, format!("`<{}>` follows the end of the scenario", second.name))
                    .hint("one element was closed twice, or a text has `/>` in it"));
            }
        }
        Ok(Tree { roots, warnings: walk.warnings })
    }

    fn find(&self, from: usize, needle: &[u8]) -> Option<usize> {
        Some(from + memchr::memmem::find(self.text.get(from..)?, needle)?)
    }

    fn starts(&self, at: usize, with: &[u8]) -> bool {
        self.text.get(at..).is_some_and(|rest| rest.starts_with(with))
    }

    /// Returns the end of a start tag whose name starts at `at`: the offset of `>` or `/>`, or the document's end.
    /// Returns `None` if the tag contains a `<`.
    fn tag_end(&self, mut at: usize) -> Option<usize> {
        while let Some(&byte) = self.text.get(at) {
            match byte {
                b'<' if self.starts(at, COMMENT) => at = self.find(at, b"-->")? + 3,
                b'<' => return None,
                b'>' => return Some(at),
                b'/' if self.text.get(at + 1) == Some(&b'>') => return Some(at),
                b'"' => at = self.quote_end(at + 1).map_or(self.text.len(), |end| end + 1),
                _ => at += 1,
            }
        }
        Some(self.text.len())
    }

    /// Returns the next quote without a backslash before it.
    fn quote_end(&self, mut at: usize) -> Option<usize> {
        loop {
            match *self.text.get(at)? {
                b'\\' => at += 2,
                b'"' => return Some(at),
                _ => at += 1,
            }
        }
    }

    /// Returns the value of an attribute, with `\\`, `\"`, `\n`, `\t` and `\r` resolved; entities are not (see
    /// [`entities`]).
    pub(super) fn attribute(&self, element: &Element, name: &str) -> Option<Attribute> {
        let at = self.attribute_at(element, name).filter(|at| *at < self.text.len())?;
        let mut value = Vec::new();
        let mut i = at;
        while let Some(&byte) = self.text.get(i) {
            match byte {
                b'"' => break,
                b'\\' => {
                    i += 1;
                    match self.text.get(i) {
                        Some(b'\\') => value.push(b'\\'),
                        Some(b'"') => value.push(b'"'),
                        Some(b'n') => value.push(b'\n'),
                        Some(b't') => value.push(b'\t'),
                        Some(b'r') => value.push(b'\r'),
                        Some(other) => value.extend([b'\\', *other]),
                        None => value.push(b'\\'),
                    }
                }
                _ => value.push(byte),
            }
            i += 1;
        }
        Some(Attribute { value, at })
    }

    /// Returns the start of an attribute's value, after its quote.
    fn attribute_at(&self, element: &Element, name: &str) -> Option<usize> {
        let mut from = element.start;
        loop {
            let found = self.find(from, name.as_bytes())?;
            if found > element.tag_end {
                return None;
            }
            from = found + name.len();
            if !self.text[found - 1].is_ascii_whitespace() {
                continue;
            }
            let equals = self.solid(from);
            if self.text.get(equals) != Some(&b'=') {
                continue;
            }
            return Some(self.solid(equals + 1) + 1);
        }
    }

    /// Returns the first offset from `at` on that is no white space.
    fn solid(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        at + rest.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(rest.len())
    }

    /// Returns the text of the first CDATA section between the start and the end of an element, and its offset.
    pub(super) fn cdata(&self, element: &Element) -> Result<(usize, &[u8]), Fault> {
        let end = self.text_end(element)?;
        let begin = self.find(element.start, CDATA).filter(|at| *at < end).map(|at| at + CDATA.len());
        match begin.and_then(|begin| Some((begin, self.find(begin, b"]]>")?))) {
            Some((begin, end)) => Ok((begin, &self.text[begin..end])),
            None => Err(Fault::new(element.start, format!("`<{}>` has no message", element.name))
                .hint("it belongs in <![CDATA[ … ]]>")),
        }
    }

    /// Returns the end of an element as SIPp finds it when it looks for the element's text. SIPp overlooks an end tag
    /// directly after a comment or a CDATA section and takes the next end tag.
    fn text_end(&self, element: &Element) -> Result<usize, Fault> {
        let mut at = element.start + 1;
        let mut depth = 0u32;
        while let Some(&byte) = self.text.get(at) {
            if byte == b'/' && self.starts(at, b"/>") || byte == b'<' && self.starts(at, b"</") {
                if depth == 0 {
                    return Ok(at);
                }
                depth -= 1;
            } else if byte == b'<' {
                let end: &[u8] = match () {
                    () if self.starts(at, CDATA) => b"]]>",
                    () if self.starts(at, COMMENT) => b"-->",
                    () => b"",
                };
                if end.is_empty() {
                    depth += 1;
                } else {
                    let Some(found) = self.find(at, end) else {
                        return Err(Fault::new(at, "this comment or CDATA section has no end")
                            .hint("`<!--` ends with `-->`, `<![CDATA[` with `]]>`"));
                    };
                    at = found + end.len();
                }
            } else if byte == b'"' {
                // Quotes count here, also in the text between elements.
                at = self.quote_end(at + 1).unwrap_or(self.text.len());
            }
            at += 1;
        }
        Ok(at)
    }

    /// Returns the attributes of a start tag as an XML reader sees them: names, offsets of the names, raw values.
    pub(super) fn attributes(&self, element: &Element) -> Vec<(String, usize, Range<usize>)> {
        let mut list = Vec::new();
        let mut at = element.start + 1 + element.name.len();
        while at < element.tag_end {
            at = self.solid(at);
            let begin = at;
            while at < element.tag_end && !self.text[at].is_ascii_whitespace() && !b"=\"<'".contains(&self.text[at]) {
                at += 1;
            }
            let name = String::from_utf8_lossy(&self.text[begin..at.max(begin)]).into_owned();
            let equals = self.solid(at);
            let open = self.solid(equals + 1);
            if !name.is_empty() && self.text.get(equals) == Some(&b'=') && self.text.get(open) == Some(&b'"') {
                let close = self.quote_end(open + 1).unwrap_or(element.tag_end);
                list.push((name, begin, open + 1..close.max(open + 1)));
                at = close + 1;
            } else {
                at = at.max(begin + 1);
            }
        }
        list
    }

    /// Returns the first occurrence of a text from `at` on.
    pub(super) fn after(&self, at: usize, text: &[u8]) -> Option<usize> {
        // The text may be cleaned up or have entities resolved: its first line is enough.
        let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
        self.find(at, line)
    }

    /// Returns the start of a line; 1 is the first.
    pub(super) fn line(&self, line: u32) -> usize {
        self.lines.get((line as usize).saturating_sub(1)).copied().unwrap_or(0)
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.text.get(range).unwrap_or_default()
    }

    /// Returns the length in bytes, without carriage returns.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }
}

/// Value of an attribute, and its offset.
#[derive(Clone, Debug)]
pub(super) struct Attribute {
    pub value: Vec<u8>,
    pub at: usize,
}

impl Attribute {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// Resolves `&amp;`, `&lt;`, `&gt;` and `&quot;`. SIPp knows no other entities, and resolves these only in some
/// attributes.
pub(super) fn entities(value: &[u8]) -> Vec<u8> {
    const KNOWN: [(&[u8], u8); 4] = [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"')];
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(&byte) = rest.first() {
        let (byte, length) =
            KNOWN.iter().find(|(name, _)| rest.starts_with(name)).map_or((byte, 1), |(name, b)| (*b, name.len()));
        out.push(byte);
        rest = &rest[length..];
    }
    out
}

/// Limit of the nesting of elements; a scenario needs four.
const DEEPEST: usize = 200;

struct Walk<'a> {
    document: &'a Document,
    markup: Markup,
    at: usize,
    /// True if no more can be parsed.
    over: bool,
    warnings: Vec<Warning>,
}

impl Walk<'_> {
    /// Parses the elements up to the end of the open element. `open` is its name and the end of its start tag, `depth`
    /// the number of open elements.
    fn children(&mut self, into: &mut Vec<Element>, open: Option<(&str, usize)>, depth: usize) -> Result<(), Fault> {
        let document = self.document;
        while let Some(&byte) = document.text.get(self.at) {
            if byte == b'/' && document.starts(self.at, b"/>") {
                match open {
                    None => self.over = true,
                    Some((_, tag_end)) if self.at == tag_end => self.at += 2,
                    Some((name, _)) => {
                        self.warnings.push(document.warning(self.at, format!("this `/>` ends `<{name}>`")));
                        self.at += 2;
                    }
                }
                return Ok(());
            }
            if byte != b'<' {
                self.at += 1;
            } else if document.starts(self.at, CDATA) {
                self.pass(b"]]>");
            } else if document.starts(self.at, COMMENT) {
                self.pass(b"-->");
            } else if document.starts(self.at, b"<!DOCTYPE") || document.starts(self.at, b"<?xml-model") {
                self.pass(b">");
            } else if document.starts(self.at, b"</") {
                return self.close(open.map(|(name, _)| name), depth);
            } else if let Some(tag_end) = document.tag_end(self.at + 1) {
                if depth >= DEEPEST {
                    return Err(Fault::new(self.at, "the elements stand too deep in each other"));
                }
                self.element(into, tag_end, depth)?;
            } else {
                self.broken();
            }
            if self.over {
                return Ok(());
            }
        }
        self.over = true;
        if let Some((name, _)) = open {
            self.warnings
                .push(document.warning(document.len().saturating_sub(1), format!("`<{name}>` is never closed")));
        }
        Ok(())
    }

    fn element(&mut self, into: &mut Vec<Element>, tag_end: usize, depth: usize) -> Result<(), Fault> {
        let document = self.document;
        let start = self.at;
        let tag = &document.text[start + 1..tag_end];
        let length = tag.iter().position(|b| b.is_ascii_whitespace() || *b == b'/').unwrap_or(tag.len());
        let name = String::from_utf8_lossy(&tag[..length]).into_owned();
        let mut children = Vec::new();
        self.at = match self.markup {
            // SIPp searches the start tag for elements, too.
            Markup::AsSipp => start + 1,
            Markup::AsMeant => tag_end,
        };
        self.children(&mut children, Some((&name, tag_end)), depth + 1)?;
        into.push(Element { name, start, tag_end, children });
        Ok(())
    }

    /// Handles a tag without end. As in SIPp, parsing stops without an error.
    fn broken(&mut self) {
        self.warnings.push(
            self.document.warning(self.at, "this tag has no end but a `<`: the rest of the document is not read"),
        );
        self.over = true;
    }

    /// Parses an end tag; `self.at` is at its `<`.
    fn close(&mut self, open: Option<&str>, depth: usize) -> Result<(), Fault> {
        let document = self.document;
        let Some(open) = open else {
            // An end tag after the scenario: as SIPp, stops without an error.
            self.over = true;
            return Ok(());
        };
        let Some(end) = document.tag_end(self.at + 2) else {
            self.broken();
            return Ok(());
        };
        let tag = &document.text[self.at + 2..end];
        let name = &tag[..tag.iter().position(u8::is_ascii_whitespace).unwrap_or(tag.len())];
        if name != open.as_bytes() {
            let what = format!("`</{}>` where `</{open}>` is expected", String::from_utf8_lossy(name));
            if depth > 1 {
                return Err(Fault::new(self.at, what).hint("elements are closed in the reverse order of their start"));
            }
            self.warnings.push(document.warning(self.at, what));
        }
        self.at = end;
        Ok(())
    }

    fn pass(&mut self, end: &[u8]) {
        match self.document.find(self.at, end) {
            Some(found) => self.at = found + end.len(),
            None => {
                self.warnings
                    .push(self.document.warning(self.at, "this has no end: the rest of the document is not read"));
                self.over = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
