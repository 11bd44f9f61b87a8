//! Table of the storage technologies, for the process that opens their engines.
//!
//! Subscribers are not in the table, because their look-ups need realms and columns, and a database server returns its
//! algorithms.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strowger_store::accounting::sink::Sink;
use strowger_store::calls;
use strowger_store::clock::Clock;
use strowger_store::journal::{Durability, Journal, JournalSettings};
use strowger_store::location::LocationTable;

use crate::sql::ServerSettings;
use crate::sql::lease::Lease;
use crate::{files, sql, sqlite};

/// All technologies. A further one is a folder of this crate and a row here.
pub const TECHNOLOGIES: &[Technology] =
    &[sqlite::TECHNOLOGY, sql::TECHNOLOGY, files::SEGMENTS, files::JSON_LINES, files::CSV];

/// Storage technology: how it opens its engine of each kind of data. `None`: it has no such data.
pub struct Technology {
    /// Name, as in `accounting.to`.
    pub name: &'static str,
    /// Kind of its places.
    pub place: PlaceKind,
    /// Bindings.
    pub bindings: Option<KeepBindings>,
    /// Kept calls.
    pub calls: Option<Open<dyn calls::CallEngine>>,
    /// Rows of accounting. The sink has opened nothing yet.
    pub accounting: Option<Open<dyn Sink>>,
}

/// Kind of a [`DataPlace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// File, made if it is missing.
    File,
    /// Folder, made if it is missing.
    Folder,
    /// Database server.
    Server,
}

/// Reason for which a place cannot be used, for display as it is.
pub type Unusable = Box<dyn std::error::Error + Send + Sync>;

/// Opens an engine.
pub type Open<T> = fn(&DataPlace) -> Result<Box<T>, Unusable>;

/// Fills the table from a place and keeps its changes there from then on. Returns the writer and the number of bindings loaded; there is no writer
/// with [`Durability::None`].
pub type KeepBindings =
    fn(&DataPlace, &Arc<LocationTable>, JournalSettings, Clock) -> Result<(Option<Journal>, usize), Unusable>;

/// Place of data, and what the process asks of its engine. Each engine reads the fields that concern it.
#[derive(Clone, Debug)]
pub struct DataPlace {
    /// File or folder.
    pub path: PathBuf,
    /// Database server.
    pub server: Option<ServerSettings>,
    /// Right to write to that server.
    pub lease: Option<Arc<Lease>>,
    /// Guarantee of a commit.
    pub durability: Durability,
    /// Longest wait for another process, or for a server.
    pub patience: Duration,
    /// Number of this server among those that share the place.
    pub node: u16,
    /// Format version of the states of calls, for display.
    pub form: u8,
    /// True if old rows are removed.
    pub removes: bool,
}

impl DataPlace {
    /// Returns a file or folder with the defaults of the engines.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let sqlite::SqliteSettings { path, durability, busy_timeout: patience, .. } = sqlite::SqliteSettings::new(path);
        let (server, lease, node, form, removes) = (None, None, 0, 0, false);
        Self { path, server, lease, durability, patience, node, form, removes }
    }

    /// Returns the database server.
    ///
    /// # Errors
    /// The place is none.
    pub fn server(&self) -> Result<&ServerSettings, Unusable> {
        self.server.as_ref().ok_or_else(|| format!("{self} is no database server").into())
    }

    /// Returns the right to write to the server.
    ///
    /// # Errors
    /// The process has not acquired it.
    pub fn lease(&self) -> Result<Arc<Lease>, Unusable> {
        self.lease.clone().ok_or_else(|| format!("{self}: this process has no lease").into())
    }
}

/// Shows no password.
impl fmt::Display for DataPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(server) => server.url.fmt(f),
            None => self.path.display().fmt(f),
        }
    }
}

/// Returns the property that `kind` selects from the technology with this name, such as the function that opens one
/// kind of data.
///
/// # Errors
/// No technology with this name has such data. The error names those that have.
pub fn find<T>(name: &str, kind: fn(&Technology) -> Option<T>) -> Result<T, Unusable> {
    let found = TECHNOLOGIES.iter().find(|technology| technology.name == name).and_then(kind);
    found.ok_or_else(|| {
        let has = |technology: &&Technology| kind(technology).is_some();
        let names: Vec<&str> = TECHNOLOGIES.iter().filter(has).map(|technology| technology.name).collect();
        format!("no storage technology {name:?} has such data: name {}", names.join(", ")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_unknown_technology_names_the_known_ones() {
        assert!(find("sqlite", |technology| technology.bindings).is_ok());
        let error = |name| find(name, |technology| technology.bindings).map(drop).unwrap_err().to_string();
        assert_eq!(error("redis"), "no storage technology \"redis\" has such data: name sqlite, sql");
        assert_eq!(error("csv"), "no storage technology \"csv\" has such data: name sqlite, sql");
        let accounting = find("redis", |technology| technology.accounting).map(drop).unwrap_err().to_string();
        assert!(accounting.ends_with(": name sqlite, sql, json, csv"), "{accounting}");
    }

    #[test]
    fn a_file_is_no_server() {
        let place = DataPlace::new("rows.csv");
        let sql = find("sql", |technology| technology.accounting).unwrap();
        assert_eq!(sql(&place).map(drop).unwrap_err().to_string(), "rows.csv is no database server");
        assert!(place.lease().is_err());
    }
}
