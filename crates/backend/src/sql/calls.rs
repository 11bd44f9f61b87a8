//! State by number in the table `strowger_call` of a database server, created by `strowger db init`: an engine of the
//! [`CallStore`](strowger_store::calls::CallStore).
//!
//! A group is one transaction: one statement deletes rows, another one inserts or replaces whole rows. To write a group
//! twice is harmless, so after a group with unknown outcome the present states are written. A late group cannot take
//! effect after a group of the next connection, because the fence of the node's [lease](crate::sql::lease) refuses it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use strowger_store::calls::{
    CallEngine, Change as Put, Failure as Said, Held, Left, LoadReport, OpenError as NotLoaded,
};
use strowger_store::database_url::DatabaseKind;

use crate::sql::cell::{Cell, Change};
use crate::sql::connection::Parameter;
use crate::sql::dialect::Dialect;
use crate::sql::error::{Failure, OpenError};
use crate::sql::lease::Lease;
use crate::sql::own_table::{Clash, Column, ColumnType, OwnTable};
use crate::sql::runtime::{CONNECT, apart};
use crate::sql::schema::{self, Part};
use crate::sql::server::ServerSettings;
use crate::sql::writing_connection::{Broken, WritingConnection};

/// Rows read at a time.
const PAGE: usize = 5_000;

/// Limit of one such read at the start.
const LOAD: Duration = Duration::from_secs(30);

/// Shortest limit of a group: a limit of zero would write none.
const LEAST: Duration = Duration::from_millis(100);

/// Additional time per row of a group.
const PER_ROW: Duration = Duration::from_millis(1);

/// Settings of the calls of a node.
#[derive(Clone, Copy, Debug)]
pub struct CallSettings {
    /// Number of the server among the users of the database.
    pub node: u16,
    /// Format version of the states, for display.
    pub form: u8,
    /// Limit of a group, to which each row adds a millisecond.
    pub patience: Duration,
}

/// Calls of a node in a database server.
pub struct ServerCalls {
    connection: WritingConnection,
    table: OwnTable,
    settings: CallSettings,
    /// Length of each stored state.
    there: HashMap<u64, u32>,
    bytes: u64,
    /// Numbers of failed groups: they may be stored, too.
    doubtful: HashSet<u64>,
    written: u64,
}

impl ServerCalls {
    /// Connects and checks whether the table exists.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn open(server: &ServerSettings, settings: CallSettings, lease: Arc<Lease>) -> Result<Self, OpenError> {
        apart(|| {
            let connection = WritingConnection::fenced(server, lease)?;
            let (there, doubtful) = Default::default();
            let (bytes, written) = (0, 0);
            let mut this = Self { connection, table: table(), settings, there, bytes, doubtful, written };
            let (server, own) = (this.connection.server().clone(), &this.table);
            let looked = this
                .connection
                .run(CONNECT, async |connection| schema::expect(connection, &server, Part::Calls, &[own], true).await);
            looked.map_err(|Broken { failure, .. }| failure.at_start(server.url.to_string(), CONNECT))??;
            Ok(this)
        })
    }

    fn all(&mut self, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, Failure> {
        let page = self.page();
        let mut report = LoadReport::default();
        let mut next = Some(i64::MIN);
        while let Some(from) = next {
            let rows =
                self.connection.run(LOAD, async |connection| connection.cells(&page, &[Parameter::Number(from)]).await);
            let rows = rows.map_err(|broken| broken.failure)?;
            next = None;
            for row in &rows {
                let [Cell::Number(number), Cell::Number(is_closed), Cell::Bytes(said)] = &row[..] else {
                    return Err(Failure::Refused("the table strowger_call has columns of other types".into()));
                };
                next = number.checked_add(1);
                let (number, length) = (number.cast_unsigned(), u32::try_from(said.len()).unwrap_or(u32::MAX));
                self.put(number, length);
                report.bytes += u64::from(length);
                if *is_closed == 0 {
                    report.states += 1;
                    take(number, Left::State(said));
                } else {
                    report.closed += 1;
                    take(number, Left::LastWords(said));
                }
            }
            next = next.filter(|_| rows.len() == PAGE);
        }
        Ok(report)
    }

    /// Returns the statement that reads a page of this node's rows, beginning with a number.
    fn page(&self) -> String {
        let dialect = Dialect(self.connection.server().url.kind);
        let from = match dialect.0 {
            DatabaseKind::MariaDb => "?",
            DatabaseKind::PostgreSql => "CAST($1 AS bigint)",
        };
        let [table, node, number, closed, state] =
            [self.table.name, "node", "number", "closed", "state"].map(|name| dialect.quoted(name));
        format!(
            "SELECT {number}, {closed}, {state} FROM {table} WHERE {node} = {} AND {number} >= {from} ORDER BY {number} LIMIT {PAGE}",
            self.settings.node
        )
    }

    fn put(&mut self, number: u64, length: u32) {
        let before = self.there.insert(number, length);
        self.bytes += u64::from(length);
        self.bytes -= u64::from(before.unwrap_or(0));
    }

    fn remove(&mut self, number: u64) {
        self.bytes -= u64::from(self.there.remove(&number).unwrap_or(0));
    }

    fn row<'a>(&self, number: u64, said: &'a [u8], is_closed: bool) -> Vec<Cell<'a>> {
        vec![
            Cell::number(self.settings.node),
            Cell::Number(number.cast_signed()),
            Cell::number(u8::from(is_closed)),
            Cell::number(self.settings.form),
            Cell::bytes(said),
        ]
    }

    fn group(&mut self, changes: &[(u64, &Put)]) -> Result<(), Broken> {
        let (mut gone, mut rows) = (Vec::new(), Vec::new());
        for (number, change) in changes {
            match change {
                Put::State(said) => rows.push(self.row(*number, said, false)),
                Put::Closed(said) => rows.push(self.row(*number, said, true)),
                // A number without a row needs no removal.
                Put::Removed if self.there.contains_key(number) || self.doubtful.contains(number) => {
                    gone.push(number.cast_signed());
                }
                Put::Removed => {}
            }
        }
        if gone.is_empty() && rows.is_empty() {
            return Ok(());
        }
        let of_node = Some(i64::from(self.settings.node));
        let changes = [Change::Delete(&self.table, of_node, &gone), Change::Put(&self.table, &rows)];
        let time = PER_ROW * u32::try_from(gone.len() + rows.len()).unwrap_or(u32::MAX);
        let limit = self.settings.patience.max(LEAST) + time;
        self.connection.run(limit, async |connection| connection.change(&changes).await)
    }
}

impl CallEngine for ServerCalls {
    fn name(&self) -> String {
        self.connection.server().url.to_string()
    }

    fn load(&mut self, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, NotLoaded> {
        apart(|| self.all(take)).map_err(|failure| {
            let server = self.connection.server().url.to_string();
            NotLoaded::Engine(failure.at_start(server, LOAD).into())
        })
    }

    fn write(&mut self, changes: &[(u64, &Put)]) -> Result<(), Said> {
        let done = self.group(changes);
        for (number, change) in changes {
            match (&done, change) {
                (Ok(()), Put::State(said) | Put::Closed(said)) => {
                    self.put(*number, u32::try_from(said.len()).unwrap_or(u32::MAX));
                    self.doubtful.remove(number);
                }
                (Ok(()), Put::Removed) => {
                    self.remove(*number);
                    self.doubtful.remove(number);
                }
                (Err(_), Put::State(_) | Put::Closed(_)) => drop(self.doubtful.insert(*number)),
                (Err(_), Put::Removed) => {}
            }
        }
        match done {
            Ok(()) => {
                self.written += changes.len() as u64;
                Ok(())
            }
            Err(Broken { failure, .. }) => Err(failure.to_string().into()),
        }
    }

    fn held(&self) -> Held {
        Held { kept: self.there.len() as u64, bytes: self.bytes, written: self.written }
    }
}

/// Returns the table of calls, by node and number. `closed`: 1 if `state` is the rows of an ended call, which
/// accounting may not have written yet.
pub(crate) fn table() -> OwnTable {
    let column = |(name, kind)| Column { name, kind, is_optional: false };
    let columns = [
        ("node", ColumnType::Number),
        ("number", ColumnType::Number),
        ("closed", ColumnType::Number),
        ("form", ColumnType::Number),
        ("state", ColumnType::Bytes),
    ];
    let columns = columns.map(column).into();
    OwnTable { name: "strowger_call", columns, key: 2, is_numbered: false, index: None, clash: Clash::Replace }
}
