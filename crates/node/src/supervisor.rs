//! Supervisor of the process, such as systemd. It passes sockets; the server reports to it that it is ready and that it works.
//!
//! Without a supervisor (no `NOTIFY_SOCKET`, `WATCHDOG_USEC` or `LISTEN_FDS` in the environment) these functions do nothing.

use crate::health::Health;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use strowger_net::ListenSocket;

/// Returns the open sockets that the process was started with (sd_listen_fds(3)). Changes the environment, so it must
/// be called once, before any thread is started.
///
/// # Errors
/// A descriptor is no UDP or TCP socket.
pub fn given_sockets() -> io::Result<Vec<ListenSocket>> {
    let mut given = ListenFd::from_env();
    (0..given.len())
        .filter_map(|place| {
            let udp = given.take_udp_socket(place).ok().flatten().map(|socket| Ok(ListenSocket::Udp(socket)));
            udp.or_else(|| Some(given.take_tcp_listener(place).transpose()?.map(ListenSocket::Tcp)))
        })
        .collect()
}

/// Reports that the server takes messages, or that a reload is done.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that the server waits for another server to end. The supervisor regards this server as started and working.
pub fn standing_by() {
    notify(&[NotifyState::Ready, NotifyState::Status("standing by"), NotifyState::Watchdog]);
}

/// Reports that a reload has begun; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Reports that the server shuts down.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor cannot be notified");
    }
}

/// Reports to the supervisor that the server works, twice in each watchdog period. While a shard is stuck there is no
/// report, so that the supervisor restarts the server. Without a watchdog this returns at once.
pub(crate) async fn keep_watchdog(health: Arc<Health>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut tick = tokio::time::interval((period / 2).max(Duration::from_millis(1)));
    loop {
        tick.tick().await;
        match (health.stuck(), health.stuck_media()) {
            (None, None) => notify(&[NotifyState::Watchdog]),
            (None, Some(thread)) => {
                tracing::error!(thread, "a media thread stands still: the watchdog is left to end the process");
            }
            (Some(shard), _) => tracing::error!(shard, "a shard stands still: the watchdog is left to end the process"),
        }
    }
}
