//! Challenges that a call answers, and credentials that it checks.

use super::stage::Stage;
use crate::scenario::template::Authentication;

impl Stage<'_> {
    /// Writes the line for `[authentication]` at `at` of a message that starts at `start` and is else finished.
    pub(super) fn authenticate(&mut self, wanted: &Authentication, start: usize, at: usize, out: &mut Vec<u8>) {
        let _ = (wanted, start, at, out);
    }

    /// `verifyauth`.
    pub(super) fn verify_authentication(&mut self, message: &[u8], username: &[u8], password: &[u8]) -> bool {
        let _ = (message, username, password);
        false
    }
}
