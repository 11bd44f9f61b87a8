//! What the table of transactions says to its user: ids, verdicts, events, numbers.

use super::user::TransactionUser;
use crate::slots::ids;

ids! {
    /// A server transaction: a request that came in. Ids of transactions that ended find nothing.
    ServerId
    /// A client transaction: a request that was sent. Its word is the token of what it sends.
    ClientId
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A new transaction: answer it with [`Transactions::respond`](super::Transactions::respond).
    New(ServerId),
    /// Nothing is left to do: a retransmission, answered with the last response if there is one; the ACK of a 300-699; a message
    /// without a usable Via.
    Absorbed,
    /// An ACK that belongs to a 2xx or to nothing known: no transaction, its user routes it (RFC 3261 section 17).
    Ack,
    /// A new CANCEL, itself to be answered, and the INVITE that it means, if there is one here (section 9.2).
    Cancel {
        /// That of the CANCEL: to be answered 200, or 481 if there is no INVITE.
        cancel: ServerId,
        /// That of the INVITE, in any state.
        invite: Option<ServerId>,
    },
    /// The bound of transactions or bytes is reached: answer 503 without a transaction, unless the sender proves its dialog
    /// ([`Transactions::admit_within_dialog`](super::Transactions::admit_within_dialog)).
    Full,
}

/// What a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// No transaction waits for it. It must not be passed on (RFC 6026 section 7.3).
    Unmatched,
    /// Nothing is left to do: a copy of a final response, an answer to a CANCEL of [`Transactions::cancel`](super::Transactions::cancel).
    Absorbed,
    /// For the user. A 300-699 to an INVITE is acknowledged already, a 2xx never is.
    Deliver {
        /// The request that it answers.
        id: ClientId,
        /// Its user.
        tu: TransactionUser,
        /// A 2xx to an INVITE came before: this is its copy or another branch's (RFC 6026 section 7.2).
        after_final: bool,
    },
}

/// What happened without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No final response came: timer B or F, or 64*T1 after a CANCEL. To be treated as a 408 (RFC 3261 section 8.1.3.1).
    Timeout {
        /// The request that had no final response.
        id: ClientId,
        /// Its user.
        tu: TransactionUser,
    },
    /// The request could not be sent. To be treated as a 503 (section 8.1.3.1).
    ClientTransportError {
        /// The request.
        id: ClientId,
        /// Its user.
        tu: TransactionUser,
    },
    /// A response could not be sent.
    ServerTransportError {
        /// The request that was to be answered.
        id: ServerId,
        /// Its user.
        tu: TransactionUser,
    },
    /// A 300-699 to an INVITE found no ACK: timer H.
    NoAck {
        /// The INVITE.
        id: ServerId,
        /// Its user.
        tu: TransactionUser,
    },
    /// Timer C ran out ([`Transactions::start_timer_c`](super::Transactions::start_timer_c)): the INVITE is to be cancelled, or waited for
    /// again.
    TimerC {
        /// The INVITE as it was forwarded.
        id: ClientId,
        /// Its user.
        tu: TransactionUser,
    },
    /// A 100 is due ([`Transactions::expect_answer`](super::Transactions::expect_answer)).
    TryingDue {
        /// The request that was not answered yet.
        id: ServerId,
        /// Its user.
        tu: TransactionUser,
    },
    /// The last word of this transaction.
    ServerEnded {
        /// Finds nothing from now on.
        id: ServerId,
        /// Its user.
        tu: TransactionUser,
    },
    /// The last word of this transaction.
    ClientEnded {
        /// Finds nothing from now on.
        id: ClientId,
        /// Its user.
        tu: TransactionUser,
    },
}

impl Event {
    /// Whose transaction it is.
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

/// Gauges (first block) and counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Server transactions that have not ended.
    pub servers: u64,
    /// Client transactions that have not ended.
    pub clients: u64,
    /// Bytes of the messages kept.
    pub kept_bytes: u64,
    /// Messages kept, to be sent again or to make others from.
    pub kept_messages: u64,
    /// Bytes that sources are charged for.
    pub charged_bytes: u64,
    /// Timers that run.
    pub timers: u64,
    /// Places in the table of keys that are taken: one for each transaction that is not forgotten.
    pub keys: u64,
    /// Transactions that were forgotten, until the next poll ends them.
    pub forgotten: u64,

    /// Requests that came again.
    pub request_retransmissions: u64,
    /// Final responses that came again.
    pub response_retransmissions: u64,
    /// Requests sent again by timers A and E.
    pub requests_resent: u64,
    /// Responses sent again, by timer G or on a request that came again.
    pub responses_resent: u64,
    /// Requests that had no final response in time: timers B and F, and the wait after a CANCEL.
    pub timeouts: u64,
    /// Failures of an INVITE that were not acknowledged: timer H.
    pub no_acks: u64,
    /// Messages that could not be sent.
    pub transport_errors: u64,
    /// Responses that no transaction waited for, messages without a usable Via.
    pub strays: u64,
    /// Messages that were sent and not kept whole: larger than what may be kept of one
    /// ([`Transactions::set_most_kept`](super::Transactions::set_most_kept)) or for their source.
    pub abridged: u64,
    /// Requests refused because of the bound.
    pub refused: u64,
    /// Requests that a reserve beyond the bound admitted: those within dialogs, and emergency requests.
    pub reserved: u64,
}
