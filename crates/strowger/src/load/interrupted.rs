//! Ctrl-C and TERM, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::output::{Refusal, code};

/// Time to remove registrations for a run that Ctrl-C ends before its first call.
pub(super) const CLEANUP_TIME: Duration = Duration::from_millis(500);

/// Message of a run that Ctrl-C ends before its first call.
pub(super) const NO_CALL_YET: &str = "interrupted before the first call: there is nothing to report";

/// Number of interruptions by Ctrl-C or TERM.
pub(crate) struct Interrupted(Arc<AtomicU32>);

impl Interrupted {
    /// Counts interruptions until the process ends. The third interruption ends the process at once.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let count = Arc::new(AtomicU32::new(0));
        let seen = count.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Registered here and not in the thread, which may start late.
        let (mut interrupt, mut terminate) = {
            use tokio::signal::unix::{SignalKind, signal};
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async move {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => (),
                        _ = terminate.recv() => (),
                    }
                    if seen.fetch_add(1, Relaxed) >= 2 {
                        strowger_load::keys::restore();
                        std::process::exit(i32::from(code::INTERRUPTED));
                    }
                }
            });
        })?;
        Ok(Self(count))
    }

    pub(crate) fn times(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Runs slow work before the first call (DNS, connections, registrations), unless Ctrl-C interrupts it. `work` can
    /// ask whether it was interrupted, and then has `patience` to end.
    pub(super) fn run_unless_interrupted<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (done, result) = channel();
        let thread = std::thread::Builder::new().name("start".into());
        let count = self.0.clone();
        let stopped = move || count.load(Relaxed) > 0;
        let worker = thread
            .spawn(move || done.send(work(&stopped)).is_ok())
            .map_err(|e| Refusal(code::FAILED, e.to_string()))?;
        loop {
            match result.recv_timeout(Duration::from_millis(20)) {
                Ok(Ok(begun)) => return Ok(begun),
                Ok(Err(refusal)) if self.times() == 0 => return Err(refusal),
                Err(RecvTimeoutError::Timeout) if self.times() == 0 => (),
                Ok(Err(_)) | Err(RecvTimeoutError::Timeout) => {
                    if let Ok(Ok(begun)) = result.recv_timeout(patience) {
                        return Ok(begun);
                    }
                    return Err(Refusal(code::INTERRUPTED, NO_CALL_YET.into()));
                }
                Err(RecvTimeoutError::Disconnected) => match worker.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(_) => unreachable!("a thread that ends well has sent its result"),
                },
            }
        }
    }
}
