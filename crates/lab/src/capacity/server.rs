//! Place of a server: this machine, a private network, a process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

/// Tells whether an address is one of this machine.
pub fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

/// Returns the address from which this machine reaches another one, or the loopback address if there is no route.
pub(super) fn own_address(to: SocketAddr) -> IpAddr {
    let any: IpAddr = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    // A socket for datagrams connects without sending any.
    let asked = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    asked.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |own| own.ip())
}

/// Tells whether an address is of a private network: RFC 1918, RFC 6598, RFC 4193, or of a link.
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || ip.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Returns the process that has bound a port of this machine, or `None` if this user may not see it. If several processes of a server have
/// bound the port, the result is their common parent.
pub fn owner_of_port(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["udp", "udp6", "tcp", "tcp6"].iter().flat_map(|table| inodes(table, port)).collect();
    let owners: Vec<u32> = processes().filter(|id| has_socket(*id, &inodes)).collect();
    // The first whose parent is no owner.
    owners.iter().copied().find(|id| parent(*id).is_none_or(|parent| !owners.contains(&parent)))
}

/// Returns the inodes of the sockets that take datagrams (state 07) or connections (0A) on a port.
fn inodes(table: &str, port: u16) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    let end = format!(":{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&end) && matches!(*fields.get(3)?, "07" | "0A");
        fields.get(9).filter(|_| is_it).map(|inode| format!("socket:[{inode}]"))
    };
    text.lines().skip(1).filter_map(inode).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let mut ids: Vec<u32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    ids.into_iter()
}

fn has_socket(id: u32, inodes: &[String]) -> bool {
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    let mut links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| inodes.iter().any(|inode| link == Path::new(inode)))
}

fn parent(id: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_need_no_consent() {
        let of = |text: &str| text.parse::<IpAddr>().is_ok_and(is_private);
        for private in ["10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1", "fd00::1", "fe80::1"] {
            assert!(of(private), "{private}");
        }
        for public in ["192.0.2.1", "172.32.0.1", "100.128.0.1", "2001:db8::1", "8.8.8.8"] {
            assert!(!of(public), "{public}");
        }
        let own = |text: &str| text.parse::<IpAddr>().is_ok_and(is_of_this_machine);
        assert!(own("127.3.2.1") && own("::1") && !own("192.0.2.1"));
    }

    #[test]
    fn the_owner_of_a_port_is_found() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
        let port = socket.local_addr().expect("it is bound").port();
        assert_eq!(owner_of_port(port), Some(std::process::id()));
        drop(socket);
        assert_eq!(owner_of_port(port), None);
    }
}
