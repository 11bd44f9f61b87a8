//! Health of the shards: each is woken periodically and must complete a round. A media thread that has work must look at its sockets.

use crate::shard::Shard;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use strowger_net::media::MediaThreads;
use strowger_net::{Handle, clock};
use strowger_server::process_state::ProcessState;

/// Longest interval at which shards are woken for the check.
const STEP: Duration = Duration::from_millis(500);

/// Observations of the shards.
pub struct Health {
    handle: Handle<Shard>,
    shared: Arc<ProcessState>,
    seen: Mutex<Vec<Seen>>,
    media: Weak<MediaThreads>,
}

/// Number of rounds of a shard at the last progress, and its time.
#[derive(Clone, Copy)]
struct Seen {
    rounds: u64,
    at: Instant,
}

impl Health {
    pub(crate) fn new(handle: Handle<Shard>, shared: Arc<ProcessState>, media: Weak<MediaThreads>) -> Self {
        let now = Seen { rounds: 0, at: Instant::now() };
        let seen = Mutex::new(vec![now; handle.most()]);
        Self { handle, shared, seen, media }
    }

    /// Returns the time after which a shard without a round counts as stuck.
    fn patience(&self) -> Duration {
        self.shared.policy().config.metrics.unhealthy_after
    }

    /// Observes the rounds of the shards and wakes them; never ends.
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
            // A shard that has not started yet is not stuck.
            if rounds != seen.rounds || self.handle.busy(shard).is_none() {
                *seen = Seen { rounds, at: Instant::now() };
            }
        }
    }

    /// Returns the first stuck shard.
    pub fn stuck(&self) -> Option<usize> {
        self.look();
        let patience = self.patience();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().position(|seen| seen.at.elapsed() > patience)
    }

    /// Returns the first media thread that is stuck.
    pub fn stuck_media(&self) -> Option<usize> {
        self.media.upgrade()?.stuck(self.patience())
    }

    /// Returns the thread that stands still, if there is one.
    pub fn fault(&self) -> Option<String> {
        let shard = self.stuck().map(|shard| format!("shard {shard} stands still"));
        shard.or_else(|| self.stuck_media().map(|thread| format!("media thread {thread} stands still")))
    }

    /// Returns the reason for which this server should get no new work, if there is one.
    pub fn unready(&self) -> Option<String> {
        match self.handle.is_draining() {
            true => Some("shutting down".into()),
            false => self.fault(),
        }
    }
}
