//! The thread that makes policies and frees them.
//!
//! The allocator keeps the memory of each thread apart. A policy is large, with its rules and data sets: made by one thread and freed by another,
//! a part of it stays with the first. One thread that does both, and gives back what is free after each job, holds no more than the policies of now.
//! The first configuration is read by it too, else its memory would stay with the main thread. It also puts one change after the other: none is made
//! of a policy that is no more.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

type Job = Box<dyn FnOnce() + Send>;

/// The thread that makes policies and frees them. Dropped, it ends after the jobs that it has.
#[derive(Debug)]
pub struct PolicyThread(mpsc::Sender<Job>);

impl PolicyThread {
    /// `give_back` is called after each job, twice: no other call comes that would end what one has begun.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(give_back: fn()) -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let work = move || {
            for job in waiting {
                // A panic is the log's already, and that of who waits for the job.
                let _ = catch_unwind(AssertUnwindSafe(job));
                // The first call finds which pages are free, the second gives them back.
                give_back();
                give_back();
            }
        };
        std::thread::Builder::new().name("policies".into()).spawn(work)?;
        Ok(Self(jobs))
    }

    /// Has this done after what was submitted before.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        // It takes jobs until this is dropped.
        let _ = self.0.send(Box::new(job));
    }

    /// Has this done, waits, and returns what comes of it. Blocks; not to be called by a job.
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
