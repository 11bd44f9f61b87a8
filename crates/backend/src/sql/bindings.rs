//! Bindings in the table `strowger_binding` of a database server, created by `strowger db init`: the same columns as in
//! the SQLite file, and the same writer.
//!
//! A group is one transaction, sent as a whole: one statement deletes rows, another one inserts or replaces rows. Texts
//! of peers are bytes: they need not be UTF-8.
//!
//! A [lease](crate::sql::lease) allows one server to write its bindings to a database, and no commit of an abandoned
//! connection takes effect after a commit of its successor.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use strowger_store::binding::{Binding, BindingId, NO_LISTENER, Received};
use strowger_store::clock::Clock;
use strowger_store::database_url::DatabaseKind;
use strowger_store::error::StoreError;
use strowger_store::journal::{BindingEngine, Durability, Journal, JournalSettings, Write};
use strowger_store::lasting_failure::LastingFailure;
use strowger_store::location::LocationTable;

use crate::sql::cell::{Cell, Change};
use crate::sql::connection::{Connection, Parameter};
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

/// Expired rows removed at a time.
const STEP: usize = 10_000;

/// Limit of one of these steps at the start.
const LOAD: Duration = Duration::from_secs(30);

/// Shortest limit of a commit: a limit of zero would refuse every registration.
const LEAST: Duration = Duration::from_millis(100);

/// Interval of log lines about a lasting failure.
const AGAIN: Duration = Duration::from_secs(10);

/// Fills `table` from a server and stores the changes of the table there from then on. A commit may take `patience`.
/// Returns the writer and the number of bindings loaded.
///
/// # Errors
/// [`OpenError`], for display as it is.
pub fn keep(
    settings: &ServerSettings,
    durability: Durability,
    patience: Duration,
    table: &Arc<LocationTable>,
    journal: JournalSettings,
    clock: Clock,
    lease: Arc<Lease>,
) -> Result<(Journal, usize), OpenError> {
    // This runs on a thread without a runtime, because the caller's thread may have a runtime.
    apart(|| {
        let engine = ServerBindings::open(settings, durability, patience, lease)?;
        let server = engine.connection.server().url.to_string();
        Journal::start(engine, table, journal, clock)
            .map_err(|error| OpenError::Refused { server, reason: format!("bindings cannot be loaded: {error}") })
    })
}

/// Engine of the bindings of a server, for [`Journal::start`].
pub struct ServerBindings {
    connection: WritingConnection,
    table: OwnTable,
    patience: Duration,
    is_in_doubt: bool,
    trouble: LastingFailure,
}

impl ServerBindings {
    /// Connects and checks whether the table exists. A commit may take `patience`. Must not be called within a runtime.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn open(
        settings: &ServerSettings,
        durability: Durability,
        patience: Duration,
        lease: Arc<Lease>,
    ) -> Result<Self, OpenError> {
        let mut connection = WritingConnection::fenced(settings, lease)?;
        if settings.url.kind == DatabaseKind::PostgreSql && durability == Durability::PowerLoss {
            connection.greet("SET synchronous_commit = on");
        }
        let mut this = Self {
            connection,
            table: table(),
            patience: patience.max(LEAST),
            is_in_doubt: false,
            trouble: LastingFailure::every(AGAIN),
        };
        let server = this.connection.server().clone();
        let own = &this.table;
        let looked = this.connection.run(CONNECT, async |connection| {
            if let Err(error) = schema::expect(connection, &server, Part::Bindings, &[own], true).await? {
                return Ok(Err(error));
            }
            Ok(match durability {
                Durability::PowerLoss => unkept(connection, server.url.kind)
                    .await?
                    .map_or(Ok(()), |setting| Err(OpenError::NotDurable { server: server.url.to_string(), setting })),
                Durability::Crash | Durability::None => Ok(()),
            })
        });
        looked.map_err(|Broken { failure, .. }| failure.at_start(server.url.to_string(), CONNECT))??;
        Ok(this)
    }

    fn all(
        &mut self,
        wall_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, Failure> {
        let dialect = Dialect(self.connection.server().url.kind);
        let server = self.connection.server().url.clone();
        let place = |number: usize| match dialect.0 {
            DatabaseKind::MariaDb => "?".to_owned(),
            DatabaseKind::PostgreSql => format!("CAST(${number} AS bigint)"),
        };
        let (name, id) = (dialect.quoted(self.table.name), dialect.quoted("id"));
        let (first, last) = ids.into_inner();
        let highest = format!("SELECT MAX({id}) FROM {name} WHERE {id} BETWEEN {} AND {}", place(1), place(2));
        let of_node = [number(first), number(last)].map(Parameter::Number);
        let rows = self.connection.run(LOAD, async |connection| connection.cells(&highest, &of_node).await);
        let highest = rows.map_err(|broken| broken.failure)?.first().and_then(|row| row.first()).and_then(as_number);
        // A binding that ends at `wall_ms` has expired.
        let removal = self.table.removal(dialect, "expires_at", number(wall_ms).saturating_add(1), STEP);
        let mut removed = STEP as u64;
        while removed >= STEP as u64 {
            let step = self.connection.run(LOAD, async |connection| connection.run(&removal).await);
            removed = step.map_err(|broken| broken.failure)?;
        }
        let names: Vec<String> = self.table.columns.iter().map(|column| dialect.quoted(column.name)).collect();
        let page =
            format!("SELECT {} FROM {name} WHERE {id} > {} ORDER BY {id} LIMIT {PAGE}", names.join(", "), place(1));
        let mut seen = i64::MIN;
        loop {
            let from = [Parameter::Number(seen)];
            let rows = self.connection.run(LOAD, async |connection| connection.cells(&page, &from).await);
            let rows = rows.map_err(|broken| broken.failure)?;
            for row in &rows {
                seen = row.first().and_then(as_number).unwrap_or(i64::MAX);
                match read(row) {
                    Some((id, binding, listener)) => each(id, &binding, listener),
                    None => tracing::warn!(database = %server, id = seen, "a binding on disk cannot be read"),
                }
            }
            if rows.len() < PAGE {
                return Ok(highest.and_then(|id| u64::try_from(id).ok()).unwrap_or(first));
            }
        }
    }
}

impl BindingEngine for ServerBindings {
    fn load(
        &mut self,
        wall_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, StoreError> {
        self.all(wall_ms, ids, each).map_err(|failure| {
            tracing::error!(database = %self.connection.server().url, error = %failure, "bindings cannot be loaded");
            failure.kind()
        })
    }

    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        // The last write of an id counts, since a row is replaced as a whole.
        let mut last = BTreeMap::new();
        for write in writes {
            match write {
                Write::Put(id, binding, listener) => last.insert(id, Some(cells(id, &binding, listener))),
                Write::Delete(id) => last.insert(id, None),
            };
        }
        let gone: Vec<i64> = last.iter().filter(|(_, row)| row.is_none()).map(|(id, _)| number(id.0)).collect();
        let rows: Vec<Vec<Cell<'_>>> = last.into_values().flatten().collect();
        let changes = [Change::Delete(&self.table, None, &gone), Change::Put(&self.table, &rows)];
        // The flag is set in advance, so that it is also set after a panic.
        self.is_in_doubt = true;
        let done = self.connection.run(self.patience, async |connection| connection.change(&changes).await);
        let server = &self.connection.server().url;
        match done {
            Ok(()) => {
                if let Some((groups, after)) = self.trouble.works() {
                    tracing::info!(database = %server, groups, ?after, "bindings are written again");
                }
                Ok(())
            }
            Err(Broken { failure, is_in_doubt }) => {
                self.is_in_doubt = is_in_doubt;
                if let Some(groups) = self.trouble.fails(failure != Failure::NotTried) {
                    tracing::error!(database = %server, groups, error = %failure, "bindings cannot be written");
                }
                Err(failure.kind())
            }
        }
    }

    fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }
}

/// Returns the server setting that lets a power cut lose commits, if there is one.
async fn unkept(connection: &mut Connection, kind: DatabaseKind) -> Result<Option<String>, Failure> {
    let (name, right, select) = match kind {
        DatabaseKind::MariaDb => {
            ("innodb_flush_log_at_trx_commit", "1", "SELECT CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR)")
        }
        DatabaseKind::PostgreSql => ("fsync", "on", "SELECT CAST(current_setting('fsync') AS text)"),
    };
    let rows = connection.rows(select, &[]).await?;
    let found = rows.first().and_then(|row| row.first()).map(|value| String::from_utf8_lossy(value).into_owned());
    let found = found.unwrap_or_default();
    Ok((found != right).then(|| format!("{name} = {found}, and it has to be {right}")))
}

/// Returns the table of bindings. The names are those of the SQLite file.
pub(crate) fn table() -> OwnTable {
    let column = |(name, kind, is_optional)| Column { name, kind, is_optional };
    let columns = [
        ("id", ColumnType::Number, false),
        ("aor", ColumnType::Bytes, false),
        ("uri", ColumnType::Bytes, false),
        ("call_id", ColumnType::Bytes, false),
        ("cseq", ColumnType::Number, false),
        ("q", ColumnType::Number, true),
        ("expires_at", ColumnType::Number, false),
        ("updated_at", ColumnType::Number, false),
        ("received_transport", ColumnType::Number, true),
        ("received_address", ColumnType::Text, true),
        ("path", ColumnType::Bytes, true),
        ("instance", ColumnType::Bytes, true),
        ("reg_id", ColumnType::Number, true),
        ("user_agent", ColumnType::Bytes, true),
        ("flow", ColumnType::Bytes, true),
        ("listener", ColumnType::Text, false),
        ("node", ColumnType::Number, false),
        ("flags", ColumnType::Number, false),
    ];
    let columns = columns.map(column).into();
    OwnTable { name: "strowger_binding", columns, key: 1, is_numbered: false, index: None, clash: Clash::Replace }
}

/// Converts ids and times, which stay below 2^63: ids have 63 bits, times 48.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the values of the columns.
fn cells<'a>(id: BindingId, b: &Binding<'a>, listener: &'a str) -> Vec<Cell<'a>> {
    let optional = |bytes: &'a [u8]| if bytes.is_empty() { Cell::Null } else { Cell::bytes(bytes) };
    let maybe = |number: Option<u32>| number.map_or(Cell::Null, Cell::number);
    vec![
        Cell::number(id.0),
        Cell::bytes(b.aor),
        Cell::bytes(b.uri),
        Cell::bytes(b.call_id),
        Cell::number(b.cseq),
        maybe(b.q.map(u32::from)),
        Cell::number(b.expires_at),
        Cell::number(b.updated_at),
        maybe(b.received.map(|received| received.transport.into())),
        b.received.map_or(Cell::Null, |received| Cell::text(received.address.to_string())),
        optional(b.path),
        optional(b.instance),
        maybe((b.reg_id != 0).then_some(b.reg_id)),
        optional(b.user_agent),
        b.flow.map_or(Cell::Null, |flow| Cell::Bytes(flow.to_vec().into())),
        Cell::text(listener),
        Cell::number(b.node),
        Cell::number(b.flags),
    ]
}

fn as_number(cell: &Cell<'_>) -> Option<i64> {
    if let Cell::Number(number) = cell { Some(*number) } else { None }
}

/// Reads a binding from these values; `None` if a value has another type than its column.
fn read<'a>(row: &'a [Cell<'_>]) -> Option<(BindingId, Binding<'a>, &'a str)> {
    let bytes = |n: usize| match row.get(n) {
        Some(Cell::Bytes(bytes)) => Some(&**bytes),
        Some(Cell::Null) => Some(&[][..]),
        _ => None,
    };
    let whole = |n: usize| row.get(n).and_then(as_number);
    let time = |n: usize| whole(n).and_then(|time| u64::try_from(time).ok());
    let transport = whole(8).and_then(|transport| u8::try_from(transport).ok());
    let address = std::str::from_utf8(bytes(9)?).ok().and_then(|address| address.parse::<SocketAddr>().ok());
    let binding = Binding {
        aor: bytes(1)?,
        uri: bytes(2)?,
        call_id: bytes(3)?,
        cseq: whole(4)?.try_into().ok()?,
        q: whole(5).and_then(|q| q.try_into().ok()),
        expires_at: time(6)?,
        updated_at: time(7)?,
        received: transport.zip(address).map(|(transport, address)| Received { transport, address }),
        path: bytes(10)?,
        instance: bytes(11)?,
        reg_id: whole(12).and_then(|id| id.try_into().ok()).unwrap_or(0),
        user_agent: bytes(13)?,
        flow: bytes(14)?.try_into().ok(),
        listener: NO_LISTENER,
        node: whole(16)?.try_into().ok()?,
        flags: whole(17)?.try_into().ok()?,
    };
    Some((BindingId(time(0)?), binding, std::str::from_utf8(bytes(15)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_comes_back_from_its_row() {
        let full = Binding {
            aor: b"sip:b\xff\x00@x",
            uri: b"sip:alice@192.0.2.1:5070;ob",
            call_id: b"a84b4c76e66710@pc33",
            path: b"<sip:p1@192.0.2.7;lr>",
            instance: b"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>",
            user_agent: b"Phone 1.0",
            cseq: u32::MAX,
            q: Some(700),
            expires_at: 1 << 47,
            updated_at: 77,
            received: Some(Received { transport: 3, address: "[2001:db8::9]:49152".parse().expect("an address") }),
            flow: Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 255]),
            listener: NO_LISTENER,
            node: 1,
            reg_id: 1,
            flags: 0x8000_0001,
        };
        for binding in [full, Binding { listener: NO_LISTENER, ..Binding::EMPTY }] {
            let cells = cells(BindingId(5), &binding, "udp:192.0.2.1:5060");
            assert_eq!(cells.len(), table().columns.len());
            for (cell, column) in cells.iter().zip(&table().columns) {
                let fits = match column.kind {
                    ColumnType::Number => matches!(cell, Cell::Number(_)),
                    ColumnType::Word | ColumnType::Text => matches!(cell, Cell::Text(_)),
                    ColumnType::Bytes => matches!(cell, Cell::Bytes(_)),
                };
                assert!(fits || column.is_optional && *cell == Cell::Null, "{column:?}: {cell:?}");
            }
            // Servers return texts as bytes.
            let row: Vec<Cell<'_>> = cells
                .into_iter()
                .map(|cell| {
                    if let Cell::Text(text) = cell { Cell::Bytes(text.into_owned().into_bytes().into()) } else { cell }
                })
                .collect();
            assert_eq!(read(&row), Some((BindingId(5), binding, "udp:192.0.2.1:5060")));
        }
        assert_eq!(read(&[]), None);
    }
}
