//! Bindings in the SQLite file.
//!
//! Write-ahead log, one writer thread, one transaction per group. With `synchronous = NORMAL` commits survive `kill -9`
//! (the page cache is the kernel's); `FULL` syncs the log in each commit, before [`BindingEngine::commit`] returns.
//!
//! A checkpoint writes pages of the log back into the file and syncs both, which takes tens of milliseconds. So a
//! thread with its own connection performs the checkpoint concurrently with the commits. Then the writer itself, after
//! it has returned the tickets of a group, writes back the few pages that were added meanwhile: the log restarts at its
//! beginning only if all of its pages are written back.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::hooks::Wal;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, TransactionBehavior};
use strowger_files::{FileLock, FileNumber, LockError};

use crate::sqlite::database_header::{self, DatabaseHeader};
use crate::sqlite::{OpenError, SqliteSettings, classify, explain, open};
use strowger_store::binding::{Binding, BindingId, NO_LISTENER, Received};
use strowger_store::clock::Clock;
use strowger_store::error::StoreError;
use strowger_store::journal::{BindingEngine, Durability, Journal, JournalSettings, Write};
use strowger_store::lasting_failure::LastingFailure;
use strowger_store::location::LocationTable;

/// Fills `table` from the file and stores the changes of the table there from then on, with the durability of the
/// settings. Returns the writer and the number of bindings loaded. With [`Durability::None`] there is no writer, and
/// the rows of the file are deleted, so that no later start loads them.
///
/// # Errors
/// [`OpenError`], for display as it is.
pub fn keep(
    settings: &SqliteSettings,
    table: &Arc<LocationTable>,
    journal: JournalSettings,
    clock: Clock,
) -> Result<(Option<Journal>, usize), OpenError> {
    let mut engine = SqliteBindings::open(settings)?;
    if settings.durability == Durability::None {
        engine.forget()?;
        return Ok((None, 0));
    }
    let path = settings.path.clone();
    match Journal::start(engine, table, journal, clock) {
        Ok((journal, loaded)) => Ok((Some(journal), loaded)),
        Err(StoreError::Corrupt) => Err(OpenError::Corrupt { path, detail: "found while loading bindings".into() }),
        Err(StoreError::TimedOut) => Err(OpenError::Locked { path, waited: settings.busy_timeout }),
        Err(StoreError::Full) => Err(OpenError::NoRoom { path }),
        Err(error) => Err(OpenError::Io { path, detail: error.to_string() }),
    }
}

/// Engine of the bindings in the file, for [`Journal::start`].
pub struct SqliteBindings {
    connection: Connection,
    settings: SqliteSettings,
    trouble: LastingFailure,
    /// Identifies the opened file: device and inode number.
    file: Option<FileNumber>,
    header: DatabaseHeader,
    /// Pages of the log after the last commit, as reported by SQLite.
    log_pages: Arc<AtomicU32>,
    /// Pages of the log that are written back although the log has not restarted.
    written_back: u32,
    checkpointer: Checkpointer,
    /// Lock file. A server reads the rows once, at its start, and assigns the binding ids itself: a second server on
    /// this file would overwrite acknowledged rows of the first. The lock is a file beside the database, because
    /// closing any descriptor of the database would release SQLite's own locks. This must be the last field: when a
    /// waiting thread gets the lock, the connections of this engine are closed.
    _lock: FileLock,
}

/// Checkpoint thread.
struct Checkpointer {
    start: Option<mpsc::SyncSender<()>>,
    done: mpsc::Receiver<()>,
    running: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    fn new(settings: &SqliteSettings) -> Result<Self, OpenError> {
        let connection = open(settings)?;
        let path = settings.path.clone();
        let (start, orders) = mpsc::sync_channel(1);
        let (tell, done) = mpsc::sync_channel(1);
        let run = move || {
            while orders.recv().is_ok() {
                checkpoint(&connection, &path);
                if tell.send(()).is_err() {
                    break;
                }
            }
            database_header::before_close(&connection, &path);
        };
        let thread = std::thread::Builder::new()
            .name("checkpoint".into())
            .spawn(run)
            .map_err(|error| OpenError::Io { path: settings.path.clone(), detail: error.to_string() })?;
        Ok(Self { start: Some(start), done, running: false, thread: Some(thread) })
    }
}

impl Drop for SqliteBindings {
    fn drop(&mut self) {
        database_header::before_close(&self.connection, &self.settings.path);
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.start = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the log back had ended by a panic");
        }
    }
}

fn checkpoint(connection: &Connection, path: &Path) {
    let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    if let Err(error) = done {
        // While this fails, the log only grows; a commit that fails for the same reason is logged as an error.
        tracing::warn!(path = %path.display(), "the write-ahead log cannot be written back: {error}");
    }
}

/// Interval of log lines about a lasting failure.
const AGAIN: Duration = Duration::from_secs(10);

/// Returns meaning and cure of a failure of the file.
fn explained(error: &rusqlite::Error) -> &'static str {
    match classify(error) {
        StoreError::Full => "no room: the disk or the file's limit is full; make room, writing goes on by itself",
        StoreError::TimedOut => "another process holds the database; registrations fail until it releases the lock",
        _ if is_overwritten(error) => {
            "another program has overwritten the database file: stop the server, remove the file and those beside it that end with -wal and \
             -shm, and restore it from a backup"
        }
        StoreError::Corrupt => "the database is damaged; stop the server and restore it from a backup",
        StoreError::Unavailable if is_moved(error) => {
            "the database file was removed or replaced: put it back, or restart the server"
        }
        StoreError::Unavailable => "the disk failed or the file may not be written",
        _ => "the database refused",
    }
}

const PUT: &str = "INSERT OR REPLACE INTO binding (id, aor, uri, call_id, cseq, q, expires_at, updated_at, \
    received_transport, received_address, path, instance, reg_id, user_agent, flow, listener, node, flags) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
const HIGHEST: &str = "SELECT max(id) FROM binding WHERE id BETWEEN ?1 AND ?2";
const DELETE: &str = "DELETE FROM binding WHERE id = ?1";
const LOAD: &str = "SELECT id, aor, uri, call_id, cseq, q, expires_at, updated_at, received_transport, \
    received_address, path, instance, reg_id, user_agent, flow, listener, node, flags FROM binding";

impl SqliteBindings {
    /// Opens the file, and locks it against other servers until the engine is dropped.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn open(settings: &SqliteSettings) -> Result<Self, OpenError> {
        let mut connection = open(settings)?;
        let lock = FileLock::beside(&settings.path, settings.busy_timeout).map_err(|error| match error {
            LockError::InUse(path) => OpenError::InUse { path },
            LockError::Unusable { path, error } => {
                OpenError::Io { path, detail: format!("the lock of the database cannot be taken: {error}") }
            }
        })?;
        let log_pages = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&log_pages);
        // Replaces SQLite's own hook, which would run the checkpoint inside the commit, before the tickets are
        // returned.
        connection
            .wal_hook(Some(move |_: &'_ mut Wal, pages| {
                told.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }))
            .map_err(|error| explain(&settings.path, settings.busy_timeout, &error))?;
        let checkpointer = Checkpointer::new(settings)?;
        let (settings, trouble) = (settings.clone(), LastingFailure::every(AGAIN));
        let file = FileNumber::named(&settings.path);
        let header = DatabaseHeader::read(&settings.path)
            .map_err(|error| OpenError::Io { path: settings.path.clone(), detail: error.to_string() })?;
        Ok(Self { connection, settings, trouble, file, header, log_pages, written_back: 0, checkpointer, _lock: lock })
    }

    /// Deletes every binding of the file. A server that keeps bindings only in memory calls this at its start, so that
    /// a later start with another durability does not load outdated rows.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn forget(&mut self) -> Result<usize, OpenError> {
        self.connection
            .execute("DELETE FROM binding", [])
            .map_err(|error| explain(&self.settings.path, self.settings.busy_timeout, &error))
    }

    /// Tells whether another program has overwritten the file; then the log is no longer written back.
    fn is_overwritten(&mut self) -> bool {
        let is_overwritten = self.header.is_overwritten();
        if is_overwritten {
            database_header::note_overwritten(&self.settings.path);
        }
        is_overwritten
    }

    fn write(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> rusqlite::Result<()> {
        let failure = |code| Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None));
        // SQLite continues to use a file whose name was removed, and the contents are lost when SQLite closes the file.
        if FileNumber::named(&self.settings.path) != self.file {
            return failure(rusqlite::ffi::SQLITE_READONLY_DBMOVED);
        }
        if self.is_overwritten() {
            return failure(rusqlite::ffi::SQLITE_NOTADB);
        }
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut put = tx.prepare_cached(PUT)?;
            let mut delete = tx.prepare_cached(DELETE)?;
            for write in writes {
                match write {
                    Write::Put(id, binding, listener) => put_row(&mut put, id, &binding, listener)?,
                    Write::Delete(id) => {
                        delete.execute([key(id)])?;
                    }
                }
            }
        }
        tx.commit()
    }
}

/// Bytes of a peer as an SQL value: text if they are UTF-8, a BLOB otherwise.
struct Text<'a>(&'a [u8]);

impl ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match std::str::from_utf8(self.0) {
            // SQLite's own functions end a text at NUL; a BLOB is not truncated.
            Ok(text) if !self.0.contains(&0) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            _ => ToSqlOutput::Borrowed(ValueRef::Blob(self.0)),
        })
    }
}

fn optional(bytes: &[u8]) -> Option<Text<'_>> {
    (!bytes.is_empty()).then_some(Text(bytes))
}

/// Converts ids and times, which stay below 2^63: ids have 63 bits, times 48.
fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn key(id: BindingId) -> i64 {
    number(id.0)
}

fn put_row(
    put: &mut rusqlite::CachedStatement<'_>,
    id: BindingId,
    b: &Binding<'_>,
    listener: &str,
) -> rusqlite::Result<()> {
    put.execute(rusqlite::params![
        key(id),
        Text(b.aor),
        Text(b.uri),
        Text(b.call_id),
        b.cseq,
        b.q,
        number(b.expires_at),
        number(b.updated_at),
        b.received.map(|r| r.transport),
        b.received.map(|r| r.address.to_string()),
        optional(b.path),
        optional(b.instance),
        (b.reg_id != 0).then_some(b.reg_id),
        optional(b.user_agent),
        b.flow.map(|flow| Value::Blob(flow.to_vec())),
        listener,
        b.node,
        b.flags,
    ])?;
    Ok(())
}

fn bytes<'a>(row: &'a rusqlite::Row<'_>, column: usize) -> rusqlite::Result<&'a [u8]> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => b"",
    })
}

fn read_row<'a>(row: &'a rusqlite::Row<'_>) -> rusqlite::Result<(BindingId, Binding<'a>, &'a str)> {
    let time = |column| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0));
    let address = row.get_ref(9)?.as_str_or_null().ok().flatten().and_then(|a| a.parse::<SocketAddr>().ok());
    let transport: Option<u8> = row.get(8)?;
    let binding = Binding {
        aor: bytes(row, 1)?,
        uri: bytes(row, 2)?,
        call_id: bytes(row, 3)?,
        cseq: row.get(4)?,
        q: row.get(5)?,
        expires_at: time(6)?,
        updated_at: time(7)?,
        received: transport.zip(address).map(|(transport, address)| Received { transport, address }),
        path: bytes(row, 10)?,
        instance: bytes(row, 11)?,
        reg_id: row.get::<_, Option<u32>>(12)?.unwrap_or(0),
        user_agent: bytes(row, 13)?,
        flow: bytes(row, 14)?.try_into().ok(),
        listener: NO_LISTENER,
        node: row.get(16)?,
        flags: row.get(17)?,
    };
    Ok((BindingId(time(0)?), binding, row.get_ref(15)?.as_str()?))
}

/// Tells whether the file of the connection has been renamed or removed.
fn is_moved(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_READONLY_DBMOVED)
}

/// Tells whether the content of the file is no database any more.
fn is_overwritten(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase)
}

impl BindingEngine for SqliteBindings {
    fn load(
        &mut self,
        wall_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, StoreError> {
        let path = &self.settings.path;
        let mut load = || -> rusqlite::Result<u64> {
            let (first, last) = ids.clone().into_inner();
            let of_node = [number(first), number(last)];
            let highest: Option<i64> = self.connection.query_row(HIGHEST, of_node, |r| r.get(0))?;
            self.connection.execute("DELETE FROM binding WHERE expires_at <= ?1", [number(wall_ms)])?;
            let mut select = self.connection.prepare(LOAD)?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                match read_row(row) {
                    Ok((id, binding, listener)) => each(id, &binding, listener),
                    Err(error) => tracing::warn!(path = %path.display(), "a binding on disk cannot be read: {error}"),
                }
            }
            Ok(highest.and_then(|id| u64::try_from(id).ok()).unwrap_or(first))
        };
        load().map_err(|error| {
            tracing::error!(path = %path.display(), "bindings cannot be loaded: {error}");
            classify(&error)
        })
    }

    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        match self.write(writes) {
            Ok(()) => {
                if let Some((groups, after)) = self.trouble.works() {
                    let path = self.settings.path.display();
                    tracing::info!(%path, groups, ?after, "bindings are written again");
                }
                Ok(())
            }
            Err(error) => {
                if let Some(groups) = self.trouble.fails(true) {
                    let (path, what) = (self.settings.path.display(), explained(&error));
                    tracing::error!(%path, groups, %error, "bindings cannot be written: {what}");
                }
                Err(classify(&error))
            }
        }
    }

    fn settle(&mut self) {
        if self.is_overwritten() {
            return;
        }
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages < self.written_back {
            self.written_back = 0;
        }
        let thread = &mut self.checkpointer;
        if thread.running {
            if thread.done.try_recv().is_ok() {
                thread.running = false;
                checkpoint(&self.connection, &self.settings.path);
                self.written_back = pages;
            }
        } else if pages - self.written_back >= self.settings.checkpoint_pages {
            thread.running = thread.start.as_ref().is_some_and(|start| start.try_send(()).is_ok());
        }
    }
}

#[cfg(test)]
mod tests;
