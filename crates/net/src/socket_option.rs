//! Socket options whose value is a number (setsockopt(2)).

use libc::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option whose value is a number; 1 switches an option on.
///
/// # Errors
/// The kernel does not know the option, or refuses the value.
pub(crate) fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads as many bytes from our own variable as it has.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
