//! PostgreSQL, by `tokio-postgres`.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use strowger_store::database_url::DatabaseAddress;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage, Statement};

use crate::sql::cell::{Cell, Change};
use crate::sql::connection::{Parameter, Row};
use crate::sql::error::{Failure, with_causes};
use crate::sql::own_table::{ColumnType, OwnTable};
use crate::sql::server::Server;
use crate::sql::tls::MakeTls;

/// Classes of errors that make a connection unusable: it was lost, the server accepts no more, it shuts down
/// (PostgreSQL, appendix A).
const GONE: [&str; 3] = ["08", "53", "57P"];
/// The disk is full.
const FULL: &str = "53100";
/// The user lacks a right.
const DENIED: &str = "42501";
/// The server has dropped a prepared statement, or its table has changed: the next connection prepares it again.
const OUTDATED: [&str; 2] = ["26000", "0A000"];

/// Idle time after which the system probes a connection; interval and number of unanswered probes that end it.
const KEEPALIVE: Duration = Duration::from_secs(5);
const PROBE: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;

/// Classes of errors due to a row: a value that does not fit, a constraint (including a missing partition), the option
/// of a view, the exception of a trigger, a value that is too long for an index.
const ROW: [&str; 5] = ["22", "23", "44", "P0001", "54000"];

pub(crate) struct PostgreSql {
    client: Client,
    /// Moves bytes between the client and the socket.
    mover: Mover,
    prepared: HashMap<String, Statement>,
}

impl PostgreSql {
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        let url = &server.url;
        let mut config = Config::new();
        config.user(url.user.as_str()).dbname(url.database.as_str()).application_name("strowger");
        config.keepalives_idle(KEEPALIVE).keepalives_interval(PROBE).keepalives_retries(PROBES);
        if let Some(password) = &url.password {
            config.password(password);
        }
        match &url.address {
            DatabaseAddress::Host { host, port } => config.host(host.as_str()).port(*port),
            DatabaseAddress::Socket(folder) => config.host_path(folder),
        };
        let tls = server.authorities.as_ref().filter(|_| matches!(url.address, DatabaseAddress::Host { .. }));
        let (client, mover) = match tls {
            None => {
                let connected = config.ssl_mode(SslMode::Disable).connect(NoTls).await;
                connected.map(|(client, connection)| (client, Mover::of(connection)))
            }
            Some(authorities) => {
                let connected = config.ssl_mode(SslMode::Require).connect(MakeTls::new(authorities)).await;
                connected.map(|(client, connection)| (client, Mover::of(connection)))
            }
        }
        .map_err(|error| failure(&error))?;
        Ok(Self { client, mover, prepared: HashMap::new() })
    }

    pub(crate) async fn rows(&mut self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        let rows = self.query(statement, parameters).await?;
        rows.iter().map(columns).collect::<Result<_, _>>().map_err(|error| failure(&error))
    }

    pub(crate) async fn cells(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Vec<Cell<'static>>>, Failure> {
        let rows = self.query(statement, parameters).await?;
        rows.iter().map(cells).collect::<Result<_, _>>().map_err(|error| failure(&error))
    }

    async fn query(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let prepared = self.prepared(statement).await?;
        let values: Vec<&(dyn ToSql + Sync)> = parameters
            .iter()
            .map(|parameter| match parameter {
                Parameter::Text(text) => text as &(dyn ToSql + Sync),
                Parameter::Texts(texts) => texts as &(dyn ToSql + Sync),
                Parameter::Number(number) => number as &(dyn ToSql + Sync),
            })
            .collect();
        self.client.query(&prepared, &values).await.map_err(|error| failure(&error))
    }

    async fn prepared(&mut self, statement: &str) -> Result<Statement, Failure> {
        if let Some(prepared) = self.prepared.get(statement) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(statement).await.map_err(|error| failure(&error))?;
        self.prepared.insert(statement.into(), prepared.clone());
        Ok(prepared)
    }

    pub(crate) async fn run(&self, statement: &str) -> Result<u64, Failure> {
        let said = self.client.simple_query(statement).await.map_err(|error| failure(&error))?;
        let changed = said.iter().map(|message| match message {
            SimpleQueryMessage::CommandComplete(rows) => *rows,
            _ => 0,
        });
        Ok(changed.sum())
    }

    pub(crate) async fn change(&mut self, fence: Option<&str>, changes: &[Change<'_>]) -> Result<(), Failure> {
        let mut wanted = Vec::new();
        if let Some(fence) = fence {
            wanted.push((self.prepared(fence).await?, Vec::new()));
        }
        for change in changes.iter().filter(|change| !change.is_empty()) {
            let (statement, arrays) = match change {
                Change::Put(table, rows) => (table.array_insertion(), arrays(table, rows)),
                Change::Delete(table, first, keys) => {
                    (table.array_deletion(*first), vec![Array::Numbers(keys.iter().copied().map(Some).collect())])
                }
            };
            wanted.push((self.prepared(&statement).await?, arrays));
        }
        let client = &self.client;
        let mut sent: Vec<PendingStatement<'_>> = Vec::new();
        let is_alone = wanted.len() < 2;
        let around = |statement| -> Option<PendingStatement<'_>> {
            (!is_alone).then(|| Box::pin(client.batch_execute(statement)) as _)
        };
        sent.extend(around("BEGIN"));
        for (prepared, arrays) in &wanted {
            let values: Vec<&(dyn ToSql + Sync)> = arrays.iter().map(Array::as_parameter).collect();
            sent.push(Box::pin(async move { client.execute(prepared, &values).await.map(drop) }));
        }
        sent.extend(around("COMMIT"));
        in_order(sent).await.map_err(|error| failure(&error))
    }

    pub(crate) async fn close(self) {
        let Self { client, mover, .. } = self;
        // Without a client the mover closes the session properly, and ends.
        drop(client);
        mover.finish().await;
    }
}

/// Result of a statement that is sent at the first poll.
type PendingStatement<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// Sends statements in order without waiting between them. Returns the first failure. After a failure the server
/// refuses all further statements of the transaction, and treats COMMIT as ROLLBACK.
async fn in_order(mut sent: Vec<PendingStatement<'_>>) -> Result<(), Error> {
    let mut answers: Vec<Option<Result<(), Error>>> = sent.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (answer, sent) in answers.iter_mut().zip(&mut sent).filter(|(answer, _)| answer.is_none()) {
            if let Poll::Ready(result) = sent.as_mut().poll(context) {
                *answer = Some(result);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Values of a column in all rows.
enum Array<'a> {
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<&'a str>>),
    Bytes(Vec<Option<&'a [u8]>>),
}

impl Array<'_> {
    fn as_parameter(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Numbers(values) => values,
            Self::Texts(values) => values,
            Self::Bytes(values) => values,
        }
    }
}

/// Returns an array for each column. A value of a type other than that of its column would become NULL, but there is no
/// such value.
fn arrays<'a>(table: &OwnTable, rows: &'a [Vec<Cell<'a>>]) -> Vec<Array<'a>> {
    let of = |(n, kind): (usize, ColumnType)| {
        let cells = rows.iter().map(move |row| row.get(n));
        match kind {
            ColumnType::Number => Array::Numbers(
                cells.map(|cell| if let Some(Cell::Number(number)) = cell { Some(*number) } else { None }).collect(),
            ),
            ColumnType::Word | ColumnType::Text => Array::Texts(
                cells.map(|cell| if let Some(Cell::Text(text)) = cell { Some(&**text) } else { None }).collect(),
            ),
            ColumnType::Bytes => Array::Bytes(
                cells.map(|cell| if let Some(Cell::Bytes(bytes)) = cell { Some(&**bytes) } else { None }).collect(),
            ),
        }
    };
    table.columns.iter().map(|column| column.kind).enumerate().map(of).collect()
}

fn cells(row: &tokio_postgres::Row) -> Result<Vec<Cell<'static>>, Error> {
    let cell = |column: usize| {
        let kind = row.columns()[column].type_();
        Ok(match *kind {
            Type::INT8 => row.try_get::<_, Option<i64>>(column)?.map(Cell::Number),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.map(|bytes| Cell::Bytes(bytes.into())),
            _ => row.try_get::<_, Option<String>>(column)?.map(|text| Cell::Bytes(text.into_bytes().into())),
        }
        .unwrap_or(Cell::Null))
    };
    (0..row.len()).map(cell).collect()
}

/// Task that ends with this value: without this it would wait for a silent server.
struct Mover(JoinHandle<()>);

impl Mover {
    fn of<S, T>(connection: tokio_postgres::Connection<S, T>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // The next statement reports the error that has ended this task.
        Self(tokio::spawn(async move { drop(connection.await) }))
    }

    async fn finish(mut self) {
        let _panicked = (&mut self.0).await;
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn columns(row: &tokio_postgres::Row) -> Result<Row, Error> {
    let text = |column| row.try_get::<_, Option<&str>>(column).map(|text| text.unwrap_or_default().into());
    (0..row.len()).map(text).collect()
}

fn failure(error: &Error) -> Failure {
    let Some(said) = error.as_db_error() else { return Failure::Lost(with_causes(error)) };
    let code = said.code().code();
    let text = format!("{} ({code})", said.message());
    if code == FULL {
        return Failure::Full(text);
    }
    if code == DENIED {
        return Failure::Denied(text);
    }
    if GONE.iter().any(|class| code.starts_with(class)) || OUTDATED.contains(&code) {
        return Failure::Lost(text);
    }
    if is_rows_own(code) { Failure::Row(text) } else { Failure::Refused(text) }
}

/// Tells whether an error is due to the row.
fn is_rows_own(code: &str) -> bool {
    ROW.iter().any(|class| code.starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_row_differ_from_errors_of_its_table() {
        // The errors are: value too long, out of range, no such character, NULL, foreign key, duplicate, CHECK and no
        // partition, a trigger, an index.
        for code in ["22001", "22003", "22021", "23502", "23503", "23505", "23514", "P0001", "54000"] {
            assert!(is_rows_own(code), "{code}");
        }
        // No such table, no such column, a right, deadlock, lock, read only, full, cancelled, no transaction.
        for code in ["42P01", "42703", "42501", "40P01", "55P03", "25006", "53100", "57014", "25P02"] {
            assert!(!is_rows_own(code), "{code}");
        }
    }
}
