//! A running server, for work beside its shards that changes the policy.

use crate::shard::{Services, Shard};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strowger_net::Handle;
use strowger_server::process_state::ProcessState;

/// Longest wait for the shards to adopt another policy; the reload does not wait longer for a stuck shard.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Parts of a running server that depend on the policy.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) shared: Arc<ProcessState>,
    pub(crate) services: Arc<Services>,
    pub(crate) handle: Handle<Shard>,
}

impl Running {
    /// Waits until each shard has adopted the policy at the end of a round, idle ones included: later messages use it. Blocks.
    pub(crate) fn wait_for_shards(&self) {
        let (reloads, end) = (self.shared.reloads(), Instant::now() + LONGEST_WAIT);
        self.handle.wake_all();
        let has_it = |shard| self.handle.busy(shard).is_none() || self.services.reloads(shard) >= reloads;
        while !(0..self.handle.most()).all(has_it) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
