//! Folder of a run that is read.

use super::description::Description;
use super::sums::Sums;
use crate::Error;
use crate::row::{self, Digest, Row};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};

/// Name of the file of rows.
pub const ROWS: &str = "rows.jsonl";
/// Name of the description.
pub const DESCRIPTION: &str = "run.json";
/// Name of the experiment's file.
pub const EXPERIMENT: &str = "experiment.toml";
/// Name of the list of hashes.
pub const SUMS: &str = "SHA256SUMS";

/// Folders whose files all have a hash.
const EVIDENCE: [&str; 2] = ["configurations", "trials"];

/// Refusal of a run's folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] Error),
    /// The folder of a new run has files.
    #[error("{} is not empty: name another folder by --out, or go on with the run in it by --resume", .0.display())]
    Occupied(PathBuf),
    /// There is no run.
    #[error("{} is no run of the laboratory, it has no {SUMS}: name the folder that `strowger lab run` wrote", .0.display())]
    NoRun(PathBuf),
    /// Another process writes the run.
    #[error("another process writes {}: wait for its end, or name another folder by --out", .0.display())]
    InUse(PathBuf),
    /// Files are not as they were written.
    #[error("{} was changed after it was written:{}\nIt proves nothing any more: make the run again, or take the files from a copy", .path.display(), lines(.faults))]
    Changed {
        /// The folder.
        path: PathBuf,
        /// Sentence about each file.
        faults: Vec<String>,
    },
    /// A part of a run has more than its list of hashes covers.
    #[error("{} is a part of a run, and has more than its list of hashes covers:{}\nIt was added, or the laboratory was killed in a trial: --resume removes it, and the rows before are as they were written", .path.display(), lines(.faults))]
    Uncovered {
        /// The folder.
        path: PathBuf,
        /// Sentence about each file.
        faults: Vec<String>,
    },
    /// The folder has another run than the one to resume.
    #[error("{} is another run, {difference}: name another folder by --out, or resume with what it began with", .path.display())]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// First difference.
        difference: String,
    },
}

fn lines(faults: &[String]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

/// Run that was read, whole or a part. All its files are as they were written.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Description.
    pub description: Description,
    /// Text of the experiment.
    pub experiment: String,
    /// Rows in their order.
    pub rows: Vec<Row>,
    /// All trials of the plan were made.
    pub is_whole: bool,
    /// Number of files with a hash.
    pub files: usize,
    pub(super) sums: Sums,
    pub(super) rows_text: String,
    /// Files of the trial that was in progress when the laboratory was killed; they belong to no row.
    pub unlisted: Vec<String>,
    /// Number of bytes after the rows that have a hash. These bytes are no rows.
    pub uncovered: usize,
}

impl Recorded {
    /// Reads a run and verifies each file.
    ///
    /// # Errors
    /// The folder has no run, cannot be read, or was changed.
    pub fn open(root: &Path) -> Result<Self, FolderError> {
        let path = root.join(SUMS);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(FolderError::NoRun(root.into())),
            other => other.map_err(Error::file(&path))?,
        };
        let changed = |faults| FolderError::Changed { path: root.into(), faults };
        let sums =
            Sums::read(&String::from_utf8_lossy(&text)).map_err(|fault| changed(vec![format!("{SUMS}: {fault}")]))?;
        let mut faults = Vec::new();
        let mut read = |file: &str| match std::fs::read(root.join(file)) {
            Ok(bytes) => bytes,
            Err(error) => {
                faults.push(format!("{file}: {error}"));
                Vec::new()
            }
        };
        let rows_text = read(ROWS);
        let [description, experiment] =
            [DESCRIPTION, EXPERIMENT].map(|file| String::from_utf8_lossy(&read(file)).into_owned());
        let others = sums.files.keys().filter(|file| ![ROWS, DESCRIPTION, EXPERIMENT].contains(&file.as_str()));
        let others: Vec<(&String, Digest)> = others.map(|file| (file, Digest::of(&read(file)))).collect();
        let own = [(DESCRIPTION, &description), (EXPERIMENT, &experiment)]
            .map(|(file, text)| (file.to_owned(), Digest::of(text.as_bytes())));
        for (file, hash) in
            others.iter().map(|(file, hash)| (*file, hash)).chain(own.iter().map(|(file, hash)| (file, hash)))
        {
            let is_named = faults.iter().any(|fault| fault.starts_with(&format!("{file}: ")));
            if sums.files.get(file) != Some(hash) && !is_named {
                faults.push(format!("{file}: its bytes are not those that were written"));
            }
        }
        let length = rows_text.len();
        let rows_text = match sums.files.get(ROWS).and_then(|hash| covered(&rows_text, hash, sums.is_whole)) {
            Some(length) => String::from_utf8_lossy(&rows_text[..length]).into_owned(),
            None => {
                faults.push(format!("{ROWS}: its bytes are not those that were written"));
                String::new()
            }
        };
        let mut unlisted = Vec::new();
        for folder in EVIDENCE {
            unlisted.extend(files_below(root, folder)?.into_iter().filter(|file| !sums.files.contains_key(file)));
        }
        if sums.is_whole {
            faults.extend(unlisted.drain(..).map(|file| format!("{file}: it was added")));
        }
        if !faults.is_empty() {
            return Err(changed(faults));
        }
        // The hashes are right, so an unreadable row was written by another version.
        let unexpected =
            |what: &str, reason: String| Error::Unexpected { what: format!("{}", root.join(what).display()), reason };
        let description = Description::read(&description).map_err(|reason| unexpected(DESCRIPTION, reason))?;
        let rows = row::read(ROWS, &rows_text).map_err(|report| unexpected(ROWS, report.to_string()))?;
        Ok(Self {
            description,
            experiment,
            rows,
            is_whole: sums.is_whole,
            files: sums.files.len(),
            sums,
            uncovered: length.saturating_sub(rows_text.len()),
            rows_text,
            unlisted,
        })
    }

    /// Reads a run, and also refuses files and bytes of rows without a hash, which a killed laboratory leaves.
    ///
    /// # Errors
    /// As those of [`Recorded::open`]; or a part has more than its list of hashes covers.
    pub fn verify(root: &Path) -> Result<Self, FolderError> {
        let recorded = Self::open(root)?;
        let bytes = (recorded.uncovered > 0).then(|| format!("{ROWS}: {} bytes behind its rows", recorded.uncovered));
        let files = recorded.unlisted.iter().map(|file| format!("{file}: it has no hash"));
        let faults: Vec<String> = bytes.into_iter().chain(files).collect();
        if faults.is_empty() { Ok(recorded) } else { Err(FolderError::Uncovered { path: root.into(), faults }) }
    }
}

/// Returns the length of the rows that a hash covers. The rows of an unfinished part may be longer than that, because a
/// row is written before the list of hashes.
fn covered(rows: &[u8], hash: &Digest, is_whole: bool) -> Option<usize> {
    if is_whole {
        return (Digest::of(rows) == *hash).then_some(rows.len());
    }
    let mut sum = Sha256::new();
    let mut length = 0;
    loop {
        let now: String = sum.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if format!("sha256:{now}") == hash.to_string() {
            return Some(length);
        }
        let rest = &rows[length..];
        let end = rest.iter().position(|byte| *byte == b'\n').map(|end| end + 1)?;
        sum.update(&rest[..end]);
        length += end;
    }
}

/// Paths of all files below a folder, in their order.
pub(super) fn files_below(root: &Path, folder: &str) -> Result<Vec<String>, Error> {
    let path = root.join(folder);
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        other => other.map_err(Error::file(&path))?,
    };
    for entry in entries {
        let entry = entry.map_err(Error::file(&path))?;
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type().map_err(Error::file(&path))?.is_dir() {
            true => found.extend(files_below(root, &name)?),
            false => found.push(name),
        }
    }
    found.sort();
    Ok(found)
}
