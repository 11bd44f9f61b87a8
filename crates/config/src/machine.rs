//! What a configuration asks of the machine that it is read on.

use std::net::IpAddr;

use super::report::Fault;
use super::{Config, Listener};

impl Config {
    /// A warning for each listener on an address that this machine does not have now.
    pub fn foreign_listeners(&self) -> Vec<Fault> {
        let Ok(interfaces) = if_addrs::get_if_addrs() else { return Vec::new() };
        let own: Vec<IpAddr> = interfaces.into_iter().map(|interface| interface.ip()).collect();
        // All of 127.0.0.0/8 leads to this machine (RFC 1122 section 3.2.1.3).
        let is_here = |ip: &IpAddr| ip.is_unspecified() || ip.is_loopback() || own.contains(ip);
        self.listeners.iter().filter(|listener| !is_here(&listener.address.ip())).map(|l| fault(l, &own)).collect()
    }
}

fn fault(listener: &Listener, own: &[IpAddr]) -> Fault {
    let others: Vec<String> = own.iter().filter(|ip| !ip.is_loopback()).map(ToString::to_string).collect();
    let has = if others.is_empty() { "loopback alone".into() } else { others.join(", ") };
    Fault::warning(
        None,
        format!("{listener}: this machine does not have the address {}", listener.address.ip()),
        format!("the server cannot start until it does; now it has {has}"),
    )
}
