//! Records in files beside their tests.

use crate::written::Process;
use std::path::Path;
use strowger_core::record::{self, Recorded};

/// A record of the version that is written now, which stands in a file beside its test. A version that has none yet gets it here.
pub(crate) fn recorded(folder: &str, record: impl Recorded) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(format!("record_{}", record::VERSION));
    if !file.exists() {
        std::fs::write(&file, record::write(record, &Process(0))).expect("the folder is there");
        panic!("{} is written now: it belongs to the sources", file.display());
    }
    std::fs::read(&file).expect("it is there")
}
