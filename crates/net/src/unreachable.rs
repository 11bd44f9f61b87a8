//! Reports of unreachable datagrams by hosts and routers: ICMP errors (RFC 3261 section 18.4).
//!
//! The kernel keeps them in a separate queue of the socket. That queue is read only after the socket has signalled an error: without errors a shard
//! makes no system call for them.

use crate::{batch, socket_option};
use libc::{iovec, msghdr, sock_extended_err, sockaddr_storage};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Largest useful part of a quoted datagram: hosts quote 576 bytes with all headers (RFC 1812 section 4.3.2.3), or
/// 1,280 by IPv6 (RFC 4443 section 3.1).
const QUOTED: usize = 1_280;

/// Words of eight bytes for the control message: its header, the error, the address of the reporting host.
const CONTROL: usize = 32;

/// A datagram whose target is unreachable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreachable<'a> {
    pub(crate) to: SocketAddr,
    /// Quoted beginning of the datagram: perhaps a few bytes, or none.
    pub(crate) quoted: &'a [u8],
}

/// Makes the kernel keep the errors of this socket. From then on each error is also reported once to the next call that
/// sends or receives, whatever its address.
///
/// # Errors
/// The kernel does not know the option.
pub(crate) fn enable(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let (level, option) = if v6 { (libc::SOL_IPV6, libc::IPV6_RECVERR) } else { (libc::SOL_IP, libc::IP_RECVERR) };
    socket_option::set(socket, level, option, 1)
}

/// Takes one error out of the queue. Returns `None` if the error does not concern the destination.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if there is none; those of the system call.
pub(crate) fn next<'a>(socket: BorrowedFd<'_>, room: &'a mut Vec<u8>) -> io::Result<Option<Unreachable<'a>>> {
    room.resize(QUOTED, 0);
    let mut control = [0u64; CONTROL];
    let mut part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: all bytes zero is a value of both C structures: integers and null pointers.
    let (mut name, mut header): (sockaddr_storage, msghdr) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<sockaddr_storage>() as u32;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points at a name, a part and control bytes of ours, with their sizes; nothing else touches them during
    // the call.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the control bytes as far as the header says, and they are still at its address.
    let error = unsafe { extended(&header) };
    let quoted = room.get(..n as usize).unwrap_or_default();
    Ok(error.filter(says_unreachable).and_then(|_| batch::address(&name)).map(|to| Unreachable { to, quoted }))
}

/// Tells whether the kernel may have derived this error from an ICMP message.
#[cold]
pub(crate) fn may_be_icmp(error: &io::Error) -> bool {
    use libc::{
        EACCES, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENONET, ENOPROTOOPT, EOPNOTSUPP, EPROTO,
    };
    matches!(
        error.raw_os_error(),
        Some(
            EACCES
                | ECONNREFUSED
                | EHOSTDOWN
                | EHOSTUNREACH
                | EMSGSIZE
                | ENETUNREACH
                | ENONET
                | ENOPROTOOPT
                | EOPNOTSUPP
                | EPROTO
        )
    )
}

/// Tells whether the sender must learn of this error. This holds for an unreachable host, network, port or protocol,
/// and for a parameter problem. It does not hold for source quench and time exceeded (section 18.4), nor for a datagram
/// that is too long for the route, which the kernel handles.
fn says_unreachable(error: &sock_extended_err) -> bool {
    const TOO_LONG: u8 = 4;
    match (error.ee_origin, error.ee_type) {
        // Destination unreachable, parameter problem (RFC 792).
        (libc::SO_EE_ORIGIN_ICMP, 3) => error.ee_code != TOO_LONG,
        (libc::SO_EE_ORIGIN_ICMP, 12) => true,
        // Destination unreachable and parameter problem of IPv6 (RFC 4443 sections 3.1 and 3.4).
        (libc::SO_EE_ORIGIN_ICMP6, 1 | 4) => true,
        _ => false,
    }
}

/// Returns the error among the control messages.
///
/// # Safety
/// `recvmsg` has filled the header.
unsafe fn extended(header: &msghdr) -> Option<sock_extended_err> {
    // SAFETY: the macros walk the control bytes as far as the header says that they are filled; a message of this kind holds the structure, which is
    // read unaligned.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let kind = ((*message).cmsg_level, (*message).cmsg_type);
            let whole = libc::CMSG_LEN(size_of::<sock_extended_err>() as u32) as usize;
            if matches!(kind, (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR))
                && (*message).cmsg_len as usize >= whole
            {
                return Some(libc::CMSG_DATA(message).cast::<sock_extended_err>().read_unaligned());
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_closed_port_is_told_with_what_was_sent_to_it() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let (socket, closed) = (UdpSocket::bind(ip).unwrap(), UdpSocket::bind(ip).unwrap());
            enable(socket.as_fd(), closed.local_addr().unwrap().is_ipv6()).unwrap();
            let to = closed.local_addr().unwrap();
            drop(closed);
            let mut room = Vec::new();
            let mut next = || match next(socket.as_fd(), &mut room) {
                Ok(report) => report.map(|u| (u.to, u.quoted.to_vec())),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    None
                }
            };
            assert_eq!(next(), None);
            let long: Vec<u8> = (0..=255u8).cycle().take(2_000).collect();
            for bytes in [&b"OPTIONS sip:a SIP/2.0\r\n"[..], b"", &long] {
                socket.send_to(bytes, to).unwrap();
                let (to_closed, quoted) = next().expect("the kernel reports at once on loopback");
                assert_eq!(to_closed, to);
                assert!(bytes.starts_with(&quoted) && quoted.len() >= bytes.len().min(500), "{}", quoted.len());
            }
            assert_eq!(next(), None);
        }
    }

    #[test]
    fn only_what_concerns_the_destination_is_told() {
        // SAFETY: a structure of integers.
        let mut error: sock_extended_err = unsafe { std::mem::zeroed() };
        let mut says = |origin, kind, code| {
            (error.ee_origin, error.ee_type, error.ee_code) = (origin, kind, code);
            says_unreachable(&error)
        };
        let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        for (origin, kind, code) in
            [(v4, 3, 0), (v4, 3, 1), (v4, 3, 2), (v4, 3, 3), (v4, 12, 0), (v6, 1, 4), (v6, 4, 0)]
        {
            assert!(says(origin, kind, code), "{origin} {kind} {code}");
        }
        // The errors are: too long, source quench, time exceeded; the same by IPv6; and an error of the local kernel.
        for (origin, kind, code) in [(v4, 3, 4), (v4, 4, 0), (v4, 11, 0), (v6, 2, 0), (v6, 3, 0), (1, 0, 0)] {
            assert!(!says(origin, kind, code), "{origin} {kind} {code}");
        }
    }
}
