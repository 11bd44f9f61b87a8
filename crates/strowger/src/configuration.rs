//! Which configuration a command uses: the file that it is given, else `strowger.toml` of this folder, else the defaults.

use std::path::{Path, PathBuf};

use crate::output;

/// What `strowger init` writes, and what is looked for.
pub(crate) const NAME: &str = "strowger.toml";

/// The file of a command, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    file: Option<PathBuf>,
    /// It was not named: it lies in this folder.
    found: bool,
}

impl Choice {
    /// `given`: by the command line or the environment.
    pub(crate) fn of(given: Option<&Path>) -> Self {
        let found = given.is_none() && Path::new(NAME).exists();
        Self { file: if found { Some(NAME.into()) } else { given.map(Path::to_owned) }, found }
    }

    /// None: the defaults hold.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Tells people which file was found.
    pub(crate) fn announce(&self) {
        if self.found {
            output::say(&format!("using {NAME} of this folder; --config FILE names another"));
        }
    }

    /// The same for the log of a server, which names its configuration in any case.
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
