//! What is asked of the network side when it begins: listeners, sockets, threads. What may change later stands in [`Bounds`].

use crate::{Bounds, tls};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::Transport;
use strowger_core::log_limiter::LogLimiter;

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
    /// Certificates, for [`Transport::Tls`] and [`Transport::Wss`], until [`Handle::set_identities`](crate::Handle::set_identities)
    /// replaces them.
    pub tls: Option<tls::Server>,
}

impl Listener {
    /// This transport at this address, not encrypted, in no network by name.
    pub fn new(transport: Transport, bind: SocketAddr) -> Self {
        Self { transport, bind, advertised: None, network: String::new(), tls: None }
    }

    /// An error of this listener, with a hint of what cures it.
    pub(crate) fn named(&self, error: &io::Error, cure: &str) -> io::Error {
        io::Error::new(error.kind(), format!("{}:{}: {error}{cure}", self.transport.text(), self.bind))
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

/// What the shards begin with.
#[derive(Clone, Debug)]
pub struct NetSettings {
    /// This server's number in its cluster. Default 0.
    pub node: u16,
    /// The number of this process among those of the node, past and present. Default 0.
    pub process: u16,
    /// Key of the hash that gives calls to shards; random at each start.
    pub secret: u32,
    /// Default: auto, up to the number of cores.
    pub shards: Shards,
    /// Messages between two shards, rounded up to a power of two. Default 4,096.
    pub ring: usize,
    /// By IPv6 all addresses of a network with so many bits in common are one source. Default 64.
    pub ipv6_prefix: u8,
    /// Sockets for datagrams.
    pub udp: UdpSettings,
    /// When threads run.
    pub scheduling: Scheduling,
    /// The local port of connections that are made: one to each address, then. Default 0: any.
    pub dial_port: u16,
    /// Messages sent over the connections of a shard that are remembered: the service that sent one learns that the connection ended
    /// before an answer, see [`Service::cut_off`](crate::Service::cut_off). 32 bytes each. Default 16,384.
    pub remembered: usize,
    /// How servers are verified to which we connect by TLS, until [`Handle::set_identities`](crate::Handle::set_identities) replaces it.
    pub tls: tls::Client,
    /// The bounds at first; [`Handle::set_bounds`](crate::Handle::set_bounds) replaces them.
    pub bounds: Bounds,
    /// Of log lines about single connections; other writers of such lines may share it. Default 100 a minute.
    pub log_limiter: Arc<LogLimiter>,
    /// Called where handshakes fail, beside the log. Default: none.
    pub on_failure: Option<tls::OnFailure>,
}

/// Sockets for datagrams.
#[derive(Clone, Debug)]
pub struct UdpSettings {
    /// Datagrams a system call. Default 64, 1 to 1,024.
    pub batch: usize,
    /// Bytes that the kernel may hold for a socket before it drops. Default 4 MB.
    pub receive_buffer: usize,
    /// Bytes that the kernel may hold on their way out of a socket. Default 4 MB.
    pub send_buffer: usize,
    /// Where the kernel's limit is below the two buffers, ask for them all the same, which it grants the privileged
    /// (`SO_RCVBUFFORCE`, `SO_SNDBUFFORCE`). Default off.
    pub force_buffers: bool,
    /// Let the kernel give datagrams to the shard that owns their call. Default on.
    pub kernel_steering: bool,
    /// Datagrams of one size to one address that a round sends go to the kernel as one (`UDP_SEGMENT`); those with
    /// different tokens may then leave in another order. Default off.
    pub gso: bool,
    /// Let the kernel hand over such runs as one (`UDP_GRO`). Default off.
    pub gro: bool,
    /// Peers of a socket bound to all addresses that are remembered because they are to be answered from another one than the
    /// kernel would choose (RFC 3581 section 4). Default 65,536.
    pub peers: usize,
    /// Have the kernel report unreachable datagrams (ICMP) ([`Service::unreachable`](crate::Service::unreachable)). Default off.
    pub icmp_errors: bool,
}

/// When threads run, and how exactly they are timed.
#[derive(Clone, Debug, Default)]
pub struct Scheduling {
    /// A shard that is woken does not take the processor from a program that has it (`SCHED_BATCH`, sched(7)): a peer on this machine
    /// finishes sending first, and there is more to do at each wake. Where a processor is free it makes no difference.
    /// Default off.
    pub sched_batch: bool,
    /// Wake at a deadline rather than up to two milliseconds after it, for a system call each time: for traffic that leaves on
    /// schedule. Default off.
    pub exact_timers: bool,
    /// Report to the service when each message came, by the kernel's timestamp
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

/// From the entropy with which the standard library keys its tables.
fn random() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() as u32
}
