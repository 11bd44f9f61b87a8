//! System limits for a server under test.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program;
use crate::server::Server;

/// File system in memory with a given size; unmounted by the drop.
#[derive(Debug)]
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a disk of a size such as `64k`; without the right to do so the test is skipped.
    ///
    /// # Panics
    /// No temporary folder can be created.
    pub fn mount(size: &str) -> Option<Self> {
        if !program::is_root() {
            program::skipped("mounting a small disk needs root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let options = format!("size={size}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).status();
        if !status.is_ok_and(|status| status.success()) {
            program::skipped("this machine does not let root mount a file system in memory");
            return None;
        }
        Some(Self(folder))
    }

    /// Returns the disk's mount point.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk completely.
    ///
    /// # Panics
    /// There is no space for a file name.
    pub fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("there is room for a name");
        while filler.write(&[0; 512]).is_ok_and(|n| n > 0) {}
    }

    /// Frees the space taken by [`fill`](Self::fill).
    ///
    /// # Panics
    /// [`fill`](Self::fill) was not called before.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).expect("it is there");
    }

    fn filler(&self) -> PathBuf {
        self.folder().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.folder()).status();
    }
}

/// Limits all files of the process to this many bytes, which acts as a full disk. The process must ignore the signal
/// SIGXFSZ, or it ends.
///
/// # Panics
/// The process does not run.
pub fn limit_files(server: &mut Server, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    let id = server.process().id().cast_signed();
    // SAFETY: the process was started here and not yet waited for; the struct lives for the call.
    let result = unsafe { libc::prlimit(id, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Limits the descriptors of the process to those below this number, and returns the limit before.
///
/// # Panics
/// The process does not run.
pub fn limit_descriptors(server: &mut Server, below: u64) -> u64 {
    let id = server.process().id().cast_signed();
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the process was started here and not yet waited for; the struct lives for the call.
    let read = unsafe { libc::prlimit(id, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut before) };
    assert_eq!(read, 0, "{}", std::io::Error::last_os_error());
    let limit = libc::rlimit { rlim_cur: below, ..before };
    // SAFETY: as above.
    let written = unsafe { libc::prlimit(id, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(written, 0, "{}", std::io::Error::last_os_error());
    before.rlim_cur
}
