//! What the media of a process are told beforehand.

use std::net::{IpAddr, Ipv4Addr};

/// Sockets, threads and bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the media sockets are (`-mi`).
    pub address: IpAddr,
    /// The port for audio; video has the one two above.
    pub port: u16,
    /// Whether the port is wanted and no other (`-mp`). Else, where it is in use, two above is tried, and so on.
    pub exact: bool,
    /// The highest port that is tried (`-max_rtp_port`).
    pub highest: u16,
    /// How many ports are tried at most.
    pub tries: u16,
    pub echo: Echo,
    /// Bytes of the buffers of a socket, as far as the kernel allows.
    pub receive_buffer: usize,
    pub send_buffer: usize,
    /// Datagrams in one system call, 1 to 1,024.
    pub batch: usize,
    /// Wishes of shards that wait for the sending thread; one more is refused and counted.
    pub wishes: usize,
    /// A packet that leaves so many microseconds after its time is counted as late.
    pub late: u64,
    /// A stream that is so many microseconds behind leaves out what it has missed.
    pub missed: u64,
    /// Of SSRCs, first sequence numbers and timestamps.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            port: 6_000,
            exact: false,
            highest: u16::MAX,
            tries: 100,
            echo: Echo::Never,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            batch: 256,
            wishes: 65_536,
            late: 10_000,
            missed: 500_000,
            seed: 0,
        }
    }
}

/// Whether what comes to the media sockets goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// Only for calls that ask for it (`rtp_echo="startaudio,…"`).
    Never,
    /// All of it (`-rtp_echo`), until an action `rtp_echo` switches it off.
    Always,
}
