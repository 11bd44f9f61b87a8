//! What is asked of the network side: listeners and bounds. Every bound has a default and none is a constant.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use strowger_core::Transport;
use strowger_core::quota::Quota;
use strowger_message::Limits;

/// An address at which messages are received.
#[derive(Clone, Debug)]
pub struct Listener {
    /// What is spoken there.
    pub transport: Transport,
    /// Port 0: any free one, see [`crate::Handle::addresses`].
    pub bind: SocketAddr,
    /// What is written into Via, Record-Route and Contact instead of `bind`: for the server, this crate only keeps it.
    pub advertised: Option<String>,
    /// Name of the network on that side: for the server, this crate only keeps it.
    pub network: String,
    /// Certificates, for [`Transport::Tls`] and [`Transport::Wss`].
    pub tls: Option<crate::tls::Server>,
}

impl Listener {
    /// This transport at this address, not encrypted, in no network by name.
    pub fn new(transport: Transport, bind: SocketAddr) -> Self {
        Self { transport, bind, advertised: None, network: String::new(), tls: None }
    }
}

/// How many shards run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// This many, 1 to 64.
    Fixed(usize),
    /// One at first, more when one is busy for over 70 % of the time, fewer when they idle; never more than this.
    Auto {
        /// 1 to 64.
        most: usize,
    },
}

impl Shards {
    /// The largest number of shards that this can come to.
    pub const fn most(self) -> usize {
        let n = match self {
            Self::Fixed(n) | Self::Auto { most: n } => n,
        };
        if n == 0 {
            1
        } else if n > 64 {
            64
        } else {
            n
        }
    }

    pub(crate) const fn first(self) -> usize {
        match self {
            Self::Fixed(_) => self.most(),
            Self::Auto { .. } => 1,
        }
    }
}

/// The bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This server's number in its cluster. Default 0.
    pub node: u16,
    /// The number of this process among those of the node, past and present. Default 0.
    pub process: u16,
    /// Key of the hash that gives calls to shards; random at each start.
    pub secret: u32,
    /// Default: auto, up to the number of cores.
    pub shards: Shards,
    /// Let the kernel give datagrams to the shard that owns their call. Default on.
    pub kernel_steering: bool,
    /// Datagrams a system call. Default 64, 1 to 1,024.
    pub batch: usize,
    /// Batches taken from one socket before others get their turn. Default 8.
    pub batches: usize,
    /// Where datagrams come faster than this, a shard waits so long for several instead of being woken for each: it
    /// saves CPU time and delays by as much. Default 0 (off); useful up to 1 ms.
    pub linger: Duration,
    /// Wake at a deadline rather than up to two milliseconds after it, for a system call each time: for who sends on
    /// schedule. Default off.
    pub exact_timers: bool,
    /// Tell the service when each message came, as the kernel stamps it ([`ServiceWithSockets::arrived`](crate::ServiceWithSockets::arrived)): for who
    /// measures. Default off.
    pub stamps: bool,
    /// A shard that is woken does not take the processor from who has it (`SCHED_BATCH`, sched(7)): who sends to it
    /// finishes first, and there is more to do at each wake. Where a processor is free it makes no difference. Default
    /// off.
    pub patient: bool,
    /// Bytes that the kernel may hold for a UDP socket before it drops. Default 4 MB.
    pub receive_buffer: usize,
    /// Bytes that the kernel may hold on their way out of a UDP socket. Default 4 MB.
    pub send_buffer: usize,
    /// Where the kernel's limit is below the two buffers, ask for them all the same, which it grants the privileged.
    /// Default off.
    pub force_buffers: bool,
    /// Datagrams of one size to one address that a round sends go to the kernel as one (UDP_SEGMENT); those with
    /// different tokens may then leave in another order. Default off.
    pub segment: bool,
    /// Let the kernel hand over such runs as one (UDP_GRO). Default off.
    pub coalesce: bool,
    /// Peers of a socket bound to all addresses that are remembered because they are to be answered from another one than the
    /// kernel would choose (RFC 3581 section 4). Default 65,536.
    pub peers: usize,
    /// Datagrams kept for a UDP socket that takes no more. Default 4,096.
    pub datagrams_waiting: usize,
    /// Hear of unreachable datagrams ([`Service::unreachable`](crate::Service::unreachable)). Default off.
    pub unreachable: bool,
    /// Messages between two shards, rounded up to a power of two. Default 4,096.
    pub ring: usize,
    /// Messages, and pieces between them, taken from one connection before others get their turn. Default 64, at least 1.
    pub messages_per_turn: usize,
    /// Largest message and its parts.
    pub limits: Limits,
    /// Connections of all shards together. Default 500,000.
    pub connections: usize,
    /// Connections accepted from one source. Default 10,000.
    pub connections_per_source: usize,
    /// Bytes held for the connections of all shards, as far as they are not the kernel's: see
    /// [`connection_memory_per_source`](Self::connection_memory_per_source). Default 4 GiB.
    pub connection_memory: usize,
    /// The same for those of one source: what a connection takes, more while TLS shakes hands; messages whose rest has not come;
    /// what waits for a peer that does not read. A connection that would pass it is closed. Default 32 MiB.
    pub connection_memory_per_source: usize,
    /// By IPv6 all addresses of a network with so many bits in common are one source. Default 64.
    pub ipv6_prefix: u8,
    /// A connection silent for so long is closed. Default 1 hour.
    pub idle_timeout: Duration,
    /// A message must be whole so long after its first byte. Default 30 s.
    pub partial_timeout: Duration,
    /// A connection must be made in this time. Default 5 s.
    pub connect_timeout: Duration,
    /// The local port of connections that are made: one to each address, then. Default 0: any.
    pub dial_port: u16,
    /// A TLS or WebSocket handshake must end in this time. Default 10 s.
    pub handshake_timeout: Duration,
    /// A peer that says that nothing will follow (FIN) may have asked something before: so long after that, and after each
    /// message that it gets, it can be answered by the same connection. Default 32 s, as long as a transaction (64*T1).
    pub answer_timeout: Duration,
    /// How long a connection that we end waits for the peer to end it too. Default 1 s.
    pub farewell_timeout: Duration,
    /// Sessions kept of each TLS server, to be resumed: one is used by each connection. Default 1,024.
    pub tls_sessions: usize,
    /// Names that secure peers must prove, remembered at most. Default 8,192.
    pub names: usize,
    /// Messages sent over the connections of a shard that are remembered, for who sent them to learn that the connection ended
    /// before an answer: see [`Service::cut_off`](crate::Service::cut_off). 32 bytes each. Default 16,384.
    pub remembered: usize,
    /// Bytes that may wait for a connection whose peer does not read; more closes it. Default 1 MB.
    pub write_queue: usize,
    /// How servers are verified to which we connect by TLS.
    pub tls: crate::tls::Client,
    /// Of log lines about single connections; other writers of such lines may share it. Default 100 a minute.
    pub quota: Arc<Quota>,
    /// Who hears why handshakes fail, beside the log. Default: none.
    pub refusals: Option<crate::tls::Refusals>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: 0,
            process: 0,
            secret: random(),
            shards: Shards::Auto { most: std::thread::available_parallelism().map_or(1, |n| n.get()) },
            kernel_steering: true,
            batch: 64,
            batches: 8,
            linger: Duration::ZERO,
            exact_timers: false,
            stamps: false,
            patient: false,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            force_buffers: false,
            segment: false,
            coalesce: false,
            peers: 65_536,
            datagrams_waiting: 4_096,
            unreachable: false,
            ring: 4_096,
            messages_per_turn: 64,
            limits: Limits::default(),
            connections: 500_000,
            connections_per_source: 10_000,
            connection_memory: 4 << 30,
            connection_memory_per_source: 32 << 20,
            ipv6_prefix: 64,
            idle_timeout: Duration::from_secs(3_600),
            partial_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            dial_port: 0,
            handshake_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(32),
            farewell_timeout: Duration::from_secs(1),
            tls_sessions: 1_024,
            names: 8_192,
            remembered: 16_384,
            write_queue: 1 << 20,
            tls: crate::tls::Client::default(),
            quota: Arc::new(Quota::new(100, 64)),
            refusals: None,
        }
    }
}

/// From the entropy with which the standard library keys its tables.
fn random() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() as u32
}
