//! Kept calls of the toy.

use super::{read, write};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strowger_store::calls::{CallEngine, Change, Failure, Held, Left, LoadReport, OpenError};

pub(super) struct Toy {
    path: PathBuf,
    /// State by number; true: last words.
    states: BTreeMap<u64, (bool, Vec<u8>)>,
    written: u64,
}

impl Toy {
    pub(super) fn open(path: &Path) -> Self {
        let path = path.to_owned();
        Self { states: read(&path), path, written: 0 }
    }
}

impl CallEngine for Toy {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn load(&mut self, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, OpenError> {
        let mut report = LoadReport::default();
        for (number, (is_closed, bytes)) in &self.states {
            report.bytes += bytes.len() as u64;
            if *is_closed {
                report.closed += 1;
                take(*number, Left::LastWords(bytes));
            } else {
                report.states += 1;
                take(*number, Left::State(bytes));
            }
        }
        Ok(report)
    }

    fn write(&mut self, changes: &[(u64, &Change)]) -> Result<(), Failure> {
        for (number, change) in changes {
            match change {
                Change::State(bytes) => drop(self.states.insert(*number, (false, bytes.to_vec()))),
                Change::Closed(bytes) => drop(self.states.insert(*number, (true, bytes.to_vec()))),
                Change::Removed => drop(self.states.remove(number)),
            }
        }
        self.written += changes.len() as u64;
        Ok(write(&self.path, &self.states)?)
    }

    fn held(&self) -> Held {
        let bytes = self.states.values().map(|(_, bytes)| bytes.len() as u64).sum();
        Held { kept: self.states.len() as u64, bytes, written: self.written }
    }
}
