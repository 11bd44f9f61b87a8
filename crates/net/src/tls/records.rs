//! Records of a TLS connection behind its handshake (RFC 8446 sections 4.6, 5 and 6; RFC 5246 sections 6.2 and 7.2).
//!
//! A connection keeps plain data: keys, secrets and sequence numbers. Each turn makes its own AEAD context. Verdicts and limits are those of rustls,
//! which a connection of another suite keeps, so that both kinds behave alike; the tests compare them byte by byte.

use super::aead::{self, Context};
use super::fragments::{Fragments, Message};
use super::record_fault::{self as alert, Fault};
use super::record_format::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, CLIENT_HELLO, FATAL, HANDSHAKE, HEADER, HELLO_REQUEST, KEY_UPDATE,
    LONGEST_DATA, NEW_SESSION_TICKET, WARNING, is_ticket, record_length,
};
use crate::verified_certificate::VerifiedCertificate;
use rustls::{AlertDescription, ContentType, Error, HandshakeType};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroize;

/// Number of records of AES-GCM with one key (RFC 8446 section 5.5 allows 2^24.5).
const GCM_RECORDS: u64 = 1 << 24;

/// Number of records with one key that stays below the end of the sequence numbers, which never wrap.
const MOST_RECORDS: u64 = 0xffff_ffff_ffff_0000;

/// Algorithm of the AEAD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Suite {
    #[default]
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    Tls12,
    #[default]
    Tls13,
}

/// Key of one direction, its IV, and the sequence number of its next record. It has no `Debug`: keys are never logged.
#[derive(Default)]
pub(crate) struct RecordKeys {
    pub(super) key: [u8; 32],
    pub(super) iv: [u8; 12],
    pub(super) seq: u64,
}

/// Both directions of a connection. Filled in place and zeroed at the end, so no copy of a key stays in memory.
pub(crate) struct Records {
    pub(super) tx: RecordKeys,
    pub(super) rx: RecordKeys,
    /// Traffic secrets of TLS 1.3, of sent and of received records.
    pub(super) secrets: [[u8; 48]; 2],
    pub(super) suite: Suite,
    pub(super) version: Version,
    pub(super) is_client: bool,
    end: End,
    allowances: Allowances,
    /// Certificate of the peer, if its issuers were verified.
    #[expect(dead_code, reason = "until connections use it")]
    pub(crate) certificate: Option<Arc<VerifiedCertificate>>,
}

const _: () = assert!(size_of::<Records>() == 224, "each TLS connection has one");

/// State of the received direction. It is kept, since the end may be behind data that wait for a later turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    CloseNotify,
    /// Alert of the peer.
    Alert(u8),
    Broken(Fault),
    /// Record of a type that is not allowed now.
    ContentType(u8),
    /// Handshake message of a type that is not allowed now.
    HandshakeType(u8),
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Broken(fault)
    }
}

/// Remaining numbers of records without data that the peer may send.
struct Allowances {
    /// KeyUpdates until the next data.
    key_updates: u8,
    /// Records in a row without content.
    empty_records: u8,
    /// Warnings in the low bits, and flags.
    rest: u8,
}

impl Allowances {
    const KEY_UPDATES: u8 = 32;
    const EMPTY_RECORDS: u8 = 32;
    /// Bits of the number of warnings.
    const WARNINGS: u8 = 0x0f;
    /// Set while the peer has asked for no other handshake.
    const RENEGOTIATION: u8 = 0x10;
    /// Set while this side has not sent its last record: close_notify, or an alert that ends the connection.
    const IS_OPEN: u8 = 0x80;

    const fn new() -> Self {
        Self {
            key_updates: Self::KEY_UPDATES,
            empty_records: Self::EMPTY_RECORDS,
            rest: Self::IS_OPEN | Self::RENEGOTIATION | 4,
        }
    }
}

/// Result of [`Records::open`].
pub(crate) struct Opened {
    /// Length of the data, which were moved to the start of the buffer.
    pub(crate) plain: usize,
    /// Place of the incomplete record, at the end of the buffer.
    pub(crate) rest: Range<usize>,
}

/// Error: this side can send no more data. It has sent a close_notify or an alert, or its keys are used up (TLS 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Records {
    /// Decrypts all complete records in `bytes`, with one context. Answers (KeyUpdate, alert) go to `wire`; the body of each session ticket to
    /// `ticket`. The end or an error is noted behind the data in front of it, and what follows is dropped.
    pub(crate) fn open(
        &mut self,
        bytes: &mut [u8],
        parts: &mut Fragments,
        wire: &mut Vec<u8>,
        mut ticket: impl FnMut(&[u8]),
    ) -> Opened {
        let (mut plain, mut start, mut context, mut has_answered) = (0, 0, None, false);
        while self.end == End::Open {
            let length = match record_length(&bytes[start..]) {
                Ok(Some(length)) if length <= bytes.len() - start => length,
                Ok(_) => return Opened { plain, rest: start..bytes.len() },
                Err(fault) => {
                    self.fail(fault.into(), wire);
                    break;
                }
            };
            let (kind, place) = match self.read(&mut bytes[start..start + length], parts, &mut context) {
                Ok(read) => read,
                Err(fault) => {
                    self.fail(fault.into(), wire);
                    break;
                }
            };
            let place = start + HEADER + place.start..start + HEADER + place.end;
            start += length;
            let handled = match kind {
                APPLICATION_DATA => {
                    self.allowances.key_updates = Allowances::KEY_UPDATES;
                    let length = place.len();
                    bytes.copy_within(place, plain);
                    plain += length;
                    Ok(())
                }
                HANDSHAKE => parts.push(&bytes[place], |message| {
                    let is_update = self.message(&message, wire, &mut has_answered, &mut ticket)?;
                    if is_update {
                        context = None;
                    }
                    Ok(())
                }),
                ALERT => self.alert(&bytes[place], wire),
                CHANGE_CIPHER_SPEC => Err(change_cipher_spec(&bytes[place])),
                _ => Err(Fault::ContentType.into()),
            };
            if let Err(end) = handled {
                self.fail(end, wire);
            }
        }
        parts.clear();
        Opened { plain, rest: bytes.len()..bytes.len() }
    }

    /// Returns the end of the received direction: `Ok` for a close_notify, else the error. It is behind all data that [`Self::open`] has returned.
    pub(crate) fn end(&self) -> Option<Result<(), Error>> {
        let content = |got| Error::InappropriateMessage {
            expect_types: match self.version {
                Version::Tls12 => vec![ContentType::ApplicationData],
                Version::Tls13 => vec![ContentType::ApplicationData, ContentType::Handshake],
            },
            got_type: ContentType::from(got),
        };
        Some(Err(match self.end {
            End::Open => return None,
            End::CloseNotify => return Some(Ok(())),
            End::Alert(description) => Error::AlertReceived(AlertDescription::from(description)),
            End::Broken(fault) => fault.error(),
            End::ContentType(got) => content(got),
            End::HandshakeType(_) if self.version == Version::Tls12 => content(HANDSHAKE),
            End::HandshakeType(got) => Error::InappropriateHandshakeMessage {
                expect_types: match self.is_client {
                    true => vec![HandshakeType::NewSessionTicket, HandshakeType::KeyUpdate],
                    false => vec![HandshakeType::KeyUpdate],
                },
                got_type: HandshakeType::from(got),
            },
        }))
    }

    /// Appends the records of `clear` to `wire`, with one context. Before the limit of a key a KeyUpdate replaces it (TLS 1.3).
    ///
    /// # Errors
    /// This side has ended before, or the data do not fit below the limit of the key (TLS 1.2): then a close_notify ends it. None of `clear` is sent.
    pub(crate) fn seal(&mut self, clear: &[u8], wire: &mut Vec<u8>) -> Result<(), Exhausted> {
        if clear.is_empty() {
            return Ok(());
        }
        if !self.is_open() {
            return Err(Exhausted);
        }
        let (limit, records) = (self.suite.most_records(), clear.len().div_ceil(LONGEST_DATA) as u64);
        if self.version == Version::Tls12 && self.tx.seq.saturating_add(records) > limit {
            self.close_notify(wire);
            return Err(Exhausted);
        }
        let mut context = None;
        for part in clear.chunks(LONGEST_DATA) {
            // The KeyUpdate is the last record with its key.
            if self.version == Version::Tls13 && self.tx.seq > 0 && self.tx.seq.saturating_add(1) >= limit {
                self.update_keys(wire, true);
                context = None;
            }
            let context = context.get_or_insert_with(|| Context::new(self.suite, self.version, &self.tx));
            seal(context, &mut self.tx, APPLICATION_DATA, part, wire);
        }
        Ok(())
    }

    /// Tells the peer that no more data follow (RFC 8446 section 6.1). Does nothing if this side has ended before.
    pub(crate) fn close_notify(&mut self, wire: &mut Vec<u8>) {
        if self.is_open() {
            self.send(ALERT, &[WARNING, alert::CLOSE_NOTIFY], wire);
            self.allowances.rest &= !Allowances::IS_OPEN;
        }
    }

    /// Replaces the key of sent records, and asks the peer for the same if `request` is true (RFC 8446 section 4.6.3). Does nothing in TLS 1.2, or
    /// if this side has ended before.
    pub(crate) fn update_keys(&mut self, wire: &mut Vec<u8>, request: bool) {
        if self.version == Version::Tls13 && self.is_open() {
            self.send(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, u8::from(request)], wire);
            aead::next_generation(self.suite, &mut self.secrets[0], &mut self.tx);
        }
    }

    /// Decrypts a record in place. Returns the type of its content and the place of that in its payload.
    fn read(
        &mut self,
        record: &mut [u8],
        parts: &Fragments,
        context: &mut Option<Context>,
    ) -> Result<(u8, Range<usize>), Fault> {
        let (header, payload) = record.split_first_chunk_mut().expect("the caller has read the header");
        // A change_cipher_spec is not protected.
        let (kind, place) = if header[0] == CHANGE_CIPHER_SPEC && parts.is_empty() {
            (header[0], 0..payload.len())
        } else {
            if self.rx.seq >= MOST_RECORDS {
                return Err(Fault::Exhausted);
            }
            let context = context.get_or_insert_with(|| Context::new(self.suite, self.version, &self.rx));
            let opened = context.open(self.rx.seq, *header, payload)?;
            self.rx.seq += 1;
            opened
        };
        if kind != HANDSHAKE && !parts.is_empty() {
            return Err(Fault::Interleaved);
        }
        self.allowances.empty_records = match place.is_empty() {
            true => self.allowances.empty_records.checked_sub(1).ok_or(Fault::EmptyRecords)?,
            false => Allowances::EMPTY_RECORDS,
        };
        Ok((kind, place))
    }

    /// Handles a message behind the handshake. Returns true if it has replaced the key of received records.
    fn message(
        &mut self,
        message: &Message<'_>,
        wire: &mut Vec<u8>,
        has_answered: &mut bool,
        ticket: &mut impl FnMut(&[u8]),
    ) -> Result<bool, End> {
        match (self.version, message.kind) {
            (Version::Tls12, HELLO_REQUEST) if self.is_client => self.renegotiation(wire)?,
            (Version::Tls12, CLIENT_HELLO) if !self.is_client => self.renegotiation(wire)?,
            (Version::Tls13, NEW_SESSION_TICKET) if self.is_client => {
                is_ticket(message.body).then_some(()).ok_or(Fault::Ticket)?;
                ticket(message.body);
            }
            (Version::Tls13, KEY_UPDATE) => {
                self.key_update(message, wire, has_answered)?;
                return Ok(true);
            }
            (_, kind) => return Err(End::HandshakeType(kind)),
        }
        Ok(false)
    }

    /// Replaces the key of received records, and, if the peer asks for it, that of sent ones. Several requests in one turn have one answer.
    fn key_update(&mut self, message: &Message<'_>, wire: &mut Vec<u8>, has_answered: &mut bool) -> Result<(), Fault> {
        let &[request] = message.body else {
            return Err(if message.body.is_empty() { Fault::KeyUpdateEmpty } else { Fault::KeyUpdateLong });
        };
        // A message with parts under two keys would be authenticated by neither (RFC 8446 section 5.1).
        if !message.is_last {
            return Err(Fault::KeyUpdateNotLast);
        }
        self.allowances.key_updates = self.allowances.key_updates.checked_sub(1).ok_or(Fault::KeyUpdates)?;
        match request {
            0 => (),
            1 if *has_answered => (),
            1 => {
                *has_answered = true;
                self.update_keys(wire, false);
            }
            _ => return Err(Fault::KeyUpdateValue),
        }
        aead::next_generation(self.suite, &mut self.secrets[1], &mut self.rx);
        Ok(())
    }

    /// Refuses a new handshake (RFC 5246 section 7.2.2): once by a warning.
    fn renegotiation(&mut self, wire: &mut Vec<u8>) -> Result<(), Fault> {
        if self.allowances.rest & Allowances::RENEGOTIATION == 0 {
            return Err(Fault::Renegotiations);
        }
        self.allowances.rest &= !Allowances::RENEGOTIATION;
        if self.is_open() {
            self.send(ALERT, &[WARNING, alert::NO_RENEGOTIATION], wire);
        }
        Ok(())
    }

    fn alert(&mut self, content: &[u8], wire: &mut Vec<u8>) -> Result<(), End> {
        let &[level, description] = content else {
            return Err(End::Broken(match content.len() {
                0 => Fault::AlertEmpty,
                1 => Fault::AlertShort,
                _ => Fault::AlertLong,
            }));
        };
        match (level, description) {
            (WARNING | FATAL, alert::CLOSE_NOTIFY) => return Err(End::CloseNotify),
            (WARNING, _) => {
                if self.allowances.rest & Allowances::WARNINGS == 0 {
                    return Err(Fault::Warnings.into());
                }
                self.allowances.rest -= 1;
                // TLS 1.3 has no other warnings.
                if self.version == Version::Tls12 || description == alert::USER_CANCELED {
                    return Ok(());
                }
                self.refuse(alert::DECODE_ERROR, wire);
            }
            (FATAL, _) => (),
            _ => self.refuse(alert::ILLEGAL_PARAMETER, wire),
        }
        Err(End::Alert(description))
    }

    /// Ends the received direction, and tells the peer why.
    fn fail(&mut self, end: End, wire: &mut Vec<u8>) {
        match end {
            End::Open | End::CloseNotify | End::Alert(_) => (),
            End::Broken(Fault::Exhausted) => self.close_notify(wire),
            End::Broken(fault) => self.refuse(fault.alert(), wire),
            End::ContentType(_) | End::HandshakeType(_) => self.refuse(alert::UNEXPECTED_MESSAGE, wire),
        }
        self.end = end;
    }

    /// Sends an alert that ends the connection.
    fn refuse(&mut self, description: u8, wire: &mut Vec<u8>) {
        if self.is_open() {
            self.send(ALERT, &[FATAL, description], wire);
            self.allowances.rest &= !Allowances::IS_OPEN;
        }
    }

    /// Appends one record; the limit of the key does not hold for alerts and KeyUpdates.
    fn send(&mut self, kind: u8, content: &[u8], wire: &mut Vec<u8>) {
        seal(&Context::new(self.suite, self.version, &self.tx), &mut self.tx, kind, content, wire);
    }

    const fn is_open(&self) -> bool {
        self.allowances.rest & Allowances::IS_OPEN != 0
    }
}

impl Suite {
    /// Length of the key in bytes.
    pub(super) const fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Length of the hash and of a traffic secret in TLS 1.3 in bytes (RFC 8446 appendix B.4).
    pub(super) const fn hash_length(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => 32,
            Self::Aes256Gcm => 48,
        }
    }

    /// Number of records that a key may protect.
    const fn most_records(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => GCM_RECORDS,
            Self::ChaCha20Poly1305 => MOST_RECORDS,
        }
    }
}

/// Appends a record and takes its sequence number. The last number stays unused, so none wraps.
fn seal(context: &Context, keys: &mut RecordKeys, kind: u8, content: &[u8], wire: &mut Vec<u8>) {
    if let Some(next) = keys.seq.checked_add(1) {
        context.seal(keys.seq, kind, content, wire);
        keys.seq = next;
    }
}

/// Returns the fault of a change_cipher_spec: none is allowed behind the handshake.
fn change_cipher_spec(content: &[u8]) -> End {
    match content {
        [1] => End::ContentType(CHANGE_CIPHER_SPEC),
        [1, ..] => Fault::ChangeCipherSpecLong.into(),
        _ => Fault::ChangeCipherSpec.into(),
    }
}

impl Default for Records {
    fn default() -> Self {
        Self {
            tx: RecordKeys::default(),
            rx: RecordKeys::default(),
            secrets: [[0; 48]; 2],
            suite: Suite::default(),
            version: Version::default(),
            is_client: false,
            end: End::default(),
            allowances: Allowances::new(),
            certificate: None,
        }
    }
}

impl Drop for RecordKeys {
    fn drop(&mut self) {
        self.key.zeroize();
        self.iv.zeroize();
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.secrets.zeroize();
    }
}

#[cfg(test)]
mod tests;
