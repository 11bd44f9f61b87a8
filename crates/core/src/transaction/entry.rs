//! Entry of a transaction in the table.

use super::allowance::Allowance;
use super::key::Key;
use super::machine::{Cancel, Machine};
use super::packed_target::PackedTarget;
use super::user::TransactionUser;
use super::{client_invite, server_non_invite};
use crate::Target;
use crate::message_store::StoredMessage;
use crate::slots::Slots;
use crate::timer::Stamp;

/// Transaction: about 100 bytes.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) tu: TransactionUser,
    pub(super) target: PackedTarget,
    /// Kept message. Client: the request, or the ACK of a failure. Server: the last response.
    pub(super) kept: Option<StoredMessage>,
    /// Set if the kept message is shorter than the sent one, so that it is not retransmitted.
    pub(super) abridged: bool,
    pub(super) retransmission: Stamp,
    pub(super) end: Stamp,
    pub(super) machine: Machine,
    /// Number of pauses between retransmissions so far.
    pub(super) attempts: u8,
    pub(super) bucket: u8,
    pub(super) cancel: Cancel,
    /// Server: bytes charged to its source.
    pub(super) due: u32,
    /// Bytes that may be sent again: of responses to the source of the request, of a request to its target.
    pub(super) allowance: Allowance,
}

impl Entry {
    pub(super) fn new(key: Key, machine: Machine, target: Target, bucket: u8, tu: TransactionUser) -> Self {
        Self {
            key,
            tu,
            target: target.into(),
            kept: None,
            abridged: false,
            retransmission: Stamp::NONE,
            end: Stamp::NONE,
            machine,
            attempts: 0,
            bucket,
            cancel: Cancel::No,
            due: 0,
            allowance: Allowance::UNBOUNDED,
        }
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.target.is_reliable()
    }

    fn runs(&self, stamp: Stamp) -> bool {
        self.retransmission == stamp || self.end == stamp
    }

    /// Tells whether timer C may run, which is needed because a ringing INVITE without CANCEL ends by no other timer.
    pub(super) fn may_run_timer_c(&self) -> bool {
        self.machine == Machine::ClientInvite(client_invite::State::Proceeding) && self.cancel == Cancel::No
    }
}

/// State of a request other than INVITE without any response.
pub(super) const TRYING: Machine = Machine::ServerNonInvite(server_non_invite::State::Trying);

/// Returns a function that tells the timers whether the entry in a slot still waits for them.
pub(super) fn runs(entries: &Slots<Entry>) -> impl Fn(u32, Stamp) -> bool {
    |slot, stamp| entries.at(slot).is_some_and(|(_, e)| e.runs(stamp))
}

/// Returns a function that gives the key index the key of the entry in a slot.
pub(super) fn key_of(entries: &Slots<Entry>) -> impl Fn(u32) -> Option<Key> {
    |slot| entries.at(slot).map(|(_, e)| e.key)
}
