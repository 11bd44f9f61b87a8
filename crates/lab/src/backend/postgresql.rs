//! PostgreSQL.

use super::{Backend, DATABASE, START, USER, is_root, run};
use crate::program::POSTGRESQL;
use crate::{Error, port};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the programs of all versions are.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Whom the package runs it as: it refuses to run as root.
const SYSTEM_USER: &str = "postgres";

/// A PostgreSQL with one empty database and its owner. What is committed is on the disk within 0.6 s (`synchronous_commit = off`).
#[derive(Debug)]
pub struct PostgreSql {
    server: Backend,
    programs: PathBuf,
}

impl PostgreSql {
    /// Starts one with its files in this folder.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self, Error> {
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
        let data = home.join("data");
        let mut command = unprivileged(&programs.join("initdb"));
        command.args([
            "--username",
            USER,
            "--auth",
            "trust",
            "--encoding",
            "UTF8",
            "--no-locale",
            "--no-sync",
            "--pgdata",
        ]);
        run("initdb", command.arg(&data).current_dir(&home))?;
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
        let server = Backend::start("postgres", folder, port, &mut command)?;
        let this = Self { server, programs };
        // It listens before it takes statements.
        let ready = crate::wait::look(START, || this.in_database("postgres", "SELECT 1").ok());
        if ready.is_none() {
            this.in_database("postgres", "SELECT 1")?;
        }
        this.in_database("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        Ok(this)
    }

    /// The server.
    pub const fn server(&self) -> &Backend {
        &self.server
    }

    /// Runs statements in the database; the rows that they return, a line each, with tabs between columns.
    ///
    /// # Errors
    /// It refuses one.
    pub fn execute(&self, statements: &str) -> Result<String, Error> {
        self.in_database(DATABASE, statements)
    }

    fn in_database(&self, database: &str, statements: &str) -> Result<String, Error> {
        let mut command = Command::new(self.programs.join("psql"));
        command
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator", "\t"])
            .args(["--host", "127.0.0.1", "--port", &self.server.port.to_string(), "--username", USER])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname", database, "--command", statements]);
        run("psql", &mut command)
    }
}

/// The folder of programs with the highest number.
fn newest_version() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).filter(|path| version(path).is_some()).max_by_key(version)?;
    Some(newest.join("bin")).filter(|programs| programs.join("postgres").is_file())
}

/// The program, run by the package's user where this process is root.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    // Runs it in its own place, and so under its own id.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", SYSTEM_USER, "--regid", SYSTEM_USER, "--clear-groups", "--"]).arg(program);
    command
}
