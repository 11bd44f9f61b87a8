//! Keep-alive of connections: probes of the kernel, and the silence of peers (RFC 5626 section 4.4).

use crate::socket_option;
use libc::c_int;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Silence of a connection in seconds after which the kernel probes its peer.
const PROBE_AFTER: c_int = 60;

/// Interval of further probes in seconds.
const PROBE_INTERVAL: c_int = 15;

/// Number of unanswered probes after which the connection is broken.
const PROBES: c_int = 4;

/// Longest time without an acknowledgement in milliseconds: as long as the probes of a silent connection take. Without
/// this limit the kernel sends data to a lost peer again and again, for about 15 minutes.
const UNACKNOWLEDGED: c_int = (PROBE_AFTER + PROBE_INTERVAL * PROBES) * 1_000;

/// Shortest time between two reports of keep-alives of a peer to the service, in milliseconds.
const REPORT_INTERVAL: u64 = 20_000;

/// Asks the kernel to probe the peers of this connection, or of all that this listener will accept: these inherit the
/// options (tcp(7)). So the process wakes for no silent connection, and still learns of a lost peer.
pub(crate) fn probe(socket: BorrowedFd<'_>) {
    let options = [
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, PROBE_AFTER),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, PROBE_INTERVAL),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, UNACKNOWLEDGED),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    ];
    for (level, option, value) in options {
        // Without the option a lost peer is noticed later.
        let _ = socket_option::set(socket, level, option, value);
    }
}

/// Activity of the peer of a connection. Times are in milliseconds.
#[derive(Debug)]
pub(crate) struct PeerActivity {
    /// Time of the last read.
    pub(crate) last_read: u64,
    /// Time of the next report of a keep-alive to the service.
    report_at: u64,
    /// Longest silence that the service permits, and the end of this limit.
    longest_silence: u64,
    limited_until: u64,
    /// Time until which the service keeps the connection, however silent its peer is; 0: none.
    pub(crate) kept_until: u64,
}

impl PeerActivity {
    pub(crate) const fn new(now: u64) -> Self {
        Self { last_read: now, report_at: 0, longest_silence: 0, limited_until: 0, kept_until: 0 }
    }

    /// Limits the silence of the peer until this time; 0: no longer.
    pub(crate) const fn limit(&mut self, longest: u64, until: u64) {
        self.longest_silence = longest;
        self.limited_until = until;
    }

    /// Returns the time at which the silence of the peer ends the connection. `longest`: longest silence of a connection of
    /// its kind; `in_use_until`: time until which requests of the connection may be answered. While a limit of the service lasts,
    /// it replaces these times, even shorter ones: the peer sends nothing before its keep-alive is due.
    pub(crate) fn due(&self, longest: Duration, in_use_until: u64) -> u64 {
        let idle = self.last_read.saturating_add(longest.as_millis() as u64).max(self.kept_until).max(in_use_until);
        self.limit_end().unwrap_or_else(|| idle.max(self.limited_until))
    }

    /// Tells whether the peer has been silent for longer than the service permits.
    pub(crate) fn is_overdue(&self, now: u64) -> bool {
        self.limit_end().is_some_and(|limit| limit <= now)
    }

    /// Returns the time at which the limit of the service ends the connection; `None` if there is no limit.
    fn limit_end(&self) -> Option<u64> {
        let limit = self.last_read.saturating_add(self.longest_silence);
        (self.longest_silence > 0 && limit <= self.limited_until).then_some(limit)
    }

    /// Notes a keep-alive of the peer. Returns whether the service must learn of it: of the first one, then at most of
    /// one in [`REPORT_INTERVAL`].
    pub(crate) const fn note_keep_alive(&mut self, now: u64) -> bool {
        let is_due = now >= self.report_at;
        if is_due {
            self.report_at = now + REPORT_INTERVAL;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn the_kernel_probes_the_peers_of_a_listener_and_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        probe(listener.as_fd());
        let made = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(!SockRef::from(&made).keepalive().unwrap(), "off by default");
        probe(made.as_fd());
        for stream in [&made, &accepted] {
            let socket = SockRef::from(stream);
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(15));
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(120)));
        }
    }

    #[test]
    fn silence_is_limited_while_the_limit_lasts() {
        let hour = Duration::from_secs(3_600);
        let mut peer = PeerActivity::new(1_000);
        assert_eq!(peer.due(hour, 0), 3_601_000);
        peer.limit(160_000, 600_000);
        assert_eq!(peer.due(hour, 0), 161_000);
        assert!(!peer.is_overdue(160_999) && peer.is_overdue(161_000));
        let short = Duration::from_secs(30);
        assert_eq!(peer.due(short, 0), 161_000, "the peer need not send before");
        peer.last_read = 440_000;
        assert_eq!(peer.due(hour, 0), 600_000);
        peer.last_read = 440_001;
        assert_eq!(peer.due(hour, 0), 4_040_001, "the registration ends before");
        assert_eq!(peer.due(short, 0), 600_000, "the registration has not ended");
        peer.last_read = 590_000;
        assert_eq!(peer.due(short, 0), 620_000);
        peer.limit(160_000, 0);
        peer.last_read = 2_000;
        assert_eq!((peer.due(hour, 0), peer.due(short, 0)), (3_602_000, 32_000));
        assert_eq!(PeerActivity::new(0).due(hour, 0), 3_600_000, "the process has just begun");
        assert!(!peer.is_overdue(u64::MAX));
    }

    #[test]
    fn a_kept_connection_and_one_in_use_may_be_silent_for_longer() {
        let second = Duration::from_secs(1);
        let mut peer = PeerActivity::new(1_000);
        assert_eq!((peer.due(second, 0), peer.due(second, 9_000)), (2_000, 9_000));
        peer.kept_until = 30_000;
        assert_eq!((peer.due(second, 9_000), peer.due(second, 90_000)), (30_000, 90_000));
        // The phone has agreed to send keep-alives: its flow has failed.
        peer.limit(4_000, 60_000);
        assert_eq!(peer.due(second, 90_000), 5_000);
    }

    #[test]
    fn few_keep_alives_are_reported() {
        let mut peer = PeerActivity::new(1_000);
        let reported: Vec<u64> = (1_000..60_000).step_by(1_000).filter(|now| peer.note_keep_alive(*now)).collect();
        assert_eq!(reported, [1_000, 21_000, 41_000]);
    }
}
