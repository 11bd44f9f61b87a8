//! Dialogs that may have ended unseen: the server asks both parties by an OPTIONS within the dialog (RFC 3261 sections
//! 11.2 and 12.2.2).
//!
//! Three things raise a doubt: the process began after the call (the end may have been lost with the process before), a
//! BYE was refused (its sender has hung up, or has not), and no ACK has passed for a 2xx. A party that answers 481 or
//! 408 has lost the dialog (RFC 3261 section 12.2.1.2): then the server ends the dialog. Any other answer confirms the
//! dialog. An unreachable party, such as a telephone whose connection ended with the previous process, is asked again;
//! when no party has confirmed the dialog for [`PATIENCE`], the server ends it too. An answer confirms the dialog only
//! if the question was sent after the last doubt: a party may hang up between its answer and the refusal of its BYE.
//!
//! If a party does not answer until the transaction times out, it has lost the dialog as well. The start of a process
//! is an exception, because nothing indicates then that a party has left, and some gateways ignore an OPTIONS within a
//! dialog: the dialog is lost only if neither party answers.
//!
//! Some parties send a BYE without a Route, as SIPp does. If the peer accepts it, and both messages come from the
//! addresses of the parties, the dialog ends at the moment of this BYE. The server still sends its own BYE within the
//! dialog. A 2xx to that BYE shows that the dialog existed until then, so the record of the call ends at that moment
//! ([`Ending::by_party`](crate::dialog_end::Ending::by_party)).
//!
//! The OPTIONS has the last CSeq of the party in whose name it is sent. With a higher CSeq it would make the next
//! request of that party look old.

use crate::bye::Bye;
use crate::times::moment;
use serde::{Deserialize, Serialize};
use strowger_core::Now;
use strowger_core::notice::Party;

/// Time from the first question to the end of an unconfirmed dialog, in milliseconds.
pub(crate) const PATIENCE: u64 = 60_000;

/// Time between two questions to an unreachable party, in milliseconds.
const AGAIN: u64 = 15_000;

/// Time from the refusal of a BYE to the first question, in milliseconds. The sender may send a correct BYE meanwhile.
pub(crate) const AFTER_BYE: u64 = 2_000;

/// State of a party of a doubted dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// The party may have left: if it does not answer, the dialog is lost.
    Suspected,
    Confirmed,
    /// Nothing says that it has left, but the process began after the call.
    Unheard,
    /// It was [`Self::Unheard`], and its transaction has timed out.
    Silent,
}

/// Open question about a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubt {
    /// Moment of the next question, on the clock of [`crate::call::Call::began`].
    pub(crate) next: i64,
    /// Moment when it ends.
    pub(crate) until: i64,
    /// Standing of each party, in the order of [`Party`].
    pub(crate) parties: [Standing; 2],
    /// Questions from this moment on can confirm the dialog.
    pub(crate) since: u64,
    /// Moment of a second round of questions.
    #[serde(skip)]
    pub(crate) again: Option<i64>,
    /// Last BYE without a Route, from the address of its party.
    #[serde(skip)]
    pub(crate) hang_up: Option<HangUp>,
}

/// BYE without a Route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HangUp {
    pub(crate) party: Party,
    pub(crate) bye: Bye,
    /// Random bits of its context, like the salt of a dialog.
    pub(crate) salt: u16,
}

impl Doubt {
    pub(crate) fn at(moment: i64, standing: Standing) -> Box<Self> {
        let until = moment.saturating_add_unsigned(PATIENCE);
        let since = moment.max(0).cast_unsigned();
        Box::new(Self { next: moment, until, parties: [standing; 2], since, again: None, hang_up: None })
    }

    pub(crate) fn change_moments(&mut self, change: impl Fn(&mut i64)) {
        change(&mut self.next);
        change(&mut self.until);
        self.again.iter_mut().for_each(&change);
        self.hang_up.iter_mut().for_each(|hang_up| change(&mut hang_up.bye.at));
    }

    /// Begins the second round once it is due, in which earlier confirmations do not count.
    pub(crate) fn begin_second_round(&mut self, now: Now) {
        if self.again.take_if(|at| *at <= moment(now)).is_some() {
            *self = *Self::at(moment(now), Standing::Suspected);
        }
    }

    /// Returns the moment of the next question after a question at this moment.
    pub(crate) fn after(&self, at: i64) -> i64 {
        let next = at.saturating_add_unsigned(AGAIN).min(self.until);
        self.again.map_or(next, |again| next.min(again))
    }

    pub(crate) fn confirm(&mut self, party: Party) {
        self.parties[party as usize] = Standing::Confirmed;
    }

    /// Notes that this party has not answered. Returns whether the dialog is lost.
    pub(crate) fn fall_silent(&mut self, party: Party) -> bool {
        let standing = &mut self.parties[party as usize];
        match standing {
            Standing::Suspected => return true,
            Standing::Unheard => *standing = Standing::Silent,
            Standing::Confirmed | Standing::Silent => (),
        }
        self.parties == [Standing::Silent; 2]
    }

    pub(crate) fn is_unconfirmed(&self) -> bool {
        !self.parties.contains(&Standing::Confirmed)
    }

    pub(crate) fn is_settled(&self) -> bool {
        let is_open = |standing: &Standing| matches!(standing, Standing::Suspected | Standing::Unheard);
        !self.is_unconfirmed() && !self.parties.iter().any(is_open)
    }
}
