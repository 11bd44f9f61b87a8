//! The thread that builds and frees policies.
//!
//! The allocator keeps the memory of each thread apart. If one thread built a large policy and another freed it, a part of its memory would stay with
//! the first. One thread that does both, and returns free memory after each job, holds no more than the current policies. It also reads the first
//! configuration; otherwise that memory would stay with the main thread. And it orders the changes: each one starts from the current policy.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

type Job = Box<dyn FnOnce() + Send>;

/// The thread that builds and frees policies. After a drop it ends when its queued jobs are done.
#[derive(Debug)]
pub struct PolicyThread(mpsc::Sender<Job>);

impl PolicyThread {
    /// Starts the thread. After each job the thread calls `give_back` twice, because the second call completes the work
    /// that the first call begins.
    ///
    /// # Errors
    /// The system provides no thread.
    pub fn start(give_back: fn()) -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let work = move || {
            for job in waiting {
                // The panic was logged, and reaches the caller that waits for the job.
                let _ = catch_unwind(AssertUnwindSafe(job));
                // The first call finds the free pages, and the second call returns them to the system.
                give_back();
                give_back();
            }
        };
        std::thread::Builder::new().name("policies".into()).spawn(work)?;
        Ok(Self(jobs))
    }

    /// Queues a job.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        // The thread accepts jobs until this is dropped.
        let _ = self.0.send(Box::new(job));
    }

    /// Queues a job, waits until the thread has run it, and returns the result. Blocks; a job must not call this
    /// function.
    ///
    /// # Panics
    /// As the job does.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (reply, result) = mpsc::sync_channel(1);
        self.submit(move || {
            let _ = reply.send(catch_unwind(AssertUnwindSafe(job)));
        });
        match result.recv() {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("the thread answers each job"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn jobs_are_done_in_turn_and_a_panic_is_that_of_who_waits() {
        let give_back = || {
            GIVEN_BACK.fetch_add(1, Relaxed);
        };
        let thread = PolicyThread::start(give_back).expect("a thread");
        let done = Arc::new(AtomicU64::new(0));
        for n in 0..100 {
            let done = done.clone();
            thread.submit(move || assert_eq!(done.fetch_add(1, Relaxed), n));
        }
        let (at_last, name) = (done.clone(), || std::thread::current().name().map(String::from));
        assert_eq!(thread.run(move || (at_last.load(Relaxed), name())), (100, Some("policies".into())));
        assert!(catch_unwind(AssertUnwindSafe(|| thread.run(|| panic!("planted")))).is_err());
        assert_eq!(thread.run(|| 7), 7, "it goes on");
        assert!(GIVEN_BACK.load(Relaxed) >= 202);
    }
}
