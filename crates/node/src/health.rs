//! Whether the shards work: each is woken now and then, and must come round.

use crate::shard::Shard;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use strowger_net::{Handle, clock};
use strowger_server::process_state::ProcessState;

/// How often at most the shards are woken to see whether they come round.
const STEP: Duration = Duration::from_millis(500);

/// What was seen of the shards.
pub struct Health {
    handle: Handle<Shard>,
    shared: Arc<ProcessState>,
    seen: Mutex<Vec<Seen>>,
}

/// The rounds of a shard when it last came round, and when that was seen.
#[derive(Clone, Copy)]
struct Seen {
    rounds: u64,
    at: Instant,
}

impl Health {
    pub(crate) fn new(handle: Handle<Shard>, shared: Arc<ProcessState>) -> Self {
        let now = Seen { rounds: 0, at: Instant::now() };
        let seen = Mutex::new(vec![now; handle.most()]);
        Self { handle, shared, seen }
    }

    /// A shard that has not come round for so long does not work.
    fn patience(&self) -> Duration {
        self.shared.policy().config.metrics.unhealthy_after
    }

    /// Sees whether the shards come round, and wakes them so that they do; never ends.
    pub(crate) async fn watch(&self) {
        loop {
            clock::beat(STEP.min(self.patience() / 4)).await;
            self.look();
            self.handle.wake_all();
        }
    }

    fn look(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (shard, seen) in seen.iter_mut().enumerate() {
            let rounds = self.handle.counters(shard).rounds;
            // One that has not begun owes nothing.
            if rounds != seen.rounds || self.handle.busy(shard).is_none() {
                *seen = Seen { rounds, at: Instant::now() };
            }
        }
    }

    /// The first shard that has not come round for too long.
    pub fn stuck(&self) -> Option<usize> {
        self.look();
        let patience = self.patience();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().position(|seen| seen.at.elapsed() > patience)
    }

    /// Why no new work should come here, if none should.
    pub fn unready(&self) -> Option<String> {
        match self.stuck() {
            _ if self.handle.is_draining() => Some("shutting down".into()),
            Some(shard) => Some(format!("shard {shard} stands still")),
            None => None,
        }
    }
}
