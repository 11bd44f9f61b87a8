//! Failed targets, for a user of the proxy that tries them later than others (RFC 3263 section 4.3).

use super::Proxy;
use super::response_context::Branch;
use crate::slots::Id;
use crate::transaction::ClientId;
use crate::{Arrival, Target};
use strowger_message::header::RetryAfter;
use strowger_message::{Message, Name};

/// Failed target. [`TargetFailure::NoTcp`] is reported for all candidates, other failures only for watched candidates
/// ([`Candidate::watched`](super::Candidate::watched)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedTarget {
    /// Target of the request.
    pub target: Target,
    /// Kind of the failure.
    pub failure: TargetFailure,
}

/// Kind of the failure of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFailure {
    /// No response at all, not even 100, until the transaction ended (timers B and F), the ring time of its group was over, or the time
    /// allowed by the plan was over.
    Silent,
    /// The request could not be sent. The user of the proxy decides whether the target is at fault.
    Unsent,
    /// The target accepted no TCP connection for a request that was sent by TCP only because of its size. The user
    /// notes the target in [`UdpOnly`](super::UdpOnly), so that later requests are sent by UDP (RFC 3261 section
    /// 18.1.1).
    NoTcp,
    /// The target itself answered 503, with the seconds until it may be asked again (RFC 3261 section 21.5.4). A 503
    /// without Retry-After counts as the failure of one request, like a 500.
    Unavailable {
        /// Value of Retry-After.
        seconds: u32,
    },
}

impl Proxy {
    /// Returns the targets that failed since the user last took them.
    pub fn failed_targets(&mut self) -> &mut Vec<FailedTarget> {
        &mut self.failed_targets
    }

    /// Notes the failed target of a branch that ends with a status set by this server. `branch`: state of the branch
    /// before its end.
    pub(super) fn comes_to_nothing(&mut self, branch: &Branch, status: u16, target: Option<Target>) {
        let failure = match status {
            503 if branch.enlarged => {
                self.failed_targets.extend(target.map(|target| FailedTarget { target, failure: TargetFailure::NoTcp }));
                return;
            }
            503 => TargetFailure::Unsent,
            // A target that sent any response is reachable.
            408 if branch.status == 0 => TargetFailure::Silent,
            _ => return,
        };
        if let Some(target) = target.filter(|_| branch.watched) {
            self.failed_targets.push(FailedTarget { target, failure });
        }
    }

    /// Notes a 503 to the request of this branch. A 503 from another host than the target counts for this request only,
    /// because elements after the target know the branch too and could forge the 503.
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
