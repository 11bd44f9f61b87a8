//! Results of the transaction table for its user: ids, owners, events, numbers.

use super::user::TransactionUser;
use crate::slots::ids;

ids! {
    /// Id of a server transaction: a received request. The id of an ended transaction finds nothing.
    ServerId
    /// Id of a client transaction: a sent request. As a word, it is the token of its messages.
    ClientId
}

/// Owner of a received message: a new transaction, an existing one and its user, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// New request: answer it with [`Transactions::respond`](super::Transactions::respond). It has no user yet.
    Request(ServerId),
    /// ACK of a 2xx, or an ACK that matches no transaction: the caller routes it (RFC 3261 section 17).
    Ack,
    /// New CANCEL, to be answered itself, and the INVITE to cancel (section 9.2).
    Cancel {
        /// Transaction of the CANCEL: answer it with 200, or 481 if there is no INVITE.
        cancel: ServerId,
        /// Transaction of the INVITE, in any state; `None` if this table has no such INVITE.
        invite: Option<ServerId>,
    },
    /// Response for the user of a client transaction. A 300-699 to an INVITE is already acknowledged, a 2xx never is.
    Response {
        /// Transaction of the request.
        id: ClientId,
        /// User of the transaction.
        tu: TransactionUser,
        /// Set after a 2xx to an INVITE: this is a copy of that 2xx or a 2xx of another branch (RFC 6026 section 7.2).
        after_final: bool,
    },
    /// Nothing to do. Request: a retransmission, answered with the last response if there is one; the ACK of a 300-699; a message without
    /// a usable Via. Response: a copy of a final response, or a response to a CANCEL of
    /// [`Transactions::cancel`](super::Transactions::cancel).
    Absorbed,
    /// Response without a transaction. It MUST NOT be forwarded (RFC 6026 section 7.3).
    Unmatched,
    /// Request without room: the bound of transactions or bytes is reached. Answer 503 without a transaction, unless the sender proves its
    /// dialog ([`Transactions::admit_within_dialog`](super::Transactions::admit_within_dialog)).
    Full,
}

/// Event of a transaction other than a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No final response arrived: timer B or F, or 64*T1 after a CANCEL. Equivalent to a 408 (RFC 3261 section
    /// 8.1.3.1).
    Timeout {
        /// Transaction of the request.
        id: ClientId,
        /// User of the transaction.
        tu: TransactionUser,
    },
    /// The request could not be sent. Equivalent to a 503 (section 8.1.3.1).
    ClientTransportError {
        /// Transaction of the request.
        id: ClientId,
        /// User of the transaction.
        tu: TransactionUser,
    },
    /// A response could not be sent.
    ServerTransportError {
        /// Transaction of the request.
        id: ServerId,
        /// User of the transaction.
        tu: TransactionUser,
    },
    /// No ACK of a 300-699 to an INVITE arrived: timer H.
    NoAck {
        /// Transaction of the INVITE.
        id: ServerId,
        /// User of the transaction.
        tu: TransactionUser,
    },
    /// Timer C has run out ([`Transactions::start_timer_c`](super::Transactions::start_timer_c)): the user cancels the INVITE, or starts
    /// the timer again.
    TimerC {
        /// Transaction of the forwarded INVITE.
        id: ClientId,
        /// User of the transaction.
        tu: TransactionUser,
    },
    /// A 100 is due ([`Transactions::expect_answer`](super::Transactions::expect_answer)).
    TryingDue {
        /// Transaction of the unanswered request.
        id: ServerId,
        /// User of the transaction.
        tu: TransactionUser,
    },
    /// Last event of a server transaction.
    ServerEnded {
        /// Id, which finds nothing from now on.
        id: ServerId,
        /// User of the transaction.
        tu: TransactionUser,
    },
    /// Last event of a client transaction.
    ClientEnded {
        /// Id, which finds nothing from now on.
        id: ClientId,
        /// User of the transaction.
        tu: TransactionUser,
    },
}

impl Event {
    /// Returns the user of the transaction.
    pub const fn user(&self) -> TransactionUser {
        match *self {
            Self::Timeout { tu, .. }
            | Self::ClientTransportError { tu, .. }
            | Self::ServerTransportError { tu, .. }
            | Self::NoAck { tu, .. }
            | Self::TimerC { tu, .. }
            | Self::TryingDue { tu, .. }
            | Self::ServerEnded { tu, .. }
            | Self::ClientEnded { tu, .. } => tu,
        }
    }
}

/// Gauges (first block), and counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live server transactions.
    pub servers: u64,
    /// Live client transactions.
    pub clients: u64,
    /// Bytes of kept messages.
    pub kept_bytes: u64,
    /// Messages kept for retransmissions, or to make an ACK, a CANCEL or a response from them.
    pub kept_messages: u64,
    /// Bytes charged to sources.
    pub charged_bytes: u64,
    /// Running timers.
    pub timers: u64,
    /// Entries of the key index: one for each transaction that is not forgotten.
    pub keys: u64,
    /// Forgotten transactions, which the next poll ends.
    pub forgotten: u64,

    /// Repeated requests received.
    pub request_retransmissions: u64,
    /// Repeated final responses received.
    pub response_retransmissions: u64,
    /// Requests repeated by timers A and E.
    pub requests_resent: u64,
    /// Responses repeated by timer G or after a repeated request.
    pub responses_resent: u64,
    /// Requests without a final response in time: timers B and F, and the wait after a CANCEL.
    pub timeouts: u64,
    /// Failures of an INVITE without ACK: timer H.
    pub no_acks: u64,
    /// Messages that could not be sent.
    pub transport_errors: u64,
    /// Responses without a transaction, and messages without a usable Via.
    pub strays: u64,
    /// Sent messages that were not kept in full: above the bound of one message
    /// ([`Transactions::set_most_kept`](super::Transactions::set_most_kept)) or of their source.
    pub abridged: u64,
    /// Requests refused because of the bound.
    pub refused: u64,
    /// Requests that a reserve beyond the bound admitted: within dialogs, and emergency requests.
    pub reserved: u64,
}
