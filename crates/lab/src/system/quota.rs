//! Quota: a share of one core for all processes of a server, by a control group of its own.

use crate::Error;
use crate::wait;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Length in which the processes get their share, in microseconds. It is short, so that a server that has used its share waits for a few
/// milliseconds only.
const PERIOD: u32 = 5_000;

/// Time in which the kernel forgets the ended processes of a group.
const EMPTIED: Duration = Duration::from_secs(1);

/// Number of the next group of this process.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Control group with a quota, which is removed when it is dropped. Its processes have to end before.
#[derive(Debug)]
pub(super) struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// Makes a group whose processes together get this share of one core, in per cent.
    ///
    /// # Errors
    /// This process may make no groups, or the kernel has none.
    pub(super) fn of_a_core(percent: u32) -> Result<Self, Error> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("strowger-lab-{}-{number}", std::process::id());
        Self::below(Path::new("/sys/fs/cgroup"), &name, percent).ok_or_else(|| Error::Unexpected {
            what: "the quota of the server".to_owned(),
            reason: "no control group can be made in /sys/fs/cgroup: run as root, outside of a container that forbids it, or remove quota from \
                     [call]"
                .to_owned(),
        })
    }

    /// Makes a group below the folder of all groups: of version 1, or else of version 2.
    fn below(root: &Path, name: &str, percent: u32) -> Option<Self> {
        let time = u64::from(PERIOD) * u64::from(percent) / 100;
        let of_version_1 = [("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", time.to_string())];
        let of_version_2 = [("cpu.max", format!("{time} {PERIOD}"))];
        Self::make(&root.join("cpu").join(name), &of_version_1).or_else(|| Self::make(&root.join(name), &of_version_2))
    }

    fn make(folder: &Path, values: &[(&str, String)]) -> Option<Self> {
        std::fs::create_dir(folder).ok()?;
        // Dropped, and so removed, if a value is refused.
        let quota = Self { folder: folder.to_owned() };
        // No file is made: in a folder that is no group the values would limit nothing.
        let set = |(file, value): &(&str, String)| {
            std::fs::OpenOptions::new().write(true).open(folder.join(file)).and_then(|mut file| {
                use std::io::Write;
                file.write_all(value.as_bytes())
            })
        };
        values.iter().all(|value| set(value).is_ok()).then_some(quota)
    }

    /// Returns the command that runs these words in the group, with all processes that they start.
    pub(super) fn within(&self, words: &[String]) -> Vec<String> {
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        let processes = self.folder.join("cgroup.procs").display().to_string();
        let prefix = ["sh".to_owned(), "-c".to_owned(), enter.to_owned(), processes];
        [prefix.as_slice(), words].concat()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        wait::until(EMPTIED, || std::fs::remove_dir(&self.folder).is_ok() || !self.folder.exists());
    }
}

/// Tells whether this process may limit the processor time of a server.
pub fn can_limit() -> bool {
    Quota::of_a_core(100).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_folder_that_is_no_group_limits_nothing() {
        let root = tempfile::tempdir().expect("a temporary folder");
        assert!(Quota::below(root.path(), "one", 20).is_none());
        assert!(!root.path().join("one").exists() && !root.path().join("cpu").exists());
    }

    /// Checks the files of both versions, and that a group is removed with its value.
    #[test]
    fn a_group_has_its_time_of_each_period() {
        if !can_limit() {
            return;
        }
        let quota = Quota::of_a_core(20).expect("it was possible a moment ago");
        let value =
            |file: &str| std::fs::read_to_string(quota.folder.join(file)).map(|text| text.trim().to_owned()).ok();
        let of_version_1 = value("cpu.cfs_period_us").zip(value("cpu.cfs_quota_us"));
        let wanted = ("5000".to_owned(), "1000".to_owned());
        assert!(of_version_1 == Some(wanted) || value("cpu.max").as_deref() == Some("1000 5000"), "{of_version_1:?}");
        let folder = quota.folder.clone();
        drop(quota);
        assert!(!folder.exists());
    }

    #[test]
    fn words_run_within_the_group() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let quota = Quota { folder: folder.path().to_owned() };
        let words = quota.within(&["echo".to_owned(), "two words".to_owned()]);
        let output = Command::new(&words[0]).args(&words[1..]).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "two words\n");
        let entered = std::fs::read_to_string(folder.path().join("cgroup.procs")).expect("it was written");
        assert!(entered.trim().parse::<u32>().is_ok(), "{entered}");
        std::fs::remove_file(folder.path().join("cgroup.procs")).expect("it is there");
    }
}
