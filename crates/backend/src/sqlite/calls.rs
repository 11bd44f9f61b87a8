//! State by number in a SQLite file: one row per number, one transaction per group.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sqlite::OpenError as NotRead;
use crate::sqlite::database_header::{self, DatabaseHeader};
use crate::sqlite::own_file::{Obstacle, OwnFile};
use rusqlite::{Connection, TransactionBehavior, params};
use strowger_files::{FileLock, FileNumber};

use strowger_store::calls::OpenError;
use strowger_store::calls::{CallEngine, Change, Failure, Held, Left, LoadReport};

/// "STRC".
const FILE: OwnFile = OwnFile { application: 0x5354_5243, version: VERSION, page: 1_024 };

/// Version of the table.
const VERSION: i32 = 1;

/// Table of calls. `closed`: 1 if `state` is the last words of a number. `form`: format version of the states, for
/// display.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS call (number INTEGER PRIMARY KEY, closed INTEGER NOT NULL, \
                     form INTEGER NOT NULL, state BLOB NOT NULL)";

/// Settings of the file.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// Path; created if missing. Only one process may write it; others may read it meanwhile.
    pub path: PathBuf,
    /// Format version of the states, for display.
    pub form: u8,
    /// Longest wait for another program that has locked the file, and at the start for a process that is just ending
    /// and has it.
    pub wait: Duration,
}

/// State by number in a SQLite file of its own.
pub struct Sqlite {
    settings: FileSettings,
    /// `None` after a failure: the connection is in an unknown state and is not used again.
    connection: Option<Connection>,
    /// Inode of the file at the first connection. If the file is replaced by another program, its rows are lost, and
    /// writing must fail.
    file: Option<FileNumber>,
    header: Option<DatabaseHeader>,
    kept: u64,
    bytes: u64,
    written: u64,
    _lock: FileLock,
}

impl Sqlite {
    /// Version of the table that this program creates.
    pub const VERSION: u32 = VERSION.unsigned_abs();

    /// Opens or creates the file, and locks it for this process.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(settings: FileSettings) -> Result<Self, OpenError> {
        let lock = FileLock::beside(&settings.path, settings.wait)?;
        let mut this =
            Self { settings, connection: None, file: None, header: None, kept: 0, bytes: 0, written: 0, _lock: lock };
        this.connection().map_err(OpenError::Engine)?;
        Ok(this)
    }

    /// Reads the version of the table in a file; 0 if there is no table or no file. Changes nothing.
    ///
    /// # Errors
    /// The file belongs to another program, or cannot be read.
    pub fn version(path: &Path) -> Result<u32, NotRead> {
        FILE.found(path)
    }

    /// Returns the statements that create the table.
    pub fn statements() -> Vec<String> {
        vec![TABLE.into()]
    }

    fn failure(&self, error: impl std::fmt::Display) -> Failure {
        format!("{}: {error}", self.settings.path.display()).into()
    }

    fn connection(&mut self) -> Result<&mut Connection, Failure> {
        if self.file.is_some() && FileNumber::named(&self.settings.path) != self.file {
            return Err(self.failure("it was removed or replaced: put it back, or start again"));
        }
        if self.header.as_mut().is_some_and(DatabaseHeader::is_overwritten) {
            database_header::note_overwritten(&self.settings.path);
            return Err(self.failure(
                "another program has overwritten it: end the server, remove it with the files beside it that end with -wal and -shm, and start \
                 again",
            ));
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let opened = FILE.open(&self.settings.path, self.settings.wait, &Self::statements())?;
                let count = opened.query_row("SELECT count(*) FROM call", [], |row| row.get::<_, i64>(0));
                self.kept = count.map_err(|error| self.failure(error))?.unsigned_abs();
                self.file = FileNumber::named(&self.settings.path);
                if self.header.is_none() {
                    let header = DatabaseHeader::read(&self.settings.path).map_err(|error| self.failure(error))?;
                    self.header = Some(header);
                }
                opened
            }
        };
        Ok(self.connection.insert(connection))
    }

    fn run<T>(&mut self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, Failure> {
        work(self.connection()?).map_err(|error| {
            if Obstacle::from(&error) != Obstacle::Locked
                && let Some(connection) = self.connection.take()
            {
                database_header::before_close(&connection, &self.settings.path);
            }
            self.failure(error)
        })
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            database_header::before_close(connection, &self.settings.path);
        }
    }
}

/// Passes each row to `take`.
fn read(connection: &Connection, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> rusqlite::Result<LoadReport> {
    let mut report = LoadReport::default();
    let mut statement = connection.prepare("SELECT number, closed, state FROM call")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number = row.get::<_, i64>(0)?.cast_unsigned();
        let is_closed = row.get::<_, bool>(1)?;
        let said = row.get_ref(2)?.as_blob()?;
        report.bytes += said.len() as u64;
        if is_closed {
            report.closed += 1;
            take(number, Left::LastWords(said));
        } else {
            report.states += 1;
            take(number, Left::State(said));
        }
    }
    Ok(report)
}

/// Writes a group. Returns the numbers of rows inserted and deleted.
fn write(connection: &mut Connection, form: u8, changes: &[(u64, &Change)]) -> rusqlite::Result<(u64, u64)> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut more, mut fewer) = (0, 0);
    {
        let mut remove = transaction.prepare_cached("DELETE FROM call WHERE number = ?1")?;
        let mut change =
            transaction.prepare_cached("UPDATE call SET closed = ?2, form = ?3, state = ?4 WHERE number = ?1")?;
        let mut add =
            transaction.prepare_cached("INSERT INTO call (number, closed, form, state) VALUES (?1, ?2, ?3, ?4)")?;
        for (number, to) in changes {
            let number = number.cast_signed();
            if let Change::Removed = to {
                fewer += remove.execute([number])? as u64;
                continue;
            }
            let row = params![number, matches!(to, Change::Closed(_)), form, to.said()];
            if change.execute(row)? == 0 {
                more += add.execute(row)? as u64;
            }
        }
    }
    transaction.commit()?;
    Ok((more, fewer))
}

fn size(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    Ok(number("page_count")?.unsigned_abs() * number("page_size")?.unsigned_abs())
}

impl CallEngine for Sqlite {
    fn name(&self) -> String {
        format!("sqlite {}", self.settings.path.display())
    }

    fn load(&mut self, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, OpenError> {
        let report = self.run(|connection| read(connection, take)).map_err(OpenError::Engine)?;
        self.bytes = self.run(|connection| size(connection)).map_err(OpenError::Engine)?;
        Ok(report)
    }

    fn write(&mut self, changes: &[(u64, &Change)]) -> Result<(), Failure> {
        let form = self.settings.form;
        let (more, fewer) = self.run(|connection| write(connection, form, changes))?;
        self.kept = (self.kept + more).saturating_sub(fewer);
        self.written += changes.len() as u64;
        if let Some(connection) = &self.connection {
            // The group is written; that its size is unknown has no effect on the group.
            self.bytes = size(connection).unwrap_or(self.bytes);
        }
        Ok(())
    }

    fn held(&self) -> Held {
        Held { kept: self.kept, bytes: self.bytes, written: self.written }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    fn settings(path: &Path) -> FileSettings {
        FileSettings { path: path.to_owned(), form: 3, wait: Duration::ZERO }
    }

    fn found(engine: &mut Sqlite) -> (BTreeMap<u64, (bool, Vec<u8>)>, LoadReport) {
        let mut found = BTreeMap::new();
        let report = engine.load(&mut |number, left| {
            let of = match left {
                Left::State(said) => (false, said.to_vec()),
                Left::LastWords(said) => (true, said.to_vec()),
            };
            assert!(found.insert(number, of).is_none(), "{number} twice");
        });
        (found, report.expect("it can be read"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        /// Each group survives as a kill after it would leave it, and the figures match the rows.
        #[test]
        fn the_last_change_of_each_number_counts(
            groups in proptest::collection::vec(proptest::collection::btree_map(
                prop_oneof![0..8_u64, (u64::MAX - 3)..=u64::MAX], (0..3_u8, proptest::collection::vec(any::<u8>(), 0..2_000)), 0..6,
            ), 0..8),
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("calls");
            let mut engine = Sqlite::open(settings(&path)).expect("the file is free");
            prop_assert!(found(&mut engine).0.is_empty());
            let mut expected = BTreeMap::new();
            for (nth, group) in groups.into_iter().enumerate() {
                let changes: Vec<(u64, Change)> = group
                    .into_iter()
                    .map(|(number, (kind, said))| {
                        let before = match kind {
                            0 => expected.remove(&number),
                            _ => expected.insert(number, (kind == 2, said.clone())),
                        };
                        drop(before);
                        let change = match kind {
                            0 => Change::Removed,
                            1 => Change::State(said.into()),
                            _ => Change::Closed(said.into()),
                        };
                        (number, change)
                    })
                    .collect();
                let group: Vec<(u64, &Change)> = changes.iter().map(|(number, change)| (*number, change)).collect();
                engine.write(&group).expect("there is room");
                prop_assert_eq!(engine.held().kept, expected.len() as u64);
                let copy = folder.path().join(nth.to_string());
                for ending in ["", "-wal"] {
                    let with = |path: &Path| {
                        let mut name = path.as_os_str().to_owned();
                        name.push(ending);
                        PathBuf::from(name)
                    };
                    std::fs::copy(with(&path), with(&copy)).expect("it is there");
                }
                let mut killed = Sqlite::open(settings(&copy)).expect("it is free");
                let (left, report) = found(&mut killed);
                prop_assert_eq!(&left, &expected);
                prop_assert_eq!(report.bytes, expected.values().map(|(_, said)| said.len() as u64).sum::<u64>());
                prop_assert_eq!(report.closed, expected.values().filter(|(is_closed, _)| *is_closed).count() as u64);
            }
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |name: &str| Sqlite::open(settings(&folder.path().join(name))).err().expect(name).to_string();
        let _first = Sqlite::open(settings(&folder.path().join("calls"))).expect("it is free");
        assert!(refused("calls").contains("another process"), "{}", refused("calls"));
        assert!(refused("no/calls").contains("no/calls"));
        std::fs::write(folder.path().join("text"), "no database, but long enough to look at".repeat(100))
            .expect("room");
        assert!(refused("text").contains("restore it from a backup"), "{}", refused("text"));
        let others = Connection::open(folder.path().join("others")).expect("room");
        others.execute_batch("CREATE TABLE call (a)").expect("room");
        assert!(refused("others").contains("belongs to another program"), "{}", refused("others"));
        let newer = Connection::open(folder.path().join("newer")).expect("room");
        newer.execute_batch("PRAGMA application_id = 0x53545243; PRAGMA user_version = 9").expect("room");
        assert!(refused("newer").contains("version 9"), "{}", refused("newer"));
        let of = |name: &str| Sqlite::version(&folder.path().join(name));
        assert_eq!((of("calls").ok(), of("none").ok(), of("newer").ok()), (Some(1), Some(0), Some(9)));
        assert!(of("text").is_err());
    }

    /// The system would continue to write into a file whose name was removed.
    #[test]
    fn a_file_that_was_removed_or_replaced_takes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, away) = (folder.path().join("calls"), folder.path().join("away"));
        let mut engine = Sqlite::open(settings(&path)).expect("it is free");
        let state = |n: u8| Change::State(vec![n; 50].into());
        engine.write(&[(1, &state(1))]).expect("there is room");
        std::fs::rename(&path, &away).expect("it is there");
        let mut said = || engine.write(&[(2, &state(2))]).expect_err("it would be lost").to_string();
        assert!(said().contains("put it back"), "{}", said());
        std::fs::write(&path, "").expect("there is room");
        assert!(said().contains("put it back"), "{}", said());
        std::fs::rename(&away, &path).expect("it is there");
        engine.write(&[(2, &state(2))]).expect("it is back");
        assert_eq!(found(&mut engine).0.len(), 2);
    }

    #[test]
    fn a_file_that_another_program_overwrites_takes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls");
        let mut engine = Sqlite::open(settings(&path)).expect("it is free");
        let state = |n: u8| Change::State(vec![n; 50].into());
        engine.write(&[(1, &state(1))]).expect("there is room");
        let garbage = vec![b'x'; 50_000];
        std::fs::write(&path, &garbage).expect("there is room");
        for n in 2..5 {
            let said = engine.write(&[(n, &state(2))]).expect_err("it would be lost").to_string();
            assert!(said.contains("another program has overwritten it"), "{said}");
        }
        drop(engine);
        assert!(std::fs::read(&path).expect("it is there") == garbage, "at the end neither");
    }

    /// A failed group is not stored, and the next one is, on a new connection or the same.
    #[test]
    fn a_file_that_is_locked_or_broken_is_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls");
        let mut engine = Sqlite::open(settings(&path)).expect("it is free");
        let state = |n: u8| Change::State(vec![n; 50].into());
        engine.write(&[(1, &state(1))]).expect("there is room");
        let other = Connection::open(&path).expect("it can be read");
        other.execute_batch("BEGIN IMMEDIATE").expect("it is free");
        let failed = engine.write(&[(1, &state(2)), (2, &state(2))]).expect_err("it is locked").to_string();
        assert!(failed.contains("locked") && failed.contains("calls"), "{failed}");
        other.execute_batch("ROLLBACK; ALTER TABLE call RENAME TO away").expect("it is free");
        engine.write(&[(1, &state(2))]).expect_err("there is no table");
        assert!(engine.connection.is_none());
        engine.write(&[(3, &state(3))]).expect("it is made again");
        assert_eq!(engine.held().kept, 1);
        other.execute_batch("DROP TABLE call; ALTER TABLE away RENAME TO call").expect("it is free");
        assert_eq!(found(&mut engine).0, BTreeMap::from([(1, (false, vec![1; 50]))]));
    }
}
