//! Media settings of a process.

use std::net::{IpAddr, Ipv4Addr};

/// Sockets, threads and bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the media sockets (`-mi`).
    pub address: IpAddr,
    /// Audio port; the video port is two above.
    pub port: u16,
    /// True if no other port may be used (`-mp`). Otherwise, if the port is in use, the port two above it is tried, and
    /// so on.
    pub exact: bool,
    /// True if the first call has the common port as its own, as in SIPp.
    pub first_is_common: bool,
    /// Highest port to try (`-max_rtp_port`).
    pub highest: u16,
    pub echo: Echo,
    /// Buffers of the common sockets in bytes, as far as the kernel allows.
    pub receive_buffer: usize,
    pub send_buffer: usize,
    /// Datagrams in one system call, 1 to 1,024.
    pub batch: usize,
    /// Maximum number of commands that wait for the sending thread. A further command is refused and counted.
    pub commands: usize,
    /// Maximum number of streams that a common socket judges at once. Packets of further streams are counted.
    pub streams: usize,
    /// Delay from which a packet counts as late, microseconds.
    pub late: u64,
    /// Delay from which a stream skips missed packets, microseconds.
    pub missed: u64,
    /// Seed of SSRCs, first sequence numbers and timestamps.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            port: 6_000,
            exact: false,
            first_is_common: false,
            highest: u16::MAX,
            echo: Echo::Never,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            batch: 256,
            commands: 65_536,
            streams: 65_536,
            late: 10_000,
            missed: 500_000,
            seed: 0,
        }
    }
}

/// Echo of datagrams that the media sockets receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// Only for calls that request it (`rtp_echo="startaudio,…"`).
    Never,
    /// All of them (`-rtp_echo`), until an action `rtp_echo` switches it off.
    Always,
}
