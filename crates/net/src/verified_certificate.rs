//! Verified certificate of the peer of a secure connection, which exists from the end of the handshake.

use crate::peer_names::PeerNames;
use crate::tls;
use rustls::pki_types::{CertificateDer, ServerName};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use strowger_core::PeerName;

/// A certificate whose issuers were verified. Whether it is valid for a peer is checked when a request is for that peer.
#[derive(Debug)]
pub(crate) struct VerifiedCertificate {
    certificate: CertificateDer<'static>,
    /// Peer of the last check, and its result.
    last: Mutex<Option<(Option<PeerName>, IpAddr, bool)>>,
}

impl VerifiedCertificate {
    pub(crate) fn new(certificate: CertificateDer<'static>) -> Self {
        Self { certificate, last: Mutex::default() }
    }

    /// Tells whether the holder of the certificate is the intended peer: it must have this name, or this address if
    /// there is no name (RFC 5922 section 7.2).
    pub(crate) fn is_valid_for(&self, name: Option<PeerName>, address: IpAddr, names: &PeerNames) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((of, at, valid)) if of == name && (name.is_some() || at == address) => valid,
            _ => {
                let valid = self.verify(name, address, names);
                *last = Some((name, address, valid));
                valid
            }
        }
    }

    fn verify(&self, name: Option<PeerName>, address: IpAddr, names: &PeerNames) -> bool {
        let meant = match name {
            None => Some(ServerName::from(address)),
            Some(name) => names.text(name).and_then(|text| ServerName::try_from(text.to_string()).ok()),
        };
        meant.is_some_and(|meant| tls::is_valid_for(&self.certificate, &meant))
    }
}
