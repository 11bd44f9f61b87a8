//! Failures to send, and requests that can get no answer any more.

use super::table::{Given, Transactions};
use super::{ClientId, Event, icmp_quote};
use crate::slots::Id;
use crate::{Now, Outbox, Target, Transport};
use std::net::SocketAddr;

/// Request without an answer.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) id: Id,
    /// Target of the request.
    pub(super) target: Target,
    pub(super) request: Vec<u8>,
}

impl Transactions {
    /// Handles a failure to send the messages with this token. Any token may be given.
    pub fn failed(&mut self, now: Now, token: u64, out: &mut Outbox, events: &mut Vec<Event>) {
        self.lost.clear();
        let id = Id::from_u64(token);
        if self.entries.get(id).is_some() {
            self.counts.transport_errors += 1;
            let action = self.drive(now, id, |m, reliable| m.transport_error(reliable), Given::Nothing, out);
            self.tell(id, action, events);
        }
    }

    /// Handles the end of the connection that carried the messages with this token: no answer will arrive over it. If
    /// the request has had no response, the peer may have forgotten the connection in a restart. So the request is sent
    /// once more over another connection, and counts as unsent only if that connection ends too (RFC 3261 sections 18.4
    /// and 17.1.4). There is no second attempt for a peer that can be reached only by a connection that the peer has
    /// opened.
    pub fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox, events: &mut Vec<Event>) {
        let id = Id::from_u64(token);
        let Some(entry) = self.entries.get_mut(id).filter(|e| e.machine.hears_nothing() && e.is_reliable()) else {
            return;
        };
        let target = Target::from(entry.target);
        // Over a reliable transport there are no other retransmissions, so the counter can be used for this attempt.
        let first = std::mem::replace(&mut entry.attempts, 1) == 0;
        match &entry.kept {
            Some(kept) if first && target.flow.is_none() && !entry.abridged => {
                let start = out.start();
                self.kept.append_to(kept, &mut out.bytes);
                out.send(target, start..out.bytes.len(), token);
                self.counts.requests_resent += 1;
            }
            _ => self.failed(now, token, out, events),
        }
    }

    /// Handles an ICMP error: a datagram to this address was unreachable, and `quoted` is its start. If its branch is
    /// that of a client transaction which uses UDP to this address and has no response yet, the request counts as
    /// unsent (RFC 3261 sections 18.4 and 17.1.4). Returns whether the error had this effect. An error without the
    /// branch is ignored, because addresses are not secret, so that any peer can forge such an error.
    pub fn unreachable(
        &mut self,
        now: Now,
        to: SocketAddr,
        quoted: &[u8],
        out: &mut Outbox,
        events: &mut Vec<Event>,
    ) -> bool {
        let found =
            icmp_quote::request(quoted).and_then(|(branch, method)| self.find(&self.keys.client(branch, method)));
        let Some((id, entry)) = found.and_then(|id| Some((id, self.entries.get(id)?))) else { return false };
        let target = Target::from(entry.target);
        let its =
            target.transport == Transport::Udp && (target.address.ip(), target.address.port()) == (to.ip(), to.port());
        if !its || !entry.machine.hears_nothing() {
            return false;
        }
        self.failed(now, id.to_u64(), out, events);
        true
    }

    /// Returns the sent request of an [`Event::Timeout`] or [`Event::ClientTransportError`], until the next poll or failure. A proxy makes
    /// its own response from it (RFC 3261 section 16.9).
    pub fn lost_request(&self, id: ClientId) -> Option<&[u8]> {
        self.lost(id).map(|lost| &lost.request[..])
    }

    /// Returns the target of this request, as long as [`Transactions::lost_request`] has it.
    pub fn lost_target(&self, id: ClientId) -> Option<Target> {
        self.lost(id).map(|lost| lost.target)
    }

    fn lost(&self, id: ClientId) -> Option<&Lost> {
        self.lost.iter().find(|lost| lost.id == id.0)
    }
}
