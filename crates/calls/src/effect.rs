//! Effects of the table of calls: actions that its owner carries out, in order.

use crate::legs::Legs;
use strowger_core::notice::Party;
use strowger_store::accounting::Row;

/// Action that the table requests.
#[derive(Debug)]
pub enum CallEffect {
    /// Row of accounting to be written.
    Account(Box<Row>),
    /// State of a call for the next process ([`CallTable::take_over`](crate::CallTable::take_over)). It replaces earlier state of the call.
    PersistCall {
        /// Key of the call, equal in all shards.
        call: u64,
        /// State, read by [`read_kept`](crate::read_kept).
        state: Box<[u8]>,
    },
    /// End of a call that may have been kept. The rows of the call have been sent to the writer.
    FinishCall {
        /// Key of the call.
        call: u64,
        /// Copy of the rows, in case the sent rows are lost; read by [`Row::read_all`].
        rows: Box<[u8]>,
    },
    /// End of a kept call.
    DeleteCall {
        /// Key of the call.
        call: u64,
    },
    /// Request of this server to a party of a proxied call. It is routed like a request of that party's peer.
    Send {
        /// Context of the notices about its result.
        context: u64,
        /// Kind of the request.
        kind: OwnRequest,
        /// Request as the peer would send it to this server.
        bytes: Vec<u8>,
    },
    /// Request of this server to a party of an anchored call. The role that anchors the call writes it, and emits its result as notices.
    SendOnLeg {
        /// Key of the call.
        call: u64,
        /// Context of the notices about its result.
        context: u64,
        /// Party to which the request goes.
        party: Party,
        /// Kind of the request.
        kind: OwnRequest,
    },
    /// End of the requests to the parties of one dialog, after which the owner calls
    /// [`CallTable::has_sent`](crate::CallTable::has_sent).
    HasSent(DialogId),
    /// Order to cancel the INVITEs of the call that have no final response.
    Cancel {
        /// Context of these INVITEs.
        context: u64,
        /// Role that cancels them.
        legs: Legs,
    },
    /// An answered dialog has ended.
    DialogEnded {
        /// Milliseconds since its answer.
        lasted: u64,
    },
    /// The log has forgotten the beginning of a call.
    LogForgotten,
}

/// Request of this server within a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnRequest {
    /// BYE: it ends the dialog (RFC 3261 section 15).
    Bye,
    /// OPTIONS: question whether the dialog still exists (RFC 3261 section 11).
    Question,
}

/// Dialog of a call in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialogId {
    pub(crate) call: u64,
    pub(crate) salt: u16,
}
