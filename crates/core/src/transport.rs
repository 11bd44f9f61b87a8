//! Origin and target of a message: names, never descriptors.

use crate::record;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

/// Transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Transport {
    /// Unreliable datagrams of one message each (RFC 3261 section 18).
    Udp,
    /// Stream, framed by Content-Length (RFC 3261 section 18.3).
    Tcp,
    /// TLS on TCP (RFC 3261 section 26.2.1).
    Tls,
    /// WebSocket (RFC 7118).
    Ws,
    /// WebSocket on TLS (RFC 7118).
    Wss,
}

impl Transport {
    /// Every transport, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Udp, Self::Tcp, Self::Tls, Self::Ws, Self::Wss];

    /// Tells whether the transport itself retransmits: no timers A, E, G (RFC 3261 section 17).
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// Tells whether the transport is encrypted by TLS.
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Returns the name in a Via (RFC 3261 section 20.42, RFC 7118 section 5.1).
    pub const fn via(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Ws => "WS",
            Self::Wss => "WSS",
        }
    }

    /// Returns the `transport` parameter of a URI; for WebSocket the value does not show whether TLS is used (RFC 7118
    /// section 5.2).
    pub const fn uri_text(self) -> &'static str {
        match self {
            Self::Wss => Self::Ws.text(),
            other => other.text(),
        }
    }

    /// Returns the name in our own settings, which is also understood in a URI.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Parses [`Transport::text`] in any case; returns `None` for another word.
    pub fn of(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.text().as_bytes().eq_ignore_ascii_case(text))
    }

    /// Returns the default port (RFC 3261 section 19.1.2, RFC 7118).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Udp | Self::Tcp => 5060,
            Self::Tls => 5061,
            Self::Ws => 80,
            Self::Wss => 443,
        }
    }
}

/// Listener: its position in the list of listeners of the running configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenerId(pub u16);

/// Connection. Its fields identify, for any shard of any process of any node, the shard that has the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// Number of the server in its cluster.
    pub node: u16,
    /// Number of the process among those of the node, past and present.
    pub process: u16,
    /// Shard that has the socket.
    pub shard: u8,
    /// Position of the connection in the table of that shard.
    pub slot: u32,
    /// Number that grows with each use of the slot, by which an ended flow is distinguished from later flows in the same slot. Odd for a connection
    /// of a load balancer ([`Flow::is_balanced`]).
    pub generation: u32,
}

impl Flow {
    /// Flow of the messages of this server to itself ([`Target::LOOPBACK`]). It is no connection, and no peer can name it.
    pub const LOOPBACK: Self =
        Self { node: u16::MAX, process: u16::MAX, shard: u8::MAX, slot: u32::MAX, generation: 0 };

    /// Tells whether a load balancer made this connection: its generation is odd. The peer behind the balancer is reachable by this connection
    /// alone: no program is known to listen for this server at the address that the balancer named.
    pub const fn is_balanced(self) -> bool {
        self.generation & 1 == 1
    }

    /// Length of [`Flow::to_bytes`].
    pub const BYTES: usize = 13;

    /// Returns the fields in their order, big-endian. This is the form for the database, and for tokens and seals in
    /// messages.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..2].copy_from_slice(&self.node.to_be_bytes());
        out[2..4].copy_from_slice(&self.process.to_be_bytes());
        out[4] = self.shard;
        out[5..9].copy_from_slice(&self.slot.to_be_bytes());
        out[9..13].copy_from_slice(&self.generation.to_be_bytes());
        out
    }

    /// Reads a flow from its bytes.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [n0, n1, p0, p1, shard, s0, s1, s2, s3, g0, g1, g2, g3] = bytes;
        Self {
            node: u16::from_be_bytes([n0, n1]),
            process: u16::from_be_bytes([p0, p1]),
            shard,
            slot: u32::from_be_bytes([s0, s1, s2, s3]),
            generation: u32::from_be_bytes([g0, g1, g2, g3]),
        }
    }
}

/// Origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Transport of the message.
    pub transport: Transport,
    /// Listener that received it, or whose address the connection was made from.
    pub listener: ListenerId,
    /// Address and port of the sender, from the socket.
    #[serde(with = "record::address")]
    pub remote: SocketAddr,
    /// Connection of a stream.
    pub flow: Option<Flow>,
}

impl Arrival {
    /// Origin of a message of this server to itself, for which no peer is known.
    pub const LOOPBACK: Self = Self {
        transport: Target::LOOPBACK.transport,
        listener: Target::LOOPBACK.listener,
        remote: Target::LOOPBACK.address,
        flow: Target::LOOPBACK.flow,
    };

    /// Returns the origin of a message of this server to itself, sent for the peer of this arrival. The reply comes back to this server; the
    /// other fields are those of the peer.
    pub const fn looped(self) -> Self {
        Self { flow: Some(Flow::LOOPBACK), ..self }
    }

    /// Tells whether this server itself sent the message ([`Target::LOOPBACK`]).
    pub fn is_loopback(&self) -> bool {
        self.flow == Some(Flow::LOOPBACK)
    }

    /// Returns the target for a reply to the message.
    pub const fn reply(&self) -> Target {
        Target { flow: self.flow, ..Target::new(self.transport, self.listener, self.remote) }
    }
}

/// Name that the peer of a secure connection must prove by its certificate (RFC 5922), as a number given by the network side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeerName(pub NonZeroU32);

/// Target of a message. The message is sent over `flow` while it exists and is a connection with `address`; otherwise
/// to `address` (over a stream: by an existing connection to it, or a new one).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Transport of the message.
    pub transport: Transport,
    /// Listener whose socket sends, or whose address a new connection comes from.
    pub listener: ListenerId,
    /// Address and port of the next hop.
    #[serde(with = "record::address")]
    pub address: SocketAddr,
    /// Connection to use while it lives.
    pub flow: Option<Flow>,
    /// Port of `address` at which the peer accepts connections after the end of the flow (RFC 3261 section 18.2.2); 0
    /// for the same port.
    pub listens: u16,
    /// Name that a peer of a secure transport must prove; `None` if the peer must prove its address.
    pub name: Option<PeerName>,
}

impl Target {
    /// Target of messages that are not sent: responses to requests of this server's own.
    pub const NOWHERE: Self =
        Self::new(Transport::Tcp, ListenerId(0), SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

    /// Target of messages from one role of this server to another. They never reach the network: [`Outbox::take_looped`] returns them.
    ///
    /// [`Outbox::take_looped`]: crate::Outbox::take_looped
    pub const LOOPBACK: Self = Self { flow: Some(Flow::LOOPBACK), ..Self::NOWHERE };

    /// Tells whether messages to this target are not sent ([`Target::NOWHERE`]).
    pub fn is_nowhere(&self) -> bool {
        !self.is_loopback() && self.address.port() == 0 && self.address.ip().is_unspecified()
    }

    /// Tells whether messages to this target stay in this server ([`Target::LOOPBACK`]). Their address is ignored.
    pub fn is_loopback(&self) -> bool {
        self.flow == Some(Flow::LOOPBACK)
    }

    /// Tells whether no message to this target is lost on its way, so that it needs no retransmission.
    pub fn is_reliable(&self) -> bool {
        self.is_loopback() || self.transport.is_reliable()
    }

    /// Creates a target from an address, reached by any connection to it.
    pub const fn new(transport: Transport, listener: ListenerId, address: SocketAddr) -> Self {
        Self { transport, listener, address, flow: None, listens: 0, name: None }
    }

    /// Returns the target without its flow, for a new connection.
    pub fn without_flow(self) -> Self {
        let mut address = self.address;
        if self.flow.is_some() && self.listens != 0 {
            address.set_port(self.listens);
        }
        Self { address, flow: None, listens: 0, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_reads_back() {
        let bytes = std::array::from_fn(|place| place as u8 + 1);
        let flow = Flow::from_bytes(bytes);
        let expected = Flow { node: 0x0102, process: 0x0304, shard: 5, slot: 0x0607_0809, generation: 0x0a0b_0c0d };
        assert_eq!((flow, flow.to_bytes()), (expected, bytes));
    }

    #[test]
    fn a_reply_to_a_looped_message_is_looped() {
        let remote = "192.0.2.7:5060".parse().unwrap();
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(1), remote, flow: None };
        let looped = arrival.looped();
        assert!(looped.is_loopback() && looped.reply().is_loopback() && looped.reply().is_reliable());
        assert_eq!((looped.remote, looped.reply().address), (remote, remote));
        assert!(!arrival.reply().is_loopback() && !arrival.reply().is_reliable());
        assert!(Arrival::LOOPBACK.reply().is_loopback() && Arrival::LOOPBACK.reply() == Target::LOOPBACK);
        assert!(Target::NOWHERE.is_nowhere() && !Target::NOWHERE.is_loopback() && !Target::LOOPBACK.is_nowhere());
    }
}
