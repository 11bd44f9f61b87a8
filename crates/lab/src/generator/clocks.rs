//! Clocks of the hosts of a trial.

use super::Setting;
use crate::Error;
use crate::host::{Ahead, Host, ProcessHost};
use crate::row::{Check, Reason};
use std::sync::Arc;

/// Differences of the clocks of hosts before a trial.
#[derive(Debug)]
pub(super) struct Clocks(pub(super) Vec<(Arc<Host>, Ahead)>);

impl Clocks {
    /// Measures the differences.
    pub(super) fn of(setting: &Setting) -> Result<Self, Error> {
        let mut found: Vec<(Arc<Host>, Ahead)> = Vec::new();
        let sides = (0..setting.sides.len()).map(|number| setting.answerer(number));
        for place in setting.callers.iter().map(|party| &party.place).chain(sides) {
            if let ProcessHost::There(host) = place
                && !found.iter().any(|(known, _)| known.name() == host.name())
            {
                found.push((Arc::clone(host), host.ahead()?));
            }
        }
        Ok(Self(found))
    }

    /// Returns how far the clock of this place is ahead, or `None` for a place on this machine.
    pub(super) fn ahead(&self, place: &ProcessHost) -> Option<Ahead> {
        let ProcessHost::There(host) = place else { return None };
        self.0.iter().find(|(known, _)| known.name() == host.name()).map(|(_, ahead)| *ahead)
    }

    /// Returns a reason for each clock that was set since the measurement.
    pub(super) fn changed(&self) -> Result<Vec<Reason>, Error> {
        let mut reasons = Vec::new();
        for (host, before) in &self.0 {
            if let Some(sentence) = host.ahead()?.changed(*before) {
                reasons.push(Reason { check: Check::Clock, sentence: format!("{}: {sentence}", host.name()) });
            }
        }
        Ok(reasons)
    }
}
