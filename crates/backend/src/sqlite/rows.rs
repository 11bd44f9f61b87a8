//! All rows of one query to a SQLite file of any program, for data sets.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// Reason for missing rows, for display as it is.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// Another process holds the database, or the query took too long: a later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The file is no database, the query is refused, or a value is not text.
    #[error("{0}")]
    Refused(String),
}

/// SQLite instructions between two time checks: well under a millisecond.
const INSTRUCTIONS: i32 = 10_000;

/// Reads these columns of all rows of a query as text; NULL becomes an empty text. The query is used as a subquery, and
/// the file is opened read-only. `limit` includes waits for locks of other processes.
///
/// # Errors
/// [`RowsError`]
pub fn read(path: &Path, query: &str, columns: &[&str], limit: Duration) -> Result<Vec<Vec<String>>, RowsError> {
    let failed = |error: rusqlite::Error| {
        let text = format!("{}: {error}", path.display());
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => {
                RowsError::Unavailable(format!("{}: the query took longer than {limit:?}", path.display()))
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => RowsError::Unavailable(text),
            _ => RowsError::Refused(text),
        }
    };
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let mut connection = connection.map_err(failed)?;
    connection.busy_timeout(limit).map_err(failed)?;
    let end = Instant::now() + limit;
    // The time is also checked before the first row: an aggregate or an ORDER BY takes its time before this row.
    connection.progress_handler(INSTRUCTIONS, Some(move || Instant::now() > end)).map_err(failed)?;
    let mut statement = connection.prepare(&statement(query, columns)).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
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

/// Returns the statement that reads each column as text, for columns of every type. A name in back quotes is never
/// interpreted as a text.
fn statement(query: &str, columns: &[&str]) -> String {
    let text = |column: &&str| format!("CAST(`{}` AS TEXT)", column.replace('`', "``"));
    let columns: Vec<String> = columns.iter().map(text).collect();
    // A newline follows the query, which may end with a comment.
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
        // This query never reaches its first row.
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS a FROM n";
        let error = read(&path, endless, &["a"], Duration::from_millis(50)).unwrap_err();
        assert!(
            matches!(error, RowsError::Unavailable(_)) && error.to_string().ends_with("took longer than 50ms"),
            "{error}"
        );
        // Another process writes.
        connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let error = read(&path, "SELECT prefix FROM c", &["prefix"], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, RowsError::Unavailable(_)), "{error}");
    }
}
