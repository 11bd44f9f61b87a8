//! Media of one kind, audio or video, that a call receives: at which socket, from which addresses, and whether they are on hold.

use super::call_port::CallPort;
use super::description::Description;
use super::plane::Shared;
use super::stream::{Taken, Until};
use std::net::SocketAddr;
use std::sync::Arc;

/// Names of the media in descriptions, by their places.
pub(super) const MEDIA: [&[u8]; 2] = [b"audio", b"video"];

/// Limit of addresses from which a call expects a medium. If the peer moves more often, its media from further addresses are not judged.
const ADDRESSES: usize = 16;

/// Received medium of a call.
#[derive(Default)]
pub(super) struct Reception {
    /// Port of the call for this medium.
    pub(super) own: Option<Arc<CallPort>>,
    /// Port in our last description with this medium.
    announced: Option<u16>,
    /// Last descriptions: ours, in whose formats the peer sends, and the peer's.
    ours: Description,
    theirs: Description,
    /// Address in the peer's last description with this medium.
    peer: Option<SocketAddr>,
    /// Addresses from which the common socket expects this medium, and since when, microseconds.
    expected: Vec<(SocketAddr, u64)>,
    /// True if the peer may not send, or does not want to.
    is_held: bool,
}

impl Reception {
    /// Stores our description of this medium. `address`: address at which we receive it.
    pub(super) fn describe(&mut self, description: Description, address: Option<SocketAddr>) {
        self.ours = description;
        self.announced = address.map(|address| address.port()).or(self.announced);
    }

    /// Stores the peer's description of this medium. `peer`: address at which the peer receives the medium and from which
    /// it sends.
    pub(super) fn learn(&mut self, description: Description, peer: Option<SocketAddr>) {
        self.theirs = description;
        self.peer = peer;
    }

    /// Returns the socket of the call, unless our description names another port.
    fn reads(&self) -> Option<Arc<CallPort>> {
        self.own.clone().filter(|own| self.announced.is_none_or(|port| port == own.port))
    }

    /// Expects this medium by the descriptions, from `now` on, microseconds. `until`: moment up to which the call expects packets if they
    /// hold it now.
    pub(super) fn listen(&mut self, shared: &Shared, place: usize, until: Option<Until>, now: u64) {
        let formats = self.ours.formats.clone().or(&self.theirs.formats);
        // Address 0.0.0.0 holds the call.
        let peer = self.peer.filter(|address| !address.ip().is_unspecified());
        let (ear, own) = (&shared.ears[place], self.reads());
        if let Some(own) = &own {
            own.ear.describe(&formats);
            self.expected.drain(..).for_each(|(address, _)| ear.release(address));
        } else if let Some(address) = peer {
            let is_new = !self.expected.iter().any(|(known, _)| *known == address);
            if !is_new || self.expected.len() < ADDRESSES {
                ear.expect(address, is_new, &formats);
            }
            if is_new && self.expected.len() < ADDRESSES {
                self.expected.push((address, now));
            }
        }
        let flows = self.theirs.direction.sends && self.ours.direction.receives;
        let is_held = !flows || self.peer.is_some() && peer.is_none();
        if std::mem::replace(&mut self.is_held, is_held) == is_held {
            return;
        }
        let (ear, from) = match (&own, peer.or_else(|| self.expected.last().map(|(address, _)| *address))) {
            (Some(own), _) => (&own.ear, None),
            (None, Some(address)) => (ear, Some(address)),
            (None, None) => return,
        };
        if is_held { ear.hold(from, until) } else { ear.resume(from, now) }
    }

    /// Takes the received streams at the end of the call, at `now`, microseconds. `until`: moment up to which the call expected packets.
    pub(super) fn end(&mut self, shared: &Shared, place: usize, until: Option<Until>, now: u64, into: &mut Taken) {
        let until = until.filter(|_| !self.is_held);
        for (address, since) in self.expected.drain(..) {
            // A peer that has moved sends no more from its earlier address.
            let until = until.filter(|_| self.peer == Some(address));
            shared.ears[place].take(address, since, until, now, into);
        }
        if let Some(own) = self.own.take() {
            shared.close_port(&own);
            own.ear.take_all(until, into);
        }
    }
}
