//! CANCEL of a sent INVITE (RFC 3261 section 9.1).

use super::key::TopVia;
use super::machine::{Cancel, Machine};
use super::step::{Action, Step};
use super::table::{Given, Transactions, read_kept};
use super::{ClientId, ack_cancel, client_invite};
use crate::slots::Id;
use crate::{Now, Outbox};
use std::sync::Arc;

impl Transactions {
    /// Cancels an INVITE that has no final response yet (RFC 3261 section 9.1): at once after a provisional response, else when one
    /// arrives. Without a final response for 64*T1, [`Event::Timeout`](super::Event::Timeout) reports it. The outcome of the CANCEL itself
    /// is not reported. `lines`: header lines of the CANCEL, such as its Reason (RFC 3326). Returns false if there is nothing to cancel.
    pub fn cancel(&mut self, now: Now, id: ClientId, lines: Option<&Arc<[u8]>>, out: &mut Outbox) -> bool {
        let Some(entry) = self.entries.get_mut(id.0) else { return false };
        match (entry.machine, entry.cancel) {
            (Machine::ClientInvite(client_invite::State::Calling), Cancel::No) => {
                entry.cancel = Cancel::Wanted;
                self.cancel_lines.extend(lines.map(|lines| (id.to_u64(), lines.clone())));
                true
            }
            (Machine::ClientInvite(client_invite::State::Proceeding), Cancel::No) => {
                self.send_cancel(now, id.0, lines.map_or(&[], |lines| lines), out);
                true
            }
            _ => false,
        }
    }

    pub(super) fn send_cancel(&mut self, now: Now, id: Id, lines: &[u8], out: &mut Outbox) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let Machine::ClientInvite(client_invite::State::Proceeding) = entry.machine else { return };
        entry.cancel = Cancel::Sent;
        let (target, bucket, tu) = (entry.target.into(), entry.bucket, entry.tu);
        let Some(kept) = &entry.kept else { return };
        let start = out.start();
        let key = read_kept(&self.kept, kept, &mut self.invite, &mut self.index).and_then(|invite| {
            ack_cancel::write_cancel(&invite, lines, &mut out.bytes)?;
            Some(self.keys.client(TopVia::of_message(&invite)?.branch, b"CANCEL"))
        });
        if let Some(key) = key {
            let range = start..out.bytes.len();
            self.send_entry(now, range, key, b"CANCEL", target, bucket, tu, Cancel::Request, out);
        }
        self.drive(now, id, given_up, Given::Nothing, out);
    }

    /// Ends the wait for the final response to an INVITE after 64*T1, since its dialog is over: a peer that has sent a BYE still owes that response
    /// (RFC 3261 section 15.1.2), but may never send it. [`Event::Timeout`](super::Event::Timeout) reports the end.
    pub fn limit_wait(&mut self, now: Now, id: ClientId, out: &mut Outbox) {
        let Some(entry) = self.entries.get_mut(id.0) else { return };
        match (entry.machine, entry.cancel) {
            // Timer B runs. After a provisional response a CANCEL limits the wait.
            (Machine::ClientInvite(client_invite::State::Calling), Cancel::No) => entry.cancel = Cancel::Wanted,
            (Machine::ClientInvite(client_invite::State::Proceeding), Cancel::No) => {
                // There is nothing to cancel any more.
                entry.cancel = Cancel::Sent;
                self.drive(now, id.0, given_up, Given::Nothing, out);
            }
            _ => (),
        }
    }
}

/// Returns the step of an INVITE that waits for its final response for 64*T1 more.
fn given_up(machine: Machine, reliable: bool) -> Step<Machine> {
    match machine {
        Machine::ClientInvite(state) => {
            client_invite::step(state, client_invite::Event::Cancelled, reliable).map(Machine::ClientInvite)
        }
        other => Step::to(other, Action::Absorb),
    }
}
