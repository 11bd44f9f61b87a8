//! What could not be sent, or whose answer cannot come any more.

use super::table::{Given, Transactions};
use super::{ClientId, Event, icmp_quote};
use crate::slots::Id;
use crate::{Now, Outbox, Target, Transport};
use std::net::SocketAddr;

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) id: Id,
    /// Where it went.
    pub(super) target: Target,
    pub(super) request: Vec<u8>,
}

impl Transactions {
    /// What was sent with this token could not be sent. Any token may be given.
    pub fn failed(&mut self, now: Now, token: u64, out: &mut Outbox, events: &mut Vec<Event>) {
        self.lost.clear();
        let id = Id::from_u64(token);
        if self.entries.get(id).is_some() {
            self.counts.transport_errors += 1;
            let action = self.drive(now, id, |m, reliable| m.transport_error(reliable), Given::Nothing, out);
            self.tell(id, action, events);
        }
    }

    /// The connection has ended over which went what was sent with this token, and no answer will come by it. A request that
    /// has had none was perhaps sent to a peer that had forgotten the connection (it was started again): it is sent once more,
    /// over another connection, and only if that ends too it could not be sent (RFC 3261 sections 18.4 and 17.1.4). To a peer
    /// that is reached by its own connection alone there is no other.
    pub fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox, events: &mut Vec<Event>) {
        let id = Id::from_u64(token);
        let Some(entry) = self.entries.get_mut(id).filter(|e| e.machine.hears_nothing() && e.is_reliable()) else {
            return;
        };
        let target = Target::from(entry.target);
        // Over a reliable transport there are no other retransmissions to be counted.
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

    /// A datagram to this address was unreachable, an ICMP error says; `quoted` is how it began. If it is the request of a client
    /// transaction, as its branch says, which goes there by UDP and has heard nothing yet, that could not be sent (RFC 3261
    /// sections 18.4 and 17.1.4). Returns whether it is. Without the branch nothing is believed: addresses are no secret, and any peer
    /// can forge such an error.
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

    /// The request that an [`Event::Timeout`] or [`Event::ClientTransportError`] is about, as it was sent: a proxy
    /// makes the response from it that no peer gave (RFC 3261 section 16.9). Until the next poll or failure.
    pub fn lost_request(&self, id: ClientId) -> Option<&[u8]> {
        self.lost(id).map(|lost| &lost.request[..])
    }

    /// Where it went, as long as [`Transactions::lost_request`] has it.
    pub fn lost_target(&self, id: ClientId) -> Option<Target> {
        self.lost(id).map(|lost| lost.target)
    }

    fn lost(&self, id: ClientId) -> Option<&Lost> {
        self.lost.iter().find(|lost| lost.id == id.0)
    }
}
