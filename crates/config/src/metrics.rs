//! `[metrics]`: counters for Prometheus, and health for supervisors.

use std::net::SocketAddr;
use std::time::Duration;

use super::key::{Rule, Text};
use super::reader::{ANY, section};

impl Text for SocketAddr {
    const EXPECTED: &'static str = "an address with its port such as \"127.0.0.1:9060\" or \"[::1]:9060\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("is {text:?}, which is not an address with a port"))
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

section! {
    /// Metrics and health by HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz` for supervisors.
    pub struct Metrics = "metrics" {
        /// Listening address. There is no password: only the collector should be able to reach this address. A request for `/metrics` from this
        /// machine needs a `Host` that names this machine, such as "localhost:9060".
        pub listen: Option<SocketAddr> = None, ANY.or("none").fixed();
        /// Longest round of a thread that carries messages; while a round takes longer, `/healthz` answers 503 and the watchdog of systemd is not
        /// notified.
        pub unhealthy_after: Duration = Duration::from_secs(5), Rule::time(Duration::from_millis(100), Duration::from_secs(600));
    }
}
