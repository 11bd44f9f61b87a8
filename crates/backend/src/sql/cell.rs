//! What stands in a column of a table of this program, and what changes of such a table are.

use std::borrow::Cow;

use crate::sql::own_table::OwnTable;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Null,
    Number(i64),
    /// Without U+0000, which PostgreSQL does not take.
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

impl<'a> Cell<'a> {
    /// Numbers of columns stay below 2^63.
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

/// A change of a table. Those that are given together are made together, or none is.
pub(crate) enum Change<'a> {
    /// Rows, with a value for each column, whose keys differ.
    Put(&'a OwnTable, &'a [Vec<Cell<'a>>]),
    /// The rows of these keys go, as far as they are there. Where a key has two columns, the number is that of the first.
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
