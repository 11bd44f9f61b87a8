//! Folders of recordings, which rules name.

use super::findings::Findings;
use rustix::fs::statvfs;
use std::path::Path;
use strowger_config::{Config, EndpointFiles, Fault};

/// Bytes of a second of a recording.
const SECOND: u64 = 16_000;

/// Checks that the folder of each rule that records calls exists, and that its disk has room for one recording of the longest time.
pub(super) fn check(config: &Config, findings: &mut Findings<'_>) {
    for (index, table) in config.rules.iter().enumerate() {
        let (Some(EndpointFiles::Recording(recording)), Some(folder)) =
            (table.endpoint_files(), table.record_to.as_deref())
        else {
            continue;
        };
        let span = findings.places.value_of(&format!("rule[{index}].record_to"));
        let shown = folder.display();
        if !folder.is_dir() {
            let (what, cure) = match folder.exists() {
                true => ("which is no folder", "name a folder".to_owned()),
                false => ("which does not exist", format!("make it (mkdir -m 700 -p {shown}), or name another")),
            };
            let message = format!("rule '{}' records to {shown}, {what}", table.name);
            findings.push(Fault::error(span, message, cure));
            continue;
        }
        let needed = recording.limit.as_secs().saturating_mul(SECOND);
        if let Some(free) = free(folder).filter(|free| *free < needed) {
            let (free, needed) = (free >> 20, needed.div_ceil(1 << 20));
            let message = format!(
                "rule '{}' records to {shown}, whose disk has {free} MiB free; a recording takes up to {needed} MiB",
                table.name
            );
            let cure =
                "make room, name a folder on another disk, or lower `record_limit`: calls end when the disk is full";
            findings.push(Fault::warning(span, message, cure));
        }
    }
}

/// Returns the bytes that this process may still write to the disk of a folder; `None` if the system does not tell.
fn free(folder: &Path) -> Option<u64> {
    let disk = statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use crate::preflight;
    use std::fs;
    use std::path::Path;
    use strowger_config::{Config, Report, Source};

    fn read(folder: &Path, name: &str) -> Result<(Config, Report), Report> {
        let text = format!(
            "media.addresses = [\"127.0.0.1\"]\n[[rule]]\nname = \"note\"\nanswer = \"recording\"\nrecord_to = \"{name}\"\n"
        );
        preflight::read(Source { file: "test.toml", text: &text, folder, ..Source::default() })
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error_at_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("notes")).expect("it can be made");
        fs::write(folder.path().join("file"), "text").expect("it can be written");
        let (_, report) = read(folder.path(), "notes").unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(report.errors(), 0, "{report}");
        for (name, words, cure) in [("none", "does not exist", "mkdir"), ("file", "is no folder", "name a folder")] {
            let report = read(folder.path(), name).expect_err("nothing can be recorded");
            let fault = report.faults().iter().find(|fault| fault.message.contains(words)).expect("a fault");
            assert_eq!(report.position(fault), Some((5, 13)), "{report}");
            assert!(fault.message.contains("rule 'note' records to") && fault.cure.contains(cure), "{report}");
        }
    }

    #[test]
    fn the_room_of_a_disk_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(super::free(folder.path()).is_some());
        assert_eq!(super::free(&folder.path().join("none")), None);
    }
}
