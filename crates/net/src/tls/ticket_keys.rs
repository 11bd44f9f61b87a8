//! Keys of session tickets (RFC 8446 section 4.6.1, RFC 5077). They follow from a secret, the day and the identity of the listener, so tickets stay
//! valid when the server restarts, and at other servers with the same secret and files.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use aws_lc_rs::rand;
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use std::fmt;
use zeroize::Zeroizing;

/// Purpose of the derived keys, with the version of the format of tickets.
const LABEL: &[u8] = b"strowger session ticket 1";

const SECONDS_PER_DAY: u64 = 86_400;

/// Nonces are random, so a key may seal 2^32 tickets (NIST SP 800-38D section 8.3): 50,000 a second for its day.
const ALGORITHM: &Algorithm = &AES_256_GCM;

/// Part of the identity of a listener. If one changes, no earlier session is resumed, since a peer that resumes is not verified again.
#[derive(Clone, Copy)]
pub(crate) enum IdentityPart {
    /// Certificate that the listener shows.
    Certificate = 1,
    /// Authority whose clients it accepts.
    Authority = 2,
    /// List of revoked certificates of clients.
    RevocationList = 3,
}

/// Digest of the certificates, authorities and revocation lists of a listener, in their order.
pub(crate) struct IdentityDigest(Context);

impl IdentityDigest {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    /// Adds a part, whose length is added too: no two lists of parts have the same bytes.
    pub(crate) fn add(&mut self, part: IdentityPart, bytes: &[u8]) {
        self.0.update(&[part as u8]);
        self.0.update(&(bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }
}

/// Encryption of the tickets of a listener. A ticket is valid on its day and on the next one (UTC).
pub(crate) struct TicketKeys {
    /// Zeroes itself.
    root: Prk,
}

impl TicketKeys {
    /// Creates the keys. `secret`: random, the same on all servers that resume sessions of each other.
    pub(crate) fn new(secret: &[u8; 32], identity: IdentityDigest) -> Self {
        Self { root: Salt::new(HKDF_SHA256, identity.0.finish().as_ref()).extract(secret) }
    }

    fn key(&self, day: u64) -> Option<LessSafeKey> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.root.expand(&[LABEL, &day.to_be_bytes()], ALGORITHM).and_then(|key| key.fill(&mut *bytes)).ok()?;
        UnboundKey::new(ALGORITHM, &*bytes).ok().map(LessSafeKey::new)
    }

    /// Encrypts the state of a session: nonce, state, tag.
    fn seal(&self, day: u64, state: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NONCE_LEN + state.len() + ALGORITHM.tag_len());
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(state);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key(day)?.seal_in_place_separate_tag(nonce, Aad::empty(), &mut ticket[NONCE_LEN..]).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, day: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.split_first_chunk::<NONCE_LEN>()?;
        let mut state = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key(day)?.open_in_place(nonce, Aad::empty(), &mut state).ok()?.len();
        state.truncate(length);
        Some(state)
    }

    /// Decrypts a ticket of this day or of the day before.
    fn open_recent(&self, day: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(day, ticket).or_else(|| self.open(day.checked_sub(1)?, ticket))
    }
}

fn today() -> u64 {
    UnixTime::now().as_secs() / SECONDS_PER_DAY
}

impl fmt::Debug for TicketKeys {
    // Keys are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    /// Returns the time for which each ticket is valid at least.
    fn lifetime(&self) -> u32 {
        SECONDS_PER_DAY as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(today(), plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open_recent(today(), cipher)
    }
}

#[cfg(test)]
mod tests;
