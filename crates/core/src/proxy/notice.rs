//! What the proxy tells its user of the requests that it forwards: accounting, limits, dialogs, the log hang on this alone.

use super::Proxy;
use crate::Target;
use crate::slots::Id;
use crate::transaction::ServerId;
use std::ops::Range;

/// Something happened to a request that was forwarded with a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What [`Proxy::forward`] was given.
    pub context: u64,
    /// What happened to it.
    pub event: NoticeEvent,
}

/// What happened.
///
/// `bytes`: where the response that goes upstream stands in [`crate::Outbox::bytes`], until that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeEvent {
    /// A provisional response but 100 goes upstream.
    Rang {
        /// 101 to 199.
        status: u16,
        /// Of which branch: a number by which [`NoticeEvent::BranchEnded`] names it again.
        branch: u32,
        /// The response, in the bytes of the outbox.
        bytes: Range<usize>,
        /// Milliseconds since the request was forwarded, in the first sign of an answer alone.
        after: Option<u32>,
    },
    /// A 2xx goes upstream: of an INVITE each one, of every callee and each time that it comes.
    Answered {
        /// 200 to 299.
        status: u16,
        /// No other has gone before it.
        first: bool,
        /// The response, in the bytes of the outbox.
        bytes: Range<usize>,
        /// Milliseconds since the request was forwarded, in the first sign of an answer alone.
        after: Option<u32>,
    },
    /// A branch has a final response of 300 or more, or (503) its request could not be sent there.
    Refused {
        /// 300 to 699.
        status: u16,
        /// The next hop; none: the transaction there is gone already.
        by: Option<Target>,
    },
    /// A branch had no final response in time.
    TimedOut {
        /// The next hop; none: the transaction there is gone already.
        target: Option<Target>,
    },
    /// A branch of an INVITE has no 2xx, and gets none in time: what rang there rings no more. Also of one that lost to another, and of
    /// one that was given up before and has said something since.
    BranchEnded {
        /// As in [`NoticeEvent::Rang`].
        branch: u32,
    },
    /// Its sender has cancelled it.
    Cancelled,
    /// Every target has failed, and the plan asks: nothing goes upstream until the user says [`Proxy::more`], [`Proxy::answer`] or
    /// [`Proxy::pass`], or of a plan for failures that it may be carried out ([`Proxy::carry_out`]). After a move to another shard it is asked
    /// again there.
    Failing {
        /// Names the request in the answer of the user.
        server: ServerId,
        /// That of the best response (section 16.7 step 6), 300 to 699.
        status: u16,
        /// The plan for failures that would be carried out now: [`FailurePlan::asks`](super::FailurePlan::asks).
        plan: Option<Box<[u8]>>,
    },
    /// A candidate that asks ([`Candidate::asks`](super::Candidate::asks)) would be tried now, for those before it have failed: it is once
    /// the user says [`Proxy::carry_out`], and passed over if it says [`Proxy::pass`]. After a move to another shard it is asked again
    /// there.
    Choosing {
        /// Names the request in the answer of the user.
        server: ServerId,
        /// What the candidate that was tried last had asked; empty: nothing.
        before: Box<[u8]>,
        /// What this one asks.
        next: Box<[u8]>,
    },
    /// Every target was tried: the best response goes upstream.
    Exhausted {
        /// What the sender of the request gets.
        status: u16,
        /// The response, in the bytes of the outbox.
        bytes: Range<usize>,
    },
    /// Its sender gets no final response: there is none, or it would come too late.
    Abandoned,
    /// The last of its transactions has ended. A notice before this one says what became of it.
    Ended,
}

impl Proxy {
    /// What happened since the user took it last. What has `bytes` is to be read before the outbox is sent.
    pub fn notices(&mut self) -> &mut Vec<Notice> {
        &mut self.notices
    }

    pub(super) fn notice(&mut self, id: Id, event: NoticeEvent) {
        if let Some(context) = self.contexts.get(id).map(|context| context.user).filter(|user| *user != 0) {
            self.notices.push(Notice { context, event });
        }
    }
}
