//! Far legs of bridged calls: what a far INVITE takes over from its near INVITE.
//!
//! The **near** INVITE has passed the stages, and its rule says that this server calls the callee itself. The user agent writes the **far**
//! INVITE, and sends it to this server ([`Target::LOOPBACK`](strowger_core::Target::LOOPBACK)). From there it takes the way of every request from
//! routing on: with the proof and the decision of the near INVITE, as if it came from the caller. No rule is asked again.
//!
//! The table of calls has one call for both, with the names of the near INVITE. It enters when the far INVITE is about to be sent. The far
//! INVITE may come several times, after a redirection or for a longer session interval: each one goes on with the same call.

mod entry;

use crate::decision::Decision;
use crate::handling::{Handling, Progress};
use crate::proof::Proof;
use crate::role::ServerRole;
use crate::stage::Stage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use strowger_config::GatewayGroupTable;
use strowger_core::b2bua::bridge::near_status;
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::record::{Number, Recorded};
use strowger_core::routing::Request;
use strowger_core::user_agent::AccountKey;
use strowger_core::{Arrival, Now, PeerName, call};
use strowger_message::{Edit, Message, Name};

/// Maximum number of far INVITEs of one call: each follows a final response to the one before.
const MOST_INVITES: u8 = 16;

/// Far INVITE of a bridged call: what it takes over from the near INVITE.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FarLeg {
    /// Origin of the near INVITE. The reply comes to this server.
    arrival: Arrival,
    proof: Proof,
    decision: Option<Box<Decision>>,
    /// Near INVITE. Empty once its call is in the table.
    near: Vec<u8>,
    /// Bucket of both Call-IDs.
    bucket: u8,
    /// Max-Forwards of the near INVITE, so that a loop of bridged calls ends (RFC 7332).
    max_forwards: Option<u32>,
    /// Value of its Max-Breadth; empty: it has none.
    max_breadth: Vec<u8>,
    /// Context of the notices about the call; 0 before it is in the table.
    context: u64,
    /// Number of far INVITEs so far.
    invites: u8,
    /// Number of bridged calls of this process in the chain of calls up to this one ([`FarLegs::passes`]).
    passes: u8,
}

impl FarLeg {
    /// Creates a leg for a near INVITE at the stage of routing. `passes`: number of bridged calls up to this one.
    pub(crate) fn of(handling: &Handling<'_, '_>, passes: u8) -> Self {
        let (request, progress) = (handling.request, &*handling.progress);
        let message = &request.message;
        let mut decision = progress.decision.clone();
        if let Some(decision) = &mut decision {
            decision.role = ServerRole::Proxy;
        }
        Self {
            arrival: request.arrival.looped(),
            proof: progress.proof.clone(),
            decision,
            near: message.bytes().to_vec(),
            bucket: call::bucket(request.call_hash),
            max_forwards: request.max_forwards,
            max_breadth: message.header(Name::MaxBreadth).unwrap_or_default().to_vec(),
            context: 0,
            invites: 0,
            passes,
        }
    }

    /// Returns the account that answers challenges: that of the only gateway group to which the call can go. No other next hop gets an answer.
    pub(crate) fn account(&self, groups: &[GatewayGroupTable]) -> Option<AccountKey> {
        let group = groups.get(self.decision.as_deref()?.only_group()?)?;
        group.credentials().map(|_| AccountKey::named(group.name.as_str().as_bytes()))
    }

    fn progress(&self, now: Now) -> Progress {
        let (proof, decision) = (self.proof.clone(), self.decision.clone());
        Progress { stage: Stage::Route, proof, decision, context: self.context, ..Progress::new(now) }
    }

    /// Writes the far INVITE with the bounds of the near one.
    fn write_bounded(&self, invite: &Message<'_>, out: &mut Vec<u8>) {
        let mut edit = Edit::new();
        if let Some(most) = self.max_forwards {
            edit.set(invite.index(), Name::MaxForwards, |text| text.extend_from_slice(most.to_string().as_bytes()));
        }
        if !self.max_breadth.is_empty() {
            edit.set(invite.index(), Name::MaxBreadth, |text| text.extend_from_slice(&self.max_breadth));
        }
        edit.write(invite, out);
    }
}

/// Far legs of one shard, by Call-ID.
#[derive(Debug, Default)]
pub(crate) struct FarLegs {
    legs: BTreeMap<Box<[u8]>, FarLeg>,
    /// Contexts of the notices about their calls.
    contexts: BTreeSet<u64>,
    /// Sender of the response that the proxy has handled last, in the current call of the engine: looped responses are of it.
    source: Option<Arrival>,
    /// Set if that sender is behind NAT.
    is_translated: bool,
    /// Set if that sender is a contact that a user has registered.
    is_user: bool,
    /// Name that the sender of the last response to a far INVITE had to prove.
    peer_name: Option<PeerName>,
    /// Refusals of far INVITEs in the current call of the engine, with the status that the caller gets. The table of calls gets them unless the
    /// INVITE comes again.
    refusals: Vec<Notice>,
    /// Answers to far INVITEs in the current call of the engine. The table of calls gets them once it is known whether they reach the caller.
    answers: Vec<Notice>,
}

/// Far legs that move with their bucket.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FarLegRecord(Vec<(Box<[u8]>, FarLeg)>);

impl FarLegRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Recorded for FarLegRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.0.iter_mut().for_each(|(_, leg)| leg.arrival.numbers(show));
    }
}

impl FarLegs {
    /// Returns the number of entries of all tables; 0 once no call has a far leg.
    pub(crate) fn entries(&self) -> usize {
        self.legs.len() + self.contexts.len()
    }

    /// Adds the leg of the far INVITEs with this Call-ID.
    pub(crate) fn insert(&mut self, call_id: &[u8], leg: FarLeg) {
        if leg.context != 0 {
            self.contexts.insert(leg.context);
        }
        self.legs.insert(call_id.into(), leg);
    }

    /// Removes the leg of a call that is over.
    pub(crate) fn remove(&mut self, call_id: &[u8]) -> Option<FarLeg> {
        let leg = self.legs.remove(call_id)?;
        self.contexts.remove(&leg.context);
        Some(leg)
    }

    /// Returns the context of the notices about a call, once its far INVITE has entered it into the table of calls.
    pub(crate) fn context(&self, call_id: &[u8]) -> Option<u64> {
        self.legs.get(call_id).map(|leg| leg.context).filter(|context| *context != 0)
    }

    /// Tells whether the notices about a call with a far leg have this context.
    pub(crate) fn has_context(&self, context: u64) -> bool {
        self.contexts.contains(&context)
    }

    /// Returns the number of bridged calls through which an INVITE with this Call-ID has come: a far INVITE may come back, if the next hop sends it to
    /// this server. Its Via header fields show no loop, for each call has its own. Both Call-IDs of a call are in one bucket, so it comes to this
    /// shard.
    pub(crate) fn passes(&self, call_id: &[u8]) -> u8 {
        self.legs.get(call_id).map_or(0, |leg| leg.passes)
    }

    /// Returns the origin of the requests of the user agent with this Call-ID.
    pub(crate) fn arrival(&self, call_id: &[u8]) -> Arrival {
        self.legs.get(call_id).map_or(Arrival::LOOPBACK, |leg| leg.arrival)
    }

    /// Returns the origin of a looped response.
    pub(crate) fn source(&self) -> Arrival {
        self.source.unwrap_or(Arrival::LOOPBACK)
    }

    /// Returns the address of the sender of a looped response, if the sender is behind NAT. The Contact of the response does not show it: it was
    /// replaced.
    pub(crate) fn nat_source(&self) -> Option<IpAddr> {
        self.source.filter(|_| self.is_translated).map(|source| source.remote.ip().to_canonical())
    }

    /// Tells whether the sender of a looped response is a contact that a user has registered.
    pub(crate) const fn is_user(&self) -> bool {
        self.is_user
    }

    /// Sets the sender of the response that the proxy handles. `is_translated`: whether it is behind NAT; `is_user`: whether it is a contact that a
    /// user has registered.
    pub(crate) fn set_source(&mut self, source: Arrival, is_translated: bool, is_user: bool) {
        (self.source, self.is_translated, self.is_user) = (Some(source), is_translated, is_user);
    }

    /// Sets the name that this sender had to prove; `None` for a sender without a secure connection, or with one that it has opened.
    pub(crate) const fn set_peer_name(&mut self, name: Option<PeerName>) {
        self.peer_name = name;
    }

    /// Returns the name that the sender of a looped response had to prove.
    pub(crate) const fn peer_name(&self) -> Option<PeerName> {
        self.peer_name
    }

    /// Forgets the sender of the last response.
    pub(crate) fn forget_source(&mut self) {
        (self.source, self.is_translated, self.is_user, self.peer_name) = (None, false, false, None);
    }

    /// Takes a far INVITE: returns its progress, and writes it with the bounds of its near INVITE. Returns `None` if it is of no leg, or there
    /// were too many.
    pub(crate) fn begin(&mut self, now: Now, invite: &Request<'_>, out: &mut Vec<u8>) -> Option<Progress> {
        let leg = self.legs.get_mut(invite.call_id).filter(|leg| leg.invites < MOST_INVITES)?;
        leg.invites += 1;
        if leg.context != 0 {
            // The call goes on.
            self.refusals.retain(|notice| notice.context != leg.context);
        }
        leg.write_bounded(&invite.message, out);
        Some(leg.progress(now))
    }

    /// Notes that a far INVITE with this Call-ID could not be sent again: its call, if it is in the table, is refused.
    pub(crate) fn fail(&mut self, call_id: &[u8]) {
        let event = NoticeEvent::Exhausted { status: near_status(503), bytes: 0..0 };
        self.refusals.extend(self.context(call_id).map(|context| Notice { context, event }));
    }

    /// Keeps the refusal of a far INVITE until it is known whether the INVITE comes again, and an answer until it is known whether the caller gets
    /// it. Returns false for any other notice.
    pub(crate) fn holds_back(&mut self, notice: &Notice) -> bool {
        let context = notice.context;
        match &notice.event {
            NoticeEvent::Exhausted { status, bytes } if self.contexts.contains(&context) => {
                let event = NoticeEvent::Exhausted { status: near_status(*status), bytes: bytes.clone() };
                self.refusals.push(Notice { context, event });
                true
            }
            NoticeEvent::Answered { .. } if self.contexts.contains(&context) => {
                self.answers.push(notice.clone());
                true
            }
            _ => false,
        }
    }

    /// Takes the refusals that were kept, of INVITEs that have not come again.
    pub(crate) fn take_refusals(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.refusals)
    }

    /// Takes the answers that were kept, which the user agent has handled.
    pub(crate) fn take_answers(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.answers)
    }

    /// Notes that the call of this leg is in the table.
    fn has_entered(&mut self, call_id: &[u8], context: u64) {
        if let Some(leg) = self.legs.get_mut(call_id) {
            (leg.context, leg.near) = (context, Vec::new());
            self.contexts.insert(context);
        }
    }

    /// Sets the context of another call of the table, which goes on with this leg: a new party has taken the place of one.
    pub(crate) fn continue_for(&mut self, call_id: &[u8], context: u64) {
        if let Some(leg) = self.legs.get_mut(call_id) {
            self.contexts.remove(&leg.context);
            self.contexts.insert(context);
            leg.context = context;
        }
    }

    /// Returns a copy of a leg that is up, for the next process: no far INVITE follows there.
    pub(crate) fn keep(&self, call_id: &[u8]) -> Option<FarLegRecord> {
        let FarLeg { arrival, proof, bucket, max_forwards, context, invites, passes, .. } = self.legs.get(call_id)?;
        let (decision, near, max_breadth) = (None, Vec::new(), Vec::new());
        let (arrival, proof, bucket, max_forwards) = (*arrival, proof.clone(), *bucket, *max_forwards);
        let (context, invites, passes) = (*context, *invites, *passes);
        let leg =
            FarLeg { arrival, proof, decision, near, bucket, max_forwards, max_breadth, context, invites, passes };
        Some(FarLegRecord(vec![(call_id.into(), leg)]))
    }

    /// Takes out the legs of this bucket.
    pub(crate) fn export(&mut self, bucket: u8) -> FarLegRecord {
        let of_bucket = self.legs.iter().filter(|(_, leg)| leg.bucket == bucket).map(|(call_id, _)| call_id.clone());
        let of_bucket: Vec<Box<[u8]>> = of_bucket.collect();
        FarLegRecord(of_bucket.into_iter().filter_map(|id| self.remove(&id).map(|leg| (id, leg))).collect())
    }

    /// Takes over the legs that another shard exported.
    pub(crate) fn import(&mut self, record: FarLegRecord) {
        record.0.into_iter().for_each(|(call_id, leg)| self.insert(&call_id, leg));
    }
}

impl Handling<'_, '_> {
    /// Tells whether the request is of the user agent of this server, for the far leg of a call.
    pub(crate) fn is_far_leg(&self) -> bool {
        self.request.arrival.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::{ListenerId, Transport};
    use strowger_message::{Index, Limits};

    fn leg(bucket: u8, context: u64) -> FarLeg {
        let remote = "192.0.2.7:5060".parse().expect("an address");
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None }.looped();
        let (proof, decision, near) = (Proof::default(), None, b"near".to_vec());
        let (max_forwards, max_breadth) = (Some(9), b"3".to_vec());
        FarLeg { arrival, proof, decision, near, bucket, max_forwards, max_breadth, context, invites: 0, passes: 1 }
    }

    fn exhausted(context: u64, status: u16) -> Notice {
        Notice { context, event: NoticeEvent::Exhausted { status, bytes: 0..0 } }
    }

    /// Gives a far INVITE to the legs. Returns its progress and its bytes.
    fn invite(legs: &mut FarLegs, call_id: &str) -> Option<(Progress, String)> {
        let text = format!(
            "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
             From: <sip:a@example.org>;tag=f\r\nTo: <sip:bob@example.org>\r\nCall-ID: {call_id}\r\nCSeq: 1 INVITE\r\n\
             Content-Length: 0\r\n\r\n"
        );
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("a request");
        let arrival = legs.arrival(call_id.as_bytes());
        let request = Request::of(Message::new(text.as_bytes(), &index), &arrival, 0).expect("a request");
        let (now, mut bytes) = (Now { mono: 5, wall: 5 }, Vec::new());
        let progress = legs.begin(now, &request, &mut bytes)?;
        Some((progress, String::from_utf8(bytes).expect("text")))
    }

    #[test]
    fn a_far_invite_has_the_bounds_of_the_near_one() {
        let mut legs = FarLegs::default();
        legs.insert(b"far", leg(1, 0));
        let (progress, text) = invite(&mut legs, "far").expect("an INVITE of the leg");
        assert_eq!((progress.stage, progress.context), (Stage::Route, 0));
        assert!(text.contains("Max-Forwards: 9\r\n") && text.contains("Max-Breadth: 3\r\n"), "{text}");
        assert!(invite(&mut legs, "other").is_none());
        assert_eq!((1..MOST_INVITES).filter(|_| invite(&mut legs, "far").is_some()).count(), 15);
        assert!(invite(&mut legs, "far").is_none(), "no loop of redirections goes on for ever");
    }

    #[test]
    fn a_call_is_refused_unless_its_invite_comes_again() {
        let mut legs = FarLegs::default();
        legs.insert(b"far", leg(1, 0));
        legs.has_entered(b"far", 77);
        assert_eq!(legs.context(b"far"), Some(77));
        assert!(!legs.holds_back(&exhausted(78, 486)), "that is another call");
        assert!(!legs.holds_back(&Notice { context: 77, event: NoticeEvent::Cancelled }));
        assert!(legs.holds_back(&exhausted(77, 407)));
        let (progress, _) = invite(&mut legs, "far").expect("it comes again");
        assert_eq!((progress.context, legs.take_refusals()), (77, Vec::new()));
        // There is no room for its transaction.
        legs.fail(b"far");
        assert_eq!(legs.take_refusals(), [exhausted(77, 503)]);
        assert!(legs.holds_back(&exhausted(77, 407)));
        assert!(legs.remove(b"far").is_some());
        assert_eq!(legs.take_refusals(), [exhausted(77, 403)], "as the caller gets it");
        assert!(!legs.holds_back(&exhausted(77, 407)), "the call is over");
    }

    #[test]
    fn legs_move_with_their_bucket() {
        let (mut from, mut to) = (FarLegs::default(), FarLegs::default());
        from.insert(b"one", leg(1, 77));
        from.insert(b"two", leg(2, 0));
        assert!(from.export(3).is_empty());
        to.import(from.export(1));
        assert_eq!((from.context(b"one"), to.context(b"one")), (None, Some(77)));
        assert!(to.holds_back(&exhausted(77, 407)) && !from.holds_back(&exhausted(77, 407)));
        assert!(invite(&mut from, "two").is_some() && invite(&mut to, "one").is_some());
    }
}
