//! Folder of a run that is being written.

use super::description::Description;
use super::recorded::{self, DESCRIPTION, EXPERIMENT, FolderError, ROWS, SUMS, files_below};
use super::sums::Sums;
use crate::row::{Digest, Row};
use crate::{Error, wait};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time in which a forked process executes its program, and with that closes the files of its parent.
const FORKED: Duration = Duration::from_millis(500);

/// Folder of a run that is being written. One process at a time writes it.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    sums: Sums,
    rows: File,
    /// Text of all rows so far.
    text: String,
    count: usize,
}

impl Folder {
    /// Makes the folder of a new run.
    ///
    /// # Errors
    /// The folder exists and is not empty, or cannot be written.
    pub fn create(root: &Path, description: &Description, experiment: &str) -> Result<Self, FolderError> {
        std::fs::create_dir_all(root).map_err(Error::file(root))?;
        if std::fs::read_dir(root).map_err(Error::file(root))?.next().is_some() {
            return Err(FolderError::Occupied(root.into()));
        }
        let rows = root.join(ROWS);
        let file = File::options().create_new(true).append(true).open(&rows).map_err(Error::file(&rows))?;
        let mut folder = Self { root: root.into(), sums: Sums::default(), rows: file, text: String::new(), count: 0 };
        folder.lock()?;
        folder.write(EXPERIMENT, experiment.as_bytes())?;
        folder.write(DESCRIPTION, description.to_text().as_bytes())?;
        folder.save()?;
        Ok(folder)
    }

    /// Resumes an interrupted run: returns its rows, and removes the files of the unfinished trial.
    ///
    /// # Errors
    /// The folder has no run, was changed, has another run than `description`, or is in use by another process.
    pub fn resume(root: &Path, description: &Description) -> Result<(Self, Vec<Row>), FolderError> {
        let recorded = recorded::Recorded::open(root)?;
        if let Some(difference) = recorded.description.difference(description) {
            return Err(FolderError::OtherRun { path: root.into(), difference });
        }
        let path = root.join(ROWS);
        let file = File::options().append(true).open(&path).map_err(Error::file(&path))?;
        let (sums, text) = (recorded.sums, recorded.rows_text);
        let folder = Self { root: root.into(), sums, rows: file, text, count: recorded.rows.len() };
        folder.lock()?;
        folder.rows.set_len(folder.text.len() as u64).map_err(Error::file(&path))?;
        for leftover in recorded.unlisted {
            let leftover = root.join(leftover);
            std::fs::remove_file(&leftover).map_err(Error::file(&leftover))?;
        }
        Ok((folder, recorded.rows))
    }

    fn lock(&self) -> Result<(), FolderError> {
        let locked = || flock(&self.rows, FlockOperation::NonBlockingLockExclusive).is_ok();
        if wait::until(FORKED, locked) { Ok(()) } else { Err(FolderError::InUse(self.root.clone())) }
    }

    /// Returns the path of the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the number of rows so far.
    pub const fn rows(&self) -> usize {
        self.count
    }

    /// Makes the folder for the files of the next row.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn next_trial(&self) -> Result<PathBuf, Error> {
        let folder = self.root.join(trial(self.count + 1));
        std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        Ok(folder)
    }

    /// Removes the files of the trial that was in progress.
    pub fn discard_trial(&self) {
        // What remains has no hash, and a resumed run removes it.
        let _ = std::fs::remove_dir_all(self.root.join(trial(self.count + 1)));
    }

    /// Keeps a configuration once, by system and name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_configuration(&mut self, system: &str, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = format!("configurations/{system}/{name}");
        if self.sums.files.get(&path) == Some(&Digest::of(bytes)) { Ok(()) } else { self.write(&path, bytes) }
    }

    /// Writes a file whole.
    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let file = self.root.join(path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
        }
        std::fs::write(&file, bytes).map_err(Error::file(&file))?;
        self.sums.files.insert(path.into(), Digest::of(bytes));
        Ok(())
    }

    /// Appends a row. The files of the trial are hashed first, so that the list of hashes has all files of each row in
    /// it.
    ///
    /// # Errors
    /// The disk is full, or a file cannot be written. The earlier rows are unchanged.
    pub fn append(&mut self, row: &Row) -> Result<(), Error> {
        for file in files_below(&self.root, &trial(self.count + 1))? {
            let path = self.root.join(&file);
            let bytes = std::fs::read(&path).map_err(Error::file(&path))?;
            self.sums.files.insert(file, Digest::of(&bytes));
        }
        let path = self.root.join(ROWS);
        let line = row.to_line() + "\n";
        let written = self.rows.write_all(line.as_bytes()).and_then(|()| self.rows.sync_data());
        if let Err(error) = written {
            // A partial line is no row.
            let _ = self.rows.set_len(self.text.len() as u64);
            return Err(Error::file(&path)(error));
        }
        self.text.push_str(&line);
        self.count += 1;
        self.save()
    }

    /// Marks the run as whole.
    ///
    /// # Errors
    /// The list of hashes cannot be written.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.sums.is_whole = true;
        self.save()
    }

    /// Replaces the list of hashes atomically: a reader finds the old list or the new one.
    fn save(&mut self) -> Result<(), Error> {
        self.sums.files.insert(ROWS.into(), Digest::of(self.text.as_bytes()));
        let (path, new) = (self.root.join(SUMS), self.root.join(format!("{SUMS}.new")));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(self.sums.to_string().as_bytes())?;
            file.sync_data()?;
            std::fs::rename(&new, &path)
        };
        write().map_err(Error::file(&path))
    }
}

/// Returns the path of the folder with the files of a row, counted from 1.
pub(super) fn trial(number: usize) -> String {
    format!("trials/{number:04}")
}
