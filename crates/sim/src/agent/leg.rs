//! One end of the dialog of a call, outgoing or incoming.

use strowger_core::Target;
use strowger_core::dialog::Dialog;

/// One end of a dialog.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) dialog: Dialog,
    /// ACK of the caller, sent for every 2xx.
    pub(super) ack: Option<(Vec<u8>, Target)>,
    /// Incoming call that the callee answers.
    pub(super) rung: Option<usize>,
    pub(super) ok: Vec<u8>,
    pub(super) acknowledged: bool,
    pub(super) wants_end: bool,
    pub(super) bye: bool,
    pub(super) ended: bool,
    /// True if the leg's agent has restarted and forgotten it.
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
