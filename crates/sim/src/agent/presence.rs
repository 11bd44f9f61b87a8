//! When a phone can be reached, as far as the world knows it, and when its server knows that it cannot.

/// Moments are [`Now::mono`](strowger_core::Now).
#[derive(Debug, Default)]
pub struct Presence {
    /// From when its registration was confirmed until the way to it was lost, or it went.
    reachable: Vec<(u64, Option<u64>)>,
    /// From when its server heard that the way to it was lost until it registered again.
    lost: Vec<(u64, Option<u64>)>,
    /// It has lost its way, and not registered since.
    is_lost: bool,
}

impl Presence {
    /// Its registration is confirmed. What was lost since it asked for that is lost all the same.
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

    /// A REGISTER leaves.
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

    /// It could be reached from then to then, all the time.
    pub fn is_reachable(&self, from: u64, to: u64) -> bool {
        covers(&self.reachable, from, to)
    }

    /// Its server knew from then to then, all the time, that it could not be reached.
    pub fn is_lost(&self, from: u64, to: u64) -> bool {
        covers(&self.lost, from, to)
    }
}

fn covers(spans: &[(u64, Option<u64>)], from: u64, to: u64) -> bool {
    spans.iter().any(|(begin, end)| *begin <= from && end.is_none_or(|end| to <= end))
}
