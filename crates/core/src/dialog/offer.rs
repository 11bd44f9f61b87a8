//! Whose turn it is to describe the session (RFC 3264 section 4, RFC 3261 section 13.2.1, RFC 3311 section 5).

use serde::{Deserialize, Serialize};

/// Where the exchange of session descriptions in a dialog stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Exchange {
    /// No description has been exchanged.
    #[default]
    Fresh,
    /// We offered and wait for the answer.
    Offered,
    /// The peer offered and waits for our answer.
    Asked,
    /// An answer has closed the last exchange; either side may offer again.
    Settled,
}

/// What a description is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    Offer,
    Answer,
}

/// Why a description cannot stand here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clash {
    /// The peer offers while our own offer is unanswered: 491 (RFC 3261 section 14.2, RFC 3311 section 5.2).
    Glare,
    /// The peer offers again before we answered: 500 with Retry-After (RFC 3311 section 5.2).
    Impatient,
}

impl Clash {
    pub const fn status(self) -> u16 {
        match self {
            Self::Glare => 491,
            Self::Impatient => 500,
        }
    }
}

impl Exchange {
    /// We send a description.
    pub fn send(&mut self) -> Description {
        let what = if *self == Self::Asked { Description::Answer } else { Description::Offer };
        *self = if what == Description::Answer { Self::Settled } else { Self::Offered };
        what
    }

    /// A request brings a description: an offer, unless it answers ours (ACK and PRACK may).
    ///
    /// # Errors
    /// An offer that must be refused; nothing changes then.
    pub fn receive_request(&mut self, may_answer: bool) -> Result<Description, Clash> {
        match *self {
            Self::Offered if may_answer => {
                *self = Self::Settled;
                Ok(Description::Answer)
            }
            Self::Offered => Err(Clash::Glare),
            Self::Asked => Err(Clash::Impatient),
            Self::Fresh | Self::Settled => {
                *self = Self::Asked;
                Ok(Description::Offer)
            }
        }
    }

    /// A response brings a description: the answer to our offer, or an offer if we sent none (a request without a
    /// body). One that repeats an answer already given (a 200 after a 183) is no news: `None`.
    pub fn receive_response(&mut self, request_had_offer: bool) -> Option<Description> {
        match *self {
            Self::Offered => {
                *self = Self::Settled;
                Some(Description::Answer)
            }
            Self::Fresh | Self::Settled if !request_had_offer => {
                *self = Self::Asked;
                Some(Description::Offer)
            }
            Self::Fresh | Self::Settled | Self::Asked => None,
        }
    }

    /// The request that carried the offer was refused: all stays as it was before it.
    pub fn withdraw(&mut self, before: Self) {
        *self = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_in_invite_answer_in_200() {
        let mut caller = Exchange::default();
        assert_eq!(caller.send(), Description::Offer);
        assert_eq!(caller.receive_request(false), Err(Clash::Glare));
        assert_eq!(caller.receive_response(true), Some(Description::Answer));
        assert_eq!(caller.receive_response(true), None, "the 200 repeats what the 183 said");
        let mut callee = Exchange::default();
        assert_eq!(callee.receive_request(false), Ok(Description::Offer));
        assert_eq!(callee.receive_request(false), Err(Clash::Impatient));
        assert_eq!(callee.send(), Description::Answer);
        assert_eq!(callee, Exchange::Settled);
    }

    #[test]
    fn offer_in_200_answer_in_ack() {
        let mut caller = Exchange::default();
        assert_eq!(caller.receive_response(false), Some(Description::Offer));
        assert_eq!(caller.send(), Description::Answer);
        let mut callee = Exchange::default();
        assert_eq!(callee.send(), Description::Offer);
        assert_eq!(callee.receive_request(true), Ok(Description::Answer));
    }
}
