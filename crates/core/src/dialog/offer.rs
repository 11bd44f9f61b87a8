//! Order of offers and answers (RFC 3264 section 4, RFC 3261 section 13.2.1, RFC 3311 section 5).

use serde::{Deserialize, Serialize};

/// State of offer and answer in a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OfferAnswer {
    /// No description has been exchanged.
    #[default]
    Idle,
    /// We offered and wait for the answer.
    LocalOffer,
    /// The peer offered and waits for our answer.
    RemoteOffer,
    /// An answer has closed the last exchange; either side may offer again.
    Stable,
}

/// Kind of a session description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// Proposal of a session, or of a change (RFC 3264 sections 5 and 8).
    Offer,
    /// Acceptance or refusal of each stream of the offer (RFC 3264 section 6).
    Answer,
}

/// Reason to refuse an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferError {
    /// The peer sends an offer while our own offer is unanswered: 491 (RFC 3261 section 14.2, RFC 3311 section 5.2).
    Glare,
    /// The peer sends another offer before we answered: 500 with Retry-After (RFC 3311 section 5.2).
    OverlappingOffer,
}

impl OfferError {
    /// Returns the status code that refuses the request of the offer: 491 or 500.
    pub const fn status(self) -> u16 {
        match self {
            Self::Glare => 491,
            Self::OverlappingOffer => 500,
        }
    }
}

impl OfferAnswer {
    /// Notes a description that we send.
    pub fn send(&mut self) -> Description {
        let description = if *self == Self::RemoteOffer { Description::Answer } else { Description::Offer };
        *self = if description == Description::Answer { Self::Stable } else { Self::LocalOffer };
        description
    }

    /// Notes a description in a request. It is an offer, unless it answers our offer (in an ACK or PRACK).
    ///
    /// # Errors
    /// The offer must be refused; nothing changes then.
    pub fn receive_request(&mut self, may_answer: bool) -> Result<Description, OfferError> {
        match *self {
            Self::LocalOffer if may_answer => {
                *self = Self::Stable;
                Ok(Description::Answer)
            }
            Self::LocalOffer => Err(OfferError::Glare),
            Self::RemoteOffer => Err(OfferError::OverlappingOffer),
            Self::Idle | Self::Stable => {
                *self = Self::RemoteOffer;
                Ok(Description::Offer)
            }
        }
    }

    /// Notes a description in a response: the answer to our offer, or an offer if our request had no body. Returns
    /// `None` for a repeated answer (in a 200 after a 183).
    pub fn receive_response(&mut self, request_had_offer: bool) -> Option<Description> {
        match *self {
            Self::LocalOffer => {
                *self = Self::Stable;
                Some(Description::Answer)
            }
            Self::Idle | Self::Stable if !request_had_offer => {
                *self = Self::RemoteOffer;
                Some(Description::Offer)
            }
            Self::Idle | Self::Stable | Self::RemoteOffer => None,
        }
    }

    /// Restores the state before a request whose offer was refused.
    pub fn withdraw(&mut self, before: Self) {
        *self = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_in_invite_answer_in_200() {
        let mut caller = OfferAnswer::default();
        assert_eq!(caller.send(), Description::Offer);
        assert_eq!(caller.receive_request(false), Err(OfferError::Glare));
        assert_eq!(caller.receive_response(true), Some(Description::Answer));
        assert_eq!(caller.receive_response(true), None, "the 200 repeats what the 183 said");
        let mut callee = OfferAnswer::default();
        assert_eq!(callee.receive_request(false), Ok(Description::Offer));
        assert_eq!(callee.receive_request(false), Err(OfferError::OverlappingOffer));
        assert_eq!(callee.send(), Description::Answer);
        assert_eq!(callee, OfferAnswer::Stable);
    }

    #[test]
    fn offer_in_200_answer_in_ack() {
        let mut caller = OfferAnswer::default();
        assert_eq!(caller.receive_response(false), Some(Description::Offer));
        assert_eq!(caller.send(), Description::Answer);
        let mut callee = OfferAnswer::default();
        assert_eq!(callee.send(), Description::Offer);
        assert_eq!(callee.receive_request(true), Ok(Description::Answer));
    }
}
