//! One end of a dialog, of a call made or taken.

use strowger_core::Target;
use strowger_core::dialog::Dialog;

/// One end of a dialog.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) dialog: Dialog,
    /// Of the caller: the ACK, to be sent for every 2xx.
    pub(super) ack: Option<(Vec<u8>, Target)>,
    /// Of the callee: the call that it answers.
    pub(super) rung: Option<usize>,
    pub(super) ok: Vec<u8>,
    pub(super) acknowledged: bool,
    pub(super) wants_end: bool,
    pub(super) bye: bool,
    pub(super) ended: bool,
    /// Its agent started again, and knows nothing of it.
    pub(super) forgotten: bool,
}

impl Leg {
    pub(super) fn new(dialog: Dialog) -> Self {
        Self {
            dialog,
            ack: None,
            rung: None,
            ok: Vec::new(),
            acknowledged: false,
            wants_end: false,
            bye: false,
            ended: false,
            forgotten: false,
        }
    }
}
