//! Faults of files, at the positions of the keys that name the files.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use strowger_config::{Fault, KeyPositions};

/// Position in the configuration file.
pub(super) type Span = Option<Range<usize>>;

/// Faults found so far, and the positions of the keys.
pub(super) struct Findings<'a> {
    pub(super) places: &'a KeyPositions,
    pub(super) faults: Vec<Fault>,
}

impl<'a> Findings<'a> {
    pub(super) const fn new(places: &'a KeyPositions) -> Self {
        Self { places, faults: Vec::new() }
    }

    pub(super) fn push(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Warns of a file with a secret that every user of this machine can read.
    pub(super) fn warn_if_others_read(&mut self, path: &Path, span: &Span) {
        if fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o007 != 0) {
            let message = format!("everyone on this machine can read {}", path.display());
            self.push(Fault::warning(span.clone(), message, format!("chmod 600 {}", path.display())));
        }
    }

    /// Tells whether the folder of the file that this key names exists. Notes a fault if not.
    pub(super) fn check_folder_of(&mut self, key: &str, path: &Path) -> bool {
        let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) else {
            return true;
        };
        let message = format!("the folder of {key}, {}, does not exist", folder.display());
        let cure = format!("make it (mkdir -p {}), or name another", folder.display());
        self.push(Fault::error(self.places.value_of(key), message, cure));
        false
    }
}

/// Returns the text of an error of reading a file, with the file's owner and mode if they are the reason.
pub(crate) fn with_reason(error: &std::io::Error, path: &Path) -> String {
    match strowger_files::access::denial(path, false) {
        Some(reason) => format!("{error}; {reason}"),
        None => error.to_string(),
    }
}
