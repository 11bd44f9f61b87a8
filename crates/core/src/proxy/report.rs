//! Reports of the proxy to its user: notices about calls, and questions that the plan of a request asks.

use super::Proxy;
use crate::notice::{Notice, NoticeEvent};
use crate::slots::Id;
use crate::transaction::ServerId;

/// Notice or question about a request that was forwarded with a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Notice, of the form that every role emits.
    Notice(Notice),
    /// Question of the proxy alone.
    Question(Question),
}

/// Question about a forwarded request, which waits for the answer. After a move to another shard the question is repeated there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// [`Plan::context`](super::Plan::context) of the request.
    pub context: u64,
    /// Server transaction of the request, for the decision of the user.
    pub server: ServerId,
    /// Decision that the proxy needs.
    pub choice: Choice,
}

/// Decision that the proxy needs from its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Every target has failed, and the plan asks the user. No response is sent upstream until the user calls
    /// [`Proxy::more`], [`Proxy::answer`] or [`Proxy::pass`], or [`Proxy::carry_out`] for a plan for failures.
    Failing {
        /// Status of the best response (section 16.7 step 6), 300 to 699.
        status: u16,
        /// Question of the plan for failures that is due: [`FailurePlan::asks`](super::FailurePlan::asks).
        plan: Option<Box<[u8]>>,
    },
    /// The previous candidates have failed, and the next one has a question
    /// ([`Candidate::asks`](super::Candidate::asks)). [`Proxy::carry_out`] tries that candidate, [`Proxy::pass`] skips
    /// it.
    Choosing {
        /// Question of the last candidate tried; empty if it had none.
        before: Box<[u8]>,
        /// Question of this candidate.
        next: Box<[u8]>,
    },
}

impl Proxy {
    /// Returns the reports since the user last took them, in order. The responses that notices name must be read before
    /// the outbox is sent.
    pub fn reports(&mut self) -> &mut Vec<Report> {
        &mut self.reports
    }

    pub(super) fn notice(&mut self, id: Id, event: NoticeEvent) {
        if let Some(context) = self.context_of(id) {
            self.reports.push(Report::Notice(Notice { context, event }));
        }
    }

    pub(super) fn put_question(&mut self, id: Id, (server, choice): (ServerId, Choice)) {
        if let Some(context) = self.context_of(id) {
            self.reports.push(Report::Question(Question { context, server, choice }));
        }
    }

    fn context_of(&self, id: Id) -> Option<u64> {
        self.contexts.get(id).map(|context| context.user).filter(|user| *user != 0)
    }
}
