//! Waiting until another process has a port. Binding it as a test would take it from that process.

use std::net::SocketAddrV4;
use std::time::Duration;

/// Waits until a process receives datagrams there.
pub(crate) fn wait_for_udp(address: &str) {
    wait(address, "udp", "07");
}

/// Waits until a process accepts connections there.
pub(crate) fn wait_for_tcp(address: &str) {
    wait(address, "tcp", "0A");
}

fn wait(address: &str, protocol: &str, state: &str) {
    let address: SocketAddrV4 = address.parse().expect("an address");
    let hex = |ip: [u8; 4]| format!("{:08X}:{:04X}", u32::from_ne_bytes(ip), address.port());
    let places = [hex(address.ip().octets()), hex([0; 4])];
    for _ in 0..2_000 {
        let sockets =
            std::fs::read_to_string(format!("/proc/thread-self/net/{protocol}")).expect("Linux tells its sockets");
        let is_there = sockets.lines().any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            fields.len() > 3 && places.iter().any(|place| fields[1] == place) && fields[3] == state
        });
        if is_there {
            return;
        }
        // Between two looks.
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no process has {address} by {protocol}");
}
