//! Servers of keys: slots of a Redis Cluster, shares of several Memcached servers.

use crate::servers::Endpoint;
use crate::spread::{fnv, mix};

use super::resp::Reply;

/// Number of slots of a cluster.
pub(super) const SLOTS: usize = 16_384;

/// Returns the slot of a key. The slot is computed from the text between the first opening brace and the next closing
/// brace, or from the whole key if there is no such text.
pub(super) fn slot(key: &[u8]) -> usize {
    let tag = key.iter().position(|octet| *octet == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|octet| *octet == b'}').filter(|length| *length > 0).map(|length| &rest[..length])
    });
    usize::from(crc16(tag.unwrap_or(key))) % SLOTS
}

/// Computes CRC-16/XMODEM (specification of Redis Cluster, appendix A).
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, octet: &u8| {
        (0..8).fold(crc ^ u16::from(*octet) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    };
    bytes.iter().fold(0, step)
}

/// Range of slots, first and last, and its server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) server: Endpoint,
}

/// Reads the reply to `CLUSTER SLOTS`. A server without a name in the reply is the server that was asked.
pub(super) fn shares(bytes: &[u8], reply: &Reply, asked: &Endpoint) -> Option<Vec<Share>> {
    let Reply::Array(items) = reply else { return None };
    let share = |item: &Reply| {
        let Reply::Array(parts) = item else { return None };
        let [Reply::Integer(first), Reply::Integer(last), Reply::Array(master), ..] = &parts[..] else { return None };
        let [host, Reply::Integer(port), ..] = &master[..] else { return None };
        let host = match host {
            Reply::Bulk(text) => std::str::from_utf8(&bytes[text.clone()]).ok()?,
            Reply::Nil => "",
            _ => return None,
        };
        let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
        let server = named(host, u16::try_from(*port).ok()?, asked)?;
        (first <= last && last < SLOTS).then_some(Share { first, last, server })
    };
    items.iter().map(share).collect()
}

/// Reads the address in a redirection, such as `192.0.2.7:6379`. If the host is missing, it is the host of the
/// redirecting server.
pub(super) fn redirected(address: &str, by: &Endpoint) -> Option<Endpoint> {
    let (host, port) = address.rsplit_once(':')?;
    named(host, port.parse().ok()?, by)
}

fn named(host: &str, port: u16, by: &Endpoint) -> Option<Endpoint> {
    match (host, by) {
        _ if port == 0 => None,
        ("" | "?", Endpoint::Tcp(host, _)) => Some(Endpoint::Tcp(host.clone(), port)),
        ("" | "?", Endpoint::Unix(_)) => None,
        _ => Some(Endpoint::Tcp(host.into(), port)),
    }
}

/// Selects one of several servers for a key (rendezvous hashing). All clients with the same list select the same
/// server. When the list grows by one server, each key either keeps its server or moves to the new server.
pub(super) fn chosen(key: &[u8], servers: &[u64]) -> usize {
    let key = hash(key);
    let weight = |server: &u64| mix(key ^ *server);
    servers.iter().enumerate().max_by_key(|(_, server)| weight(server)).map_or(0, |(index, _)| index)
}

/// Computes the hash of a key or server.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    mix(fnv(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::resp::{self, Front};

    /// Value from the specification: CRC16 of "123456789" is 0x31C3.
    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{{bar}}zap"), usize::from(crc16(b"{bar")) % SLOTS);
        assert_eq!(slot(b"foo{}{bar}"), usize::from(crc16(b"foo{}{bar}")) % SLOTS);
        assert_eq!(slot(b"foo{bar}{zap}"), usize::from(crc16(b"bar")) % SLOTS);
        // CLUSTER KEYSLOT foo
        assert_eq!(slot(b"foo"), 12_182);
    }

    #[test]
    fn shares_are_read() {
        let text = b"*2\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$9\r\n192.0.2.1\r\n:7000\r\n$2\r\nid\r\n\
                     *4\r\n:8192\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n*2\r\n$9\r\n192.0.2.9\r\n:7002\r\n";
        let Front::Whole(reply, _) = resp::read(text, 1000) else { panic!("a whole reply") };
        let asked = Endpoint::Tcp("192.0.2.2".into(), 1);
        let share = |first, last, host: &str, port| Share { first, last, server: Endpoint::Tcp(host.into(), port) };
        let want = [share(0, 8191, "192.0.2.1", 7000), share(8192, 16_383, "192.0.2.2", 7001)];
        assert_eq!(shares(text, &reply, &asked).expect("it is right"), want);
        for (address, to) in [
            ("192.0.2.7:63", Some("192.0.2.7:63")),
            (":63", Some("192.0.2.2:63")),
            ("2001:db8::1:63", Some("[2001:db8::1]:63")),
            ("192.0.2.7:0", None),
            ("192.0.2.7", None),
            ("", None),
        ] {
            assert_eq!(redirected(address, &asked).map(|to| to.to_string()).as_deref(), to);
        }
    }

    #[test]
    fn a_further_server_takes_keys_and_moves_no_other() {
        let servers: Vec<u64> = (0..5_u8).map(|n| hash(&[n])).collect();
        let mut counts = [0; 5];
        for n in 0..10_000_u32 {
            let (before, after) = (chosen(&n.to_be_bytes(), &servers[..4]), chosen(&n.to_be_bytes(), &servers));
            assert!(after == before || after == 4);
            counts[after] += 1;
        }
        assert!(counts.iter().all(|count| (1_700..2_300).contains(count)), "{counts:?}");
    }
}
