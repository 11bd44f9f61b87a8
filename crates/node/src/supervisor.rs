//! The supervisor of the process, as systemd is one: it hands over sockets, hears when the server is ready and whether it works.
//!
//! Without such a supervisor (no `NOTIFY_SOCKET`, `WATCHDOG_USEC` or `LISTEN_FDS` in the environment) all of this does nothing.

use crate::health::Health;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use strowger_net::ListenSocket;

/// The open sockets that the process was started with (sd_listen_fds(3)). Changes the environment, so it is to be called before any
/// thread is started, and once.
///
/// # Errors
/// A descriptor that is no UDP or TCP socket.
pub fn given_sockets() -> io::Result<Vec<ListenSocket>> {
    let mut given = ListenFd::from_env();
    (0..given.len())
        .filter_map(|place| {
            let udp = given.take_udp_socket(place).ok().flatten().map(|socket| Ok(ListenSocket::Udp(socket)));
            udp.or_else(|| Some(given.take_tcp_listener(place).transpose()?.map(ListenSocket::Tcp)))
        })
        .collect()
}

/// The server takes messages, or a reload is done.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The server waits for another one to end. For the supervisor it has started, and works.
pub fn standing_by() {
    notify(&[NotifyState::Ready, NotifyState::Status("standing by"), NotifyState::Watchdog]);
}

/// The configuration is being read again; [`ready`] ends that.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The server shuts down.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor cannot be notified");
    }
}

/// Tells the supervisor that the server works, twice as often as it wants to hear it, and not while a shard stands still: then it
/// starts the server again. Ends at once where the supervisor does not want to hear it.
pub(crate) async fn keep_watchdog(health: Arc<Health>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut tick = tokio::time::interval((period / 2).max(Duration::from_millis(1)));
    loop {
        tick.tick().await;
        match health.stuck() {
            None => notify(&[NotifyState::Watchdog]),
            Some(shard) => tracing::error!(shard, "a shard stands still: the watchdog is left to end the process"),
        }
    }
}
