//! Connection to either kind of server.

use strowger_store::database_url::DatabaseKind;

use crate::sql::cell::{Cell, Change};
use crate::sql::error::Failure;
use crate::sql::mariadb::MariaDb;
use crate::sql::postgresql::PostgreSql;
use crate::sql::server::Server;

/// Value of a placeholder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter<'a> {
    /// One text.
    Text(&'a str),
    /// Texts of a list; see [`Dialect::is_one_of`](crate::sql::dialect::Dialect::is_one_of).
    Texts(&'a [&'a str]),
    /// A number.
    Number(i64),
}

/// Row: its columns as text, an empty one for NULL.
pub(crate) type Row = Vec<Vec<u8>>;

/// Connection to a database server.
pub(crate) struct Connection {
    driver: Driver,
    /// Statement that begins each transaction of [`Connection::change`] and fails if this process may not write any
    /// more.
    fence: Option<String>,
}

enum Driver {
    MariaDb(MariaDb),
    PostgreSql(Box<PostgreSql>),
}

impl Connection {
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        let driver = match server.url.kind {
            DatabaseKind::MariaDb => Driver::MariaDb(MariaDb::open(server).await?),
            DatabaseKind::PostgreSql => Driver::PostgreSql(Box::new(PostgreSql::open(server).await?)),
        };
        Ok(Self { driver, fence: None })
    }

    /// Begins each later transaction of [`Connection::change`] with this statement.
    pub(crate) fn set_fence(&mut self, statement: String) {
        self.fence = Some(statement);
    }

    /// Returns the rows of a statement whose columns are all text. Prepares the statement when this connection uses it
    /// for the first time.
    pub(crate) async fn rows(&mut self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        match &mut self.driver {
            Driver::MariaDb(connection) => connection.rows(statement, parameters).await,
            Driver::PostgreSql(connection) => connection.rows(statement, parameters).await,
        }
    }

    /// Returns rows with columns of text, bytes and 64-bit numbers; texts are returned as bytes.
    pub(crate) async fn cells(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Vec<Cell<'static>>>, Failure> {
        match &mut self.driver {
            Driver::MariaDb(connection) => connection.cells(statement, parameters).await,
            Driver::PostgreSql(connection) => connection.cells(statement, parameters).await,
        }
    }

    /// Runs a statement without parameters that returns no rows. Returns how many rows it changed.
    pub(crate) async fn run(&mut self, statement: &str) -> Result<u64, Failure> {
        match &mut self.driver {
            Driver::MariaDb(connection) => connection.run(statement).await,
            Driver::PostgreSql(connection) => connection.run(statement).await,
        }
    }

    /// Makes either all of these changes or none, in one transaction that is sent as a whole. After a failure the
    /// connection is unusable, because a transaction may be open.
    pub(crate) async fn change(&mut self, changes: &[Change<'_>]) -> Result<(), Failure> {
        if changes.iter().all(Change::is_empty) {
            return Ok(());
        }
        let fence = self.fence.as_deref();
        match &mut self.driver {
            Driver::MariaDb(connection) => connection.change(fence, changes).await,
            Driver::PostgreSql(connection) => connection.change(fence, changes).await,
        }
    }

    /// Closes the connection properly, so that the server counts no aborted connection.
    pub(crate) async fn close(self) {
        match self.driver {
            Driver::MariaDb(connection) => connection.close().await,
            Driver::PostgreSql(connection) => connection.close().await,
        }
    }
}
