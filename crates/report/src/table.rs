//! Tables. The first column names the row, the other columns have figures or texts.

use crate::{escape, printable};
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;

/// Columns of a terminal for a figure.
const FIGURE: usize = 10;

/// A table for pages and terminals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    titles: Vec<String>,
    /// Columns of texts, which begin at the left. Figures end at the right.
    #[serde(skip)]
    texts: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows. The first title is above the names of the rows.
    pub fn new(titles: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { titles: titles.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Makes a column one of texts.
    #[must_use]
    pub fn with_texts(mut self, column: usize) -> Self {
        self.texts.push(column);
        self
    }

    /// Adds a row. A missing value is an empty text.
    ///
    /// # Panics
    /// The row has another number of cells than the table has columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.titles.len(), "a cell for each of {:?}: {cells:?}", self.titles);
        self.rows.push(cells);
    }

    /// Returns the titles of the columns.
    pub fn titles(&self) -> &[String] {
        &self.titles
    }

    /// Returns the cells of each row.
    pub fn cells(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn columns(&self) -> usize {
        self.titles.len()
    }

    fn is_text(&self, column: usize) -> bool {
        column == 0 || self.texts.contains(&column)
    }

    /// Returns the width of this column in columns of a terminal.
    pub(crate) fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]).chain([&self.titles[column]]);
        let widest = cells.map(|cell| printable(cell).chars().count()).max().unwrap_or(0);
        if self.is_text(column) { widest } else { widest.max(FIGURE) }
    }

    /// Formats a line for a terminal: the name and these columns of a row, or of the titles. `first`: columns of the terminal
    /// for the name.
    pub(crate) fn line(&self, row: Option<usize>, first: usize, columns: Range<usize>) -> String {
        let cells = row.map_or(&self.titles, |row| &self.rows[row]);
        let mut line = format!("{:first$}", printable(&cells[0]));
        for column in columns {
            let (cell, width) = (printable(&cells[column]), self.width(column));
            let _ = if self.is_text(column) { write!(line, " {cell:width$}") } else { write!(line, " {cell:>width$}") };
        }
        line
    }

    /// Formats the table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| printable(cell).replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rules = (0..self.columns()).map(|column| if self.is_text(column) { "---|" } else { "---:|" });
        let mut out = format!("{}|{}\n", line(&self.titles), rules.collect::<String>());
        self.rows.iter().for_each(|row| out.push_str(&line(row)));
        out
    }

    /// Returns the markup for a page.
    pub fn html(&self) -> String {
        let mut out = String::from("<div class=\"wide\"><table>");
        let mut write_row = |tag: &str, cells: &[String]| {
            out.push_str("<tr>");
            for (column, cell) in cells.iter().enumerate() {
                let class = if column > 0 && self.is_text(column) { " class=\"left\"" } else { "" };
                let _ = write!(out, "<{tag}{class}>{}</{tag}>", escape(cell));
            }
            out.push_str("</tr>\n");
        };
        write_row("th", &self.titles);
        self.rows.iter().for_each(|row| write_row("td", row));
        out.push_str("</table></div>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Terminal, WIDTH};

    fn table() -> Table {
        let mut table = Table::new(["letter", "calls/s", "server", "cause"]).with_texts(3);
        table.row(["A", "13,000", "9.1 %", "generator"]);
        table.row(["B\u{1b}[2J", "1,850", "", "<server>"]);
        table
    }

    #[test]
    fn terminals_have_what_fits_side_by_side() {
        let text = |columns| {
            let mut terminal = Terminal::new(false, columns);
            terminal.table(&table());
            terminal.text()
        };
        let wide = "letter          calls/s     server cause    \n\
                    A                13,000      9.1 % generator\n\
                    B\\x1b[2J          1,850            <server> \n";
        assert_eq!(text(WIDTH), wide);
        assert_eq!(text(70), wide);
        let mut table = table();
        table.row(["C".repeat(40), "1".into(), "2".into(), "unknown".into()]);
        let mut terminal = Terminal::new(false, 62);
        terminal.table(&table);
        let text = terminal.text();
        assert_eq!(text.lines().count(), 8, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 62), "{text}");
    }

    #[test]
    fn markdown_keeps_cells_apart() {
        let mut table = table();
        table.row(["a|b", "1", "2", "3"]);
        let text = table.markdown();
        assert!(
            text.starts_with("| letter | calls/s | server | cause |\n|---|---:|---:|---|\n| A | 13,000 | 9.1 % |"),
            "{text}"
        );
        assert!(text.contains("\\x1b") && text.contains("| a\\|b | 1 | 2 | 3 |"), "{text}");
    }

    #[test]
    fn pages_have_figures_at_the_right_and_texts_at_the_left() {
        let html = table().html();
        assert!(html.contains("<tr><th>letter</th><th>calls/s</th><th>server</th><th class=\"left\">cause</th></tr>"));
        assert!(html.contains("<td>B\\x1b[2J</td><td>1,850</td><td></td><td class=\"left\">&lt;server&gt;</td>"));
    }
}
