//! Which calls are made through a system under test.

use super::{Accounting, Letter};

/// Calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those of a letter.
    Of(Letter),
    /// Those of a letter as a relay sees them that reads nothing: without users, passwords and rows. Where the letter challenges each call, an
    /// OPTIONS and its 200 come before the call: as many datagrams each way as the challenge has. Where it does not, what the relay sends
    /// in place of the 100 is its own affair.
    Unread(Letter),
}

impl Calls {
    /// So many users are registered, and call each other; 0: the system has none.
    pub const fn users(self) -> u32 {
        match self {
            Self::Of(letter) => letter.users(),
            Self::Unread(_) => 0,
        }
    }

    /// What is written of each call.
    pub const fn accounting(self) -> Option<Accounting> {
        match self {
            Self::Of(letter) => letter.accounting(),
            Self::Unread(_) => None,
        }
    }

    /// Registrations a second.
    pub(super) fn rate(self) -> u32 {
        match self {
            Self::Of(letter) | Self::Unread(letter) => letter.rate(),
        }
    }

    /// Users prove that they know their password.
    pub(super) fn authenticates(self) -> bool {
        matches!(self, Self::Of(letter) if letter.authenticates())
    }

    /// They do so when they are challenged, call by call.
    pub(super) fn is_challenged(self) -> bool {
        matches!(self, Self::Of(letter) if letter.challenges())
    }

    /// They do so at once.
    pub(super) fn sends_at_once(self) -> bool {
        matches!(self, Self::Of(letter) if letter.sends_at_once())
    }

    /// Something is asked and answered before the call.
    pub(super) fn has_exchange(self) -> bool {
        matches!(self, Self::Unread(letter) if letter.challenges())
    }
}
