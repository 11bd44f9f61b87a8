//! A technology for tests: each kind of data is one JSON file, written again as a whole.

mod bindings;
mod calls;
mod rows;

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;
use strowger_backend::technology::{PlaceKind, Technology};
use strowger_store::journal::Journal;

/// Row of the table of technologies, as a folder of the crate has one.
pub(crate) const TECHNOLOGY: Technology = Technology {
    name: "toy",
    place: PlaceKind::File,
    bindings: Some(|place, table, journal, clock| {
        let (journal, loaded) = Journal::start(bindings::Toy::open(&place.path), table, journal, clock)?;
        Ok((Some(journal), loaded))
    }),
    calls: Some(|place| Ok(Box::new(calls::Toy::open(&place.path)))),
    accounting: Some(|place| Ok(Box::new(rows::Toy::open(&place.path)))),
};

/// Counts the rows of accounting in a file.
pub(crate) fn count_rows(path: &Path) -> usize {
    rows::Toy::open(path).count()
}

/// Reads a file; the default if there is none.
fn read<T: DeserializeOwned + Default>(path: &Path) -> T {
    fs::read(path).map_or_else(|_| T::default(), |text| serde_json::from_slice(&text).unwrap())
}

fn write<T: Serialize>(path: &Path, value: &T) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(value)?)?;
    fs::rename(new, path)
}
