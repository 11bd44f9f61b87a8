//! Input of a configuration.

use std::path::Path;

use super::key_positions::KeyPositions;
use super::listen::ListenAddress;

/// Input of a configuration.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Name of the file in a report.
    pub file: &'a str,
    /// Text of the file.
    pub text: &'a str,
    /// Folder that relative paths start from.
    pub folder: &'a Path,
    /// Listeners of the command line; they replace all listeners of the file.
    pub listen: &'a [ListenAddress],
    /// Values of environment variables by name.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Source<'_> {
    /// Returns the path of each of the `all` listeners in the text. Each path is empty if listeners of the command line replace the listeners of the
    /// text.
    pub fn listeners(&self, all: usize, places: &KeyPositions) -> Vec<String> {
        match self.listen {
            [] => places.listeners(all),
            _ => vec![String::new(); all],
        }
    }
}

impl Default for Source<'_> {
    fn default() -> Self {
        let folder = Path::new("");
        Self { file: "defaults", text: "", folder, listen: &[], environment: &|_| None }
    }
}
