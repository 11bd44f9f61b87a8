//! One proxied request: its server transaction and the branches that it was forked to (the response
//! context of RFC 3261 section 16).

use super::Policy;
use super::contact::FromDevice;
use super::notice::NoticeEvent;
use super::outgoing_request::OutgoingBranch;
use super::plan::{DialogUse, OwnedPlan};
use crate::record::header_names;
use crate::routing::AccountHash;
use crate::transaction::{ClientId, ServerId};
use crate::{Arrival, Now, Target, Transport};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strowger_message::Name;

/// What a proxy remembers of one request. Small: an ended call holds two for 32 seconds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResponseContext {
    pub(super) server: ServerId,
    pub(super) first: Branch,
    /// Branches beyond the first.
    #[expect(clippy::box_collection, reason = "few requests fork: the others pay 8 bytes for it, not 24")]
    pub(super) others: Option<Box<Vec<Branch>>>,
    /// Best final response so far, when several branches must be waited for.
    pub(super) best: Option<Box<BestResponse>>,
    /// The request and the targets not yet tried.
    pub(super) pending: Option<Box<Pending>>,
    pub(super) call_hash: u32,
    /// Transactions of this context that still live, the server's included.
    pub(super) live: u16,
    pub(super) invite: bool,
    /// A request within a dialog whose next hop is the device itself: its response is the device's own.
    pub(super) direct: bool,
    pub(super) dialog: DialogUse,
    pub(super) cancelled: bool,
    /// A final response went upstream.
    pub(super) answered: bool,
    /// Of the proxy's user, for the notices; 0: it wants none.
    pub(super) user: u64,
    /// What it was forwarded by. Bytes do not have it: read back, it goes on by what holds where it comes to.
    #[serde(skip)]
    pub(super) policy: Option<Arc<Policy>>,
    /// When it was forwarded: the low bits of [`Now::mono`]. 0: the first sign of an answer went upstream. Its record has its age.
    #[serde(skip)]
    pub(super) began: u32,
    /// See [`super::Plan::session`].
    pub(super) session: u32,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Branch {
    pub(super) client: Option<ClientId>,
    /// What notices call it: no other branch of any request, as good as surely, and the same wherever it moves to.
    pub(super) number: u32,
    /// The last status: 0 while there is none, below 200 while there is no final one.
    pub(super) status: u16,
    /// Which of the pending candidates it serves, for its next address.
    pub(super) candidate: u16,
    /// Its time was up, so we cancelled it: a 487 that answers this counts as a time-out.
    pub(super) timed_out: bool,
    /// See [`Candidate::watched`]. Bytes do not have it: what failed in one process is nothing to another.
    #[serde(skip)]
    pub(super) watched: bool,
    /// It went to a contact that registered here, by no Path: its responses are its own if no other element record-routed.
    pub(super) registered: bool,
    /// See [`Candidate::translated`].
    pub(super) translated: bool,
    /// It goes by TCP for the size of the request alone, and the same target by UDP is next. Bytes do not have it.
    #[serde(skip)]
    pub(super) enlarged: bool,
}

/// The best final response so far, ready to go upstream: its top Via already taken off.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BestResponse {
    /// As it came, by which it is ranked.
    pub(super) status: u16,
    /// As it goes upstream.
    pub(super) forwarded_status: u16,
    pub(super) bytes: Vec<u8>,
    /// Challenge lines of the other branches (section 16.7 step 7).
    pub(super) challenges: Vec<u8>,
}

/// What is needed to go on with further targets: the request as received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) request: Vec<u8>,
    pub(super) arrival: Arrival,
    pub(super) candidates: Vec<OwnedCandidate>,
    /// The next group of candidates to try.
    pub(super) next: usize,
    /// [`crate::Now::mono`] at which the group that rings now has rung long enough, if another one follows it or the user is asked; if it
    /// is being asked, at which it has taken too long.
    pub(super) until: u64,
    /// At which a target that has said nothing is given up.
    pub(super) silent_until: Option<u64>,
    pub(super) plan: OwnedPlan,
    /// What the user decides now.
    pub(super) asking: Asking,
    /// [`Candidate::asks`] of the candidate that was tried last.
    pub(super) chosen: Box<[u8]>,
    /// Branches that targets may have which the user adds.
    pub(super) reserve: u16,
    pub(super) share: Share,
}

/// What the user of the proxy is asked about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asking {
    /// Nothing.
    #[default]
    No,
    /// All targets have failed: what becomes of it.
    Failure,
    /// Whether the next candidate is tried.
    Candidate,
}

impl Asking {
    pub(super) fn is_any(self) -> bool {
        self != Self::No
    }
}

impl Pending {
    /// Each candidate, also those of plans for failures.
    fn waiting(&mut self) -> impl Iterator<Item = &mut OwnedCandidate> {
        let on_failure = self.plan.on_failure.iter_mut().flat_map(|plan| &mut plan.candidates);
        self.candidates.iter_mut().chain(on_failure)
    }
}

/// What each branch of a request takes along of what the whole may become.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Share {
    /// Max-Breadth of each branch of the group that is tried now.
    pub(super) breadth: u16,
    /// Branches that what goes out may become when it comes back.
    pub(super) left: u16,
}

/// A target of a request: where it goes and what changes on the way.
#[derive(Clone, Debug, Default)]
pub struct Candidate<'a> {
    /// The Request-URI to write; none: as received.
    pub uri: Option<&'a [u8]>,
    /// Those of some of the targets in place of it: other flows of one device, each registered with a Contact of its own (section 16.6
    /// step 2).
    pub uris: &'a [(Target, &'a [u8])],
    /// Route values to put on top: the Path of a binding, as received (RFC 3327).
    pub path: &'a [u8],
    /// Addresses in order of trying: the next one when one fails or says 503 (RFC 3263 section 4.3).
    pub targets: &'a [Target],
    /// 0 to 1000. Equal ones are tried together, higher ones first.
    pub q: u16,
    /// Header lines that go there besides, each with its line end.
    pub add: &'a [u8],
    /// Headers that do not go there. Those that routing, identity of the request, or its body, hang on stay all the same
    /// ([`may_be_removed`]).
    pub remove: &'a [Name],
    /// Large requests are not moved to TCP: the device is reached this way and no other.
    pub fixed: bool,
    /// The device is not where its URI says, but where its messages came from: a translator stands between.
    pub translated: bool,
    /// Those of its targets that fail are told to the user ([`Proxy::failed_targets`](super::Proxy::failed_targets)).
    pub watched: bool,
    /// Whether the proxy leads the request there in place of its sender.
    pub rerouting: Rerouting,
    /// Not empty: the user is asked before it is tried, and gets these bytes of its own with the question ([`NoticeEvent::Choosing`]). Of the
    /// first that is tried of all the user has no doubt, and is not asked. Candidates without a question behind one that has one belong
    /// to it: they are passed over with it.
    pub asks: &'a [u8],
}

/// Choice of a candidate by the proxy in place of the sender of a request. The Routes of the request stay behind then, and a strict router
/// among them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rerouting {
    /// None: the request goes where it says itself.
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
    uris: Vec<(Target, Vec<u8>)>,
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
    /// TCP targets were put before UDP targets ([`OwnedCandidate::enlarge`]).
    #[serde(skip)]
    enlarged: bool,
    rerouting: Rerouting,
    /// Empty: it is tried without a question.
    pub(super) asks: Box<[u8]>,
    /// How many of the targets were tried.
    pub(super) tried: usize,
}

impl Candidate<'_> {
    /// The Request-URI to write for this target.
    fn uri_for(&self, target: Target) -> Option<&[u8]> {
        uri_for(self.uris, target).or(self.uri)
    }

    /// The copy of the request that goes to this target.
    pub(super) fn branch(&self, target: Target, share: Share, dialog: DialogUse) -> OutgoingBranch<'_> {
        OutgoingBranch {
            uri: self.uri_for(target),
            path: self.path,
            add: self.add,
            remove: self.remove,
            target,
            share,
            dialog,
            registered: self.uri.is_some() && self.path.is_empty(),
            translated: self.translated,
            watched: self.watched,
            enlarged: false,
            rerouting: self.rerouting,
        }
    }
}

impl OwnedCandidate {
    /// The Request-URI to write for this target.
    fn uri_for(&self, target: Target) -> Option<&[u8]> {
        uri_for(&self.uris, target).or(self.uri.as_deref())
    }

    pub(super) fn of(candidate: &Candidate<'_>) -> Self {
        Self {
            uri: candidate.uri.map(<[u8]>::to_vec),
            uris: candidate.uris.iter().map(|(target, uri)| (*target, uri.to_vec())).collect(),
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
        }
    }

    /// The copy of the request that goes to this target.
    pub(super) fn branch(&self, target: Target, share: Share, dialog: DialogUse) -> OutgoingBranch<'_> {
        OutgoingBranch {
            uri: self.uri_for(target),
            path: &self.path,
            add: &self.add,
            remove: &self.remove,
            target,
            share,
            dialog,
            registered: self.uri.is_some() && self.path.is_empty(),
            translated: self.translated,
            watched: self.watched,
            enlarged: self.is_enlarged(target),
            rerouting: self.rerouting,
        }
    }

    /// Puts a TCP target before each UDP target for which `tcp` has one, unless it is among the targets.
    pub(super) fn enlarge(&mut self, tcp: impl Fn(Target) -> Option<Target>) {
        let is_there =
            |added: &Target| self.targets.iter().any(|t| (t.transport, t.address) == (added.transport, added.address));
        let add = |&target: &Target| tcp(target).filter(|added| !is_there(added)).into_iter().chain([target]);
        let targets: Vec<Target> = self.targets.iter().flat_map(add).collect();
        self.enlarged = targets.len() > self.targets.len();
        self.targets = targets;
    }

    /// Whether this target, which is being tried, stands before the same one by UDP for the size of the request.
    fn is_enlarged(&self, target: Target) -> bool {
        let is_same = |next: &Target| next.transport == Transport::Udp && next.address == target.address;
        self.enlarged && target.transport == Transport::Tcp && self.targets.get(self.tried).is_some_and(is_same)
    }

    pub(super) fn targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.targets.iter_mut().chain(self.uris.iter_mut().map(|(target, _)| target))
    }

    /// Bytes of its URIs, its Path, its lines and its question.
    pub(super) fn texts(&self) -> usize {
        let uris: usize = self.uris.iter().map(|(_, uri)| uri.len()).sum();
        self.uri.as_ref().map_or(0, Vec::len) + uris + self.path.len() + self.add.len() + self.asks.len()
    }

    /// Memory that it takes while it waits for its turn.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.texts()
            + size_of_val(&self.targets[..])
            + size_of_val(&self.uris[..])
            + size_of_val(&self.remove[..])
    }
}

/// Whether a candidate may do without this header.
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

fn uri_for<U: AsRef<[u8]>>(uris: &[(Target, U)], target: Target) -> Option<&[u8]> {
    uris.iter().find(|(other, _)| *other == target).map(|(_, uri)| uri.as_ref())
}

impl ResponseContext {
    /// Milliseconds from when it was forwarded, for the first response that tells its sender of an answer; none for others.
    pub(super) fn first_sign(&mut self, now: Now) -> Option<u32> {
        let began = std::mem::take(&mut self.began);
        (began != 0).then(|| (now.mono as u32).wrapping_sub(began))
    }

    /// It was forwarded so many milliseconds ago; `None`: the first sign of an answer went upstream.
    pub(super) fn forwarded_before(&mut self, now: Now, age: Option<u32>) {
        self.began = age.map_or(0, |age| (now.mono as u32).wrapping_sub(age).max(1));
    }

    /// Whether a response of this branch comes from the device that its Contact names.
    pub(super) fn device(&self, branch: &Branch) -> FromDevice {
        match (self.direct, branch.registered || branch.translated) {
            (true, _) => FromDevice::Yes,
            (false, true) => FromDevice::IfLast,
            (false, false) => FromDevice::No,
        }
    }

    /// What its user is asked when every target so far has failed: 408 where none has answered.
    pub(super) fn failing(&self) -> NoticeEvent {
        let status = self.failed_with();
        let plan = self.pending.as_ref().and_then(|pending| pending.plan.question(status));
        NoticeEvent::Failing { server: self.server, status, plan }
    }

    /// Its user is asked whether the next candidate is tried.
    pub(super) fn is_choosing(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.asking == Asking::Candidate)
    }

    /// What its user is asked now.
    pub(super) fn question(&self) -> Option<NoticeEvent> {
        let pending = self.pending.as_ref()?;
        match pending.asking {
            Asking::No => None,
            Asking::Failure => Some(self.failing()),
            Asking::Candidate => Some(NoticeEvent::Choosing {
                server: self.server,
                before: pending.chosen.clone(),
                next: pending.candidates.get(pending.next)?.asks.clone(),
            }),
        }
    }

    /// The status of the best response so far; 408 where no target has answered.
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

    /// Puts a new branch in the place of an unused first one, or behind the others.
    pub(super) fn add(&mut self, branch: Branch) {
        if self.first.client.is_none() && self.first.status == 0 {
            self.first = branch;
        } else {
            self.others.get_or_insert_default().push(branch);
        }
        self.live += 1;
    }

    /// Until when the group that rings now may do so; none if no candidate waits for its end.
    pub(super) fn ring_end(&self) -> Option<u64> {
        let is_bounded = |pending: &Pending| {
            pending.next < pending.candidates.len() || pending.plan.goes_on() || pending.plan.ring_ends
        };
        let pending = self.pending.as_ref().filter(|pending| is_bounded(pending))?;
        (!self.answered && !self.cancelled && (self.invite || pending.asking.is_any())).then_some(pending.until)
    }

    /// Until when targets may say nothing; none if all have said something, or that is not bounded.
    pub(super) fn silent_until(&self) -> Option<u64> {
        let until = self.pending.as_ref()?.silent_until?;
        let is_silent = |branch: &Branch| branch.client.is_some() && branch.status == 0;
        (!self.answered && !self.cancelled && self.branches().any(is_silent)).then_some(until)
    }

    /// The moments that it waits for.
    pub(super) fn untils_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.pending.iter_mut().flat_map(|pending| std::iter::once(&mut pending.until).chain(&mut pending.silent_until))
    }

    /// Each target that waits for its turn, or for a failure.
    pub(super) fn waiting_targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.pending.iter_mut().flat_map(|pending| pending.waiting()).flat_map(OwnedCandidate::targets_mut)
    }

    /// No further target is tried.
    pub(super) fn end_search(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.candidates.truncate(pending.next);
            for candidate in &mut pending.candidates {
                candidate.targets.truncate(candidate.tried);
            }
        }
    }

    /// Branches without a final response, of all or of this one, are cancelled since their time is up.
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
mod tests {
    use super::*;

    #[test]
    fn all_that_a_candidate_keeps_is_counted() {
        let flow = Target::new(Transport::Udp, crate::ListenerId(0), "192.0.2.1:5060".parse().unwrap());
        let [own, other, path] = [[b'a'; 1_000], [b'b'; 1_000], [b'c'; 1_000]];
        let candidate = Candidate {
            uri: Some(&own),
            uris: &[(flow, &other)],
            path: &path,
            targets: &[flow],
            ..Candidate::default()
        };
        let owned = OwnedCandidate::of(&candidate);
        assert!(owned.texts() == 3_000 && owned.memory() > 3_000 + 2 * size_of::<Target>());
        assert_eq!((owned.uri_for(flow), candidate.uri_for(flow)), (Some(&other[..]), Some(&other[..])));
    }
}
