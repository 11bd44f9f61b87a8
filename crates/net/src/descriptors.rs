//! Limit and number of open descriptors of this process.

use std::io;

/// Raises the limit of open descriptors (RLIMIT_NOFILE) to the system's maximum, and returns it.
///
/// # Errors
/// The limit cannot be read. A failure to raise it is no error.
pub fn raise() -> io::Result<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to our own variable.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        let all = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: the kernel reads our own variable.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &all) } == 0 {
            limit = all;
        }
    }
    Ok(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Returns the number of open descriptors; 0 if the system does not provide it.
pub fn open() -> usize {
    // One descriptor is subtracted: that of the folder itself, which is open while it is read.
    std::fs::read_dir("/proc/self/fd").map_or(0, |folder| folder.count().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_raised_and_what_is_open_is_counted() {
        let most = super::raise().unwrap();
        let before = super::open();
        assert!(before > 2 && most > before, "{before} of {most}");
        let files: Vec<_> = (0..40).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        assert!(super::open() >= before + 30);
        drop(files);
    }
}
