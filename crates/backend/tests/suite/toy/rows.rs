//! Rows of accounting of the toy.

use super::{read, write};
use std::path::{Path, PathBuf};
use strowger_store::accounting::Row;
use strowger_store::accounting::sink::{Sink, SinkError};

pub(super) struct Toy {
    path: PathBuf,
    rows: Vec<Row>,
}

impl Toy {
    pub(super) fn open(path: &Path) -> Self {
        let path = path.to_owned();
        Self { rows: read(&path), path }
    }

    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }
}

impl Sink for Toy {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn open(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn write(&mut self, rows: &[Box<Row>], _now: u64) -> Result<(), SinkError> {
        let before = self.rows.len();
        self.rows.extend(rows.iter().map(|row| Row::clone(row)));
        write(&self.path, &self.rows).map_err(|error| {
            self.rows.truncate(before);
            SinkError::of_file(&self.path, &error)
        })
    }

    fn purge(&mut self, _before: u64) -> Result<bool, SinkError> {
        Ok(false)
    }
}
