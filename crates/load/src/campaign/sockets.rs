//! Sockets of a side, and addresses of this machine.

use super::plan::Plan;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use strowger_core::Transport;
use strowger_net::tls::{Certificate, Client, OnFailure, Server};
use strowger_net::{Bounds, Listener, Net, NetSettings, Scheduling, Shards, UdpSettings, descriptors};

/// A side that is bound, not yet running.
pub(super) struct Bound {
    pub(super) net: Net,
    /// Listening address, as messages name it.
    pub(super) address: SocketAddr,
    pub(super) handshakes: Handshakes,
}

/// Last failed handshake: its peer and its reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshakes(Arc<Mutex<Option<(SocketAddr, String)>>>);

impl Handshakes {
    pub(super) fn last(&self) -> Option<(SocketAddr, String)> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn on_failure(&self) -> OnFailure {
        let last = self.0.clone();
        OnFailure::new(move |peer, why| {
            *last.lock().unwrap_or_else(|e| e.into_inner()) = Some((peer, why.to_owned()));
        })
    }
}

/// Opens the sockets of a side. `answers`: peers begin calls or connections to this side.
pub(super) fn bind(plan: &Plan, ip: IpAddr, port: u16, answers: bool) -> Result<Bound, String> {
    let handshakes = Handshakes::default();
    let own = plan.trust.identity.clone().map(|(chain, key)| Certificate { chain, key });
    let settings = NetSettings {
        shards: Shards::Fixed(1),
        udp: UdpSettings {
            kernel_steering: false,
            force_buffers: true,
            gso: true,
            gro: true,
            batch: 256,
            // An ICMP error of a closed port ends the wait for an answer.
            icmp_errors: true,
            ..UdpSettings::default()
        },
        scheduling: Scheduling { exact_timers: true, timestamps: true, ..Scheduling::default() },
        // The generator that calls an answering side may have a connection for each call.
        bounds: Bounds { connections_per_source: usize::MAX, ..Bounds::default() },
        on_failure: Some(handshakes.on_failure()),
        tls: Client {
            authorities: plan.trust.authorities.clone(),
            unverified: plan.trust.authorities.is_none(),
            certificate: own.clone(),
            ..Client::default()
        },
        ..NetSettings::default()
    };
    // A side that only connects needs no listener's certificate: its connections take their local address from a TCP
    // listener.
    let transport = match plan.transport {
        Transport::Udp => Transport::Udp,
        other if answers => other,
        _ => Transport::Tcp,
    };
    // A side that is called from other machines listens on every address, and names the one by which they reach this machine.
    let shown = if ip.is_unspecified() { outward(ip.is_ipv6()) } else { ip };
    let mut listener = Listener::new(transport, SocketAddr::new(ip, port));
    if transport.is_secure() {
        let own = own.ok_or_else(|| {
            format!(
                "the answering side needs a certificate for {}: give --tls-cert FILE and --tls-key FILE",
                transport.text()
            )
        })?;
        listener.tls = Some(Server::new(own));
    }
    let net = Net::bind(settings, vec![listener]).map_err(|error| refused(&error, ip, port))?;
    let port = net.addresses().first().map_or(port, SocketAddr::port);
    Ok(Bound { net, address: SocketAddr::new(shown, port), handshakes })
}

fn refused(error: &std::io::Error, ip: IpAddr, port: u16) -> String {
    let cure = match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => format!("; {ip} is no address of this machine"),
        std::io::ErrorKind::AddrInUse if port != 0 => {
            "; another program has this port: choose another with --port".into()
        }
        _ => String::new(),
    };
    format!("the socket cannot be opened: {error}{cure}")
}

/// Returns the address by which other machines reach this one: the source address of packets to a remote network, or the
/// loopback address if there is no route. The remote network is an address from RFC 5737 or RFC 3849, to which nothing is
/// sent.
fn outward(v6: bool) -> IpAddr {
    let (away, itself): (IpAddr, IpAddr) = if v6 {
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::LOCALHOST.into())
    } else {
        (Ipv4Addr::new(203, 0, 113, 1).into(), Ipv4Addr::LOCALHOST.into())
    };
    towards(SocketAddr::new(away, 9)).unwrap_or(itself)
}

/// Returns the address from which this machine reaches `remote`.
fn towards(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if remote.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Connecting a UDP socket sends nothing: it only looks up the route.
    socket.connect(remote).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Returns the address that [`towards`] returns, or the loopback address if there is no route.
pub(super) fn local(remote: Option<SocketAddr>) -> IpAddr {
    remote.and_then(towards).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Descriptors reserved for everything except sockets of open calls. Sockets of ended calls that are still closing need
/// some of them.
const SPARE: usize = 128;

/// Returns how many sockets and connections of calls each of `generators` may have, by the plan and by the system's limit.
pub(super) fn most_sockets(plan: &Plan, generators: usize) -> usize {
    let allowed = descriptors::raise().unwrap_or(1_024).saturating_sub(SPARE + 16 * generators);
    // If both ends run here, each connection has two descriptors.
    let allowed = if plan.pair && plan.transport.is_reliable() { allowed / 2 } else { allowed };
    (plan.pool.most.unwrap_or(usize::MAX).min(allowed) / generators.max(1)).max(1)
}
