//! Plan of a request and its plans for failures, as kept with the request.

use super::plan::{DialogUse, FailurePlan, Plan, Remedy, TryNext};
use super::response_context::OwnedCandidate;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Status codes of [`TryNext::On`]. None: [`TryNext::Any`].
type Statuses = Option<SmallVec<[u16; 8]>>;

impl TryNext<'_> {
    fn statuses(self) -> Statuses {
        match self {
            Self::Any => None,
            Self::On(statuses) => Some(SmallVec::from_slice(statuses)),
        }
    }
}

/// Plan of a request, kept while targets are left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnedPlan {
    pub(super) dialog: DialogUse,
    pub(super) ring_timeout: u64,
    pub(super) answer_timeout: Option<u64>,
    try_next: Statuses,
    pub(super) asks: bool,
    pub(super) ring_ends: bool,
    /// Plans for failures that were not used yet.
    pub(super) on_failure: Vec<OwnedFailurePlan>,
    /// Number of plans, from the first, that the user has declined for the current failure.
    pub(super) passed: usize,
}

/// Plan for failures, kept until one occurs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnedFailurePlan {
    statuses: SmallVec<[(u16, u16); 2]>,
    /// Status that goes upstream, if there are no targets.
    pub(super) status: u16,
    ring_timeout: Option<u64>,
    answer_timeout: Option<u64>,
    try_next: Statuses,
    pub(super) candidates: Vec<OwnedCandidate>,
    /// [`FailurePlan::asks`]. Empty: no notice before the remedy.
    pub(super) asks: Box<[u8]>,
}

impl OwnedFailurePlan {
    fn of(plan: &FailurePlan<'_>) -> Self {
        let (status, candidates) = match plan.remedy {
            Remedy::Answer(status) => (status, &[][..]),
            Remedy::Try(candidates) => (0, candidates),
        };
        let candidates = candidates.iter().filter(|candidate| !candidate.targets.is_empty());
        let mut candidates: Vec<_> = candidates.map(OwnedCandidate::of).collect();
        candidates.sort_by_key(|candidate| Reverse(candidate.q));
        Self {
            statuses: SmallVec::from_slice(plan.statuses),
            status,
            ring_timeout: plan.ring_timeout,
            answer_timeout: plan.answer_timeout,
            try_next: plan.try_next.statuses(),
            candidates,
            asks: plan.asks.into(),
        }
    }

    fn is_for(&self, status: u16) -> bool {
        let is_of_use = self.status != 0 || !self.candidates.is_empty();
        is_of_use && self.statuses.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }

    /// Returns the memory that the waiting plan takes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.asks.len() + self.candidates.iter().map(OwnedCandidate::memory).sum::<usize>()
    }
}

impl OwnedPlan {
    pub(super) fn of(plan: &Plan<'_>, dialog: DialogUse) -> Self {
        let try_next = plan.try_next.statuses();
        let Plan { ring_timeout, answer_timeout, asks, ring_ends, .. } = *plan;
        let on_failure = plan.on_failure.iter().map(OwnedFailurePlan::of).collect();
        Self { dialog, ring_timeout, answer_timeout, try_next, asks, ring_ends, on_failure, passed: 0 }
    }

    /// Takes over the times and statuses of a plan for a failure, for its targets.
    pub(super) fn goes_on_by(&mut self, failure: &OwnedFailurePlan) {
        if let Some(ring_timeout) = failure.ring_timeout {
            (self.ring_timeout, self.ring_ends) = (ring_timeout, true);
        }
        self.answer_timeout = failure.answer_timeout.or(self.answer_timeout);
        self.try_next.clone_from(&failure.try_next);
    }

    /// Tells whether the plan has more to decide when every target has failed.
    pub(super) fn goes_on(&self) -> bool {
        self.asks || !self.on_failure.is_empty()
    }

    /// Returns the position of the plan for a failure with this status.
    pub(super) fn due(&self, status: u16) -> Option<usize> {
        (self.passed..self.on_failure.len()).find(|place| self.on_failure[*place].is_for(status))
    }

    /// Returns [`FailurePlan::asks`] of the plan for a failure with this status, if the plan has such bytes.
    pub(super) fn question(&self, status: u16) -> Option<Box<[u8]>> {
        let plan = &self.on_failure[self.due(status)?];
        Some(plan.asks.clone()).filter(|asks| !asks.is_empty())
    }

    /// Tells whether the same candidate is tried at its next address after this status. `again`: whether another of its targets has sent a
    /// 503 too; then only a plan that names 503 goes on. A 430 of an edge proxy leads to the next flow of the device (RFC 5626 section 11.5).
    pub(super) fn tries_next_address(&self, status: u16, again: bool) -> bool {
        let is_gone = status == 430 || (status == 503 && !again);
        self.try_next.as_ref().map_or(is_gone, |statuses| statuses.contains(&status))
    }

    /// Tells whether no further candidate is tried after this status.
    pub(super) fn ends_search(&self, status: u16) -> bool {
        self.try_next.as_ref().is_some_and(|statuses| !statuses.contains(&status))
    }
}
