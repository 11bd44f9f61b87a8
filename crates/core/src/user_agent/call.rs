//! Call: its INVITE, its open requests and its dialogs.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::CallKey;
use super::account::AccountKey;
use super::capabilities::Capabilities;
use super::content::HeldContent;
use super::session_timer::{Grant, SessionTimer};
use std::net::SocketAddr;

use crate::Target;
use crate::dialog::{Dialog, OfferAnswer};
use crate::record;
use crate::slots::Id;
use crate::timer::Stamp;
use crate::transaction::ServerId;

/// Stage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Our INVITE has no final response.
    Inviting,
    /// Our INVITE has no final response and is abandoned: CANCEL was sent, or will be.
    Cancelling,
    /// Our INVITE was answered with an offer, and the owner has to give the answer for the ACK.
    AnswerDue,
    /// The peer's INVITE waits for the owner.
    Incoming,
    /// The call is up, though the ACK may still be awaited.
    Established,
    /// Our BYE has no response yet.
    Terminating,
}

/// Key of a dialog of a call. A [`CallKey`] alone names the confirmed dialog, or the first early one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegKey {
    /// Call of the dialog.
    pub call: CallKey,
    /// Number of the dialog in its call, see [`super::UserAgent::leg`].
    pub leg: Option<u16>,
}

impl From<CallKey> for LegKey {
    fn from(call: CallKey) -> Self {
        Self { call, leg: None }
    }
}

/// State of one early or confirmed dialog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Leg {
    pub(super) dialog: Dialog,
    /// RSeq of the last reliable response accepted (RFC 3262 section 4); 0 if there was none.
    pub(super) rseq: u32,
    /// Number among the dialogs that the INVITE has made, from 0.
    pub(super) number: u16,
    /// RSeq and CSeq of a reliable response with an offer, whose PRACK waits for the owner's answer.
    pub(super) prack_due: Option<(u32, u32)>,
    /// Own request: our UPDATE without a final response.
    pub(super) updating: Option<Id>,
    /// Peer's UPDATE or PRACK that waits for our answer.
    pub(super) updated: Option<Box<IncomingUpdate>>,
    /// Next hop, if it is a host name.
    pub(super) named: Option<Box<NamedHop>>,
}

impl Leg {
    pub(super) fn new(dialog: Dialog, number: u16) -> Self {
        Self { dialog, rseq: 0, number, prack_due: None, updating: None, updated: None, named: None }
    }
}

/// Next hop with a host name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NamedHop {
    /// URI that was reported to the owner.
    pub(super) uri: Vec<u8>,
    /// Address that the owner found.
    pub(super) target: Option<Target>,
}

/// Reliable provisional response that waits for its PRACK (RFC 3262 section 3).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Unacknowledged {
    pub(super) bytes: Vec<u8>,
    pub(super) status: u16,
    pub(super) rseq: u32,
    /// Set if the response has a session description, so that no 2xx may overtake it.
    pub(super) has_body: bool,
    /// Set while the offer of its PRACK waits for our answer.
    pub(super) acknowledged: bool,
    /// Last provisional response that waits for the PRACK, with its status.
    pub(super) held: Option<(u16, HeldContent)>,
    /// 2xx that waits for the PRACK.
    pub(super) answer: Option<HeldContent>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) stage: Stage,
    /// Dialogs: one, except while the INVITE is forked and rings at several places.
    pub(super) legs: SmallVec<[Leg; 1]>,
    /// Number of dialogs made so far.
    pub(super) made: u16,
    /// Hash of the Call-ID, for the table of the user agent.
    pub(super) place: u64,
    /// [`crate::call::hash`] of the Call-ID.
    pub(super) call_hash: u32,
    pub(super) target: Target,
    pub(super) account: Option<AccountKey>,
    /// Capabilities of this call; `None` for those of the settings.
    pub(super) capabilities: Option<Box<Capabilities>>,
    pub(super) session: SessionTimer,
    /// Own request: our INVITE without a final response.
    pub(super) inviting: Option<Id>,
    /// Peer's INVITE without a final response.
    pub(super) asked: Option<IncomingInvite>,
    /// CSeq of the INVITE last answered with 2xx, and of its ACK.
    pub(super) invite_cseq: u32,
    /// Branch of the ACK of our INVITE. 0: none.
    pub(super) ack_branch: u64,
    /// Credential lines of our INVITE and the owner's lines, for the ACK.
    pub(super) credentials: Vec<u8>,
    /// Request-URI of our INVITE without a 2xx, later the body of our ACK. Of the peer's INVITE its bytes while it is open, later those of our 2xx
    /// until its ACK.
    pub(super) kept: Vec<u8>,
    /// Peer's INVITE whose 2xx, in `kept`, waits for its ACK.
    pub(super) accepted: Option<IncomingInvite>,
    /// Set for a branch of a fork that lost: its end is not reported.
    pub(super) silent: bool,
    /// Number of transmissions of the message that waits for ACK or PRACK.
    pub(super) sent: u8,
    /// Set while the caller has proved nothing: the source of its INVITE may be forged, and our requests get no copies. Its first request with our
    /// tag unsets it. A call at rest, the only one that another process takes over, has no such caller.
    #[serde(skip)]
    pub(super) is_unproven: bool,
    pub(super) unacknowledged: Option<Box<Unacknowledged>>,
    /// RSeq of our last reliable response.
    pub(super) rseq: u32,
    /// Header lines of the message that ends it.
    pub(super) last_lines: Vec<u8>,
    /// Reason to hang up once the ACK is received (section 15.1.1).
    pub(super) hang_up: Option<super::Ending>,
    pub(super) ended_by: super::Ending,
    /// Timer of the retransmission of a message that waits for ACK or PRACK.
    #[serde(skip)]
    pub(super) again: Stamp,
    /// Timer of 64*T1 after its first transmission.
    #[serde(skip)]
    pub(super) end: Stamp,
}

/// INVITE of the peer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct IncomingInvite {
    pub(super) server: ServerId,
    pub(super) cseq: u32,
    /// Source address.
    #[serde(with = "record::address")]
    pub(super) source: SocketAddr,
    /// Set if it must, or may, be answered by reliable provisional responses.
    pub(super) reliable: bool,
    /// State of offer and answer to restore if it is refused.
    pub(super) before: OfferAnswer,
    /// Session timer of its 2xx.
    pub(super) grant: Option<Grant>,
}

/// UPDATE or PRACK of the peer, with an offer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct IncomingUpdate {
    pub(super) is_prack: bool,
    pub(super) server: ServerId,
    #[serde(with = "record::address")]
    pub(super) source: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) before: OfferAnswer,
    /// Session timer of its 2xx.
    pub(super) grant: Option<Grant>,
}

/// Request that waits for the owner's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpenRequest {
    pub(super) server: ServerId,
    #[serde(with = "record::address")]
    pub(super) source: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) call_hash: u32,
    /// To tag of the responses; empty if the request arrived within a dialog.
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
            capabilities: None,
            session: SessionTimer::default(),
            inviting: None,
            asked: None,
            invite_cseq: 0,
            ack_branch: 0,
            credentials: Vec::new(),
            kept: Vec::new(),
            accepted: None,
            silent: false,
            sent: 0,
            is_unproven: false,
            unacknowledged: None,
            rseq: 0,
            last_lines: Vec::new(),
            hang_up: None,
            ended_by: super::Ending::Local,
            again: Stamp::NONE,
            end: Stamp::NONE,
        }
    }

    /// Returns the first dialog. Our INVITE has none before its first response with a tag.
    pub(super) fn dialog(&mut self) -> Option<&mut Dialog> {
        self.legs.first_mut().map(|l| &mut l.dialog)
    }

    /// Adds a dialog to this call. Returns its position.
    pub(super) fn add_leg(&mut self, dialog: Dialog) -> usize {
        let leg = self.new_leg(dialog);
        self.legs.push(leg);
        self.legs.len() - 1
    }

    /// Returns a leg with the next number.
    pub(super) fn new_leg(&mut self, dialog: Dialog) -> Leg {
        let number = self.made;
        self.made = number.saturating_add(1);
        Leg::new(dialog, number)
    }

    /// Returns the position of a dialog by its number; without a number, that of the first one.
    pub(super) fn position(&self, leg: Option<u16>) -> Option<usize> {
        match leg {
            Some(number) => self.legs.iter().position(|l| l.number == number),
            None => (!self.legs.is_empty()).then_some(0),
        }
    }

    /// Returns the account for a request to this target. A named account is for the host alone that has answered our INVITE: no other next hop
    /// may ask for its credentials.
    pub(super) fn account_at(&self, target: &Target) -> Option<AccountKey> {
        let host = |target: &Target| target.address.ip().to_canonical();
        self.account.filter(|account| !account.is_named() || host(target) == host(&self.target))
    }

    /// Tells whether a change of the session waits for its final response, or our 2xx for its ACK.
    pub(super) fn is_changing(&self) -> bool {
        let updates = self.legs.iter().any(|l| l.updating.is_some() || l.updated.is_some());
        updates || self.inviting.is_some() || self.asked.is_some() || self.accepted.is_some()
    }

    /// Tells whether the call is up with one dialog, and waits for no final response and no ACK that its state depends on.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_up = self.stage == Stage::Established && self.legs.len() == 1;
        is_up && !self.is_changing() && self.unacknowledged.is_none() && self.hang_up.is_none()
    }

    pub(super) fn leg_of(&self, remote_tag: &[u8]) -> Option<usize> {
        self.legs.iter().position(|l| l.dialog.remote_tag() == remote_tag)
    }

    pub(super) fn runs(&self, stamp: Stamp) -> bool {
        self.again == stamp || self.end == stamp || self.session.runs(stamp)
    }
}
