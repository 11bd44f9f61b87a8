//! MariaDB.

use super::{Backend, DATABASE, USER, is_root, run};
use crate::program::{MARIADB, MARIADB_INSTALL_DB, MARIADBD};
use crate::{Error, port};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;

/// MariaDB with one empty database and one user who has all rights in it. A commit is written to the file at once, and is on
/// the disk within a second (`innodb_flush_log_at_trx_commit = 2`).
#[derive(Debug)]
pub struct MariaDb {
    server: Backend,
    socket: PathBuf,
}

impl MariaDb {
    /// Starts a server with its files in this folder.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        Self::start_with(folder, &[])
    }

    /// Starts a server with further options of `mariadbd`.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start_with(folder: &Path, options: &[String]) -> Result<Self, Error> {
        let [program, install] = [MARIADBD.find()?, MARIADB_INSTALL_DB.find()?];
        MARIADB.find()?;
        let data = folder.join("mariadb");
        let socket = folder.join("mariadb.socket");
        let mut command = Command::new(install);
        command
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ])
            .arg(option("--datadir=", &data))
            // In a shared folder, a starting server would remove the temporary tables of other servers.
            .arg(option("--tmpdir=", folder));
        if is_root() {
            command.arg("--user=root");
        }
        run("mariadb-install-db", &mut command)?;
        let port = port::free();
        let mut command = Command::new(program);
        command
            .args(["--no-defaults", "--skip-name-resolve", "--bind-address=127.0.0.1", "--max-connections=200"])
            .args([
                "--innodb-flush-log-at-trx-commit=2",
                "--innodb-buffer-pool-size=256M",
                "--character-set-server=utf8mb4",
            ])
            .arg(format!("--port={port}"))
            .arg(option("--datadir=", &data))
            .arg(option("--tmpdir=", folder))
            .arg(option("--socket=", &socket))
            .arg(option("--pid-file=", &folder.join("mariadb.pid")))
            .args(options);
        if is_root() {
            command.arg("--user=root");
        }
        let server = Backend::start("mariadbd", folder, port, command)?;
        let this = Self { server, socket };
        this.as_root(
            "mysql",
            &format!(
                "CREATE DATABASE {DATABASE}; CREATE USER '{USER}'@'%' IDENTIFIED BY '{USER}'; \
                 GRANT ALL ON {DATABASE}.* TO '{USER}'@'%';"
            ),
        )?;
        Ok(this)
    }

    /// Returns the running server.
    pub const fn server(&self) -> &Backend {
        &self.server
    }

    /// Returns the running server for changes, so that a caller can start it again.
    pub const fn server_mut(&mut self) -> &mut Backend {
        &mut self.server
    }

    /// Shuts the server down.
    ///
    /// # Errors
    /// The server is still running after twenty seconds.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.server.end(Signal::TERM)
    }

    /// Returns the URL: `mysql://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub fn url(&self) -> String {
        format!("mysql://{USER}:{USER}@{}/{DATABASE}", self.server.address())
    }

    /// Runs statements in the database, and returns their rows, one a line, with tabs between columns.
    ///
    /// # Errors
    /// The database refuses a statement.
    pub fn execute(&self, statements: &str) -> Result<String, Error> {
        self.as_root(DATABASE, statements)
    }

    fn as_root(&self, database: &str, statements: &str) -> Result<String, Error> {
        let mut command = Command::new(MARIADB.find()?);
        command
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg(option("--socket=", &self.socket))
            .args(["--execute", statements, database]);
        run("mariadb", &mut command)
    }

    /// Runs the statements of a file.
    ///
    /// # Errors
    /// The file cannot be read, or the database refuses a statement.
    pub fn execute_file(&self, file: &Path) -> Result<(), Error> {
        // The client program reads the file, because the text may be too long for a command line.
        std::fs::metadata(file).map_err(Error::file(file))?;
        self.execute(&format!("source {}", file.display())).map(drop)
    }

    /// Returns the number of rows of a table.
    ///
    /// # Errors
    /// There is no such table.
    pub fn count(&self, table: &str) -> Result<u64, Error> {
        let text = self.execute(&format!("SELECT COUNT(*) FROM {table}"))?;
        text.trim().parse().map_err(|_| Error::Unexpected { what: format!("rows of {table}"), reason: text.clone() })
    }
}

/// Joins the name of an option and a path into one word of a command.
fn option(name: &str, value: &Path) -> std::ffi::OsString {
    let mut word = std::ffi::OsString::from(name);
    word.push(value);
    word
}
