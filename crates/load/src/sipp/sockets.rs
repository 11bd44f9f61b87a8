//! Sockets of calls by the second letter of `-t`, `-max_socket`, `-ip_field`, `-max_reconnect` and so on.

use super::options::{Options, Sockets as Wanted};
use crate::engine::socket_plan::{Each, Reconnect, Sockets};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use strowger_core::Transport;
use strowger_net::descriptors;
use strowger_scenario::Role;
use strowger_scenario::injection::Injection;

/// Descriptors reserved for other uses than sockets of calls.
const SPARE: usize = 64;

/// Further sockets in `-max_socket`: the main socket and that of remote control.
const OTHERS: usize = 2;

/// Returns the socket settings of the shards. `main`: the address of the main socket.
pub(super) fn plan(options: &Options, role: Role, main: IpAddr) -> Sockets {
    let each = match (role, options.sockets) {
        // An answerer answers from the socket that received the request.
        (Role::Server, _) | (_, Wanted::One) => Each::Run,
        (_, Wanted::PerCall) => Each::Call,
        (_, Wanted::PerAddress) => Each::Address { field: options.ip_field.unwrap_or(0) },
    };
    let allowed = descriptors::raise().unwrap_or(1_024).saturating_sub(SPARE);
    let most = options.max_sockets.saturating_sub(OTHERS).min(allowed);
    let reconnect = Reconnect {
        most: u32::try_from(options.max_reconnect).ok(),
        close: options.reconnect_close,
        sleep: u32::try_from(options.reconnect_sleep).unwrap_or(u32::MAX),
    };
    Sockets {
        each,
        from: main,
        most: (most / options.threads.max(1)).max(1),
        reconnect: (role == Role::Client && options.transport != Transport::Udp).then_some(reconnect),
        ..Sockets::default()
    }
}

/// Returns the addresses of the main sockets: the address of `-i`, or any address. With `-t ui` these are the addresses
/// of the injection file, of which the first is that of the main socket.
///
/// # Errors
/// There is no file, or a line of it has no address.
pub(super) fn addresses(options: &Options, injections: &[Injection], local: IpAddr) -> Result<Vec<IpAddr>, String> {
    if options.sockets != Wanted::PerAddress {
        let any: IpAddr = if local.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        return Ok(vec![if options.local_ip.is_some() || options.bind_local { local } else { any }]);
    }
    let file = injections.first().ok_or("-t ui takes its addresses from an injection file: give it by -inf")?;
    let field = options.ip_field.unwrap_or(0);
    let mut all: Vec<IpAddr> = Vec::new();
    for line in 0..file.lines() {
        let mut text = Vec::new();
        file.write_field(line, field, &mut text).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text);
        let text = text.trim().trim_matches(['[', ']']);
        let ip = text
            .parse()
            .map_err(|_| format!("Unknown host '{text}': it is field {field} of line {line} of {}", file.name()))?;
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
    if all.is_empty() { Err(format!("{} has no line, and so no address", file.name())) } else { Ok(all) }
}
