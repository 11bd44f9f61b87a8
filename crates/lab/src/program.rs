//! Programs by others, and the Debian package of each.

use crate::Error;
use std::path::PathBuf;

/// A program by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Name of the program's file.
    pub name: &'static str,
    /// Debian package that contains it.
    pub package: &'static str,
}

/// A server by others.
pub const KAMAILIO: Program = Program { name: "kamailio", package: "kamailio" };
/// A relay of media.
pub const RTPENGINE: Program = Program { name: "rtpengine", package: "rtpengine-daemon" };
/// A database.
pub const MARIADBD: Program = Program { name: "mariadbd", package: "mariadb-server" };
/// Makes the files of a database.
pub const MARIADB_INSTALL_DB: Program = Program { name: "mariadb-install-db", package: "mariadb-server" };
/// Has a database run statements.
pub const MARIADB: Program = Program { name: "mariadb", package: "mariadb-client" };
/// A database. Debian keeps the programs of each version in separate folders; this program in `PATH` selects a version.
pub const POSTGRESQL: Program = Program { name: "pg_ctlcluster", package: "postgresql" };
/// A cache.
pub const MEMCACHED: Program = Program { name: "memcached", package: "memcached" };
/// A cache with data structures.
pub const REDIS: Program = Program { name: "redis-server", package: "redis-server" };

impl Program {
    /// Returns the path of the program in the folders of `PATH` or in the folders for programs of the administrator.
    pub fn path(&self) -> Option<PathBuf> {
        in_path(self.name)
    }

    /// Returns the path of a program that is needed.
    ///
    /// # Errors
    /// The program is missing; the error names its Debian package.
    pub fn find(&self) -> Result<PathBuf, Error> {
        self.path().ok_or(Error::NotInstalled { program: self.name, package: self.package })
    }
}

/// Returns the file of this name in the folders of `PATH`, or in the folders where Debian puts programs of the
/// administrator.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
