//! A target in 40 bytes, as a transaction keeps it.

use crate::{Flow, ListenerId, Target, Transport};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// A [`Target`] packed; an IPv6 address loses its flow label, which no reply needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    ip: [u8; 16],
    scope: u32,
    flow_slot: u32,
    flow_generation: u32,
    flow_node: u16,
    flow_process: u16,
    port: u16,
    listener: u16,
    flow_shard: u8,
    has_flow: bool,
    is_v6: bool,
    transport: Transport,
}

impl Route {
    pub(super) fn transport(&self) -> Transport {
        self.transport
    }
}

impl From<Target> for Route {
    fn from(target: Target) -> Self {
        let (ip, scope, is_v6) = match target.address {
            SocketAddr::V4(a) => (a.ip().to_ipv6_mapped().octets(), 0, false),
            SocketAddr::V6(a) => (a.ip().octets(), a.scope_id(), true),
        };
        let flow = target.flow.unwrap_or(Flow { node: 0, process: 0, shard: 0, slot: 0, generation: 0 });
        Self {
            ip,
            scope,
            flow_slot: flow.slot,
            flow_generation: flow.generation,
            flow_node: flow.node,
            flow_process: flow.process,
            port: target.address.port(),
            listener: target.listener.0,
            flow_shard: flow.shard,
            has_flow: target.flow.is_some(),
            is_v6,
            transport: target.transport,
        }
    }
}

impl From<Route> for Target {
    fn from(route: Route) -> Self {
        let address = if route.is_v6 {
            SocketAddr::V6(SocketAddrV6::new(route.ip.into(), route.port, 0, route.scope))
        } else {
            let [.., a, b, c, d] = route.ip;
            SocketAddr::new(IpAddr::from([a, b, c, d]), route.port)
        };
        let flow = route.has_flow.then_some(Flow {
            node: route.flow_node,
            process: route.flow_process,
            shard: route.flow_shard,
            slot: route.flow_slot,
            generation: route.flow_generation,
        });
        Self { transport: route.transport, listener: ListenerId(route.listener), address, flow }
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
                    let target = Target { transport, listener: ListenerId(9), address: address.parse().unwrap(), flow };
                    assert_eq!(Target::from(Route::from(target)), target);
                }
            }
        }
        assert!(size_of::<Route>() <= 40);
    }
}
