//! A technology for tests: each kind of data is one JSON file, written again as a whole.

mod bindings;
mod calls;
mod rows;

use crate::engines::{Rows, Technology};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

pub(crate) const TECHNOLOGY: Technology = Technology {
    name: "toy",
    bindings: Some(|folder| Box::new(bindings::Toy::open(folder))),
    calls: Some(|folder| Box::new(calls::Toy::open(folder))),
    rows: Some(Rows {
        open: |folder| Box::new(rows::Toy::open(folder)),
        count: |folder| rows::Toy::open(folder).count(),
    }),
};

/// Reads a file; the default if there is none.
fn read<T: DeserializeOwned + Default>(path: &Path) -> T {
    fs::read(path).map_or_else(|_| T::default(), |text| serde_json::from_slice(&text).unwrap())
}

fn write<T: Serialize>(path: &Path, value: &T) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(value)?)?;
    fs::rename(new, path)
}
