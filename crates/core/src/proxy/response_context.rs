//! Response context of RFC 3261 section 16: a proxied request with its server transaction and its branches.

use super::Policy;
use super::contact::FromDevice;
use super::outgoing_request::OutgoingBranch;
use super::owned_plan::OwnedPlan;
use super::plan::DialogUse;
use super::report::Choice;
use crate::record::header_names;
use crate::routing::AccountHash;
use crate::transaction::{ClientId, ServerId};
use crate::{Arrival, Now, Target, Transport};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strowger_message::Name;

/// State of one proxied request. The type is small, because an ended call holds two of them for 32 seconds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResponseContext {
    pub(super) server: ServerId,
    pub(super) first: Branch,
    /// Branches beyond the first.
    #[expect(clippy::box_collection, reason = "few requests fork: the others pay 8 bytes for it, not 24")]
    pub(super) others: Option<Box<Vec<Branch>>>,
    /// Best final response so far, while other branches are open.
    pub(super) best: Option<Box<BestResponse>>,
    /// Request and targets not yet tried.
    pub(super) pending: Option<Box<Pending>>,
    pub(super) call_hash: u32,
    /// Live transactions of this context, the server transaction included.
    pub(super) live: u16,
    pub(super) invite: bool,
    /// Set for a request within a dialog whose next hop is the device itself, so that the response is one of the
    /// device.
    pub(super) direct: bool,
    pub(super) dialog: DialogUse,
    pub(super) cancelled: bool,
    /// Set after a final response went upstream.
    pub(super) answered: bool,
    /// [`super::Plan::context`] for the notices. 0: no notices.
    pub(super) user: u64,
    /// Policy by which the request was forwarded. It is not part of the record: after a move, the policy of the new
    /// shard or process applies.
    #[serde(skip)]
    pub(super) policy: Option<Arc<Policy>>,
    /// Low bits of [`Now::mono`] when the request was forwarded; 0 after the first response that shows an answer was
    /// sent upstream. The record has the age instead.
    #[serde(skip)]
    pub(super) began: u32,
    /// Session interval, see [`super::Plan::session`].
    pub(super) session: u32,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Branch {
    pub(super) client: Option<ClientId>,
    /// Number in notices: random, practically unique among all branches, unchanged by moves.
    pub(super) number: u32,
    /// Last status: 0 for no response yet, below 200 for no final response yet.
    pub(super) status: u16,
    /// Position of its pending candidate, for the next address.
    pub(super) candidate: u16,
    /// Set when the time of the branch was over and it was cancelled: a 487 then counts as a time-out.
    pub(super) timed_out: bool,
    /// See [`Candidate::watched`]. Not in the record: failures in one process do not concern another.
    #[serde(skip)]
    pub(super) watched: bool,
    /// Set for a contact that registered here without Path: its responses are its own if no other element record-routed.
    pub(super) registered: bool,
    /// See [`Candidate::translated`].
    pub(super) translated: bool,
    /// Set for a contact that registered here with a Path.
    pub(super) has_path: bool,
    /// Set if the size of the request alone led to TCP, and the same target by UDP is next. Not in the record.
    #[serde(skip)]
    pub(super) enlarged: bool,
}

/// Best final response so far, without our Via, ready to go upstream.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BestResponse {
    /// Status as received; decides the rank.
    pub(super) status: u16,
    /// Status that goes upstream.
    pub(super) forwarded_status: u16,
    pub(super) bytes: Vec<u8>,
    /// Challenge lines of the other branches (section 16.7 step 7).
    pub(super) challenges: Vec<u8>,
}

/// Received request and its further targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) request: Vec<u8>,
    pub(super) arrival: Arrival,
    pub(super) candidates: Vec<OwnedCandidate>,
    /// Position of the next group of candidates.
    pub(super) next: usize,
    /// [`crate::Now::mono`] of the end of ringing for the current group, if another group follows or the user is asked.
    /// While the user is asked: the end of the time in which it must decide.
    pub(super) until: u64,
    /// Moment at which silent targets are given up.
    pub(super) silent_until: Option<u64>,
    pub(super) plan: OwnedPlan,
    /// Decision that the proxy user still owes.
    pub(super) asking: Asking,
    /// [`Candidate::asks`] of the last candidate tried.
    pub(super) chosen: Box<[u8]>,
    /// Branches reserved for targets that the user adds.
    pub(super) reserve: u16,
    pub(super) share: Share,
}

/// Decision about a request that the proxy requests from its user (the code that uses this library).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asking {
    /// No decision is pending.
    #[default]
    No,
    /// All targets have failed, and the user decides about the failure.
    Failure,
    /// The user decides whether the next candidate is tried.
    Candidate,
}

impl Asking {
    pub(super) fn is_any(self) -> bool {
        self != Self::No
    }
}

impl Pending {
    /// Returns each candidate, also those of plans for failures.
    fn waiting(&mut self) -> impl Iterator<Item = &mut OwnedCandidate> {
        let on_failure = self.plan.on_failure.iter_mut().flat_map(|plan| &mut plan.candidates);
        self.candidates.iter_mut().chain(on_failure)
    }
}

/// Limits of branches that each copy of a request carries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Share {
    /// Max-Breadth of each branch of the current group.
    pub(super) breadth: u16,
    /// Further branches that a copy may become when it comes back.
    pub(super) left: u16,
}

/// Target of a request, and the changes of the request for it.
#[derive(Clone, Debug, Default)]
pub struct Candidate<'a> {
    /// Request-URI to write. None: as received.
    pub uri: Option<&'a [u8]>,
    /// Other Request-URIs and Paths for some of the targets: flows of one device, each registered with a Contact of its own (section 16.6
    /// step 2). A flow without a Path is reached at the source of its messages.
    pub flows: &'a [(Target, &'a [u8], &'a [u8])],
    /// Route values to put on top: Path of a binding, as received (RFC 3327).
    pub path: &'a [u8],
    /// Addresses in order of trial: the next one after a failure or the first 503 (RFC 3263 section 4.3).
    pub targets: &'a [Target],
    /// Preference, 0 to 1000. Candidates of equal q are tried together, higher ones first.
    pub q: u16,
    /// Header lines to add, each with its line end.
    pub add: &'a [u8],
    /// Header fields to remove. Fields for routing, for the identity of the request or for its body always stay ([`may_be_removed`]).
    pub remove: &'a [Name],
    /// Set if large requests must not be sent by TCP, because the device is reached by these targets only.
    pub fixed: bool,
    /// Set if the device is reached at the source of its messages and not at its URI, because an address translator is
    /// between them.
    pub translated: bool,
    /// Set if failed targets are reported to the user ([`Proxy::failed_targets`](super::Proxy::failed_targets)).
    pub watched: bool,
    /// Choice of this target by the proxy in place of the sender.
    pub rerouting: Rerouting,
    /// Bytes that [`Choice::Choosing`] returns before the candidate is tried, so that the proxy user decides about it.
    /// If there are no bytes, the user does not decide. No decision is needed for the first candidate tried. Candidates
    /// without bytes belong to the last candidate before them that has bytes, and are skipped together with it.
    pub asks: &'a [u8],
}

/// Choice of a candidate by the proxy instead of the sender of a request. The Routes of the request are removed then,
/// including a strict router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rerouting {
    /// No choice: the request is routed by its Routes and its Request-URI.
    #[default]
    None,
    /// Next hop in place of the Request-URI.
    NextHop,
    /// Contact of the user with this account, whichever user the Request-URI names. Route tokens of that party state this account.
    User(AccountHash),
}

impl Rerouting {
    pub(super) fn is_none(self) -> bool {
        self == Self::None
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnedCandidate {
    uri: Option<Vec<u8>>,
    flows: Vec<(Target, Vec<u8>, Vec<u8>)>,
    pub(super) path: Vec<u8>,
    pub(super) targets: Vec<Target>,
    pub(super) q: u16,
    pub(super) add: Vec<u8>,
    #[serde(with = "header_names")]
    pub(super) remove: Vec<Name>,
    pub(super) fixed: bool,
    translated: bool,
    #[serde(skip)]
    watched: bool,
    /// Set if TCP targets were put before UDP targets ([`OwnedCandidate::enlarge`]).
    #[serde(skip)]
    enlarged: bool,
    rerouting: Rerouting,
    /// [`Candidate::asks`]. Empty: no notice before the trial.
    pub(super) asks: Box<[u8]>,
    /// Number of targets tried.
    pub(super) tried: usize,
    /// Set after a 503 of a target. Not in the record.
    #[serde(skip)]
    pub(super) unavailable: bool,
}

impl Candidate<'_> {
    /// Returns the copy of the request for this target.
    pub(super) fn branch(&self, target: Target, share: Share, dialog: DialogUse) -> OutgoingBranch<'_> {
        let own = Way { uri: self.uri, path: self.path, translated: self.translated };
        let Way { uri, path, translated } = way_to(target, self.flows).unwrap_or(own);
        OutgoingBranch {
            uri,
            path,
            add: self.add,
            remove: self.remove,
            target,
            share,
            dialog,
            registered: uri.is_some() && path.is_empty(),
            translated,
            watched: self.watched,
            enlarged: false,
            rerouting: self.rerouting,
        }
    }
}

impl OwnedCandidate {
    pub(super) fn of(candidate: &Candidate<'_>) -> Self {
        Self {
            uri: candidate.uri.map(<[u8]>::to_vec),
            flows: candidate.flows.iter().map(|(target, uri, path)| (*target, uri.to_vec(), path.to_vec())).collect(),
            path: candidate.path.to_vec(),
            targets: candidate.targets.to_vec(),
            q: candidate.q,
            add: candidate.add.to_vec(),
            remove: candidate.remove.to_vec(),
            fixed: candidate.fixed,
            translated: candidate.translated,
            watched: candidate.watched,
            enlarged: false,
            rerouting: candidate.rerouting,
            asks: candidate.asks.into(),
            tried: 0,
            unavailable: false,
        }
    }

    /// Returns the copy of the request for this target.
    pub(super) fn branch(&self, target: Target, share: Share, dialog: DialogUse) -> OutgoingBranch<'_> {
        let own = Way { uri: self.uri.as_deref(), path: &self.path, translated: self.translated };
        let Way { uri, path, translated } = way_to(target, &self.flows).unwrap_or(own);
        OutgoingBranch {
            uri,
            path,
            add: &self.add,
            remove: &self.remove,
            target,
            share,
            dialog,
            registered: uri.is_some() && path.is_empty(),
            translated,
            watched: self.watched,
            enlarged: self.is_enlarged(target),
            rerouting: self.rerouting,
        }
    }

    /// Inserts a TCP target before each UDP target for which `tcp` returns one, unless the candidate has that TCP
    /// target already.
    pub(super) fn enlarge(&mut self, tcp: impl Fn(Target) -> Option<Target>) {
        let is_there =
            |added: &Target| self.targets.iter().any(|t| (t.transport, t.address) == (added.transport, added.address));
        let add = |&target: &Target| tcp(target).filter(|added| !is_there(added)).into_iter().chain([target]);
        let targets: Vec<Target> = self.targets.iter().flat_map(add).collect();
        self.enlarged = targets.len() > self.targets.len();
        self.targets = targets;
    }

    /// Tells whether this current target was put before the same address by UDP because of the size of the request.
    fn is_enlarged(&self, target: Target) -> bool {
        let is_same = |next: &Target| next.transport == Transport::Udp && next.address == target.address;
        self.enlarged && target.transport == Transport::Tcp && self.targets.get(self.tried).is_some_and(is_same)
    }

    pub(super) fn targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.targets.iter_mut().chain(self.flows.iter_mut().map(|(target, ..)| target))
    }

    /// Returns the size in bytes of the candidate's texts: URIs, Paths, added lines and [`Candidate::asks`].
    pub(super) fn texts(&self) -> usize {
        let flows: usize = self.flows.iter().map(|(_, uri, path)| uri.len() + path.len()).sum();
        self.uri.as_ref().map_or(0, Vec::len) + flows + self.path.len() + self.add.len() + self.asks.len()
    }

    /// Returns the memory that the waiting candidate takes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.texts()
            + size_of_val(&self.targets[..])
            + size_of_val(&self.flows[..])
            + size_of_val(&self.remove[..])
    }
}

/// Tells whether a candidate may remove this header field.
pub const fn may_be_removed(name: Name) -> bool {
    !matches!(
        name,
        Name::Via
            | Name::From
            | Name::To
            | Name::CallId
            | Name::CSeq
            | Name::Contact
            | Name::Route
            | Name::RecordRoute
            | Name::MaxForwards
            | Name::MaxBreadth
            | Name::Authorization
            | Name::ProxyAuthorization
            | Name::ContentLength
            | Name::ContentType
            | Name::ContentEncoding
            | Name::Other
    )
}

/// Way of a request to a target.
struct Way<'a> {
    uri: Option<&'a [u8]>,
    path: &'a [u8],
    translated: bool,
}

/// Returns the way to a target that is one of these flows, or its address by TCP; `None` if it is the way of the candidate.
fn way_to<T: AsRef<[u8]>>(target: Target, flows: &[(Target, T, T)]) -> Option<Way<'_>> {
    let is_udp_of = |flow: &Target| flow.transport == Transport::Udp && flow.address == target.address;
    let is_way = |flow: &Target| *flow == target || (target.transport == Transport::Tcp && is_udp_of(flow));
    let (_, uri, path) = flows.iter().find(|(flow, ..)| is_way(flow))?;
    let (uri, path) = (uri.as_ref(), path.as_ref());
    Some(Way { uri: Some(uri), path, translated: path.is_empty() })
}

impl ResponseContext {
    /// Returns the milliseconds since the request was forwarded, but only once: for the first response that shows the
    /// sender an answer.
    pub(super) fn first_sign(&mut self, now: Now) -> Option<u32> {
        let began = std::mem::take(&mut self.began);
        (began != 0).then(|| (now.mono as u32).wrapping_sub(began))
    }

    /// Sets the age of the request in milliseconds; `None` if the first response that shows an answer was sent
    /// upstream.
    pub(super) fn forwarded_before(&mut self, now: Now, age: Option<u32>) {
        self.began = age.map_or(0, |age| (now.mono as u32).wrapping_sub(age).max(1));
    }

    /// Tells whether a response of this branch comes from the device that its Contact names.
    pub(super) fn device(&self, branch: &Branch) -> FromDevice {
        match (self.direct, branch.registered || branch.translated) {
            (true, _) => FromDevice::Yes,
            (false, true) => FromDevice::IfLast,
            (false, false) => FromDevice::No,
        }
    }

    /// Returns the question after the failure of every target, with status 408 if none has answered.
    fn failing(&self) -> Choice {
        let status = self.failed_with();
        let plan = self.pending.as_ref().and_then(|pending| pending.plan.question(status));
        Choice::Failing { status, plan }
    }

    /// Tells whether the user decides about the next candidate now.
    pub(super) fn is_choosing(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.asking == Asking::Candidate)
    }

    /// Returns the decision that the proxy user has not made yet, with the server transaction of the request.
    pub(super) fn question(&self) -> Option<(ServerId, Choice)> {
        let pending = self.pending.as_ref()?;
        let choice = match pending.asking {
            Asking::No => return None,
            Asking::Failure => self.failing(),
            Asking::Candidate => Choice::Choosing {
                before: pending.chosen.clone(),
                next: pending.candidates.get(pending.next)?.asks.clone(),
            },
        };
        Some((self.server, choice))
    }

    /// Returns the status of the best response so far; 408 if no target has answered.
    pub(super) fn failed_with(&self) -> u16 {
        self.best.as_ref().map_or(408, |best| best.forwarded_status)
    }

    pub(super) fn branches(&self) -> impl Iterator<Item = &Branch> {
        std::iter::once(&self.first).chain(self.others.iter().flat_map(|o| o.iter()))
    }

    pub(super) fn branches_mut(&mut self) -> impl Iterator<Item = &mut Branch> {
        std::iter::once(&mut self.first).chain(self.others.iter_mut().flat_map(|o| o.iter_mut()))
    }

    pub(super) fn branch_of(&self, client: ClientId) -> Option<&Branch> {
        self.branches().find(|b| b.client == Some(client))
    }

    pub(super) fn branch_mut(&mut self, client: ClientId) -> Option<&mut Branch> {
        self.branches_mut().find(|b| b.client == Some(client))
    }

    /// Stores a new branch in an unused first place, or after the others.
    pub(super) fn add(&mut self, branch: Branch) {
        if self.first.client.is_none() && self.first.status == 0 {
            self.first = branch;
        } else {
            self.others.get_or_insert_default().push(branch);
        }
        self.live += 1;
    }

    /// Returns the end of ringing for the current group; `None` if no candidate waits for it.
    pub(super) fn ring_end(&self) -> Option<u64> {
        let is_bounded = |pending: &Pending| {
            pending.next < pending.candidates.len() || pending.plan.goes_on() || pending.plan.ring_ends
        };
        let pending = self.pending.as_ref().filter(|pending| is_bounded(pending))?;
        (!self.answered && !self.cancelled && (self.invite || pending.asking.is_any())).then_some(pending.until)
    }

    /// Returns the end of the time for targets without a response; `None` if all have responded, or the plan has no
    /// bound.
    pub(super) fn silent_until(&self) -> Option<u64> {
        let until = self.pending.as_ref()?.silent_until?;
        let is_silent = |branch: &Branch| branch.client.is_some() && branch.status == 0;
        (!self.answered && !self.cancelled && self.branches().any(is_silent)).then_some(until)
    }

    /// Returns the moments for which the context waits.
    pub(super) fn untils_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.pending.iter_mut().flat_map(|pending| std::iter::once(&mut pending.until).chain(&mut pending.silent_until))
    }

    /// Returns each target of a waiting candidate or of a plan for failures.
    pub(super) fn waiting_targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.pending.iter_mut().flat_map(|pending| pending.waiting()).flat_map(OwnedCandidate::targets_mut)
    }

    /// Ends the search: no further target is tried.
    pub(super) fn end_search(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.candidates.truncate(pending.next);
            for candidate in &mut pending.candidates {
                candidate.targets.truncate(candidate.tried);
            }
        }
    }

    /// Marks branches without a final response as timed out: all of them, or only the branch of this client
    /// transaction.
    pub(super) fn time_out(&mut self, client: Option<ClientId>) {
        let is_meant = |branch: &&mut Branch| client.is_none_or(|client| branch.client == Some(client));
        for branch in self.branches_mut().filter(is_meant).filter(|branch| branch.status < 200) {
            branch.timed_out = true;
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.branches().any(|b| b.client.is_some() && b.status < 200)
    }
}

#[cfg(test)]
mod tests;
