//! Rows of the table of leases.

use crate::sql::cell::Cell;
use crate::sql::own_table::{Clash, Column, ColumnType, OwnTable};

/// Row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) token: i64,
    pub(super) beat: i64,
    pub(super) holder: String,
    pub(super) process: String,
}

pub(super) fn read(row: &[Cell<'_>]) -> Option<Row> {
    let [Cell::Number(token), Cell::Number(beat), Cell::Bytes(holder), Cell::Bytes(process)] = row else {
        return None;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Row { token: *token, beat: *beat, holder: text(holder), process: text(process) })
}

/// Returns a text for a statement: only characters without special meaning on both servers.
pub(super) fn literal(text: &str) -> String {
    let is_plain = |&c: &char| c.is_ascii_graphic() && !matches!(c, '\'' | '\\' | '"' | '`') || c == ' ';
    text.chars().filter(is_plain).collect()
}

pub(super) const TABLE: &str = "strowger_lease";

/// Returns the table of leases.
pub(crate) fn table() -> OwnTable {
    let column = |(name, kind)| Column { name, kind, is_optional: false };
    let columns = [
        ("purpose", ColumnType::Word),
        ("token", ColumnType::Number),
        ("epoch", ColumnType::Number),
        ("beat", ColumnType::Number),
        ("holder", ColumnType::Text),
        ("process", ColumnType::Text),
    ];
    let columns = columns.map(column).into();
    OwnTable { name: TABLE, columns, key: 1, is_numbered: false, index: None, clash: Clash::Replace }
}
