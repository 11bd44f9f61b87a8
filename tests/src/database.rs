//! Database server of either kind.

use strowger_lab::backend::{Backend, MariaDb, PostgreSql, USER};
use tempfile::TempDir;

use crate::certificate::Certificate;
use crate::program::{MARIADB, MARIADBD, POSTGRESQL, have};

/// Running database server.
#[derive(Debug)]
pub enum Database {
    /// MariaDB.
    MariaDb(MariaDb),
    /// PostgreSQL.
    PostgreSql(PostgreSql),
}

impl Database {
    /// Starts a MariaDB, and returns it with its folder; `None` if the program is missing.
    ///
    /// # Panics
    /// The database server does not start.
    pub fn mariadb() -> Option<(Self, TempDir)> {
        if !have(&[MARIADBD, MARIADB]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        Some((Self::MariaDb(MariaDb::start(folder.path()).expect("it starts")), folder))
    }

    /// Starts a PostgreSQL with TLS, and returns it with its certificate and its folder; `None` if the program is
    /// missing.
    ///
    /// # Panics
    /// The database server does not start.
    pub fn postgresql() -> Option<(Self, Certificate, TempDir)> {
        if !have(&[POSTGRESQL]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let certificate = Certificate::in_folder(folder.path(), &["db.example"]);
        let files = (certificate.chain.as_path(), certificate.key.as_path());
        let database = PostgreSql::start_with(folder.path(), Some(files)).expect("it starts");
        Some((Self::PostgreSql(database), certificate, folder))
    }

    /// Returns the database's URL.
    pub fn url(&self) -> String {
        match self {
            Self::MariaDb(database) => database.url(),
            Self::PostgreSql(database) => database.url(),
        }
    }

    /// Runs statements; returns the rows, a line each.
    ///
    /// # Panics
    /// The server refuses a statement.
    #[track_caller]
    pub fn execute(&self, statements: &str) -> String {
        match self {
            Self::MariaDb(database) => database.execute(statements),
            Self::PostgreSql(database) => database.execute(statements),
        }
        .expect("the database takes it")
    }

    /// Ends all connections of servers, as an operator does.
    ///
    /// # Panics
    /// The database refuses.
    #[track_caller]
    pub fn end_connections(&self) {
        let connections = match self {
            Self::MariaDb(_) => {
                format!("SELECT CONCAT('KILL ', ID, ';') FROM information_schema.PROCESSLIST WHERE USER = '{USER}'")
            }
            Self::PostgreSql(_) => "SELECT 'SELECT pg_terminate_backend(' || pid || ');' FROM pg_stat_activity WHERE application_name = 'strowger'"
                .into(),
        };
        self.execute(&self.execute(&connections));
    }

    /// Returns the database's process.
    pub const fn server(&self) -> &Backend {
        match self {
            Self::MariaDb(database) => database.server(),
            Self::PostgreSql(database) => database.server(),
        }
    }

    /// Shuts the database server down.
    ///
    /// # Panics
    /// The database server does not end.
    pub fn stop(&mut self) {
        match self {
            Self::MariaDb(database) => database.stop(),
            Self::PostgreSql(database) => database.stop(),
        }
        .expect("it ends");
    }

    /// Starts the database server again.
    ///
    /// # Panics
    /// The database server does not start.
    pub fn start_again(&mut self) {
        match self {
            Self::MariaDb(database) => database.server_mut().start_again(),
            Self::PostgreSql(database) => database.start_again(),
        }
        .expect("it starts");
    }
}
