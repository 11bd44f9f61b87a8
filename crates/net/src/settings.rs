//! Settings of the network side at its start: listeners, sockets, threads. [`Bounds`] may change later.

use crate::{Bounds, tls};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::Transport;
use strowger_core::log_limiter::LogLimiter;
use strowger_core::source::Network;

/// Maximum number of connections that wait to be accepted from one socket of a listener, as far as the kernel admits it (`net.core.somaxconn`).
pub const BACKLOG: i32 = 4_096;

/// An address that receives messages.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Transport.
    pub transport: Transport,
    /// Address to bind. Port 0: any free one, see [`crate::Handle::addresses`].
    pub bind: SocketAddr,
    /// Address for Via, Record-Route and Contact instead of `bind`; for the server, this crate only stores it.
    pub advertised: Option<String>,
    /// Name of the network on that side; for the server, this crate only stores it.
    pub network: String,
    /// Certificates, for [`Transport::Tls`] and [`Transport::Wss`], until [`Handle::set_identities`](crate::Handle::set_identities)
    /// replaces them.
    pub tls: Option<tls::Server>,
    /// Load balancers, for streams: their connections begin with a header of the PROXY protocol, and the address in it is the source of all messages.
    /// [`Handle::set_balancers`](crate::Handle::set_balancers) replaces them.
    pub balancers: Vec<Network>,
}

impl Listener {
    /// Creates an unencrypted listener without a network name.
    pub fn new(transport: Transport, bind: SocketAddr) -> Self {
        Self { transport, bind, advertised: None, network: String::new(), tls: None, balancers: Vec::new() }
    }

    /// Adds the listener and a cure to an error.
    pub(crate) fn named(&self, error: &io::Error, cure: &str) -> io::Error {
        io::Error::new(error.kind(), format!("{}:{}: {error}{cure}", self.transport.text(), self.bind))
    }
}

/// Number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// This many, 1 to 64.
    Fixed(usize),
    /// One shard at first, more when a shard is over 70 % busy, fewer when the shards idle.
    Auto {
        /// Largest number, 1 to 64.
        most: usize,
    },
}

impl Shards {
    /// Returns the largest number of shards.
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

/// Settings of the shards at their start.
#[derive(Clone, Debug)]
pub struct NetSettings {
    /// Number of this server in its cluster. Default 0.
    pub node: u16,
    /// Number of this process among those of the node, past and present. Default 0.
    pub process: u16,
    /// Key of the hash that maps calls to shards; random at each start.
    pub secret: u32,
    /// Number of shards. Default: auto, up to the number of cores.
    pub shards: Shards,
    /// Maximum number of messages between two shards, rounded up to a power of two. Default 4,096.
    pub ring: usize,
    /// Prefix length of IPv6 networks that count as one source. Default 64.
    pub ipv6_prefix: u8,
    /// Sockets for datagrams.
    pub udp: UdpSettings,
    /// Scheduling of threads.
    pub scheduling: Scheduling,
    /// Local port of outbound connections: then at most one to each address. Default 0: any.
    pub dial_port: u16,
    /// Limit of remembered messages that were sent over connections of a shard: if a connection ends before a response, the service of the sender learns
    /// it, see [`Service::cut_off`](crate::Service::cut_off). 32 bytes each. Default 16,384.
    pub remembered: usize,
    /// Verification of servers in outbound TLS connections, until [`Handle::set_identities`](crate::Handle::set_identities) replaces it.
    pub tls: tls::Client,
    /// Initial bounds; [`Handle::set_bounds`](crate::Handle::set_bounds) replaces them.
    pub bounds: Bounds,
    /// Limiter of log lines about single connections; other writers of such lines may share it. Default 100 a minute.
    pub log_limiter: Arc<LogLimiter>,
    /// Called when a handshake fails, in addition to the log. Default: none.
    pub on_failure: Option<tls::OnFailure>,
}

/// Sockets for datagrams.
#[derive(Clone, Debug)]
pub struct UdpSettings {
    /// Maximum number of datagrams of a system call. Default 64, 1 to 1,024.
    pub batch: usize,
    /// Receive buffer of a socket in the kernel, in bytes. Default 4 MB.
    pub receive_buffer: usize,
    /// Send buffer of a socket in the kernel, in bytes. Default 4 MB.
    pub send_buffer: usize,
    /// Request the two buffers even above the kernel's limit, which privileged processes may do (`SO_RCVBUFFORCE`,
    /// `SO_SNDBUFFORCE`). Default off.
    pub force_buffers: bool,
    /// Let the kernel give datagrams to the shard that owns their call. Default on.
    pub kernel_steering: bool,
    /// Send datagrams of one size to one address in a round as one (`UDP_SEGMENT`); those with different tokens may
    /// then leave in another order. Default off.
    pub gso: bool,
    /// Let the kernel coalesce received runs (`UDP_GRO`). Default off.
    pub gro: bool,
    /// Limit of remembered peers of a socket bound to all addresses whose responses must leave from another address than the kernel would choose (RFC
    /// 3581 section 4). Default 65,536.
    pub peers: usize,
    /// Let the kernel report unreachable datagrams (ICMP) ([`Service::unreachable`](crate::Service::unreachable)). Default off.
    pub icmp_errors: bool,
}

/// Scheduling and exact timing of threads.
#[derive(Clone, Debug, Default)]
pub struct Scheduling {
    /// A woken shard does not preempt the program on its processor (`SCHED_BATCH`, sched(7)): a peer on this machine finishes sending first, and each
    /// wake-up finds more work. Without effect on a free processor. Default off.
    pub sched_batch: bool,
    /// Wake at a deadline rather than up to two milliseconds after it, for a system call each time: for traffic on a schedule. Default off.
    pub exact_timers: bool,
    /// Report the arrival of each message to the service by the kernel's time stamp
    /// ([`ServiceWithSockets::arrived`](crate::ServiceWithSockets::arrived)): for measurements. Default off.
    pub timestamps: bool,
}

impl Default for NetSettings {
    fn default() -> Self {
        Self {
            node: 0,
            process: 0,
            secret: random(),
            shards: Shards::Auto { most: std::thread::available_parallelism().map_or(1, |n| n.get()) },
            ring: 4_096,
            ipv6_prefix: 64,
            udp: UdpSettings::default(),
            scheduling: Scheduling::default(),
            dial_port: 0,
            remembered: 16_384,
            tls: tls::Client::default(),
            bounds: Bounds::default(),
            log_limiter: Arc::new(LogLimiter::new(100, 64)),
            on_failure: None,
        }
    }
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            batch: 64,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            force_buffers: false,
            kernel_steering: true,
            gso: false,
            gro: false,
            peers: 65_536,
            icmp_errors: false,
        }
    }
}

/// Draws a number from the entropy with which the standard library keys its tables.
fn random() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() as u32
}
