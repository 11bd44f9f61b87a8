//! Network of two homes behind routers that translate addresses. A host in each has the same private address.

use std::net::{IpAddr, Ipv4Addr};

use crate::namespace::Namespace;

/// Address of the server in the street.
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(100, 64, 0, 1));

/// Address of the host in each home.
pub const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 2));

/// Two homes at a street.
#[derive(Debug)]
pub struct Homes {
    /// Network of the server, which has an address of its own there.
    pub street: Namespace,
    /// Routers between the street and the homes.
    pub routers: [Namespace; 2],
    /// Networks of the hosts.
    pub homes: [Namespace; 2],
}

impl Homes {
    /// Creates the network.
    ///
    /// # Panics
    /// The system refuses; see [`crate::namespace::possible`].
    pub fn new() -> Self {
        let street = Namespace::new("s");
        let routers = ["ra", "rb"].map(Namespace::new);
        let homes = ["a", "b"].map(Namespace::new);
        street.ip(&["address", "add", &format!("{SERVER}/32"), "dev", "lo"]);
        for (index, (router, home)) in routers.iter().zip(&homes).enumerate() {
            let (inner, outer) = (format!("100.64.{}.1/30", index + 1), format!("100.64.{}.2/30", index + 1));
            street.join((&format!("to{index}"), &inner), router, ("out", &outer));
            router.join(("in", "192.168.1.1/24"), home, ("eth0", &format!("{HOST}/24")));
            router.default_route(inner.trim_end_matches("/30"));
            router.translate("out");
            home.default_route("192.168.1.1");
        }
        Self { street, routers, homes }
    }

    /// Creates a host at the street with two addresses: a public one, and that of the hosts in the homes. The street routes both to it.
    ///
    /// # Panics
    /// The system refuses.
    pub fn stranger(&self) -> (Namespace, [IpAddr; 2]) {
        let (stranger, public) = (Namespace::new("x"), Ipv4Addr::new(100, 64, 3, 2));
        self.street.join(("tox", "100.64.3.1/30"), &stranger, ("eth0", &format!("{public}/30")));
        stranger.ip(&["address", "add", &format!("{HOST}/32"), "dev", "lo"]);
        stranger.default_route("100.64.3.1");
        self.street.ip(&["route", "add", &format!("{HOST}/32"), "via", &public.to_string()]);
        (stranger, [public.into(), HOST])
    }
}

impl Default for Homes {
    fn default() -> Self {
        Self::new()
    }
}
