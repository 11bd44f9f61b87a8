//! Faults of records, with the alerts for the peer (RFC 8446 section 6.2) and the errors for the operator.

use rustls::{Error, InvalidMessage, PeerMisbehaved};

/// Alerts (RFC 8446 section 6).
pub(super) const CLOSE_NOTIFY: u8 = 0;
pub(super) const USER_CANCELED: u8 = 90;
pub(super) const NO_RENEGOTIATION: u8 = 100;
pub(super) const UNEXPECTED_MESSAGE: u8 = 10;
pub(super) const ILLEGAL_PARAMETER: u8 = 47;
pub(super) const DECODE_ERROR: u8 = 50;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;

/// Fault that ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    // Headers.
    EmptyPayload,
    RecordTooLarge,
    ContentType,
    ProtocolVersion,
    // Protection.
    Decrypt,
    Oversized,
    NoInnerType,
    ProtectedChangeCipherSpec,
    /// The keys of the peer are used up.
    Exhausted,
    // Contents.
    AlertEmpty,
    AlertShort,
    AlertLong,
    ChangeCipherSpec,
    ChangeCipherSpecLong,
    HandshakeTooLarge,
    Interleaved,
    KeyUpdateEmpty,
    KeyUpdateLong,
    KeyUpdateValue,
    /// Bytes follow a KeyUpdate in its record.
    KeyUpdateNotLast,
    Ticket,
    // Floods.
    EmptyRecords,
    Warnings,
    Renegotiations,
    KeyUpdates,
}

impl Fault {
    /// Returns the alert for the peer.
    pub(super) const fn alert(self) -> u8 {
        match self {
            Self::Decrypt => BAD_RECORD_MAC,
            Self::Oversized => RECORD_OVERFLOW,
            Self::KeyUpdateValue => ILLEGAL_PARAMETER,
            Self::NoInnerType
            | Self::ProtectedChangeCipherSpec
            | Self::Interleaved
            | Self::KeyUpdateNotLast
            | Self::EmptyRecords
            | Self::Warnings
            | Self::Renegotiations
            | Self::KeyUpdates => UNEXPECTED_MESSAGE,
            Self::Exhausted => CLOSE_NOTIFY,
            _ => DECODE_ERROR,
        }
    }

    /// Returns the error, as rustls reports it.
    pub(super) fn error(self) -> Error {
        match self {
            Self::EmptyPayload => InvalidMessage::InvalidEmptyPayload.into(),
            Self::RecordTooLarge => InvalidMessage::MessageTooLarge.into(),
            Self::ContentType => InvalidMessage::InvalidContentType.into(),
            Self::ProtocolVersion => InvalidMessage::UnknownProtocolVersion.into(),
            Self::Decrypt => Error::DecryptError,
            Self::Oversized => Error::PeerSentOversizedRecord,
            Self::NoInnerType => PeerMisbehaved::IllegalTlsInnerPlaintext.into(),
            Self::ProtectedChangeCipherSpec => PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into(),
            Self::Exhausted => Error::General("the peer has used its keys for too many records".into()),
            Self::AlertEmpty => InvalidMessage::MissingData("AlertLevel").into(),
            Self::AlertShort => InvalidMessage::MissingData("AlertDescription").into(),
            Self::AlertLong => InvalidMessage::TrailingData("AlertMessagePayload").into(),
            Self::ChangeCipherSpec => InvalidMessage::InvalidCcs.into(),
            Self::ChangeCipherSpecLong => InvalidMessage::TrailingData("ChangeCipherSpecPayload").into(),
            Self::HandshakeTooLarge => InvalidMessage::HandshakePayloadTooLarge.into(),
            Self::Interleaved => PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into(),
            Self::KeyUpdateEmpty => InvalidMessage::MissingData("KeyUpdateRequest").into(),
            Self::KeyUpdateLong => InvalidMessage::TrailingData("HandshakeMessagePayload").into(),
            Self::KeyUpdateValue => InvalidMessage::InvalidKeyUpdate.into(),
            Self::KeyUpdateNotLast => PeerMisbehaved::KeyEpochWithPendingFragment.into(),
            Self::Ticket => InvalidMessage::MissingData("NewSessionTicket").into(),
            Self::EmptyRecords => PeerMisbehaved::TooManyEmptyFragments.into(),
            Self::Warnings => PeerMisbehaved::TooManyWarningAlertsReceived.into(),
            Self::Renegotiations => PeerMisbehaved::TooManyRenegotiationRequests.into(),
            Self::KeyUpdates => PeerMisbehaved::TooManyKeyUpdateRequests.into(),
        }
    }
}
