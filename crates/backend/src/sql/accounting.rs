//! Accounting rows in tables of a database server: `strowger_cdr` and `strowger_events`, created by `strowger db init`.
//!
//! A group is one transaction, sent as a whole. A table skips rows whose identity it has: so after a lost connection a
//! group is written again, and no row is stored twice.

use std::time::Duration;

use crate::files::form::object;
use strowger_store::accounting::cdr::{Row, Table, Value, ValueKind};
use strowger_store::accounting::sink::{Sink, SinkError, Trouble};

use crate::sql::cell::{Cell, Change};
use crate::sql::dialect::Dialect;
use crate::sql::error::{Failure, OpenError};
use crate::sql::own_table::{Clash, Column, ColumnType, OwnTable};
use crate::sql::runtime::{CONNECT, apart};
use crate::sql::schema::{self, Part};
use crate::sql::server::ServerSettings;
use crate::sql::writing_connection::{Broken, WritingConnection};

/// Rows removed in one step.
const STEP: usize = 1_000;

/// Shortest limit of a statement: a limit of zero would refuse every row.
const LEAST: Duration = Duration::from_millis(100);

/// Additional time per row of a group. A server that needs longer is overloaded in any case.
const PER_ROW: Duration = Duration::from_millis(1);

/// Sink that writes rows to a server.
pub struct ServerSink {
    connection: WritingConnection,
    cdr: OwnTable,
    events: OwnTable,
    patience: Duration,
    removes: bool,
}

impl ServerSink {
    /// Creates a sink without connecting. A statement may take `patience`, and a millisecond more for each row.
    /// `removes`: old rows are removed, for which the database user needs an additional right.
    ///
    /// # Errors
    /// The trusted certificate authorities cannot be read.
    pub fn new(settings: &ServerSettings, patience: Duration, removes: bool) -> Result<Self, OpenError> {
        let connection = WritingConnection::new(settings)?;
        let [cdr, events] = tables();
        Ok(Self { connection, cdr, events, patience: patience.max(LEAST), removes })
    }

    fn explained(&self, failure: &Failure) -> SinkError {
        let kind = match failure {
            Failure::Lost(_) | Failure::TimedOut | Failure::NotTried => Trouble::Unreachable,
            Failure::Full(_) => Trouble::Full,
            Failure::Row(_) => Trouble::Row,
            Failure::Refused(_) | Failure::Denied(_) => Trouble::Unusable,
        };
        SinkError { kind, detail: format!("{}: {failure}", self.connection.server().url) }
    }

    fn look(&mut self) -> Result<(), SinkError> {
        let server = self.connection.server().clone();
        let (own, removes) = ([&self.cdr, &self.events], self.removes);
        let looked = self.connection.run(CONNECT, async |connection| {
            schema::expect(connection, &server, Part::Accounting, &own, removes).await
        });
        let unusable = |error: OpenError| SinkError { kind: Trouble::Unusable, detail: error.to_string() };
        looked.map_err(|Broken { failure, .. }| self.explained(&failure))?.map_err(unusable)
    }
}

impl Sink for ServerSink {
    fn place(&self) -> String {
        self.connection.server().url.to_string()
    }

    fn open(&mut self) -> Result<(), SinkError> {
        apart(|| self.look())
    }

    fn write(&mut self, rows: &[Box<Row>], _now: u64) -> Result<(), SinkError> {
        let of = |table: Table| -> Vec<Vec<Cell<'_>>> {
            rows.iter().filter(|row| row.table() == table).map(|row| cells(row)).collect()
        };
        let (cdrs, events) = (of(Table::Cdr), of(Table::Events));
        let changes = [Change::Put(&self.cdr, &cdrs), Change::Put(&self.events, &events)];
        let limit = self.patience + PER_ROW * u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let written = self.connection.run(limit, async |connection| connection.change(&changes).await);
        written.map_err(|Broken { failure, .. }| self.explained(&failure))
    }

    fn purge(&mut self, before: u64) -> Result<bool, SinkError> {
        let dialect = Dialect(self.connection.server().url.kind);
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let removal = |own: &OwnTable, table: Table| own.removal(dialect, table.moment(), before, STEP);
        let statements = [removal(&self.cdr, Table::Cdr), removal(&self.events, Table::Events)];
        let removed = self.connection.run(self.patience + PER_ROW * 1_000, async |connection| {
            let mut is_any_left = false;
            for statement in &statements {
                is_any_left |= connection.run(statement).await? >= STEP as u64;
            }
            Ok(is_any_left)
        });
        removed.map_err(|Broken { failure, .. }| self.explained(&failure))
    }
}

/// Returns the tables of calls and of events.
pub(crate) fn tables() -> [OwnTable; 2] {
    let own = |name, table: Table| {
        let column = |(n, (name, kind)): (usize, (&'static str, ValueKind))| Column {
            name,
            kind: match kind {
                _ if n == 0 => ColumnType::Word,
                ValueKind::Number | ValueKind::MaybeNumber => ColumnType::Number,
                ValueKind::Text | ValueKind::Fields => ColumnType::Text,
            },
            is_optional: matches!(kind, ValueKind::MaybeNumber | ValueKind::Fields),
        };
        let columns = table.columns().into_iter().enumerate().map(column).collect();
        OwnTable { name, columns, key: 1, is_numbered: true, index: Some(table.moment()), clash: Clash::Keep }
    };
    [own("strowger_cdr", Table::Cdr), own("strowger_events", Table::Events)]
}

fn cells(row: &Row) -> Vec<Cell<'_>> {
    let cell = |value| match value {
        Value::Null | Value::Fields([]) => Cell::Null,
        Value::Number(number) => Cell::number(number),
        Value::Text(text) => Cell::text(text),
        Value::Fields(fields) => Cell::text(object(fields)),
    };
    row.values().into_iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use strowger_store::accounting::cdr::{Cdr, Event};

    use super::*;

    #[test]
    fn a_row_has_a_value_for_each_column_of_its_table() {
        let rows = [Row::Cdr(Cdr::default()), Row::Event(Event::default())];
        for (row, table) in rows.iter().zip(tables()) {
            let cells = cells(row);
            assert_eq!(cells.len(), table.columns.len());
            for (cell, column) in cells.iter().zip(&table.columns) {
                let fits = match column.kind {
                    ColumnType::Number => matches!(cell, Cell::Number(_)),
                    ColumnType::Word | ColumnType::Text => matches!(cell, Cell::Text(_)),
                    ColumnType::Bytes => false,
                };
                assert!(fits || column.is_optional && *cell == Cell::Null, "{column:?}: {cell:?}");
            }
            assert!(table.columns.iter().any(|column| Some(column.name) == table.index));
        }
    }
}
