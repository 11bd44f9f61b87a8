//! State of one leg between exchanges: its descriptions, its origin line, its streams and their payload types.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use strowger_message::sdp::{Bandwidth, Sdp, SdpEdit, Timing};

use super::slot::Slot;
use super::stream::{DescribedStream, described_streams};
use super::written::{WrittenLine, write};
use super::{MAX_DESCRIPTION, MAX_STREAMS, Refusal};

/// Negotiated state of one leg of a call, the base of its next offer or answer. Kept calls store it in bytes.
///
/// An offer that its receiver refuses changes nothing that was agreed (RFC 3264 section 8): the state still has the
/// agreed descriptions of both sides, and the version of the refused one is not used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegState {
    session_id: u64,
    address: IpAddr,
    /// Version of the last description sent; 0 before the first.
    version: u64,
    /// Last description sent.
    sent: Box<[u8]>,
    /// Our agreed description, if the last one sent is another; empty if none was agreed.
    local: Option<Box<[u8]>>,
    /// Agreed description of the peer; empty if none was.
    remote: Box<[u8]>,
    /// Offer of the peer that has no answer yet.
    offer: Option<Box<[u8]>>,
    /// Set if the agreed offer was ours, and the answer the peer's.
    has_offered: bool,
    pub(super) slots: Vec<Slot>,
}

impl LegState {
    /// Creates the state of a leg without descriptions. The session id must be unique at this address, such as a random
    /// number; the 63 low bits are used (RFC 3264 section 5). The address stands in `o=`, and in the `c=` of the session.
    pub fn new(session_id: u64, address: IpAddr) -> Self {
        Self {
            session_id: session_id & (u64::MAX >> 1),
            address,
            version: 0,
            sent: Box::default(),
            local: None,
            remote: Box::default(),
            offer: None,
            has_offered: false,
            slots: Vec::new(),
        }
    }

    /// Returns the version in `o=` of the last description sent; 0 before the first.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the last description sent; empty before the first. An offer among them may be unanswered, or refused.
    pub fn sent(&self) -> &[u8] {
        &self.sent
    }

    /// Returns our agreed description; empty before the first exchange ends.
    pub fn local(&self) -> &[u8] {
        self.local.as_deref().unwrap_or(&self.sent)
    }

    /// Returns the agreed description of the peer; empty before the first exchange ends.
    pub fn remote(&self) -> &[u8] {
        &self.remote
    }

    /// Returns the address of the own descriptions.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Sets the address of the own descriptions from the next one on.
    pub const fn move_to(&mut self, address: IpAddr) {
        self.address = address;
    }

    /// Tells whether the agreed offer was ours.
    pub fn has_offered(&self) -> bool {
        self.has_offered
    }

    /// Notes that the peer's outstanding offer was refused: the session stays as it was agreed.
    pub fn refuse_offer(&mut self) {
        self.offer = None;
    }

    /// Returns the agreed description once more, to refresh the session (RFC 4028 section 7.4). Its version is the old
    /// one, unless another description was sent since.
    pub fn refresh(&mut self) -> Vec<u8> {
        if let Some(local) = self.local.take_if(|local| !local.is_empty()) {
            self.version += 1;
            if let Ok(sdp) = Sdp::parse(&local) {
                let mut edit = SdpEdit::new(&sdp);
                edit.set_origin_version(self.version);
                self.sent = edit.to_vec().into();
            }
        }
        self.sent.to_vec()
    }

    /// Skips the next version of our descriptions, which an earlier process may have sent after it wrote this state.
    pub fn skip_version(&mut self) {
        self.version += 1;
    }

    /// Ends the pairing of the streams with those of another leg, before a leg that replaces it is paired (RFC 3891).
    pub fn unpair(&mut self) {
        for slot in &mut self.slots {
            slot.other = None;
        }
    }

    /// Restores the pairs of streams of an earlier state of this leg, after the replacement of the other leg has failed.
    pub fn pair_as(&mut self, before: &Self) {
        for (place, slot) in self.slots.iter_mut().enumerate() {
            slot.other = before.slots.get(place).and_then(|slot| slot.other);
        }
    }

    /// Returns the state for a new peer that takes the place of the old one (RFC 3891): nothing is agreed with it, and our
    /// descriptions keep their origin.
    #[must_use]
    pub fn for_new_peer(&self) -> Self {
        Self { version: self.version, ..Self::new(self.session_id, self.address) }
    }

    /// Returns the outstanding offer of the peer, else the last one if we answered it: the offer that an answer is for.
    pub(super) fn offer_to_answer(&self) -> Option<Box<[u8]>> {
        let answered = || (!self.has_offered && !self.remote.is_empty()).then(|| self.remote.clone());
        self.offer.clone().or_else(answered)
    }

    /// Notes an offer of the peer, and the payload types that it binds.
    pub(super) fn receive(&mut self, offer: &Sdp<'_>) -> Result<(), Refusal> {
        check_size(offer)?;
        self.note_streams(&described_streams(offer));
        self.offer = Some(offer.bytes().into());
        Ok(())
    }

    /// Notes the streams of a description of the peer. A stream that cannot be read has a slot too.
    fn note_streams(&mut self, streams: &[Option<DescribedStream<'_, '_>>]) {
        for (place, stream) in streams.iter().enumerate() {
            if place == self.slots.len() {
                self.slots.push(Slot::new(b"audio", b"RTP/AVP", b"0"));
            }
            let Some(stream) = stream else { continue };
            self.slots[place].describe(stream.media.kind, stream.media.protocol, stream.media.formats().next());
            for format in &stream.formats {
                self.slots[place].bind(format);
            }
        }
    }

    /// Notes the peer's answer to our last description, also one whose content is not passed on: of a further branch of a
    /// fork, or of the party of a transfer.
    ///
    /// # Errors
    /// The answer is larger than the limits.
    pub fn receive_answer(&mut self, answer: &Sdp<'_>) -> Result<(), Refusal> {
        check_size(answer)?;
        let streams = described_streams(answer);
        for (slot, stream) in self.slots.iter_mut().zip(&streams) {
            // An answer should keep the payload types of its offer. Others that it binds are not used for anything else.
            for format in stream.iter().flat_map(|stream| &stream.formats) {
                slot.bind_if_free(format);
            }
        }
        self.agree(answer.bytes().into(), true);
        Ok(())
    }

    /// Notes that our last description answers this offer.
    pub(super) fn agree_local(&mut self, offer: Box<[u8]>) {
        self.agree(offer, false);
    }

    fn agree(&mut self, remote: Box<[u8]>, has_offered: bool) {
        self.local = None;
        self.remote = remote;
        self.offer = None;
        self.has_offered = has_offered;
    }

    /// Writes the next description. The version rises by one exactly if a line differs from the last description sent
    /// (RFC 3264 section 8).
    pub(super) fn write(
        &mut self,
        timings: &[Timing],
        bandwidths: &[Bandwidth<'_>],
        lines: &[WrittenLine<'_>],
    ) -> Vec<u8> {
        let text = |version| write((self.session_id, version, self.address), timings, bandwidths, lines);
        if self.version > 0 {
            let same = text(self.version);
            if same == *self.sent {
                return same;
            }
        }
        let next = text(self.version + 1);
        self.version += 1;
        let before = std::mem::replace(&mut self.sent, next.clone().into());
        self.local.get_or_insert(before);
        next
    }
}

/// Refuses a description that is too large to be kept.
fn check_size(sdp: &Sdp<'_>) -> Result<(), Refusal> {
    if sdp.media_count() > MAX_STREAMS || sdp.bytes().len() > MAX_DESCRIPTION {
        return Err(Refusal::TooLarge);
    }
    Ok(())
}
