//! Targets that failed, for a user that tries them later than others (RFC 3263 section 4.3).

use super::Proxy;
use super::response_context::Branch;
use crate::slots::Id;
use crate::transaction::ClientId;
use crate::{Arrival, Target};
use strowger_message::header::RetryAfter;
use strowger_message::{Message, Name};

/// A target, and how it failed: one of a watched candidate ([`Candidate::watched`](super::Candidate::watched)), or [`TargetFailure::NoTcp`]
/// of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedTarget {
    /// Where the request went.
    pub target: Target,
    /// What came of it.
    pub failure: TargetFailure,
}

/// How a target failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFailure {
    /// It said nothing at all to a request, not even 100: until its transaction ended (timers B and F), its group had rung for as long as
    /// it may, or for as long as the plan lets it be silent.
    Silent,
    /// A request could not be sent there; whether the target is to be blamed for that, its user knows who said so.
    Unsent,
    /// It took no connection for a request that went by TCP for its size alone: it is reached by UDP (RFC 3261 section 18.1.1). For
    /// [`UdpOnly`](super::UdpOnly).
    NoTcp,
    /// It said 503 itself, and that it is to be asked no more for so many seconds (RFC 3261 section 21.5.4). Without a Retry-After a 503 is
    /// a failure of one request, as a 500 is.
    Unavailable {
        /// Of its Retry-After.
        seconds: u32,
    },
}

impl Proxy {
    /// Targets that failed since the user took them last.
    pub fn failed_targets(&mut self) -> &mut Vec<FailedTarget> {
        &mut self.failed_targets
    }

    /// A branch, as it was before, ends with this status of our own.
    pub(super) fn comes_to_nothing(&mut self, branch: &Branch, status: u16, target: Option<Target>) {
        let failure = match status {
            503 if branch.enlarged => {
                self.failed_targets.extend(target.map(|target| FailedTarget { target, failure: TargetFailure::NoTcp }));
                return;
            }
            503 => TargetFailure::Unsent,
            // One that has said something lives.
            408 if branch.status == 0 => TargetFailure::Silent,
            _ => return,
        };
        if let Some(target) = target.filter(|_| branch.watched) {
            self.failed_targets.push(FailedTarget { target, failure });
        }
    }

    /// A 503 to the request of this branch. What another host says in place of the target is believed for this request alone: elements
    /// further on know the branch too.
    pub(super) fn says_unavailable(
        &mut self,
        id: Id,
        client: ClientId,
        target: Option<Target>,
        response: &Message<'_>,
        arrival: &Arrival,
    ) {
        let branch = self.contexts.get_mut(id).and_then(|context| context.branch_mut(client));
        let is_its = |target: &Target| (target.transport, target.address) == (arrival.transport, arrival.remote);
        let Some(target) = target.filter(is_its).filter(|_| branch.is_some_and(|branch| branch.watched)) else {
            return;
        };
        let retry_after = response.header(Name::RetryAfter).and_then(|value| RetryAfter::parse(value).ok());
        if let Some(RetryAfter { seconds, .. }) = retry_after {
            self.failed_targets.push(FailedTarget { target, failure: TargetFailure::Unavailable { seconds } });
        }
    }
}
