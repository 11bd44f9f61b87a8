//! Changes in the header of a request on its way: by rules, failures and the session timer.

use crate::decision::FailureDecision;
use crate::handling::Handling;
use crate::session_timer::SessionTimer;
use smallvec::SmallVec;
use strowger_message::Name;

/// Changes in the header of a request on its way.
#[derive(Default)]
pub(crate) struct Edits {
    pub(crate) add: Vec<u8>,
    pub(crate) remove: SmallVec<[Name; 4]>,
}

impl Edits {
    pub(crate) fn of(handling: &Handling<'_, '_>, timer: &SessionTimer) -> Self {
        let (mut add, mut remove) = (timer.lines.clone(), SmallVec::from_slice(timer.replaced()));
        if let Some(decision) = &handling.progress.decision {
            add.extend_from_slice(&decision.add);
            remove.extend_from_slice(&decision.remove);
        }
        Self { add, remove }
    }

    /// Returns these changes with the changes of a failure, which replace those of the failure in use: the last `added`
    /// octets and `removed` names ([`crate::decision::Decision::of_failure`]).
    pub(crate) fn with(&self, (added, removed): (usize, usize), failure: &FailureDecision) -> Self {
        let add = &self.add[..self.add.len() - added];
        let remove = &self.remove[..self.remove.len() - removed];
        Self { add: [add, &failure.add].concat(), remove: remove.iter().chain(&failure.remove).copied().collect() }
    }
}
