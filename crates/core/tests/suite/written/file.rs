//! Records in files beside their tests.

use crate::written::Process;
use std::path::Path;
use strowger_core::record::{self, Recorded};

/// Returns the record of the current version from the file beside its test. Writes the file if this version has none yet, and panics.
pub(crate) fn recorded(folder: &str, record: impl Recorded) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(format!("record_{}", record::VERSION));
    if !file.exists() {
        std::fs::write(&file, record::write(record, &Process(0))).expect("the folder is there");
        panic!("{} is written now: it belongs to the sources", file.display());
    }
    std::fs::read(&file).expect("it is there")
}
