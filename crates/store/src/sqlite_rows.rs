//! All rows of one query to a SQLite file of any program, for data that are read whole.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// Why there are no rows. To be shown as it is.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// Another process holds the database, or it took too long: it may be read later.
    #[error("{0}")]
    Unavailable(String),
    /// The file is no database, or the query is refused, or what it gives is no text.
    #[error("{0}")]
    Refused(String),
}

/// Between two looks at the time.
const ROWS: usize = 1_024;

/// The columns of these names of what a query gives, row by row, as text; NULL is an empty one. The query is read as a part of another one, and
/// the file is opened for reading alone. A lock of another process is waited for so long at most, and all rows may take as long.
///
/// # Errors
/// [`RowsError`]
pub fn read(path: &Path, query: &str, columns: &[&str], limit: Duration) -> Result<Vec<Vec<String>>, RowsError> {
    let failed = |error: rusqlite::Error| {
        let text = format!("{}: {error}", path.display());
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => RowsError::Unavailable(text),
            _ => RowsError::Refused(text),
        }
    };
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let connection = connection.map_err(failed)?;
    connection.busy_timeout(limit).map_err(failed)?;
    let end = Instant::now() + limit;
    let mut statement = connection.prepare(&statement(query, columns)).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        if all.len() % ROWS == 0 && Instant::now() > end {
            return Err(RowsError::Unavailable(format!("{}: the query took longer than {limit:?}", path.display())));
        }
        let text = |place| {
            Ok(match row.get_ref(place)? {
                ValueRef::Null => String::new(),
                value => value.as_str()?.to_owned(),
            })
        };
        all.push((0..columns.len()).map(text).collect::<rusqlite::Result<Vec<String>>>().map_err(failed)?);
    }
    Ok(all)
}

/// Each column, of any type, as text. A name between back quotes is never taken for a text.
fn statement(query: &str, columns: &[&str]) -> String {
    let text = |column: &&str| format!("CAST(`{}` AS TEXT)", column.replace('`', "``"));
    let columns: Vec<String> = columns.iter().map(text).collect();
    // The line ends behind the query, which may end with a comment.
    format!("SELECT {} FROM (\n{}\n)", columns.join(", "), query.trim().trim_end_matches(';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn a_query_gives_its_columns_as_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carriers");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE c (prefix INTEGER, carrier TEXT); INSERT INTO c VALUES (49, 'west'), (4930, NULL)",
            )
            .unwrap();
        let rows =
            read(&path, "SELECT carrier, prefix FROM c ORDER BY prefix; ", &["prefix", "carrier"], SOON).unwrap();
        assert_eq!(rows, [["49", "west"], ["4930", ""]]);
        for (query, columns, part) in [
            ("SELECT prefix FROM c", "carrier", "no such column: carrier"),
            ("SELECT prefix FROM d", "prefix", "no such table: d"),
            ("DELETE FROM c", "prefix", "syntax error"),
            ("SELECT x'ff' AS a", "a", "invalid utf-8"),
        ] {
            let error = read(&path, query, &[columns], SOON).unwrap_err();
            assert!(
                matches!(error, RowsError::Refused(_)) && error.to_string().to_lowercase().contains(part),
                "{error}"
            );
        }
        assert!(read(&folder.path().join("no"), "SELECT 1 AS a", &["a"], SOON).is_err());
        // Another process writes.
        connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let error = read(&path, "SELECT prefix FROM c", &["prefix"], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, RowsError::Unavailable(_)), "{error}");
    }
}
