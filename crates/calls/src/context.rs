//! Contexts of requests: the eight bytes by which the proxy's notices name a call, or a party of one of its dialogs.

use crate::call::Call;
use crate::dialog::Dialog;
use strowger_core::notice::Party;

/// Context of calls that are neither tracked nor logged. Their set-up time is measured all the same.
pub const NO_CALL: u64 = 4;

/// Tells whether this is the context of an INVITE that begins a call.
pub const fn begins_call(context: u64) -> bool {
    context == NO_CALL || context & PURPOSES == Purpose::Invite as u64
}

/// Lowest bits of a context: the purpose of the request. Above them is the salt of its call, and above the salt the key without its lowest
/// bits.
pub(crate) const PURPOSES: u64 = 3;
pub(crate) const SALTS: u64 = (1 << 14) - 1;
pub(crate) const BELOW_KEY: u32 = 16;

/// Purpose of a request of a call. With the key of the call it makes the context of the notices about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Question to a party whether a dialog still exists.
    Question = 0,
    /// INVITE that begins the call.
    Invite = 1,
    /// Renewal of a dialog: targets, session timer.
    Renewal = 2,
    Bye = 3,
}

impl Purpose {
    pub(crate) const fn of(context: u64) -> Option<Self> {
        if context == 0 || context == NO_CALL {
            return None;
        }
        Some(match context & PURPOSES {
            0 => Self::Question,
            1 => Self::Invite,
            2 => Self::Renewal,
            _ => Self::Bye,
        })
    }
}

impl Call {
    /// Returns the context of a request for this purpose in this dialog. `party`: its sender; for a question of the
    /// server, the party that is asked.
    pub(crate) fn dialog_context(&self, dialog: &Dialog, purpose: Purpose, party: Party) -> u64 {
        self.context_with(dialog.salt | party as u16, purpose)
    }

    pub(crate) fn context_with(&self, salt: u16, purpose: Purpose) -> u64 {
        self.key >> BELOW_KEY << BELOW_KEY | u64::from(salt) << 2 | purpose as u64
    }

    /// Returns the index of the dialog that this context names, and the party that it names.
    pub(crate) fn dialog_at(&self, context: u64) -> Option<(usize, Party)> {
        let salt = (context >> 2 & SALTS) as u16;
        let party = if salt & 1 == 0 { Party::Caller } else { Party::Callee };
        let at = self.dialogs.iter().position(|dialog| dialog.salt == salt & !1)?;
        Some((at, party))
    }

    /// Returns the dialog of a [`HangUp`](crate::doubt) with this context.
    pub(crate) fn hang_up_at(&self, context: u64) -> Option<&Dialog> {
        let salt = (context >> 2 & SALTS) as u16;
        self.dialogs.iter().find(|dialog| dialog.hang_up_salt() == Some(salt))
    }

    /// Draws a salt that no dialog of the call has.
    pub(crate) fn free_salt(&self, mut draw: impl FnMut() -> u64) -> u16 {
        loop {
            let salt = (draw() & SALTS) as u16 & !1;
            if self.dialogs.iter().all(|dialog| dialog.salt != salt && dialog.hang_up_salt() != Some(salt)) {
                return salt;
            }
        }
    }

    /// Tells whether a request with this context belongs to this call, or to one of its dialogs.
    pub(crate) fn has_context(&self, context: u64, purpose: Purpose) -> bool {
        let is_near = (self.key ^ context) >> BELOW_KEY == 0;
        is_near
            && match purpose {
                Purpose::Invite => self.context() == context,
                Purpose::Bye if self.hang_up_at(context).is_some() => true,
                _ => self.dialog_at(context).is_some(),
            }
    }
}
