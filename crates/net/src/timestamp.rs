//! Times of arrival: the time at which the kernel received a message (SO_TIMESTAMPNS, socket(7)), on the monotonic clock.
//!
//! Time stamps of the kernel use the wall clock. If the wall clock was set between the last reading of the clocks and
//! the present one, the time stamps are useless, and a message counts as arriving now.

use crate::{clock, socket_option};
use libc::{c_int, iovec, msghdr, timespec};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// Room for the control messages of one datagram: time, size of the parts of a run, local address.
pub(crate) const CONTROL: usize = 128;

/// Largest drift of the two clocks between two readings in nanoseconds, plus a thousandth of the time in between
/// (adjtimex(2) slews by half of that at most). Beyond it the wall clock was set.
const DRIFT: i64 = 1_000_000;

/// Asks the kernel for time stamps. Returns whether the kernel supports them. The first socket of the machine that asks
/// for time stamps gets them a moment later.
pub(crate) fn enable(socket: BorrowedFd<'_>) -> bool {
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).is_ok()
}

/// Switches time stamps off.
pub(crate) fn disable(socket: BorrowedFd<'_>) {
    // If the kernel continues to send time stamps, they are ignored.
    let _ = socket_option::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0);
}

/// Asks the kernel for the local address of each datagram. Returns whether the kernel provides it.
pub(crate) fn enable_packet_info(socket: BorrowedFd<'_>, v6: bool) -> bool {
    let (level, option) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    socket_option::set(socket, level, option, 1).is_ok()
}

/// Writes into `control`, which has room for [`CONTROL`] bytes, the source address of a datagram. Returns the number of bytes.
///
/// # Safety
/// `control` points at as many bytes, aligned for a `cmsghdr`, that may be written.
pub(crate) unsafe fn write_packet_info(from: IpAddr, control: *mut u8) -> usize {
    // SAFETY: the room holds one message of the larger of the two; the written part has the size in the header, and
    // need not be aligned.
    unsafe {
        let message = control.cast::<libc::cmsghdr>();
        match from {
            IpAddr::V4(ip) => {
                let mut info: libc::in_pktinfo = std::mem::zeroed();
                info.ipi_spec_dst.s_addr = u32::from(ip).to_be();
                let size = size_of::<libc::in_pktinfo>() as u32;
                (*message).cmsg_level = libc::IPPROTO_IP;
                (*message).cmsg_type = libc::IP_PKTINFO;
                (*message).cmsg_len = libc::CMSG_LEN(size) as _;
                libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().write_unaligned(info);
                libc::CMSG_SPACE(size) as usize
            }
            IpAddr::V6(ip) => {
                let mut info: libc::in6_pktinfo = std::mem::zeroed();
                info.ipi6_addr.s6_addr = ip.octets();
                let size = size_of::<libc::in6_pktinfo>() as u32;
                (*message).cmsg_level = libc::IPPROTO_IPV6;
                (*message).cmsg_type = libc::IPV6_PKTINFO;
                (*message).cmsg_len = libc::CMSG_LEN(size) as _;
                libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().write_unaligned(info);
                libc::CMSG_SPACE(size) as usize
            }
        }
    }
}

/// Control messages of received data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ancillary {
    /// Size of the datagrams of a coalesced run, the last of which may be shorter.
    pub(crate) segment: Option<usize>,
    /// Time of arrival in nanoseconds of the wall clock.
    pub(crate) stamp: Option<i64>,
    /// Local address that received it.
    pub(crate) to: Option<IpAddr>,
}

/// Reads the control messages of this header.
///
/// # Safety
/// The kernel filled the header, and its control bytes still exist.
pub(crate) unsafe fn ancillary(header: &msghdr) -> Ancillary {
    let mut ancillary = Ancillary::default();
    // SAFETY: the macros walk the control bytes as far as the header says that they are filled; the part read of a
    // message has the size of its level and type, and need not be aligned.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = libc::CMSG_DATA(message).cast::<c_int>().read_unaligned();
                    ancillary.segment = usize::try_from(size).ok().filter(|&size| size > 0);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = libc::CMSG_DATA(message).cast::<timespec>().read_unaligned();
                    ancillary.stamp = Some(time.tv_sec * 1_000_000_000 + time.tv_nsec);
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().read_unaligned();
                    // This is not the destination address in the IP header, which may be a broadcast address.
                    ancillary.to = Some(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().read_unaligned();
                    let to = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    ancillary.to = (!to.is_multicast()).then_some(to.into());
                }
                _ => (),
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    ancillary
}

/// Reads from a connection. Returns the number of bytes, and the time of arrival of the last byte (nanoseconds of the
/// wall clock).
pub(crate) fn read(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<(usize, Option<i64>)> {
    let mut vector = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = [0u64; CONTROL / size_of::<u64>()];
    // SAFETY: a zeroed header refers to nothing. The vector points at bytes that are ours alone for the call, the control bytes are aligned for a
    // `cmsghdr`, and both outlive it; the kernel filled the part that `ancillary` then reads.
    unsafe {
        let mut header: msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
        let n = libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT);
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok((n as usize, ancillary(&header).stamp)) }
    }
}

/// Last reading of both clocks by a shard.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// Monotonic and wall clock at the last reading, in nanoseconds.
    last: Option<(i64, i64)>,
}

/// A reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// Microseconds of [`clock::micros`].
    pub(crate) now: u64,
    /// Nanoseconds of the wall clock; `None` if it was set since the last reading.
    wall: Option<i64>,
}

impl Clocks {
    /// Reads the clocks, after a read from a socket and at least once between two waits.
    pub(crate) fn read(&mut self) -> ClockReading {
        let now = clock::micros();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64);
        self.set(now, wall)
    }

    fn set(&mut self, now: u64, wall: i64) -> ClockReading {
        let mono = now as i64 * 1_000;
        let steady = |&(mono_before, wall_before): &(i64, i64)| {
            let passed = mono - mono_before;
            (wall - wall_before - passed).abs() <= DRIFT + passed / 1_000
        };
        let steady = self.last.replace((mono, wall)).as_ref().is_none_or(steady);
        ClockReading { now, wall: steady.then_some(wall) }
    }
}

impl ClockReading {
    /// Converts a time stamp to microseconds of [`clock::micros`].
    pub(crate) fn arrival(&self, stamp: Option<i64>) -> u64 {
        match (stamp, self.wall) {
            (Some(stamp), Some(wall)) => self.now.saturating_sub((wall - stamp).max(0) as u64 / 1_000),
            _ => self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn what_lay_in_a_connection_has_the_time_at_which_it_came() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert!(enable(socket.as_fd()));
        let (mut clocks, mut bytes) = (Clocks::default(), [0; 100]);
        clocks.read();
        // The kernel begins to make time stamps a little after the first socket has asked for them.
        for _ in 0..100 {
            let sent = clock::micros();
            peer.write_all(b"something").unwrap();
            std::thread::sleep(Duration::from_millis(30));
            let (n, stamp) = read(socket.as_fd(), &mut bytes).unwrap();
            let reading = clocks.read();
            let came = reading.arrival(stamp);
            assert_eq!(&bytes[..n], b"something");
            assert_eq!(read(socket.as_fd(), &mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            if stamp.is_some() && came < reading.now {
                assert!(came + 1 >= sent && reading.now >= came + 29_000, "{sent} {came} {reading:?}");
                return;
            }
        }
        panic!("the kernel does not stamp");
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_nothing() {
        let mut clocks = Clocks::default();
        let hour = 3_600_000_000_000;
        let wall = |us: i64| 1_700_000_000_000_000_000 + us * 1_000;
        let first = clocks.set(1_000, wall(1_000));
        assert_eq!(
            (first.arrival(Some(wall(400))), first.arrival(None), first.arrival(Some(wall(2_000)))),
            (400, 1_000, 1_000)
        );
        // The clock steps an hour forward, and back: a message with an earlier time stamp counts as arriving now.
        let forth = clocks.set(2_000, wall(2_000) + hour);
        assert_eq!(forth.arrival(Some(wall(1_500))), 2_000);
        assert_eq!(clocks.set(3_000, wall(3_000) + hour).arrival(Some(wall(2_900) + hour)), 2_900);
        assert_eq!(clocks.set(4_000, wall(4_000)).arrival(Some(wall(3_500) + hour)), 4_000);
        // A slewed wall clock is steady for this purpose.
        assert_eq!(clocks.set(2_004_000, wall(2_005_000)).arrival(Some(wall(2_004_900))), 2_003_900);
    }
}
