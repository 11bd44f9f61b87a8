//! Notices of the proxy about forwarded requests: the only source for accounting, limits, dialogs and the log.

use super::Proxy;
use crate::Target;
use crate::slots::Id;
use crate::transaction::ServerId;
use std::ops::Range;

/// Event of a request that was forwarded with a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// [`Plan::context`](super::Plan::context) of the request.
    pub context: u64,
    /// Event of the request.
    pub event: NoticeEvent,
}

/// Event of a forwarded request.
///
/// `bytes`: range of the upstream response in [`crate::Outbox::bytes`], valid until the outbox is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeEvent {
    /// A provisional response other than 100 goes upstream.
    Rang {
        /// 101 to 199.
        status: u16,
        /// Number of the branch; [`NoticeEvent::BranchEnded`] repeats it.
        branch: u32,
        /// Range of the response in the outbox.
        bytes: Range<usize>,
        /// Milliseconds since the request was forwarded, for the first sign of an answer only.
        after: Option<u32>,
    },
    /// A 2xx goes upstream. For an INVITE: each 2xx of each callee, repetitions included.
    Answered {
        /// 200 to 299.
        status: u16,
        /// True for the first 2xx of the request.
        first: bool,
        /// Range of the response in the outbox.
        bytes: Range<usize>,
        /// Milliseconds since the request was forwarded, for the first sign of an answer only.
        after: Option<u32>,
    },
    /// A branch has a final response of 300 or more, or its request could not be sent (503).
    Refused {
        /// 300 to 699.
        status: u16,
        /// Next hop. None: its transaction is gone.
        by: Option<Target>,
    },
    /// A branch has no final response in time.
    TimedOut {
        /// Next hop. None: its transaction is gone.
        target: Option<Target>,
    },
    /// A branch of an INVITE has no 2xx and gets none in time: its phone has stopped ringing. Also a branch that lost to another, and an
    /// abandoned branch that responded later.
    BranchEnded {
        /// Number of the branch, as in [`NoticeEvent::Rang`].
        branch: u32,
    },
    /// The sender has cancelled the request.
    Cancelled,
    /// Every target has failed, and the plan asks. No response goes upstream until the user calls [`Proxy::more`], [`Proxy::answer`] or
    /// [`Proxy::pass`], or [`Proxy::carry_out`] for a plan for failures. After a move to another shard the notice is repeated there.
    Failing {
        /// Server transaction of the request, for the decision of the user.
        server: ServerId,
        /// Status of the best response (section 16.7 step 6), 300 to 699.
        status: u16,
        /// [`FailurePlan::asks`](super::FailurePlan::asks) of the failure plan that is due.
        plan: Option<Box<[u8]>>,
    },
    /// The earlier candidates have failed, and the next one needs a decision of the user ([`Candidate::asks`](super::Candidate::asks)).
    /// [`Proxy::carry_out`] tries it, [`Proxy::pass`] passes over it. After a move to another shard the notice is repeated there.
    Choosing {
        /// Server transaction of the request, for the decision of the user.
        server: ServerId,
        /// [`Candidate::asks`](super::Candidate::asks) of the last candidate tried; empty if it had none.
        before: Box<[u8]>,
        /// [`Candidate::asks`](super::Candidate::asks) of the next candidate.
        next: Box<[u8]>,
    },
    /// Every target was tried: the best response goes upstream.
    Exhausted {
        /// Status of the response to the sender.
        status: u16,
        /// Range of the response in the outbox.
        bytes: Range<usize>,
    },
    /// The sender gets no final response: there is none, or it would come too late.
    Abandoned,
    /// The last transaction of the request has ended. An earlier notice told its outcome.
    Ended,
}

impl Proxy {
    /// Returns the notices since the user took them last. Read `bytes` before the outbox is sent.
    pub fn notices(&mut self) -> &mut Vec<Notice> {
        &mut self.notices
    }

    pub(super) fn notice(&mut self, id: Id, event: NoticeEvent) {
        if let Some(context) = self.contexts.get(id).map(|context| context.user).filter(|user| *user != 0) {
            self.notices.push(Notice { context, event });
        }
    }
}
