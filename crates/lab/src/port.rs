//! Ports of loopback that no program uses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddress, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// Below the ports that Linux gives to clients, so that no connection made meanwhile takes one.
static LONG: Mutex<Ports> = Mutex::new(Ports::new(12_000..32_000));
/// Ports of four digits.
static SHORT: Mutex<Ports> = Mutex::new(Ports::new(9_000..9_900));

/// Ports in a block. A process owns whole blocks.
const BLOCK: u16 = 20;

/// Returns a port of 127.0.0.1 that is free for UDP and TCP, and that this function has not returned before.
///
/// # Panics
/// No port is free.
pub fn free() -> u16 {
    next(&LONG, 1)
}

/// Returns a free port, as [`free`], of an address of this machine.
///
/// # Panics
/// No port is free.
pub fn free_at(ip: IpAddr) -> u16 {
    loop {
        let port = free();
        if is_free_at(ip, port) {
            return port;
        }
    }
}

/// Returns the first of two adjacent free ports, for programs that also use the port after their own.
///
/// # Panics
/// No port is free.
pub fn pair() -> u16 {
    next(&LONG, 2)
}

/// Returns a free port of four digits, 9000 to 9899, for programs that cannot write longer ones.
///
/// # Panics
/// No port is free.
pub fn short() -> u16 {
    next(&SHORT, 1)
}

fn next(ports: &Mutex<Ports>, wanted: u16) -> u16 {
    let port = ports.lock().unwrap_or_else(PoisonError::into_inner).next(wanted);
    port.expect("a port of 127.0.0.1 is free")
}

/// Ports of a range that this process may return. The process owns a block of ports while it holds a socket with the name of the block.
/// Without blocks two processes could take the same port, or the probe of one process could make the bind of another fail.
#[derive(Debug)]
struct Ports {
    range: Range<u16>,
    /// Owned blocks: the socket and the first port of each.
    owned: Vec<(UnixDatagram, u16)>,
    /// Index of the current block, and the number of its ports that were given.
    at: (usize, u16),
}

impl Ports {
    const fn new(range: Range<u16>) -> Self {
        Self { range, owned: Vec::new(), at: (0, 0) }
    }

    /// Returns the first of `wanted` consecutive free ports, or `None` if there are none.
    fn next(&mut self, wanted: u16) -> Option<u16> {
        // Enough for each block to be taken, given and left.
        for _ in 0..=2 * self.range.len() {
            let (block, given) = self.at;
            match self.owned.get(block).map(|(_, first)| *first) {
                None if self.claim() => (),
                None if self.owned.is_empty() => return None,
                // All blocks are taken, so the blocks of this process are used again.
                None => self.at = (0, 0),
                Some(_) if given + wanted > BLOCK => self.at = (block + 1, 0),
                Some(first) => {
                    let port = first + given;
                    self.at.1 += wanted;
                    if (port..port + wanted).all(is_free) {
                        return Some(port);
                    }
                }
            }
        }
        None
    }

    /// Takes a block that no process owns. Returns whether there was one.
    fn claim(&mut self) -> bool {
        let before = self.owned.len();
        let starts: Vec<u16> = self.range.clone().step_by(BLOCK.into()).collect();
        // Consecutive processes begin in different places, because an ended server leaves connections in TIME_WAIT for a minute.
        let begin = (std::process::id().wrapping_mul(97) % starts.len() as u32) as usize;
        let claim = |first: u16| {
            let address = LocalAddress::from_abstract_name(format!("strowger-ports-{first}")).ok()?;
            Some((UnixDatagram::bind_addr(&address).ok()?, first))
        };
        self.owned.extend(starts[begin..].iter().chain(&starts[..begin]).copied().find_map(claim));
        self.owned.len() > before
    }
}

/// Tells whether no program has this port of 127.0.0.1, by UDP or TCP.
pub(crate) fn is_free(port: u16) -> bool {
    is_free_at(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Tells whether no program has this port of an address of this machine, by UDP or TCP.
pub(crate) fn is_free_at(ip: IpAddr, port: u16) -> bool {
    let address = SocketAddr::new(ip, port);
    UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
}

/// Returns 127.0.0.1 with a free port.
pub fn free_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), free())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_port_is_given_twice_when_several_threads_ask() {
        let some = || {
            let pairs = (0..50).map(|_| pair()).flat_map(|port| [port, port + 1]);
            pairs.chain((0..50).map(|_| free())).collect::<Vec<u16>>()
        };
        let given: Vec<u16> = std::thread::scope(|scope| {
            let askers: Vec<_> = (0..4).map(|_| scope.spawn(some)).collect();
            askers.into_iter().flat_map(|asker| asker.join().expect("there are ports")).collect()
        });
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    }

    /// Uses two values of [`Ports`] in place of two processes.
    #[test]
    fn no_two_processes_own_a_block_and_the_last_ports_are_given_again() {
        let mut both = [(); 2].map(|()| Ports::new(8_000..8_000 + 3 * BLOCK));
        let [mut one, mut other] = both.each_mut().map(|ports| BTreeSet::from([ports.next(1).expect("a port")]));
        for _ in 0..200 {
            one.extend(both[0].next(2));
            other.extend(both[1].next(1));
        }
        assert!(one.is_disjoint(&other), "{one:?} {other:?}");
        // One of them took the third block.
        let blocks: Vec<usize> = both.iter().map(|ports| ports.owned.len()).collect();
        assert_eq!(blocks.iter().sum::<usize>(), 3);
        assert_eq!(Ports::new(8_000..8_000 + 3 * BLOCK).next(1), None);
        drop(both);
        // A process that another test starts has the sockets until it is another program.
        let is_given = || Ports::new(8_000..8_000 + BLOCK).next(1).is_some();
        assert!(crate::wait::until(std::time::Duration::from_secs(20), is_given), "what ended owns nothing");
    }
}
