//! Target of a transaction in 40 bytes.

use crate::{Flow, ListenerId, PeerName, Target, Transport};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU32;

/// Packed [`Target`]; an IPv6 address loses its flow label, which no reply needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedTarget {
    ip: [u8; 16],
    /// Number of the peer name, if there is one; else IPv6 scope. Names do not lead to link-local addresses.
    scope_or_name: u32,
    flow_slot: u32,
    flow_generation: u32,
    flow_node: u16,
    flow_process: u16,
    port: u16,
    listens: u16,
    listener: u16,
    flow_shard: u8,
    /// Number of the transport, and the three bits below.
    marks: u8,
}

const TRANSPORT: u8 = 7;
const HAS_FLOW: u8 = 8;
const IS_V6: u8 = 16;
const HAS_NAME: u8 = 32;

impl PackedTarget {
    fn transport(&self) -> Transport {
        Transport::ALL[usize::from(self.marks & TRANSPORT)]
    }

    /// Returns [`Target::is_reliable`].
    pub(super) fn is_reliable(&self) -> bool {
        self.transport().is_reliable() || self.is_loopback()
    }

    /// Returns [`Target::is_loopback`].
    pub(super) fn is_loopback(&self) -> bool {
        self.flow() == Some(Flow::LOOPBACK)
    }

    fn flow(&self) -> Option<Flow> {
        self.has(HAS_FLOW).then_some(Flow {
            node: self.flow_node,
            process: self.flow_process,
            shard: self.flow_shard,
            slot: self.flow_slot,
            generation: self.flow_generation,
        })
    }

    /// Returns the address as in [`Target::address`]; an IPv4 address may be mapped into IPv6.
    pub(super) fn ip(&self) -> IpAddr {
        IpAddr::from(self.ip).to_canonical()
    }

    const fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }
}

impl From<Target> for PackedTarget {
    fn from(target: Target) -> Self {
        let (ip, scope, is_v6) = match target.address {
            SocketAddr::V4(a) => (a.ip().to_ipv6_mapped().octets(), 0, false),
            SocketAddr::V6(a) => (a.ip().octets(), a.scope_id(), true),
        };
        let flow = target.flow.unwrap_or(Flow { node: 0, process: 0, shard: 0, slot: 0, generation: 0 });
        let mark = |on: bool, mark: u8| if on { mark } else { 0 };
        Self {
            ip,
            scope_or_name: target.name.map_or(scope, |name| name.0.get()),
            flow_slot: flow.slot,
            flow_generation: flow.generation,
            flow_node: flow.node,
            flow_process: flow.process,
            port: target.address.port(),
            listens: target.listens,
            listener: target.listener.0,
            flow_shard: flow.shard,
            marks: target.transport as u8
                | mark(target.flow.is_some(), HAS_FLOW)
                | mark(is_v6, IS_V6)
                | mark(target.name.is_some(), HAS_NAME),
        }
    }
}

impl From<PackedTarget> for Target {
    fn from(packed: PackedTarget) -> Self {
        let name = NonZeroU32::new(packed.scope_or_name).filter(|_| packed.has(HAS_NAME)).map(PeerName);
        let address = if packed.has(IS_V6) {
            let scope = if name.is_some() { 0 } else { packed.scope_or_name };
            SocketAddr::V6(SocketAddrV6::new(packed.ip.into(), packed.port, 0, scope))
        } else {
            let [.., a, b, c, d] = packed.ip;
            SocketAddr::new(IpAddr::from([a, b, c, d]), packed.port)
        };
        let flow = packed.flow();
        let listener = ListenerId(packed.listener);
        Self { transport: packed.transport(), listener, address, flow, listens: packed.listens, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_come_back() {
        let flow = Flow { node: 1, process: 2, shard: 3, slot: 4, generation: 5 };
        for address in ["127.0.0.1:5060", "[::1]:5061", "[fe80::1%7]:1", "[::ffff:10.0.0.1]:2"] {
            for flow in [None, Some(flow)] {
                for transport in Transport::ALL {
                    let target = Target::new(transport, ListenerId(9), address.parse().unwrap());
                    let target = Target { flow, listens: 5_070, ..target };
                    assert_eq!(Target::from(PackedTarget::from(target)), target);
                    if !address.contains('%') {
                        let target = Target { name: NonZeroU32::new(7).map(PeerName), ..target };
                        assert_eq!(Target::from(PackedTarget::from(target)), target);
                    }
                }
            }
        }
        assert_eq!(Target::from(PackedTarget::from(Target::LOOPBACK)), Target::LOOPBACK);
        assert!(PackedTarget::from(Target::LOOPBACK).is_reliable());
        assert!(size_of::<PackedTarget>() <= 40);
    }
}
