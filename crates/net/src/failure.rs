//! Failures of shards, and their report.

use crate::Service;
use crate::process::{Handle, Process};
use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Unrequested end of a shard, or panic of a thread or task. After a failure all shards end: a process that answers
/// only some calls is worse than a process that its supervisor restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(Arc<str>);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl<S: Service> Process<S> {
    /// Ends all shards for this reason, unless the shards are ending already. Only the first failure is reported.
    #[cold]
    pub(crate) fn fail(&self, reason: impl fmt::Display) {
        if self.stopping.load(Relaxed) {
            return;
        }
        let failure = Failure(reason.to_string().into());
        let first = self.failure.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_with(|| failure.clone());
            first
        });
        if first {
            tracing::error!(reason = %failure, "shards end");
        }
        self.stop();
    }

    /// Ends all shards because of this panic, and resumes it.
    #[cold]
    pub(crate) fn panicked(&self, what: &str, panic: Box<dyn Any + Send>) -> ! {
        self.fail(format_args!("{what} panicked"));
        resume_unwind(panic)
    }
}

/// Runs this work; a panic ends the shards. Without this function the runtime would discard the panic, and the work of
/// the task would never be done again.
pub(crate) async fn or_fail<S: Service>(process: Arc<Process<S>>, what: &'static str, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    poll_fn(|cx| match caught(|| work.as_mut().poll(cx)) {
        Ok(poll) => poll,
        Err(panic) => process.panicked(what, panic),
    })
    .await;
}

/// Runs a step of a task; [`Process::panicked`] handles its panic.
pub(crate) fn caught<T>(step: impl FnOnce() -> T) -> std::thread::Result<T> {
    // The state that the step leaves is not used again, because the shards end.
    catch_unwind(AssertUnwindSafe(step))
}

impl<S: Service + 'static> Handle<S> {
    /// Waits until the shards have failed. Never returns if the shards end on request.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.process.failure.subscribe();
        let known = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match known {
            Some(failure) => failure,
            // This handle owns a sender, so the sender lives as long as the handle.
            None => std::future::pending().await,
        }
    }

    /// Ends all shards because a part has failed without which they cannot work.
    pub fn fail(&self, reason: impl fmt::Display) {
        self.process.fail(reason);
    }

    /// Spawns work on the runtime outside the shards, see [`Handle::services`]. A panic ends the shards, because the
    /// work would never be done again. `what` names the work in the log.
    pub fn spawn(&self, what: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.process.services.spawn(or_fail(self.process.clone(), what, work));
    }
}
