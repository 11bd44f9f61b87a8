//! Binding of the main socket.

use super::face::{Failure, code};
use super::options::{Options, Sockets};
use super::tls;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use strowger_core::Transport;
use strowger_net::tls::OnFailure;
use strowger_net::{Bounds, Listener, Net, NetSettings, Scheduling, Shards, UdpSettings};

/// Binds the sockets: on the requested port, else on the first free one from 5060 on. The listening port of a caller
/// over streams is not significant: its port is the one from which it connects, that of `-p` or any free one.
pub(super) fn bind(
    options: &Options,
    addresses: &[IpAddr],
    calls: bool,
    on_failure: OnFailure,
) -> Result<(Net, u16), Failure> {
    let ip = addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let dials = calls && options.transport.is_reliable();
    if options.transport.is_secure() {
        // Checked before any port is tried, because the result does not depend on the port.
        tls::check(options, dials).map_err(|error| Failure(code::FATAL, format!("TLS cannot be used: {error}")))?;
    }
    let settings = |port: u16| NetSettings {
        shards: Shards::Fixed(options.threads),
        udp: UdpSettings {
            kernel_steering: options.threads > 1,
            force_buffers: true,
            gso: true,
            gro: true,
            batch: 256,
            receive_buffer: 64 << 20,
            send_buffer: 16 << 20,
            ..UdpSettings::default()
        },
        scheduling: Scheduling { exact_timers: true, timestamps: true, ..Scheduling::default() },
        dial_port: if dials && options.sockets == Sockets::One { port } else { 0 },
        bounds: Bounds {
            // A generator may have a connection for each call.
            connections_per_source: usize::MAX,
            connection_memory: usize::MAX,
            connection_memory_per_source: usize::MAX,
            ..Bounds::default()
        },
        tls: tls::client(options),
        on_failure: Some(on_failure.clone()),
        ..NetSettings::default()
    };
    let try_port = |port: u16| -> std::io::Result<(Net, u16)> {
        if !dials {
            let mut listener = Listener::new(options.transport, SocketAddr::new(ip, port));
            listener.tls = tls::server(options);
            // An answerer listens on each of several addresses (-t ui).
            let others = if calls { &[] } else { addresses.get(1..).unwrap_or_default() };
            let others = others.iter().map(|ip| Listener::new(options.transport, SocketAddr::new(*ip, port)));
            let net = Net::bind(settings(port), std::iter::once(listener).chain(others).collect())?;
            let port = net.addresses().first().map_or(port, SocketAddr::port);
            return Ok((net, port));
        }
        // Checks that the port is free.
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
        // No port was requested, so any free port is used, which messages then name.
        return try_port(0).map_err(|e| refused(e, 0));
    }
    for port in 5060..5060 + 60 {
        if let Ok(bound) = try_port(port) {
            return Ok(bound);
        }
    }
    try_port(0).map_err(|e| refused(e, 0))
}
