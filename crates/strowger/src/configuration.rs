//! Selects the configuration of a command: the given file, else `strowger.toml` of this folder, else the defaults.

use std::path::{Path, PathBuf};

use crate::output;

/// Name of the file that `strowger init` writes and that commands look for.
pub(crate) const NAME: &str = "strowger.toml";

/// The configuration file of a command, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    file: Option<PathBuf>,
    /// True if the file was not given but found in this folder.
    found: bool,
}

impl Choice {
    /// Selects the file. `given` is from the command line or the environment.
    pub(crate) fn of(given: Option<&Path>) -> Self {
        let found = given.is_none() && Path::new(NAME).exists();
        Self { file: if found { Some(NAME.into()) } else { given.map(Path::to_owned) }, found }
    }

    /// Returns the file, or `None` for the defaults.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Prints which file was found.
    pub(crate) fn announce(&self) {
        if self.found {
            output::say(&format!("using {NAME} of this folder; --config FILE names another"));
        }
    }

    /// Logs which configuration a server uses.
    pub(crate) fn log(&self) {
        match &self.file {
            Some(file) if self.found => {
                let file = file.display();
                tracing::info!(%file, note = "found in this folder; --config FILE names another", "configuration");
            }
            Some(file) => tracing::info!(file = %file.display(), "configuration"),
            None => {
                tracing::info!(file = "none", note = "the defaults hold; strowger init writes a file", "configuration")
            }
        }
    }
}
