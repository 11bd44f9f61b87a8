//! Values and changes of tables of this program.

use std::borrow::Cow;

use crate::sql::own_table::OwnTable;

/// Value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Null,
    Number(i64),
    /// Text without U+0000, which PostgreSQL refuses.
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

impl<'a> Cell<'a> {
    /// Converts a number. Numbers of columns stay below 2^63.
    pub(crate) fn number(number: impl TryInto<i64>) -> Self {
        Self::Number(number.try_into().unwrap_or(i64::MAX))
    }

    pub(crate) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        let text = text.into();
        Self::Text(if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { text })
    }

    pub(crate) const fn bytes(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
}

/// Change of a table. Changes given together are made together, or none is.
pub(crate) enum Change<'a> {
    /// Inserts or replaces rows, with a value for each column and different keys.
    Put(&'a OwnTable, &'a [Vec<Cell<'a>>]),
    /// Deletes the rows of these keys, as far as they exist. If a key has two columns, the single number is the first
    /// one.
    Delete(&'a OwnTable, Option<i64>, &'a [i64]),
}

impl Change<'_> {
    pub(crate) const fn is_empty(&self) -> bool {
        match self {
            Self::Put(_, rows) => rows.is_empty(),
            Self::Delete(_, _, keys) => keys.is_empty(),
        }
    }
}
