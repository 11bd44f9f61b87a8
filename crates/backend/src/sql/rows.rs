//! All rows of one query, for data sets, on a connection of their own that is closed afterwards.

use std::time::Duration;

use tokio::time::timeout;

use crate::sql::connection::Connection;
use crate::sql::dialect::Dialect;
use crate::sql::error::Failure;
use crate::sql::server::{Server, ServerSettings};

/// Reason for missing rows, for display as it is; it names the server without its password.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The server cannot be reached or does not answer in time: a later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The server refuses the query, or a value is not text.
    #[error("{0}")]
    Refused(String),
}

/// Reads these columns of all rows of a query as text; NULL becomes an empty text. The query is used as a subquery, so
/// it cannot change data. Connection and query together may take `limit`.
///
/// Blocks; not to be called on a thread that runs tokio tasks.
///
/// # Errors
/// [`RowsError`]
pub fn read(
    settings: &ServerSettings,
    query: &str,
    columns: &[&str],
    limit: Duration,
) -> Result<Vec<Vec<String>>, RowsError> {
    let name = settings.url.to_string();
    let server = Server::new(settings).map_err(|error| RowsError::Refused(error.to_string()))?;
    let statement = statement(Dialect(settings.url.kind), query, columns);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| RowsError::Unavailable(format!("{name}: {error}")))?;
    let rows = async {
        let mut connection = Connection::open(&server).await?;
        let rows = connection.rows(&statement, &[]).await?;
        connection.close().await;
        Ok(rows)
    };
    let rows = runtime.block_on(async { timeout(limit, rows).await.unwrap_or(Err(Failure::TimedOut)) });
    // Does not wait for the work of an abandoned connection.
    runtime.shutdown_background();
    let rows = rows.map_err(|failure| {
        let is_refused = matches!(failure, Failure::Refused(_) | Failure::Row(_) | Failure::Denied(_));
        let text = failure.at_start(name.clone(), limit).to_string();
        if is_refused { RowsError::Refused(text) } else { RowsError::Unavailable(text) }
    })?;
    let text =
        |bytes| String::from_utf8(bytes).map_err(|_| RowsError::Refused(format!("{name}: a value is not UTF-8")));
    rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect()
}

/// Returns the statement, with each column of any type as text.
fn statement(dialect: Dialect, query: &str, columns: &[&str]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| dialect.cast_to_text(&dialect.quoted(column))).collect();
    // A newline follows the query, which may end with a comment.
    format!("SELECT {} FROM (\n{}\n) AS strowger_set", columns.join(", "), query.trim().trim_end_matches(';'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_store::database_url::DatabaseKind;

    #[test]
    fn a_query_is_read_as_a_part_of_another() {
        let of = |kind| statement(Dialect(kind), " SELECT a, b FROM c -- all; ", &["a", "b\"`"]);
        assert_eq!(
            of(DatabaseKind::MariaDb),
            "SELECT CAST(`a` AS CHAR), CAST(`b\"``` AS CHAR) FROM (\nSELECT a, b FROM c -- all\n) AS strowger_set"
        );
        assert_eq!(
            of(DatabaseKind::PostgreSql),
            "SELECT CAST(\"a\" AS text), CAST(\"b\"\"`\" AS text) FROM (\nSELECT a, b FROM c -- all\n) AS strowger_set"
        );
    }

    #[test]
    fn a_server_that_is_not_there_is_named_without_its_password() {
        let url = "mysql://u:hunter2@127.0.0.1:1/d".parse().unwrap();
        let error = read(&ServerSettings { url, authorities: None }, "SELECT 1", &["a"], Duration::from_secs(5));
        let error = error.unwrap_err();
        assert!(matches!(error, RowsError::Unavailable(_)), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("mysql://u:********@127.0.0.1:1/d cannot be reached: "), "{text}");
    }
}
