//! Conversion of a connection of rustls to keys and secrets of records.

use super::{Connection, LOST, Session, Stage, TicketReceiver};
use crate::tls::aead::derive_keys;
use crate::tls::key_log::TrafficSecrets;
use crate::tls::records::{RecordKeys, Records, Suite, Version};
use rustls::{CipherSuite, CommonState, ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, Side};
use std::mem;

/// Moves keys and secrets to `into`. Returns the rest of the input and the receiver of tickets; or the session, if it cannot be converted.
pub(super) fn convert(
    mut session: Box<Session>,
    into: &mut Records,
) -> Result<(Vec<u8>, Option<TicketReceiver>), Box<Session>> {
    let Some(terms) = Terms::of(&session) else { return Err(session) };
    let extracted = match mem::replace(&mut session.connection, Connection::Lost) {
        Connection::Server(server) => server.dangerous_into_kernel_connection().map(|(keys, _)| (keys, None)),
        Connection::Client(client) => {
            client.dangerous_into_kernel_connection().map(|(keys, kernel)| (keys, Some(Box::new(kernel))))
        }
        Connection::Lost => Err(rustls::Error::General(LOST.into())),
    };
    let failure = match extracted {
        Ok((keys, tickets)) => match terms.fill(into, &keys, &session.secrets) {
            // A server of TLS 1.2 sends its ticket within the handshake.
            Some(()) => {
                return Ok((mem::take(&mut session.input), tickets.filter(|_| terms.version == Version::Tls13)));
            }
            None => {
                rustls::Error::General("the keys of rustls do not follow from the secrets that it has reported".into())
            }
        },
        Err(error) => error,
    };
    session.failure = Some(failure);
    Err(session)
}

/// Terms of a connection that rustls can give away.
struct Terms {
    suite: Suite,
    version: Version,
    side: Side,
}

impl Terms {
    /// Returns the terms; `None` if the connection must stay with rustls.
    fn of(session: &Session) -> Option<Self> {
        let common = session.connection.common()?;
        // Behind the handshake rustls may hold a message in pieces, or a KeyUpdate that it has not sent.
        let is_whole = session.stage == Stage::Complete && session.held == 0 && !session.has_closed;
        let may_convert = is_whole && session.extracts && session.failure.is_none() && !common.wants_write();
        let side = match session.connection {
            Connection::Client(_) => Side::Client,
            Connection::Server(_) | Connection::Lost => Side::Server,
        };
        let terms = Self { suite: suite(common)?, version: version(common)?, side };
        (may_convert && terms.has_secrets(&session.secrets)).then_some(terms)
    }

    /// Tells whether the secrets from which the keys follow are known (TLS 1.3).
    fn has_secrets(&self, secrets: &TrafficSecrets) -> bool {
        let length = Some(self.suite.hash_length());
        let has = |side| secrets.sent_by(side).map(<[u8]>::len) == length;
        self.version == Version::Tls12 || (has(Side::Client) && has(Side::Server))
    }

    /// Fills in keys and secrets; `None` if the keys do not follow from the secrets.
    fn fill(&self, into: &mut Records, keys: &ExtractedSecrets, secrets: &TrafficSecrets) -> Option<()> {
        let peer = match self.side {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        (into.suite, into.version, into.is_client) = (self.suite, self.version, self.side == Side::Client);
        let [tx_secret, rx_secret] = &mut into.secrets;
        for (to, keys, secret, side) in
            [(&mut into.tx, &keys.tx, tx_secret, self.side), (&mut into.rx, &keys.rx, rx_secret, peer)]
        {
            fill(to, keys)?;
            if self.version == Version::Tls13 {
                let first = secrets.sent_by(side)?;
                secret[..first.len()].copy_from_slice(first);
                let mut expected = RecordKeys::default();
                derive_keys(self.suite, secret, &mut expected);
                (expected.key == to.key && expected.iv == to.iv).then_some(())?;
            }
        }
        Some(())
    }
}

fn suite(common: &CommonState) -> Option<Suite> {
    match common.negotiated_cipher_suite()?.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(Suite::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(Suite::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(Suite::ChaCha20Poly1305),
        _ => None,
    }
}

fn version(common: &CommonState) -> Option<Version> {
    match common.protocol_version()? {
        ProtocolVersion::TLSv1_2 => Some(Version::Tls12),
        ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
        _ => None,
    }
}

/// Fills in the keys of a direction and its next sequence number.
fn fill(into: &mut RecordKeys, (seq, keys): &(u64, ConnectionTrafficSecrets)) -> Option<()> {
    let (key, iv): (&[u8], &[u8]) = match keys {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key.as_ref(), iv.as_ref()),
        _ => return None,
    };
    into.key.get_mut(..key.len())?.copy_from_slice(key);
    into.iv.get_mut(..iv.len())?.copy_from_slice(iv);
    into.seq = *seq;
    Some(())
}
