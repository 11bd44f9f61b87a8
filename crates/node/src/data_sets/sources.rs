//! Sources of the entries of sets: files, SQLite, database servers.

use crate::authorities;
use crate::preflight::findings::with_reason;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use strowger_backend::sql::{ServerSettings, rows};
use strowger_backend::sqlite;
use strowger_config::{Database, SetFault, SetTable};
use strowger_rules::{FileError, FileFault, Set};

/// Reason for which a set was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Temporary: its database cannot be reached, or does not answer in time.
    Now(SetFault),
    /// The data are wrong.
    Wrong(SetFault),
}

impl Unread {
    pub(crate) fn fault(self) -> SetFault {
        match self {
            Self::Now(fault) | Self::Wrong(fault) => fault,
        }
    }
}

/// Rows of a query: the key, and the value if the set has values.
pub(crate) type Rows = Vec<Vec<String>>;

/// Queries the databases of these sets at the same time, each on a thread of its own. Returns each set with its rows; a
/// set without a database has no rows. Blocks.
pub(crate) fn fetch_all(tables: Vec<SetTable>) -> Vec<(SetTable, Result<Rows, Unread>)> {
    let fetched: Vec<_> = std::thread::scope(|scope| {
        let begin = |table| {
            let work = move || fetch(table);
            std::thread::Builder::new().name("data-set".into()).spawn_scoped(scope, work)
        };
        let begun: Vec<_> = tables.iter().map(|table| table.database.is_some().then(|| begin(table))).collect();
        let ended = begun.into_iter().zip(&tables).map(|(thread, table)| match thread {
            None => Ok(Rows::new()),
            Some(Ok(thread)) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Some(Err(error)) => {
                let message = format!("no thread can be started: {error}");
                Err(Unread::Now(fault(table, message, "raise the limit of threads of this user")))
            }
        });
        ended.collect()
    });
    tables.into_iter().zip(fetched).collect()
}

fn fetch(table: &SetTable) -> Result<Rows, Unread> {
    let Some(database) = &table.database else { return Ok(Rows::new()) };
    let columns: Vec<&str> = std::iter::once(&*table.key).chain(table.value.as_deref()).collect();
    match database {
        Database::Sqlite(path) => of_sqlite(table, path, &columns),
        Database::Server(url) => {
            let settings = ServerSettings { url: url.clone(), authorities: authorities::of_server(url) };
            of_server(table, &settings, &columns)
        }
    }
}

/// Builds a set from its file, or from these rows of its database.
pub(crate) fn build(table: &SetTable, rows: &[Vec<String>]) -> Result<Set, Unread> {
    match &table.file {
        Some(file) => of_file(table, file).map_err(Unread::Wrong),
        None => of_rows(table, rows),
    }
}

/// Reads the entries of a CSV file.
///
/// # Errors
/// The file cannot be read, or has a faulty line; the first one is named.
pub(crate) fn of_file(table: &SetTable, file: &Path) -> Result<Set, SetFault> {
    let place = file.display().to_string();
    let unread = |error: std::io::Error| {
        let message = format!("cannot be read: {}", with_reason(&error, file));
        let cure = "name a CSV file in UTF-8 that this user may read".into();
        SetFault { place: place.clone(), line: None, message, cure }
    };
    let source = BufReader::new(File::open(file).map_err(unread)?);
    Set::read_csv(table.kind.kind(), &place, source, table.columns()).map_err(|error| match error {
        FileError::Unread { error, .. } => unread(error),
        FileError::Wrong(FileFault { file: place, line, message, cure }) => {
            SetFault { place, line: Some(line), message, cure }
        }
    })
}

fn of_sqlite(table: &SetTable, path: &Path, columns: &[&str]) -> Result<Rows, Unread> {
    sqlite::rows::read(path, &table.query, columns, table.timeout).map_err(|error| match error {
        sqlite::rows::RowsError::Unavailable(text) => Unread::Now(fault(table, text, LATER)),
        sqlite::rows::RowsError::Refused(text) => Unread::Wrong(fault(table, text, QUERY)),
    })
}

fn of_server(table: &SetTable, settings: &ServerSettings, columns: &[&str]) -> Result<Rows, Unread> {
    rows::read(settings, &table.query, columns, table.timeout).map_err(|error| match error {
        rows::RowsError::Unavailable(text) => Unread::Now(fault(table, text, LATER)),
        rows::RowsError::Refused(text) => Unread::Wrong(fault(table, text, QUERY)),
    })
}

const LATER: &str = "look after the database, or raise `timeout`";
const QUERY: &str =
    "let `query` read from what there is, `key` and `value` name columns of it, and the user be allowed to read";

fn of_rows(table: &SetTable, rows: &[Vec<String>]) -> Result<Set, Unread> {
    // An empty value is none, as in a file.
    let entry = |row: &'_ Vec<String>| -> (String, Option<String>) {
        let value = row.get(1).filter(|value| !value.is_empty()).cloned();
        (row.first().cloned().unwrap_or_default(), value)
    };
    Set::new(table.kind.kind(), rows.iter().map(entry)).map_err(|wrong| {
        let message = format!("row {} of what {} gives: {}", wrong.place + 1, table.origin(), wrong.message);
        Unread::Wrong(fault(table, message, &wrong.cure))
    })
}

fn fault(table: &SetTable, message: String, cure: &str) -> SetFault {
    SetFault { place: format!("set '{}'", table.name), line: None, message, cure: cure.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::{SetKind, Source};

    #[test]
    fn rows_become_entries_and_a_wrong_one_is_named() {
        let table = SetTable { kind: SetKind::Prefixes, value: Some("v".into()), ..SetTable::default() };
        let rows = |rows: &[[&str; 2]]| rows.iter().map(|row| row.map(String::from).to_vec()).collect::<Vec<_>>();
        let set = of_rows(&table, &rows(&[["49", "west"], ["43", ""]])).unwrap_or_else(|why| panic!("{}", why.fault()));
        assert_eq!((set.len(), set.find("43")[0].value.clone()), (2, None));
        let wrong = of_rows(&table, &rows(&[["49", "west"], ["49", "east"]])).expect_err("it stands twice").fault();
        assert!(wrong.message.starts_with("row 2 of what configuration gives: 49 has another value"), "{wrong}");
    }

    #[test]
    fn a_set_is_read_from_sqlite() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "[[set]]\nname = \"a\"\ndatabase = \"sqlite:a.sqlite\"\nquery = \"SELECT 1 AS k\"\nkey = \"k\"\n";
        let source = Source { text, folder: folder.path(), ..Source::default() };
        let (config, _) = strowger_config::Config::read(source).unwrap_or_else(|report| panic!("{report}"));
        let read = || {
            let (table, rows) = fetch_all(vec![config.sets[0].clone()]).remove(0);
            rows.and_then(|rows| build(&table, &rows))
        };
        assert!(matches!(read(), Err(Unread::Wrong(_))), "there is no file");
        std::fs::write(folder.path().join("a.sqlite"), "").expect("the folder can be written");
        assert_eq!(read().unwrap_or_else(|why| panic!("{}", why.fault())).find("1").len(), 1);
    }
}
