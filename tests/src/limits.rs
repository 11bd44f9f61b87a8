//! Bounds of the system for a server under test.

use crate::server::Server;

/// No file of the process may grow beyond so many bytes: as on a disk without room. Its signal, SIGXFSZ, must be ignored, or it ends.
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
