//! The floor of a relay: what it costs to pass datagrams on unread.

use std::io::ErrorKind;
use std::net::UdpSocket;

/// Passes on what comes from one end to the other, unread, until it is ended. Datagrams come and go in batches where the
/// kernel has several.
///
/// # Errors
/// The port is taken, or the socket fails.
pub fn relay(port: u16, ends: [u16; 2]) -> std::io::Result<()> {
    const BATCH: usize = 64;
    const SIZE: usize = 2_048;
    let socket = UdpSocket::bind(("127.0.0.1", port))?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    let mut buffers = vec![[0u8; SIZE]; BATCH];
    // SAFETY: all of these are plain C structures for which zero is a value.
    let mut names: Vec<libc::sockaddr_in> = vec![unsafe { std::mem::zeroed() }; BATCH];
    // SAFETY: as above.
    let mut pieces: Vec<libc::iovec> = vec![unsafe { std::mem::zeroed() }; BATCH];
    // SAFETY: as above.
    let mut headers: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; BATCH];
    loop {
        for n in 0..BATCH {
            pieces[n] = libc::iovec { iov_base: buffers[n].as_mut_ptr().cast(), iov_len: SIZE };
            let header = &mut headers[n].msg_hdr;
            header.msg_name = (&raw mut names[n]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            header.msg_iov = &raw mut pieces[n];
            header.msg_iovlen = 1;
        }
        // SAFETY: each header points at a name, a piece and a buffer that live as long as the vectors.
        let got = unsafe {
            libc::recvmmsg(fd, headers.as_mut_ptr(), BATCH as u32, libc::MSG_WAITFORONE, std::ptr::null_mut())
        };
        let Ok(got) = usize::try_from(got) else {
            let error = std::io::Error::last_os_error();
            // A datagram that we sent was unreachable: its error comes with the next call.
            if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) {
                continue;
            }
            return Err(error);
        };
        for n in 0..got {
            pieces[n].iov_len = headers[n].msg_len as usize;
            let from_first = u16::from_be(names[n].sin_port) == ends[0];
            names[n].sin_port = (if from_first { ends[1] } else { ends[0] }).to_be();
        }
        let mut sent = 0;
        while sent < got {
            // SAFETY: as for receiving; `sent` is below the number of headers.
            let now = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr().add(sent), (got - sent) as u32, 0) };
            // One that cannot be sent is passed over.
            sent += usize::try_from(now).map_or(1, |now| now.max(1));
        }
    }
}
