//! Rows in a SQLite file of their own.

use crate::files::form::object;
use crate::sqlite::database_header::{self, DatabaseHeader};
use crate::sqlite::own_file::{Obstacle, OwnFile};
use crate::sqlite::statements::SQLITE;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, TransactionBehavior};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strowger_files::FileNumber;
use strowger_store::accounting::cdr::{Row, Table, Value};
use strowger_store::accounting::sink::{Sink, SinkError, Trouble};

/// Database file: opened when needed, and again if the path names another file.
pub struct Sqlite {
    path: PathBuf,
    patience: Duration,
    open: Option<(Connection, Option<FileNumber>)>,
    /// Number and header of the last opened file.
    header: Option<(Option<FileNumber>, DatabaseHeader)>,
}

/// "STRA".
const FILE: OwnFile = OwnFile { application: 0x5354_5241, version: VERSION, page: 4_096 };

/// Version of the tables.
pub const VERSION: i32 = 3;

/// Rows removed in one step.
const STEP: usize = 1_000;

impl Sqlite {
    /// Creates a sink. `patience`: longest wait for another process that holds the file.
    pub fn new(path: &Path, patience: Duration) -> Self {
        Self { path: path.to_owned(), patience, open: None, header: None }
    }

    /// Returns the version of the tables in a file; 0 if there are no tables or no file.
    ///
    /// # Errors
    /// The file belongs to another program, or cannot be read.
    pub fn version(path: &Path) -> Result<u32, SinkError> {
        FILE.found(path).map_err(|error| SinkError { kind: Trouble::Unusable, detail: error.to_string() })
    }

    /// Returns the statements that create the tables.
    pub fn statements() -> Vec<String> {
        Table::ALL.iter().flat_map(|table| [SQLITE.create(*table), SQLITE.index(*table)]).collect()
    }

    fn connection(&mut self) -> Result<&mut Connection, SinkError> {
        if self.open.as_ref().is_some_and(|(_, open)| *open != FileNumber::named(&self.path)) {
            self.open = None;
            if let Some((_, header)) = self.header.take() {
                header.close();
            }
        }
        let file = FileNumber::named(&self.path);
        if let Some((of, header)) = &mut self.header
            && *of == file
            && header.is_overwritten()
        {
            database_header::note_overwritten(&self.path);
            let cure =
                "end the server, remove it with the files beside it that end with -wal and -shm, and start again";
            let detail = format!("{}: another program has overwritten it: {cure}", self.path.display());
            return Err(SinkError { kind: Trouble::Unusable, detail });
        }
        if self.open.is_none() {
            let (connection, file) = (self.connect()?, FileNumber::named(&self.path));
            if self.header.as_ref().is_none_or(|(of, _)| *of != file) {
                let header = DatabaseHeader::read(&self.path);
                let failed =
                    |error| SinkError { kind: Trouble::Unusable, detail: format!("{}: {error}", self.path.display()) };
                self.header = Some((file, header.map_err(failed)?));
            }
            self.open = Some((connection, file));
        }
        let (connection, _) = self.open.as_mut().expect("it was opened just now");
        Ok(connection)
    }

    fn close(&mut self) {
        if let Some((connection, _)) = self.open.take() {
            database_header::before_close(&connection, &self.path);
        }
    }

    fn connect(&self) -> Result<Connection, SinkError> {
        // The file is private: rows show who called whom.
        let opened = FILE.open(&self.path, self.patience, &Self::statements());
        opened.map_err(|wrong| SinkError { kind: wrong.obstacle.into(), detail: wrong.to_string() })
    }

    fn try_on(&mut self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<bool>) -> Result<bool, SinkError> {
        let result = work(self.connection()?);
        result.map_err(|error| {
            let kind = if is_rows_own(&error) { Trouble::Row } else { Obstacle::from(&error).into() };
            if !matches!(kind, Trouble::Locked | Trouble::Row) {
                // The failed connection is in an unknown state and is not used again.
                self.close();
            }
            SinkError { kind, detail: format!("{}: {error}", self.path.display()) }
        })
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.close();
    }
}

impl Sink for Sqlite {
    fn place(&self) -> String {
        format!("sqlite {}", self.path.display())
    }

    fn open(&mut self) -> Result<(), SinkError> {
        self.connection().map(|_| ())
    }

    fn write(&mut self, rows: &[Box<Row>], _now: u64) -> Result<(), SinkError> {
        let write = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for table in Table::ALL {
                let mut of_table = rows.iter().filter(|row| row.table() == table).peekable();
                if of_table.peek().is_none() {
                    continue;
                }
                let mut statement = transaction.prepare_cached(&SQLITE.insert(table))?;
                for row in of_table {
                    statement.execute(rusqlite::params_from_iter(row.values().into_iter().map(Cell)))?;
                }
            }
            transaction.commit()?;
            Ok(false)
        };
        self.try_on(write).map(|_| ())
    }

    fn purge(&mut self, before: u64) -> Result<bool, SinkError> {
        self.try_on(|connection| {
            let mut is_any_left = false;
            for table in Table::ALL {
                let (name, moment) = (table.name(), table.moment());
                let old = format!("SELECT rowid FROM {name} WHERE {moment} < ?1 LIMIT {STEP}");
                let gone = connection
                    .prepare_cached(&format!("DELETE FROM {name} WHERE rowid IN ({old})"))?
                    .execute([before.cast_signed()])?;
                is_any_left |= gone == STEP;
            }
            Ok(is_any_left)
        })
    }
}

/// Tells whether an error is due to the row: the row violates a constraint or a trigger, or has a value that is too
/// long or of another type.
fn is_rows_own(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
    matches!(error.sqlite_error_code(), Some(ConstraintViolation | TooBig | TypeMismatch))
}

impl From<Obstacle> for Trouble {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Locked => Self::Locked,
            Obstacle::Full => Self::Full,
            Obstacle::Unusable => Self::Unusable,
        }
    }
}

/// Value as a SQLite parameter.
struct Cell<'a>(Value<'a>);

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match &self.0 {
            Value::Null | Value::Fields([]) => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Number(number) => ToSqlOutput::from(i64::try_from(*number).unwrap_or(i64::MAX)),
            Value::Text(Cow::Borrowed(text)) => ToSqlOutput::from(*text),
            Value::Text(Cow::Owned(text)) => ToSqlOutput::from(text.as_str()),
            Value::Fields(fields) => ToSqlOutput::from(object(fields)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use strowger_store::accounting::cdr::{Cdr, Event};

    fn cdr(identity: &str, setup: u64) -> Box<Row> {
        let fields = vec![("User-Agent".into(), "phone".into())];
        Box::new(Row::Cdr(Cdr { identity: identity.into(), setup, end: Some(setup), fields, ..Cdr::default() }))
    }

    fn count(path: &Path, what: &str) -> i64 {
        Connection::open(path)
            .unwrap()
            .query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn an_identity_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut sqlite = Sqlite::new(&path, Duration::ZERO);
        let event = Box::new(Row::Event(Event { identity: "1-0".into(), event: "bye".into(), ..Event::default() }));
        sqlite.write(&[cdr("1", 5), event, cdr("2", 6), cdr("1", 7)], 0).unwrap();
        sqlite.write(&[cdr("2", 8), cdr("3", 9)], 0).unwrap();
        assert_eq!((count(&path, "cdr"), count(&path, "events")), (3, 1));
        assert_eq!(
            count(&path, "cdr WHERE setup_at = 5 AND identity = '1' AND ring_at IS NULL AND duration_ms = 0"),
            1
        );
        assert_eq!(count(&path, "cdr WHERE fields = '{\"User-Agent\":\"phone\"}'"), 3);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_locked_database_is_no_unusable_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut sqlite = Sqlite::new(&path, Duration::from_millis(1));
        sqlite.write(&[cdr("1", 5)], 0).unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        assert_eq!(sqlite.write(&[cdr("2", 5)], 0).unwrap_err().kind, Trouble::Locked);
        other.execute_batch("ROLLBACK").unwrap();
        sqlite.write(&[cdr("2", 5)], 0).unwrap();
        assert_eq!(count(&path, "cdr"), 2);
        // The file was moved away, so the rows are written to a new file of this name.
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        sqlite.write(&[cdr("3", 5)], 0).unwrap();
        assert_eq!(count(&path, "cdr"), 1);
    }

    #[test]
    fn a_file_that_another_program_overwrites_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut sqlite = Sqlite::new(&path, Duration::ZERO);
        sqlite.write(&[cdr("1", 5)], 0).unwrap();
        let garbage = vec![b'x'; 50_000];
        std::fs::write(&path, &garbage).unwrap();
        for _ in 0..3 {
            let error = sqlite.write(&[cdr("2", 5)], 0).unwrap_err();
            assert!(error.kind == Trouble::Unusable && error.detail.contains("has overwritten it"), "{error}");
        }
        // A file that was put in its place counts as another file.
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        assert!(std::fs::read(folder.path().join("moved")).unwrap() == garbage);
        sqlite.write(&[cdr("2", 5)], 0).unwrap();
    }

    #[test]
    fn errors_of_a_row_differ_from_errors_of_its_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut sqlite = Sqlite::new(&path, Duration::ZERO);
        sqlite.open().unwrap();
        let other = Connection::open(&path).unwrap();
        let refuse =
            "CREATE TRIGGER t BEFORE INSERT ON cdr WHEN new.identity = '2' BEGIN SELECT RAISE(ABORT, 'no twos'); END;
            CREATE UNIQUE INDEX of_setup ON cdr (setup_at)";
        other.execute_batch(refuse).unwrap();
        let rows = [cdr("1", 5), cdr("2", 6)];
        let error = sqlite.write(&rows, 0).unwrap_err();
        assert!(error.kind == Trouble::Row && error.detail.contains("no twos"), "{error}");
        assert_eq!(count(&path, "cdr"), 0);
        sqlite.write(&rows[..1], 0).unwrap();
        // An existing row is skipped, and no other.
        sqlite.write(&rows[..1], 0).unwrap();
        assert_eq!(sqlite.write(&[cdr("3", 5)], 0).unwrap_err().kind, Trouble::Row);
        other.execute_batch("ALTER TABLE cdr RENAME COLUMN codecs TO others").unwrap();
        assert_eq!(sqlite.write(&[cdr("4", 7)], 0).unwrap_err().kind, Trouble::Unusable);
    }

    #[test]
    fn a_file_that_is_not_ours_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE cdr (a)").unwrap();
        let error = Sqlite::new(&path, Duration::ZERO).open().unwrap_err();
        assert!(error.kind == Trouble::Unusable && error.detail.contains("belongs to another program"), "{error}");
        std::fs::write(folder.path().join("text"), "no database, but long enough to look at".repeat(100)).unwrap();
        assert_eq!(
            Sqlite::new(&folder.path().join("text"), Duration::ZERO).open().unwrap_err().kind,
            Trouble::Unusable
        );
        let nowhere = Sqlite::new(&folder.path().join("no/folder"), Duration::ZERO).open().unwrap_err();
        assert!(nowhere.kind == Trouble::Unusable && nowhere.detail.contains("no/folder"), "{nowhere}");
    }

    #[test]
    fn old_rows_go_in_steps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut sqlite = Sqlite::new(&path, Duration::ZERO);
        let rows: Vec<Box<Row>> = (0..1_500).map(|n| cdr(&n.to_string(), n)).collect();
        sqlite.write(&rows, 0).unwrap();
        assert!(sqlite.purge(1_200).unwrap());
        assert!(!sqlite.purge(1_200).unwrap());
        assert_eq!((count(&path, "cdr"), count(&path, "cdr WHERE setup_at >= 1200")), (300, 300));
    }
}
