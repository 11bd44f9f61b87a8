//! The main socket: on which port it is opened, with which certificate.

use super::face::{Failure, code};
use super::options::{Options, Sockets};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use strowger_core::Transport;
use strowger_net::{Listener, Net, Settings, Shards, tls};

/// The sockets: on the port that is asked for, else the first free from 5060 on. Who calls over streams listens
/// nowhere that matters: the port is that from which it connects, that of `-p` or any free one.
pub(super) fn bind(options: &Options, addresses: &[IpAddr], calls: bool) -> Result<(Net, u16), Failure> {
    let ip = addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let dials = calls && options.transport.is_reliable();
    let settings = |port: u16| Settings {
        shards: Shards::Fixed(options.threads),
        kernel_steering: options.threads > 1,
        force_buffers: true,
        segment: true,
        coalesce: true,
        batch: 256,
        exact_timers: true,
        receive_buffer: 64 << 20,
        send_buffer: 16 << 20,
        dial_port: if dials && options.sockets == Sockets::One { port } else { 0 },
        // A generator may have a connection for each call.
        connections_per_source: usize::MAX,
        tls: tls_client(options),
        ..Settings::default()
    };
    let try_port = |port: u16| -> std::io::Result<(Net, u16)> {
        if !dials {
            let mut listener = Listener::new(options.transport, SocketAddr::new(ip, port));
            listener.tls = tls_server(options);
            // Who answers listens on each of several addresses (-t ui).
            let others = if calls { &[] } else { addresses.get(1..).unwrap_or_default() };
            let others = others.iter().map(|ip| Listener::new(options.transport, SocketAddr::new(*ip, port)));
            let net = Net::bind(settings(port), std::iter::once(listener).chain(others).collect())?;
            let port = net.addresses().first().map_or(port, SocketAddr::port);
            return Ok((net, port));
        }
        // Whether it is free.
        let port = TcpListener::bind(SocketAddr::new(ip, port))?.local_addr()?.port();
        let listener = Listener::new(Transport::Tcp, SocketAddr::new(ip, 0));
        Ok((Net::bind(settings(port), vec![listener])?, port))
    };
    let refused = |error: std::io::Error, port: u16| {
        Failure(code::bind(&error), format!("Unable to bind main socket to {ip}:{port}: {error}"))
    };
    if let Some(port) = options.local_port {
        return try_port(port).map_err(|e| refused(e, port));
    }
    if dials {
        // Nobody has asked for one: any free port, and messages name it.
        return try_port(0).map_err(|e| refused(e, 0));
    }
    for port in 5060..5060 + 60 {
        if let Ok(bound) = try_port(port) {
            return Ok(bound);
        }
    }
    try_port(0).map_err(|e| refused(e, 0))
}

/// Our certificate, for those who connect to us.
fn tls_server(options: &Options) -> Option<tls::Server> {
    if !options.transport.is_secure() {
        return None;
    }
    let or = |given: &Option<PathBuf>, name: &str| given.clone().unwrap_or_else(|| name.into());
    Some(tls::Server {
        certificate: or(&options.tls_certificate, "cacert.pem"),
        key: or(&options.tls_key, "cakey.pem"),
        client_authorities: None,
    })
}

/// Whom we trust: with `-tls_ca` those whom it vouches for, else everybody, as SIPp does.
fn tls_client(options: &Options) -> tls::Client {
    tls::Client { authorities: options.tls_ca.clone(), unverified: options.tls_ca.is_none(), identity: None }
}
