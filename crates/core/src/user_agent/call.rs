//! A call: the INVITE, what is under way for it, and its dialogs.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::account::AccountKey;
use std::net::SocketAddr;

use crate::Target;
use crate::dialog::{Dialog, OfferAnswer};
use crate::record;
use crate::slots::Id;
use crate::timer::Stamp;
use crate::transaction::ServerId;

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Our INVITE has no final response.
    Inviting,
    /// Nor will it get one that we want: CANCEL has been sent, or will be.
    Cancelling,
    /// Our INVITE was answered with an offer; the owner owes the answer for the ACK.
    AnswerDue,
    /// Their INVITE waits for the owner.
    Incoming,
    /// Up, though the ACK may still be awaited.
    Established,
    /// Our BYE is under way.
    Terminating,
}

/// What is known of one early or confirmed dialog.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Leg {
    pub(super) dialog: Dialog,
    /// RSeq of the last reliable response taken (RFC 3262 section 4); 0: none.
    pub(super) rseq: u32,
    /// Which of the dialogs that the INVITE has made so far, from 0.
    pub(super) number: u16,
}

/// A reliable provisional response that waits for its PRACK (RFC 3262 section 3).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Unacknowledged {
    pub(super) bytes: Vec<u8>,
    pub(super) status: u16,
    pub(super) rseq: u32,
    /// It brings a description: no 2xx may overtake it.
    pub(super) has_body: bool,
    /// Header lines and body of the 2xx that waits behind it.
    pub(super) answer: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) stage: Stage,
    /// One, except while a forked INVITE rings in several places.
    pub(super) legs: SmallVec<[Leg; 1]>,
    /// How many there have been.
    pub(super) made: u16,
    /// Of the Call-ID, for our own table.
    pub(super) place: u64,
    /// [`crate::call::hash`] of the Call-ID.
    pub(super) call_hash: u32,
    pub(super) target: Target,
    pub(super) account: Option<AccountKey>,
    /// Our INVITE that has no final response: a request of ours.
    pub(super) inviting: Option<Id>,
    /// Our UPDATE that has no final response.
    pub(super) updating: Option<Id>,
    /// Their INVITE that has no final response.
    pub(super) asked: Option<IncomingInvite>,
    /// CSeq of the INVITE last answered 2xx: that of its ACK.
    pub(super) invite_cseq: u32,
    /// Branch of the ACK that was sent for our INVITE; 0: none.
    pub(super) ack_branch: u64,
    /// Credential lines of our INVITE, for its ACK.
    pub(super) credentials: Vec<u8>,
    /// While their INVITE is open, that request; then our 2xx until its ACK; else the body of our ACK.
    pub(super) kept: Vec<u8>,
    /// Their INVITE whose 2xx, in `kept`, waits for its ACK.
    pub(super) accepted: Option<IncomingInvite>,
    /// Their UPDATE that waits for our answer, and where its response goes.
    pub(super) updated: Option<Box<IncomingUpdate>>,
    /// Its end is not reported: a branch of a fork that lost.
    pub(super) silent: bool,
    /// How often what waits for ACK or PRACK was sent.
    pub(super) sent: u8,
    pub(super) unacknowledged: Option<Box<Unacknowledged>>,
    /// RSeq of the last reliable response that we sent.
    pub(super) rseq: u32,
    /// Header lines of the message that ends it.
    pub(super) last_lines: Vec<u8>,
    /// Hang up as soon as the ACK is there (section 15.1.1), for this reason.
    pub(super) hang_up: Option<super::Ending>,
    pub(super) ended_by: super::Ending,
    /// Retransmission of what waits for ACK or PRACK.
    #[serde(skip)]
    pub(super) again: Stamp,
    /// 64*T1 after the first.
    #[serde(skip)]
    pub(super) end: Stamp,
}

/// An INVITE of the peer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct IncomingInvite {
    pub(super) server: ServerId,
    pub(super) cseq: u32,
    /// Where it came from.
    #[serde(with = "record::address")]
    pub(super) source: SocketAddr,
    /// It must be (or may be) answered by reliable provisional responses.
    pub(super) reliable: bool,
    /// What to go back to if it is refused.
    pub(super) before: OfferAnswer,
}

/// An UPDATE of the peer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct IncomingUpdate {
    pub(super) server: ServerId,
    #[serde(with = "record::address")]
    pub(super) source: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) before: OfferAnswer,
}

/// A request that waits for the owner's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpenRequest {
    pub(super) server: ServerId,
    #[serde(with = "record::address")]
    pub(super) source: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) call_hash: u32,
    /// To tag of its responses; empty if it came in a dialog.
    pub(super) tag: Vec<u8>,
}

impl Call {
    pub(super) fn new(stage: Stage, place: u64, call_hash: u32, target: Target) -> Self {
        Self {
            stage,
            legs: SmallVec::new(),
            made: 0,
            place,
            call_hash,
            target,
            account: None,
            inviting: None,
            updating: None,
            asked: None,
            invite_cseq: 0,
            ack_branch: 0,
            credentials: Vec::new(),
            kept: Vec::new(),
            accepted: None,
            updated: None,
            silent: false,
            sent: 0,
            unacknowledged: None,
            rseq: 0,
            last_lines: Vec::new(),
            hang_up: None,
            ended_by: super::Ending::Local,
            again: Stamp::NONE,
            end: Stamp::NONE,
        }
    }

    /// The dialog of a call that has one for certain: any but an INVITE of ours that rings.
    pub(super) fn dialog(&mut self) -> Option<&mut Dialog> {
        self.legs.first_mut().map(|l| &mut l.dialog)
    }

    /// Another dialog of this call.
    pub(super) fn add_leg(&mut self, dialog: Dialog) -> usize {
        self.legs.push(Leg { dialog, rseq: 0, number: self.made });
        self.made = self.made.saturating_add(1);
        self.legs.len() - 1
    }

    pub(super) fn leg_of(&self, remote_tag: &[u8]) -> Option<usize> {
        self.legs.iter().position(|l| l.dialog.remote_tag() == remote_tag)
    }

    pub(super) fn runs(&self, stamp: Stamp) -> bool {
        self.again == stamp || self.end == stamp
    }
}
