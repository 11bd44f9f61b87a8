//! Traffic secrets of TLS 1.3 (RFC 8446 section 7.1), which rustls reports to a key log alone. A KeyUpdate derives the next keys from them.

use rustls::{KeyLog, Side};
use std::cell::RefCell;
use std::sync::Arc;
use zeroize::Zeroize;

/// Longest traffic secret in bytes: the hash of a suite has at most 384 bits.
pub(super) const LONGEST_SECRET: usize = 48;

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// First traffic secrets of a connection. They are zeroed when it ends.
pub(super) struct TrafficSecrets {
    client: Secret,
    server: Secret,
}

#[derive(Clone, Copy)]
struct Secret {
    bytes: [u8; LONGEST_SECRET],
    length: usize,
}

/// Secrets that rustls reports on this thread, between [`start`] and [`TrafficSecrets::collect`] alone.
struct Logged {
    is_active: bool,
    secrets: TrafficSecrets,
}

thread_local! {
    static LOGGED: RefCell<Logged> = const { RefCell::new(Logged { is_active: false, secrets: TrafficSecrets::new() }) };
}

/// Returns the key log for the settings of clients and servers. It keeps nothing outside of [`start`] and [`TrafficSecrets::collect`].
pub(crate) fn secret_log() -> Arc<dyn KeyLog> {
    Arc::new(SecretLog)
}

/// Begins to keep the secrets that rustls reports on this thread.
pub(super) fn start() {
    LOGGED.with_borrow_mut(|logged| {
        logged.secrets.clear();
        logged.is_active = true;
    });
}

impl TrafficSecrets {
    pub(super) const fn new() -> Self {
        Self { client: Secret::EMPTY, server: Secret::EMPTY }
    }

    /// Takes the secrets that rustls has reported since [`start`], if it has. A server reports them before the last message of the client.
    pub(super) fn collect(&mut self) {
        LOGGED.with_borrow_mut(|logged| {
            logged.is_active = false;
            self.client.take(&mut logged.secrets.client);
            self.server.take(&mut logged.secrets.server);
        });
    }

    /// Returns the secret of the bytes that this side sends; `None` if it is not known.
    pub(super) fn sent_by(&self, side: Side) -> Option<&[u8]> {
        let secret = match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        };
        (secret.length > 0).then(|| &secret.bytes[..secret.length])
    }

    fn clear(&mut self) {
        self.client.clear();
        self.server.clear();
    }
}

impl Drop for TrafficSecrets {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Secret {
    const EMPTY: Self = Self { bytes: [0; LONGEST_SECRET], length: 0 };

    fn set(&mut self, secret: &[u8]) {
        self.clear();
        if let Some(bytes) = self.bytes.get_mut(..secret.len()) {
            bytes.copy_from_slice(secret);
            self.length = secret.len();
        }
    }

    /// Moves a secret here, unless it is empty.
    fn take(&mut self, other: &mut Self) {
        if other.length > 0 {
            self.set(&other.bytes[..other.length]);
            other.clear();
        }
    }

    fn clear(&mut self) {
        self.bytes.zeroize();
        self.length = 0;
    }
}

#[derive(Debug)]
struct SecretLog;

impl KeyLog for SecretLog {
    // rustls asks `will_log` for TLS 1.3 alone: the master secret of TLS 1.2 comes without a question, and is ignored.
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        LOGGED.with_borrow_mut(|logged| match label {
            CLIENT if logged.is_active => logged.secrets.client.set(secret),
            SERVER if logged.is_active => logged.secrets.server.set(secret),
            _ => (),
        });
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT | SERVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_kept_between_start_and_collect_alone() {
        let log = secret_log();
        let mut secrets = TrafficSecrets::new();
        log.log(CLIENT, &[], &[1; 32]);
        start();
        log.log(SERVER, &[], &[2; 48]);
        secrets.collect();
        log.log(SERVER, &[], &[3; 32]);
        secrets.collect();
        assert_eq!(secrets.sent_by(Side::Client), None);
        assert_eq!(secrets.sent_by(Side::Server), Some([2; 48].as_slice()));
        start();
        log.log(CLIENT, &[], &[4; 32]);
        log.log("CLIENT_RANDOM", &[], &[5; 48]);
        log.log(SERVER, &[], &[6; 49]);
        secrets.collect();
        assert_eq!(secrets.sent_by(Side::Client), Some([4; 32].as_slice()));
        assert_eq!(secrets.sent_by(Side::Server), Some([2; 48].as_slice()), "a secret of no suite is not kept");
        LOGGED.with_borrow(|logged| {
            assert!(logged.secrets.client.bytes.iter().chain(&logged.secrets.server.bytes).all(|byte| *byte == 0));
        });
    }

    #[test]
    fn other_secrets_are_not_asked_for() {
        let log = secret_log();
        assert!(log.will_log(CLIENT) && log.will_log(SERVER));
        for label in ["CLIENT_RANDOM", "EXPORTER_SECRET", "CLIENT_HANDSHAKE_TRAFFIC_SECRET"] {
            assert!(!log.will_log(label), "{label}");
        }
    }
}
