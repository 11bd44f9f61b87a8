//! Value of a key that names a database: a server, or a SQLite file.

use std::fmt;
use std::path::{Path, PathBuf};

use strowger_store::database_url::DatabaseUrl;

use super::key::Text;

/// A database server or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A server.
    Server(DatabaseUrl),
    /// A SQLite file.
    Sqlite(PathBuf),
}

impl Database {
    /// Returns the server, if the value names a server.
    pub const fn server(&self) -> Option<&DatabaseUrl> {
        match self {
            Self::Server(url) => Some(url),
            Self::Sqlite(_) => None,
        }
    }

    /// Returns the file, if the value names a SQLite file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Server(_) => None,
            Self::Sqlite(path) => Some(path),
        }
    }
}

/// Writes the value without its password.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(url) => url.fmt(f),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

impl Text for Database {
    const EXPECTED: &'static str = "a database such as \"sqlite:FILE\", \"mysql://USER:PASSWORD@HOST:3306/DATABASE\" or \
                                    \"postgresql://USER:PASSWORD@HOST:5432/DATABASE\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.strip_prefix("sqlite:") {
            Some("") => Err("names no file".into()),
            Some(path) if !path.starts_with("//") => Ok(Self::Sqlite(PathBuf::from_text(path)?)),
            _ => text.parse().map(Self::Server),
        }
    }

    fn to_text(&self) -> String {
        self.to_string()
    }

    fn resolve(&mut self, folder: &Path) {
        match self {
            Self::Server(url) => url.resolve(folder),
            Self::Sqlite(path) => Text::resolve(path, folder),
        }
    }
}
