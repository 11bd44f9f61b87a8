//! Text for a terminal: titles in a first column, lines broken between words, colours where the terminal has them.

use crate::{Mark, Table, Tone, printable};
use std::fmt::Write;

/// Width of a line in files and wide terminals.
pub const WIDTH: usize = 118;
/// A terminal with less columns breaks lines itself.
const NARROWEST: usize = 60;
/// Start of the second column.
const INDENT: usize = 13;

/// Colour of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// None.
    Plain,
    /// Green.
    Good,
    /// Red.
    Bad,
    /// Yellow.
    Doubtful,
    /// Bold.
    Title,
}

impl From<Tone> for Ink {
    fn from(tone: Tone) -> Self {
        match tone {
            Tone::Good => Self::Good,
            Tone::Doubtful => Self::Doubtful,
            Tone::Bad => Self::Bad,
        }
    }
}

impl From<Mark> for Ink {
    fn from(mark: Mark) -> Self {
        match mark {
            Mark::Met => Self::Good,
            Mark::Missed => Self::Bad,
            Mark::Unjudged => Self::Plain,
        }
    }
}

/// Text under construction.
#[derive(Clone, Debug)]
pub struct Terminal {
    text: String,
    colour: bool,
    width: usize,
}

impl Terminal {
    /// Creates an empty text. `colour`: with ANSI colours. `columns`: of the terminal; more than [`WIDTH`] are not
    /// used.
    pub fn new(colour: bool, columns: usize) -> Self {
        Self { text: String::new(), colour, width: columns.clamp(NARROWEST, WIDTH) }
    }

    /// Returns the number of columns of a line.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Wraps a text in a colour, if the terminal has colours.
    pub fn inked(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Good => "32;1",
            Ink::Bad => "31;1",
            Ink::Doubtful => "33",
            Ink::Title => "1",
            Ink::Plain => return text.into(),
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    /// Adds a title in the first column and a text in the second, broken between words.
    pub fn entry(&mut self, ink: Ink, title: &str, text: &str) {
        let pad = " ".repeat(INDENT.saturating_sub(title.chars().count()));
        let head = self.inked(ink, title);
        let _ = write!(self.text, "{head}{pad}");
        let mut column = INDENT;
        let text = &*printable(text);
        for (place, word) in text.split(' ').enumerate() {
            let length = word.chars().count();
            if place > 0 && column + 1 + length > self.width {
                let _ = write!(self.text, "\n{}", " ".repeat(INDENT));
                column = INDENT;
            } else if place > 0 {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += length;
        }
        self.text.push('\n');
    }

    /// Adds entries after a title. Lines break only between entries: spaces within an entry are no-break spaces until
    /// the lines are made.
    pub fn list(&mut self, title: &str, entries: &[String]) {
        if !entries.is_empty() {
            let glued: Vec<String> = entries.iter().map(|entry| entry.replace(' ', "\u{a0}")).collect();
            let start = self.text.len();
            self.entry(Ink::Title, title, &glued.join("  "));
            let lines = self.text.split_off(start).replace('\u{a0}', " ");
            for line in lines.lines() {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
            }
        }
    }

    /// Adds a line that is not broken. The caller has passed each text of a peer through [`printable`].
    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}");
    }

    /// Adds a sentence. If the terminal is too narrow for the sentence, the part after the semicolon is on a line of
    /// its own.
    pub fn sentence(&mut self, text: &str) {
        if text.chars().count() <= self.width {
            self.line(text);
        } else {
            self.line(&text.replacen("; ", ";\n", 1));
        }
    }

    /// Adds an empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Adds a table. A terminal that is narrower than [`WIDTH`] shows as many columns side by side as fit, and the
    /// remaining columns below them.
    pub fn table(&mut self, table: &Table) {
        let first = table.width(0).max(INDENT - 1);
        let mut columns = 1..table.columns();
        while !columns.is_empty() {
            let (mut line, mut end) = (first, columns.start);
            while end < columns.end && (end == columns.start || line + 1 + table.width(end) <= self.width) {
                line += 1 + table.width(end);
                end += 1;
            }
            let end = if self.width == WIDTH { columns.end } else { end };
            let head = self.inked(Ink::Title, &table.line(None, first, columns.start..end));
            self.line(&head);
            for row in 0..table.rows() {
                self.line(&table.line(Some(row), first, columns.start..end));
            }
            columns.start = end;
        }
    }

    /// Returns the whole text.
    pub fn text(self) -> String {
        self.text
    }
}
