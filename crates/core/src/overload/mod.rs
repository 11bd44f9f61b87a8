//! Overload control of one shard: the share of requests that it refuses while messages wait too long.
//!
//! The signal is the time that the oldest unserved message has waited. The owner of the shard measures it and reports it
//! with [`OverloadControl::waited`]; [`OverloadControl::refuses`] then decides about each request that may be refused. The
//! owner reads the class of a request, and exempts requests of calls in progress, retransmissions and emergency calls.
//!
//! # Begin and end
//!
//! Refusals begin when messages have waited for more than 5 ms during 100 ms, and the wait does not fall by itself. While
//! messages are late, a first step follows from how fast the wait has grown: a wait that grows by 90 ms in 100 ms means
//! that a tenth of the load can be served. The overload ends when all requests have been admitted for a second.
//!
//! # Standstills
//!
//! On a busy machine other programs take the processor for 20 to 100 ms at a time. Messages are late then, but the queue is empty soon
//! after each standstill, and refusals would save nothing. An overload is a queue that never is empty. So of a longer time without
//! a report only 20 ms count: the queue has time to become empty before the control begins to refuse, and in each step. A shard
//! with a quota of processor time stands still too, at each end of a period; it is overloaded if its queue stays from period to period.
//!
//! # Steps
//!
//! Each step of 50 ms multiplies the admitted share by the quotient of two paces, which are arrival time per time on the
//! clock. The *pace* of the shard is the arrival time of the messages that it served in the step: 1 means that the wait
//! stays the same. The *wanted pace* is above 1 by as much as works off the wait in a second. The decision is made when a
//! message is served, not when it arrives, so a change of the share changes the pace at once. If no message
//! was left unserved at some moment of the step, the pace says nothing, and the shard was idle or has caught up after a standstill: the
//! share grows by a tenth, and faster with each such step.
//!
//! # Classes
//!
//! The admitted share is a share of the work of all requests that may be refused. It is given to the classes in reverse
//! order of [`RequestClass`], by the number of their requests in the last steps: a class gets nothing while a more
//! important one is refused. A keyed hash of the Call-ID chooses within a class. So a call with credentials, which follows
//! a challenge, has the fate of its first INVITE, and no sender can choose a Call-ID that is admitted. The choice changes
//! every few seconds: otherwise a phone whose registrations all have one Call-ID would always be refused.

mod control;

pub use control::{OverloadChange, OverloadControl};

/// Class of a request that may be refused. The first class is refused first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// OPTIONS, MESSAGE, SUBSCRIBE, PUBLISH or any other request outside of a call.
    Other,
    /// INVITE that begins a call.
    Call,
    /// REGISTER that makes a binding.
    Registration,
    /// REGISTER that refreshes a binding.
    Refresh,
}

impl RequestClass {
    /// All classes, in the order in which they are refused.
    pub const ALL: [Self; 4] = [Self::Other, Self::Call, Self::Registration, Self::Refresh];

    /// Work of a request and of the messages that follow it, in multiples of the work of a registration.
    const fn work(self) -> f64 {
        match self {
            Self::Call => 3.0,
            Self::Other | Self::Registration | Self::Refresh => 1.0,
        }
    }
}
