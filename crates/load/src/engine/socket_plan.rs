//! Settings of the sockets and connections of calls.

use std::net::IpAddr;

/// Owner of a dedicated socket or connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Each {
    /// All calls of a shard share one.
    #[default]
    Run,
    Call,
    /// Each line of the first injection file; it stays open between the calls of its user.
    User,
    /// Each address in this field of the first injection file, with the port of the run.
    Address {
        field: u32,
    },
}

/// Socket settings of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    pub each: Each,
    /// Local address; unspecified: chosen by the route to the target.
    pub from: IpAddr,
    /// Maximum number of open sockets in each shard. At this number further calls share them.
    pub most: usize,
    /// Time for which the connection of an ended call stays open, milliseconds. The peer may still use the connection,
    /// and would take an earlier end for a failure. Datagram sockets are closed at once.
    pub linger: u32,
    /// Rules for the loss of the shared connection. `None`: the next message makes a new connection.
    pub reconnect: Option<Reconnect>,
}

/// SIPp's behaviour after the loss of its only connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// Limit of reconnections, after which the run ends (`-max_reconnect`); `None`: no limit.
    pub most: Option<u32>,
    /// True if the calls end with the connection (`-reconnect_close`).
    pub close: bool,
    /// Pause before a reconnection, milliseconds (`-reconnect_sleep`).
    pub sleep: u32,
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            each: Each::Run,
            from: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            most: usize::MAX,
            linger: 50,
            reconnect: None,
        }
    }
}
