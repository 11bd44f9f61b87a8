//! Whether the shards work: each is woken now and then, and must come round.

use crate::shard::Shard;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use strowger_net::Handle;

/// How often at most the shards are woken to see whether they come round.
const STEP: Duration = Duration::from_millis(500);

/// What was seen of the shards.
pub struct Health {
    handle: Handle<Shard>,
    /// One that has not come round for so long does not work.
    patience: Duration,
    seen: Mutex<Vec<Seen>>,
}

/// The rounds of a shard when it last came round, and when that was seen.
#[derive(Clone, Copy)]
struct Seen {
    rounds: u64,
    at: Instant,
}

impl Health {
    pub(crate) fn new(handle: Handle<Shard>, patience: Duration) -> Self {
        let now = Seen { rounds: 0, at: Instant::now() };
        let seen = Mutex::new(vec![now; handle.most()]);
        Self { handle, patience, seen }
    }

    /// Sees whether the shards come round, and wakes them so that they do; never ends.
    pub(crate) async fn watch(&self) {
        let mut tick = tokio::time::interval(STEP.min(self.patience / 4));
        loop {
            tick.tick().await;
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
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().position(|seen| seen.at.elapsed() > self.patience)
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
