//! Checks of a configuration that need a storage engine.

use std::path::Path;

use strowger_backend::sqlite::{self, OpenError};
use strowger_config::{Config, ListenAddress, Report};

/// Reads a configuration and checks its database file; see [`Config::load`].
///
/// # Errors
/// The report of all faults, warnings included.
pub fn load(path: Option<&Path>, listen: &[ListenAddress]) -> Result<(Config, Report), Report> {
    Config::load(path, listen, &database)
}

/// Returns the reason for which a database file cannot be used, and the cure; see
/// [`strowger_config::Source::database`].
pub fn database(path: &Path) -> Option<(String, &'static str)> {
    Some(match sqlite::look(path) {
        Err(OpenError::Corrupt { detail, .. }) => (
            format!("is no sound SQLite database ({detail})"),
            "name another file; or restore this one from a backup, or move it away",
        ),
        Err(OpenError::Foreign { .. }) => ("belongs to another program".into(), "name a file of its own"),
        Err(OpenError::Newer { found, known, .. }) => (
            format!("was written by a newer version: its schema is {found}, this program knows {known}"),
            "use the version that wrote it, or name another file",
        ),
        // Other errors may be temporary, or depend on the user of this process.
        Err(_) | Ok(()) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_database_is_an_error_at_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("text"), "no database, but long enough to look at".repeat(100)).expect("it can be written");
        std::fs::write(at("wrong.toml"), "\nstore.database = \"text\"").expect("it can be written");
        let report = load(Some(&at("wrong.toml")), &[]).expect_err("the file is no database");
        let fault = report.faults().iter().find(|fault| fault.message.contains("is no sound SQLite database"));
        assert_eq!(report.position(fault.expect("it is named")).map(|(line, _)| line), Some(2), "{report}");
        std::fs::write(at("right.toml"), "store.database = \"new\"").expect("it can be written");
        assert!(load(Some(&at("right.toml")), &[]).is_ok(), "the server makes a file that is not there");
    }
}
