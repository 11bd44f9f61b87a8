//! Periods in which a phone can be reached, and periods in which its server knows that it cannot.

/// All times are [`Now::mono`](strowger_core::Now).
#[derive(Debug, Default)]
pub struct Presence {
    /// Periods from the confirmation of its registration to the loss of its connection, or to its departure.
    reachable: Vec<(u64, Option<u64>)>,
    /// Periods from the moment at which its server learned of the loss to the next registration.
    lost: Vec<(u64, Option<u64>)>,
    /// True if the agent's connection was lost and it has not registered since.
    is_lost: bool,
}

impl Presence {
    /// Records that the phone's registration was confirmed. Has no effect if the connection was lost after the request.
    pub(super) fn begins(&mut self, now: u64) {
        if !self.is_lost && self.reachable.last().is_none_or(|(_, until)| until.is_some()) {
            self.reachable.push((now, None));
        }
    }

    pub(super) fn ends(&mut self, now: u64) {
        self.is_lost = true;
        if let Some((_, until @ None)) = self.reachable.last_mut() {
            *until = Some(now);
        }
    }

    /// Records that the phone sends a REGISTER.
    pub(super) fn registers(&mut self, now: u64) {
        self.is_lost = false;
        if let Some((_, until @ None)) = self.lost.last_mut() {
            *until = Some(now);
        }
    }

    pub(super) fn server_knows(&mut self, now: u64) {
        let is_open = self.lost.last().is_some_and(|(_, until)| until.is_none());
        if self.is_lost && !is_open {
            self.lost.push((now, None));
        }
    }

    /// Returns whether the agent could be reached during this whole period.
    pub fn is_reachable(&self, from: u64, to: u64) -> bool {
        covers(&self.reachable, from, to)
    }

    /// Returns whether the agent's server knew during this whole period that the agent could not be reached.
    pub fn is_lost(&self, from: u64, to: u64) -> bool {
        covers(&self.lost, from, to)
    }
}

fn covers(spans: &[(u64, Option<u64>)], from: u64, to: u64) -> bool {
    spans.iter().any(|(begin, end)| *begin <= from && end.is_none_or(|end| to <= end))
}
