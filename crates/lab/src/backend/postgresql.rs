//! PostgreSQL.

use super::{Backend, DATABASE, START, USER, is_root, run};
use crate::program::POSTGRESQL;
use crate::{Error, port};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the programs of all versions.
const VERSIONS: &str = "/usr/lib/postgresql";
/// User of the package, because the server refuses to run as root.
const SYSTEM_USER: &str = "postgres";

/// PostgreSQL with one empty database and its owner, who has a password. A commit is on the disk within 0.6 s (`synchronous_commit = off`).
#[derive(Debug)]
pub struct PostgreSql {
    server: Backend,
    programs: PathBuf,
}

impl PostgreSql {
    /// Starts a server with its files in this folder.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        Self::start_with(folder, None)
    }

    /// Starts a server with TLS, by the files of a certificate and its key.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start_with(folder: &Path, certificate: Option<(&Path, &Path)>) -> Result<Self, Error> {
        let programs =
            newest_version().ok_or(Error::NotInstalled { program: "postgres", package: POSTGRESQL.package })?;
        let home = folder.join("postgresql");
        std::fs::create_dir(&home).map_err(Error::file(&home))?;
        if is_root() {
            // The folders of tests are their own user's alone.
            for path in [folder, &home] {
                let permissions = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(path, permissions).map_err(Error::file(path))?;
            }
            run("chown", Command::new("chown").arg(SYSTEM_USER).arg(&home))?;
        }
        let (data, password) = (home.join("data"), home.join("password"));
        std::fs::write(&password, USER).map_err(Error::file(&password))?;
        let mut command = unprivileged(&programs.join("initdb"));
        command.args(["--username", USER, "--auth-host", "scram-sha-256", "--auth-local", "trust"]);
        command.args(["--encoding", "UTF8", "--no-locale", "--no-sync", "--pwfile"]).arg(&password);
        run("initdb", command.arg("--pgdata").arg(&data).current_dir(&home))?;
        let port = port::free();
        let mut command = unprivileged(&programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(&home).args([
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-c",
            "synchronous_commit=off",
        ]);
        if let Some((certificate, key)) = certificate {
            command.args(["-c", "ssl=on"]);
            for (name, file) in [("ssl_cert_file", certificate), ("ssl_key_file", key)] {
                // PostgreSQL accepts a key only if no other user can read it.
                let own = home.join(name);
                std::fs::copy(file, &own).map_err(Error::file(file))?;
                std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600)).map_err(Error::file(&own))?;
                if is_root() {
                    run("chown", Command::new("chown").arg(SYSTEM_USER).arg(&own))?;
                }
                command.arg("-c").arg(format!("{name}={}", own.display()));
            }
        }
        let server = Backend::start("postgres", folder, port, command)?;
        let this = Self { server, programs };
        this.takes_statements()?;
        this.in_database("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        Ok(this)
    }

    /// Returns the running server.
    pub const fn server(&self) -> &Backend {
        &self.server
    }

    /// Starts the server once more with its files, on the same port.
    ///
    /// # Errors
    /// The server does not start.
    pub fn start_again(&mut self) -> Result<(), Error> {
        self.server.start_again()?;
        self.takes_statements()
    }

    /// Waits until the server accepts statements: it listens earlier than that.
    fn takes_statements(&self) -> Result<(), Error> {
        match crate::wait::look(START, || self.in_database("postgres", "SELECT 1").ok()) {
            Some(_) => Ok(()),
            None => self.in_database("postgres", "SELECT 1").map(drop),
        }
    }

    /// Shuts the server down, even while clients are connected.
    ///
    /// # Errors
    /// The server is still running after twenty seconds.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.server.end(Signal::INT)
    }

    /// Returns the URL: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub fn url(&self) -> String {
        format!("postgresql://{USER}:{USER}@{}/{DATABASE}", self.server.address())
    }

    /// Runs statements in the database, and returns their rows, one a line, with tabs between columns.
    ///
    /// # Errors
    /// The database refuses a statement.
    pub fn execute(&self, statements: &str) -> Result<String, Error> {
        self.in_database(DATABASE, statements)
    }

    fn in_database(&self, database: &str, statements: &str) -> Result<String, Error> {
        let mut command = Command::new(self.programs.join("psql"));
        command
            .env("PGPASSWORD", USER)
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator", "\t"])
            .args(["--host", "127.0.0.1", "--port", &self.server.port.to_string(), "--username", USER])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname", database, "--command", statements]);
        run("psql", &mut command)
    }
}

/// Returns the folder of programs with the highest version number.
fn newest_version() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).filter(|path| version(path).is_some()).max_by_key(version)?;
    Some(newest.join("bin")).filter(|programs| programs.join("postgres").is_file())
}

/// Returns a command for this program; if this process is root, the package's user runs the program.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    // Runs it in its own place, and so under its own id.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", SYSTEM_USER, "--regid", SYSTEM_USER, "--clear-groups", "--"]).arg(program);
    command
}
