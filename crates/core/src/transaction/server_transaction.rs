//! Server transactions, as their users see them: responses, target, end without an answer.

use super::allowance::Allowance;
use super::entry::TRYING;
use super::machine::Machine;
use super::step::{Action, Class};
use super::table::{Given, Transactions};
use super::{ServerId, TransactionUser, server_invite, server_non_invite};
use crate::{Now, Outbox, Target};
use std::ops::Range;

impl Transactions {
    /// Sends the bytes `range` of [`Outbox::bytes`] as a response. Returns false if they are not sent, because only
    /// another 2xx to an INVITE may follow a final response.
    pub fn respond(&mut self, now: Now, id: ServerId, status: u16, range: Range<usize>, out: &mut Outbox) -> bool {
        let class = Class::of(status);
        let is_first = self.entries.get(id.0).is_some_and(|entry| entry.machine.awaits_answer());
        let length = range.len();
        let action = self.drive(now, id.0, |m, reliable| m.respond(class, reliable), Given::Bytes(range), out);
        // A response that is kept was counted with that.
        if is_first
            && status >= 200
            && action == Action::Send
            && let Some(entry) = self.entries.get_mut(id.0)
        {
            entry.allowance.spend(length);
        }
        matches!(action, Action::Send | Action::SendAndKeep)
    }

    /// Sends a copy of a response that the user repeats until its ACK or PRACK, as [`Transactions::respond`] does.
    /// Returns false also if the source is doubted and its allowance is used up.
    pub fn respond_again(
        &mut self,
        now: Now,
        id: ServerId,
        status: u16,
        range: Range<usize>,
        out: &mut Outbox,
    ) -> bool {
        let entry = self.entries.get_mut(id.0);
        let is_allowed = entry.is_some_and(|entry| entry.allowance.try_spend(range.len()));
        is_allowed && self.respond(now, id, status, range, out)
    }

    /// Marks the source of this request as unproved. Each response of the transaction user is sent once. A
    /// retransmission, by Timer G, by [`Transactions::respond_again`] or because the request is retransmitted, is sent
    /// only while retransmissions and the final response together have at most `bytes` plus [`MOST_TIMES`](super::MOST_TIMES)
    /// times the bytes of retransmitted requests. A response longer than an ordinary response is not kept. Only the first
    /// call has an effect.
    pub fn doubt(&mut self, id: ServerId, bytes: usize) {
        if let Some(entry) = self.entries.get_mut(id.0).filter(|entry| !entry.allowance.is_bounded()) {
            entry.allowance = Allowance::of(bytes);
        }
    }

    /// Tells whether the source of this request is marked as unproved.
    pub fn is_doubted(&self, id: ServerId) -> bool {
        self.entries.get(id.0).is_some_and(|entry| entry.allowance.is_bounded())
    }

    /// Returns the user of a server transaction; none at first, and none if the transaction was removed.
    pub fn user(&self, id: ServerId) -> TransactionUser {
        self.entries.get(id.0).map_or(TransactionUser::NONE, |e| e.tu)
    }

    /// Sets the user of a server transaction, for its later events.
    pub fn set_user(&mut self, id: ServerId, tu: TransactionUser) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.tu = tu;
        }
    }

    /// Sets the target of the responses. By default they are sent to the source of the request
    /// ([`Arrival::reply`](crate::Arrival::reply), RFC 3261 section 18.2.2).
    pub fn set_reply(&mut self, id: ServerId, target: Target) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.target = target.into();
        }
    }

    /// Returns the target of the responses of this server transaction.
    pub fn target(&self, id: ServerId) -> Option<Target> {
        self.entries.get(id.0).map(|e| e.target.into())
    }

    /// Forgets a server transaction without an answer. A retransmission of its request is then a new request, and the
    /// next poll ends the transaction.
    pub fn abandon(&mut self, now: Now, id: ServerId) {
        let Some(entry) = self.entries.get_mut(id.0) else { return };
        entry.machine = match entry.machine {
            Machine::ServerInvite(_) => Machine::ServerInvite(server_invite::State::Terminated),
            Machine::ServerNonInvite(_) => Machine::ServerNonInvite(server_non_invite::State::Terminated),
            Machine::ClientInvite(_) | Machine::ClientNonInvite(_) => return,
        };
        self.counts.forgotten += u64::from(self.places.remove(&entry.key, id.0.slot));
        self.timers.stop(&mut entry.retransmission);
        self.timers.stop(&mut entry.end);
        entry.end = self.timers.start(now.mono, self.lengths.now, id.0.slot);
    }

    /// Starts the time until a 100 is due to a request other than INVITE, whose answer may take long:
    /// [`Event::TryingDue`](super::Event::TryingDue) follows (RFC 4320 section 4.1). Only the first call has an effect.
    pub fn expect_answer(&mut self, now: Now, id: ServerId) {
        let Some(entry) = self.entries.get_mut(id.0) else { return };
        if entry.machine == TRYING && !entry.retransmission.is_running() {
            entry.retransmission = self.timers.start(now.mono, self.lengths.trying, id.0.slot);
        }
    }
}
