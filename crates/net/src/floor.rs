//! Relay that does not parse messages: it measures the minimum cost of a relayed call. [`exchange`] measures the
//! minimum cost of a request or call between two programs.

pub mod exchange;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

/// Address of a peer as the kernel writes it, by IPv4 or IPv6. Its unused bytes are zero.
#[derive(Clone, Copy)]
#[repr(C)]
union Name {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    const EMPTY: Self = Self { bytes: [0; size_of::<libc::sockaddr_in6>()] };

    fn of(address: SocketAddr) -> (Self, u32) {
        let mut name = Self::EMPTY;
        let length = match address {
            SocketAddr::V4(address) => {
                // SAFETY: the structure is plain C, for which the zeros of `EMPTY` are a value.
                let v4 = unsafe { &mut name.v4 };
                v4.sin_family = libc::AF_INET as libc::sa_family_t;
                v4.sin_addr.s_addr = u32::from(*address.ip()).to_be();
                v4.sin_port = address.port().to_be();
                size_of_val(v4)
            }
            SocketAddr::V6(address) => {
                // SAFETY: as above.
                let v6 = unsafe { &mut name.v6 };
                v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                v6.sin6_addr.s6_addr = address.ip().octets();
                v6.sin6_port = address.port().to_be();
                v6.sin6_scope_id = address.scope_id();
                size_of_val(v6)
            }
        };
        (name, length as u32)
    }

    fn is(&self, other: &Self) -> bool {
        // SAFETY: all bytes are initialised in `EMPTY`, and the kernel writes whole fields.
        unsafe { self.bytes == other.bytes }
    }
}

/// Relays datagrams without parsing them until the socket fails: datagrams of the called end go to the caller of the
/// last datagram, and datagrams of callers go to the called end. Batches datagrams if the kernel has several. For each
/// `answered`-th datagram of callers it returns an empty line, so that it sends as many datagrams as a server that
/// answers one of `answered` datagrams with a 100; 0: it returns none.
///
/// # Errors
/// The socket fails.
pub fn relay(socket: &UdpSocket, called: SocketAddr, answered: u64) -> std::io::Result<()> {
    const BATCH: usize = 64;
    const NOTHING: &[u8] = b"\r\n\r\n";
    const SIZE: usize = 2_048;
    let fd = std::os::fd::AsRawFd::as_raw_fd(socket);
    // There is room for the received datagrams, and after them for one answer to each.
    let mut buffers = vec![[0u8; SIZE]; 2 * BATCH];
    let mut names = vec![Name::EMPTY; 2 * BATCH];
    // SAFETY: all of these are plain C structures for which zero is a value.
    let mut pieces: Vec<libc::iovec> = vec![unsafe { std::mem::zeroed() }; 2 * BATCH];
    // SAFETY: as above.
    let mut headers: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; 2 * BATCH];
    let mut of_callers = 0;
    let (end, length) = Name::of(called);
    let mut caller = end;
    loop {
        for n in 0..2 * BATCH {
            pieces[n] = libc::iovec { iov_base: buffers[n].as_mut_ptr().cast(), iov_len: SIZE };
            let header = &mut headers[n].msg_hdr;
            header.msg_name = (&raw mut names[n]).cast();
            header.msg_namelen = length;
            header.msg_iov = &raw mut pieces[n];
            header.msg_iovlen = 1;
        }
        // SAFETY: each header points at a name, a piece and a buffer that live as long as the vectors.
        let got = unsafe {
            libc::recvmmsg(fd, headers.as_mut_ptr(), BATCH as u32, libc::MSG_WAITFORONE, std::ptr::null_mut())
        };
        let Ok(got) = usize::try_from(got) else {
            let error = std::io::Error::last_os_error();
            // An earlier sent datagram was unreachable: the next call returns its error.
            if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) {
                continue;
            }
            return Err(error);
        };
        let mut wanted = got;
        for n in 0..got {
            pieces[n].iov_len = headers[n].msg_len as usize;
            let is_of_caller = !names[n].is(&end);
            of_callers += u64::from(is_of_caller);
            if is_of_caller && answered > 0 && of_callers.is_multiple_of(answered) {
                names[wanted] = names[n];
                buffers[wanted][..NOTHING.len()].copy_from_slice(NOTHING);
                pieces[wanted].iov_len = NOTHING.len();
                wanted += 1;
            }
            if is_of_caller {
                caller = std::mem::replace(&mut names[n], end);
            } else {
                names[n] = caller;
            }
        }
        let mut sent = 0;
        while sent < wanted {
            // SAFETY: as for receiving; `sent` is below the number of headers.
            let now = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr().add(sent), (wanted - sent) as u32, 0) };
            // Skips a datagram that cannot be sent.
            sent += usize::try_from(now).map_or(1, |now| now.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_datagram_goes_to_the_other_end_and_one_in_three_of_the_caller_is_answered() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            passes(any);
        }
    }

    fn passes(any: &str) {
        let [first, second, middle] = [(); 3].map(|()| UdpSocket::bind(any).expect("a free port"));
        let at = |socket: &UdpSocket| socket.local_addr().expect("it is bound");
        let (called, to) = (at(&second), at(&middle));
        // The thread ends with the process of the tests.
        std::thread::spawn(move || relay(&middle, called, 3).expect("its socket is good"));
        let heard = |socket: &UdpSocket, count: usize| -> Vec<Vec<u8>> {
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
            let mut one = [0; 100];
            let mut next = || socket.recv(&mut one).map(|length| one[..length].to_vec()).expect("a datagram");
            (0..count).map(|_| next()).collect()
        };
        for n in 0..6 {
            first.send_to(&[b'a' + n], to).expect("it is sent");
        }
        assert_eq!(heard(&second, 6).concat(), b"abcdef");
        assert_eq!(heard(&first, 2), [b"\r\n\r\n"; 2]);
        for n in 0..6 {
            second.send_to(&[b'u' + n], to).expect("it is sent");
        }
        assert_eq!(heard(&first, 6).concat(), b"uvwxyz");
    }
}
