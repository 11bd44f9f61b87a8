//! One transaction of the table.

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

/// One transaction: about 100 bytes.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) tu: TransactionUser,
    pub(super) target: PackedTarget,
    /// Of a client: the request, or the ACK that a failure got. Of a server: the last response.
    pub(super) kept: Option<StoredMessage>,
    /// What is kept is less than what was sent, and is not sent again.
    pub(super) abridged: bool,
    pub(super) retransmission: Stamp,
    pub(super) end: Stamp,
    pub(super) machine: Machine,
    /// Pauses between retransmissions so far.
    pub(super) attempts: u8,
    pub(super) bucket: u8,
    pub(super) cancel: Cancel,
    /// Of a server: bytes that its source is charged for.
    pub(super) due: u32,
    /// Of a server: what its source may still be sent again.
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
        self.target.transport().is_reliable()
    }

    fn runs(&self, stamp: Stamp) -> bool {
        self.retransmission == stamp || self.end == stamp
    }

    /// An INVITE that rings and is not cancelled: no other timer ends that.
    pub(super) fn may_run_timer_c(&self) -> bool {
        self.machine == Machine::ClientInvite(client_invite::State::Proceeding) && self.cancel == Cancel::No
    }
}

/// A request that is no INVITE and has had no response.
pub(super) const TRYING: Machine = Machine::ServerNonInvite(server_non_invite::State::Trying);

/// Tells the timers whether the entry in a slot still waits for them.
pub(super) fn runs(entries: &Slots<Entry>) -> impl Fn(u32, Stamp) -> bool {
    |slot, stamp| entries.at(slot).is_some_and(|(_, e)| e.runs(stamp))
}

/// Tells the table of keys what stands in a slot.
pub(super) fn key_of(entries: &Slots<Entry>) -> impl Fn(u32) -> Option<Key> {
    |slot| entries.at(slot).map(|(_, e)| e.key)
}
