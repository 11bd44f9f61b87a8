//! Ports of media: bound pairs of sockets, lent to shards.

use super::MediaSettings;
use super::port_table::{PortTable, Shortage};
use crate::ready_set::ReadySet;
use crate::{dedicated, socket_option, timestamp};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use strowger_media::session::{PortPair, Side};

/// Bound of datagrams that are removed from a socket before a session gets it: more than its buffer holds.
const STALE: usize = 4_096;

/// Ports of one media thread: the pairs that it has bound.
pub(super) struct Ports {
    thread: u16,
    /// Ports of all threads.
    table: Arc<PortTable>,
    addresses: Vec<IpAddr>,
    dscp: u8,
    /// Bound pairs, by their places in the table.
    bound: Vec<Option<Box<BoundPair>>>,
    count: usize,
    /// Bound pairs that have a leg.
    used: usize,
    /// Set while no descriptor is left: each call asks for ports, and the log has one line.
    lacks_descriptors: bool,
}

/// Bound pair of ports.
pub(super) struct BoundPair {
    rtp: UdpSocket,
    rtcp: UdpSocket,
    /// Leg that receives the packets. Without one, the sockets are not watched.
    pub(super) leg: Option<BoundLeg>,
}

/// Leg of a session that has a pair of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BoundLeg {
    /// Number of the session.
    pub(super) session: u32,
    /// Place of the stream.
    pub(super) stream: u8,
    pub(super) side: Side,
}

impl BoundPair {
    /// Returns the socket of RTP or of RTCP.
    #[inline]
    pub(super) const fn socket(&self, is_rtcp: bool) -> &UdpSocket {
        if is_rtcp { &self.rtcp } else { &self.rtp }
    }
}

impl Ports {
    pub(super) fn new(thread: u16, settings: &MediaSettings, table: Arc<PortTable>) -> Self {
        let addresses = settings.addresses.clone();
        Self {
            thread,
            dscp: settings.dscp,
            bound: (0..table.pairs() * addresses.len()).map(|_| None).collect(),
            count: 0,
            used: 0,
            lacks_descriptors: false,
            table,
            addresses,
        }
    }

    /// Returns the number of bound pairs.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of bound pairs that have a leg.
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// Returns the place of a pair that this thread has bound.
    #[inline]
    pub(super) fn place(&self, ports: PortPair) -> Option<usize> {
        let place = self.table.place(ports)?;
        (ports.thread == self.thread && self.at(place).is_some()).then_some(place)
    }

    #[inline]
    pub(super) fn at(&self, place: usize) -> Option<&BoundPair> {
        self.bound.get(place)?.as_deref()
    }

    /// Returns the number of pairs of all addresses.
    pub(super) fn pairs(&self) -> usize {
        self.bound.len()
    }

    /// Binds up to so many pairs, of all addresses in turn. Ports that another program has are left out. `attempts`: bound of attempts to bind a pair,
    /// which is lowered by those that were made.
    pub(super) fn lend(&mut self, pairs: usize, attempts: &mut usize) -> Vec<PortPair> {
        let mut lent = Vec::new();
        let mut open: Vec<usize> = (0..self.addresses.len()).collect();
        while lent.len() < pairs && !open.is_empty() {
            open.retain(|address| {
                if lent.len() == pairs {
                    return true;
                }
                let ports = self.bind_next(*address, attempts);
                lent.extend(ports);
                ports.is_some()
            });
        }
        lent
    }

    /// Binds the next free pair of an address.
    fn bind_next(&mut self, address: usize, attempts: &mut usize) -> Option<PortPair> {
        for _ in 0..self.table.pairs() {
            *attempts = attempts.checked_sub(1)?;
            let place = match self.table.take(address) {
                Ok(place) => place,
                Err(Shortage::Ports) => return None,
                Err(Shortage::Descriptors) => {
                    self.report_shortage(&"the others are kept for connections");
                    return None;
                }
            };
            let ports = PortPair { thread: self.thread, address: address as u16, rtp: self.table.rtp(place) };
            match self.bind(self.addresses[address], ports.rtp) {
                Ok(pair) => {
                    self.bound[place] = Some(Box::new(pair));
                    self.count += 1;
                    self.lacks_descriptors = false;
                    return Some(ports);
                }
                Err(error) => {
                    self.table.release(place);
                    if dedicated::is_full(&error) {
                        self.report_shortage(&error);
                        return None;
                    }
                    tracing::debug!(port = ports.rtp, %error, "port of media left out");
                }
            }
        }
        None
    }

    fn report_shortage(&mut self, error: &dyn fmt::Display) {
        if !std::mem::replace(&mut self.lacks_descriptors, true) {
            tracing::warn!(%error, "no descriptor for ports of media");
        }
    }

    /// Binds these pairs, all of them or none. Returns whether they are bound.
    pub(super) fn claim(&mut self, pairs: &[PortPair]) -> bool {
        let refused = pairs.iter().position(|ports| !self.claim_pair(*ports));
        if let Some(refused) = refused {
            pairs[..refused].iter().for_each(|ports| self.close(*ports));
            pairs[refused..].iter().for_each(|ports| self.table.reserve(*ports, false));
        }
        refused.is_none()
    }

    fn claim_pair(&mut self, ports: PortPair) -> bool {
        let address = self.addresses.get(usize::from(ports.address)).copied().filter(|_| ports.thread == self.thread);
        let Some((address, place)) = address.and_then(|address| Some((address, self.table.claim(ports)?))) else {
            return false;
        };
        match self.bind(address, ports.rtp) {
            Ok(pair) => {
                self.bound[place] = Some(Box::new(pair));
                self.count += 1;
                true
            }
            Err(error) => {
                self.table.release(place);
                tracing::warn!(port = ports.rtp, %error, "port of media of the process before not bound");
                false
            }
        }
    }

    fn bind(&self, address: IpAddr, rtp: u16) -> io::Result<BoundPair> {
        let open = |port| open(SocketAddr::new(address, port), self.dscp);
        Ok(BoundPair { rtp: open(rtp)?, rtcp: open(rtp + 1)?, leg: None })
    }

    /// Closes a pair. A leg that still has the pair loses it. A reserved pair becomes free.
    pub(super) fn close(&mut self, ports: PortPair) {
        let Some(place) = self.place(ports) else { return self.table.reserve(ports, false) };
        let had_leg = self.bound[place].take().is_some_and(|pair| pair.leg.is_some());
        self.table.release(place);
        self.count -= 1;
        self.used -= usize::from(had_leg);
    }

    /// Gives the packets of a pair to a leg. Earlier datagrams are of an earlier call, and are removed.
    ///
    /// # Errors
    /// The kernel has no room to watch the sockets.
    pub(super) fn attach(&mut self, place: usize, leg: BoundLeg, watched: &ReadySet) -> io::Result<()> {
        let Some(Some(pair)) = self.bound.get_mut(place) else { return Ok(()) };
        if pair.leg.replace(leg).is_none() {
            self.used += 1;
            for is_rtcp in [false, true] {
                let socket = pair.socket(is_rtcp);
                remove_stale(socket);
                watched.add(socket.as_fd(), name(place, is_rtcp))?;
            }
        }
        Ok(())
    }

    /// Takes a pair from a leg of this session, if it has the pair.
    pub(super) fn detach(&mut self, place: usize, session: u32, watched: &ReadySet) {
        let Some(Some(pair)) = self.bound.get_mut(place) else { return };
        if pair.leg.is_some_and(|leg| leg.session == session) {
            pair.leg = None;
            self.used -= 1;
            for is_rtcp in [false, true] {
                // It is not watched if there was no room.
                watched.remove(pair.socket(is_rtcp).as_fd());
            }
        }
    }
}

/// Returns the name of a socket among the watched ones.
const fn name(place: usize, is_rtcp: bool) -> u64 {
    (place as u64) << 1 | is_rtcp as u64
}

/// Returns the place and whether it is the socket of RTCP, from its name.
#[inline]
pub(super) const fn named(name: u64) -> (usize, bool) {
    ((name >> 1) as usize, name & 1 == 1)
}

/// Opens a socket of its own at this address.
pub(super) fn open(address: SocketAddr, dscp: u8) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    set_dscp(socket.as_fd(), address.is_ipv6(), dscp)?;
    // Without time stamps packets count as arriving when they are read.
    timestamp::enable(socket.as_fd());
    Ok(socket.into())
}

/// Sets the class of outgoing packets (RFC 2474).
fn set_dscp(socket: BorrowedFd<'_>, is_v6: bool, dscp: u8) -> io::Result<()> {
    let (level, option) =
        if is_v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    // The lower two bits are those of congestion notification.
    socket_option::set(socket, level, option, i32::from(dscp & 63) << 2)
}

fn remove_stale(socket: &UdpSocket) {
    let mut byte = [0];
    for _ in 0..STALE {
        match socket.recv(&mut byte) {
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(_) => return,
        }
    }
}
