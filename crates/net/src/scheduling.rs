//! Scheduling class of a thread.

/// Sets the class `SCHED_BATCH` (sched(7)) for this thread: when it is woken, it does not preempt the program on its
/// processor, but waits until that program sleeps or has used up its time slice (at most a few milliseconds). Returns
/// whether the kernel accepts the class.
pub(crate) fn set_batch() -> bool {
    // SAFETY: the kernel reads our own structure, whose fields are plain numbers; 0 is this thread.
    unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) == 0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_thread_alone_is_scheduled_so() {
        // SAFETY: 0 is the calling thread, and nothing is written.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let of_another = std::thread::spawn(move || (super::set_batch(), policy())).join().expect("it ends");
        assert_eq!(of_another, (true, libc::SCHED_BATCH));
        assert_eq!(policy(), before);
    }
}
