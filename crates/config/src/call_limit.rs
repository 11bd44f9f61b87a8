//! `[[call_limit]]`: how many calls there may be at a time, for rules that name it.

use super::key::{Rule, words};
use super::name::Name;
use super::reader::{ANY, section};

words! {
    /// Of what a limit counts the calls.
    pub enum CountedPer {
        /// All of them together, such as those of a gateway or a tariff.
        All = "all",
        /// Of each user that authenticated.
        User = "user",
        /// Of each group of peers (`[[source]]`).
        SourceGroup = "source.group",
        /// Of each address that calls come from.
        SourceAddress = "source.address",
        /// Of each caller, by the URI in From.
        Caller = "from.uri",
        /// Of each callee, by the Request-URI.
        Callee = "request.uri",
    }
}

words! {
    /// What becomes of a request that would be one call too many.
    pub enum OverLimit {
        /// It is answered with the status of the limit.
        Answer = "answer",
        /// The rule does not hold for it, so the next is asked: another gateway.
        NextRule = "next-rule",
    }
}

section! {
    /// How many calls there may be at a time, from their INVITE to their end, of all rules together that name this limit; repeat the table for each.
    pub struct CallLimitTable = "call_limit" {
        /// What rules call it.
        pub name: Name = Name::UNSET, ANY.required();
        /// Of what the calls are counted: the limit is for each of these. A call that has no such thing is not counted.
        pub per: CountedPer = CountedPer::All, ANY;
        /// Calls at a time.
        pub most: u32 = 1, Rule::number(1, 100_000_000).required();
        /// Status of the answer to a call beyond them.
        pub status: u16 = 503, Rule::number(400, 699);
        /// What becomes of a call beyond them.
        pub over: OverLimit = OverLimit::Answer, ANY;
    }
}
