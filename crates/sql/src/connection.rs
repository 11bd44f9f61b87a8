//! A connection to either kind of server.

use strowger_store::database_url::DatabaseKind;

use crate::cell::{Cell, Change};
use crate::error::Failure;
use crate::mariadb::MariaDb;
use crate::postgresql::PostgreSql;
use crate::server::Server;

/// What stands in place of a placeholder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter<'a> {
    /// One text.
    Text(&'a str),
    /// Those of a list; see [`Dialect::is_one_of`](crate::dialect::Dialect::is_one_of).
    Texts(&'a [&'a str]),
    /// A number.
    Number(i64),
}

/// A row: its columns as text, an empty one for NULL.
pub(crate) type Row = Vec<Vec<u8>>;

pub(crate) enum Connection {
    MariaDb(MariaDb),
    PostgreSql(Box<PostgreSql>),
}

impl Connection {
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        Ok(match server.url.kind {
            DatabaseKind::MariaDb => Self::MariaDb(MariaDb::open(server).await?),
            DatabaseKind::PostgreSql => Self::PostgreSql(Box::new(PostgreSql::open(server).await?)),
        })
    }

    /// The rows that a statement returns, all columns of which are text. It is prepared when this connection sees it first.
    pub(crate) async fn rows(&mut self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        match self {
            Self::MariaDb(connection) => connection.rows(statement, parameters).await,
            Self::PostgreSql(connection) => connection.rows(statement, parameters).await,
        }
    }

    /// The same, with columns of text, bytes and numbers of 64 bits; texts come as bytes.
    pub(crate) async fn cells(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Vec<Cell<'static>>>, Failure> {
        match self {
            Self::MariaDb(connection) => connection.cells(statement, parameters).await,
            Self::PostgreSql(connection) => connection.cells(statement, parameters).await,
        }
    }

    /// Runs a statement that has no parameters and returns no rows; how many rows it changed.
    pub(crate) async fn run(&mut self, statement: &str) -> Result<u64, Failure> {
        match self {
            Self::MariaDb(connection) => connection.run(statement).await,
            Self::PostgreSql(connection) => connection.run(statement).await,
        }
    }

    /// Makes all of these changes or none, in one transaction; what it takes is sent at once. After a failure the connection is no good: a
    /// transaction may be open.
    pub(crate) async fn change(&mut self, changes: &[Change<'_>]) -> Result<(), Failure> {
        match self {
            Self::MariaDb(connection) => connection.change(changes).await,
            Self::PostgreSql(connection) => connection.change(changes).await,
        }
    }

    /// Takes leave, so that the server notes no aborted connection.
    pub(crate) async fn close(self) {
        match self {
            Self::MariaDb(connection) => connection.close().await,
            Self::PostgreSql(connection) => connection.close().await,
        }
    }
}
