//! Alarm of a shard: wakes it at a deadline without input.

use crate::clock;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

/// The alarm of one shard, set to its earliest deadline.
pub(crate) struct Alarm {
    clock: Clock,
    /// Set time, [`clock::micros`].
    at: Option<u64>,
}

enum Clock {
    /// Timer of the runtime: one to two milliseconds late, without a system call.
    Runtime(Pin<Box<Sleep>>),
    /// Timer of the kernel: late by one wake-up, with a system call each time.
    Kernel(AsyncFd<OwnedFd>),
}

impl Alarm {
    /// Creates the alarm, within the runtime of its shard. If the kernel provides no timer, uses the runtime's.
    pub(crate) fn new(exact: bool) -> Self {
        let kernel = if exact { timer().ok() } else { None };
        let runtime = || Clock::Runtime(Box::pin(tokio::time::sleep_until(clock::instant(0).into())));
        Self { clock: kernel.map_or_else(runtime, Clock::Kernel), at: None }
    }

    /// Sets the alarm, unless it is set to an earlier time. Returns whether `at` has passed. If `at` has passed and the
    /// clock of the runtime is behind, the alarm goes off at once.
    pub(crate) fn set(&mut self, at: u64, cx: &mut Context<'_>) -> bool {
        match &mut self.clock {
            Clock::Runtime(sleep) => {
                if self.at.is_some() && sleep.is_elapsed() {
                    self.at = None;
                }
                if self.at.is_some_and(|set| set <= at) {
                    return false;
                }
                sleep.as_mut().reset(clock::instant(at).into());
                self.at = Some(at);
                let passed = sleep.as_mut().poll(cx).is_ready();
                if passed {
                    self.at = None;
                }
                passed
            }
            Clock::Kernel(timer) => {
                let now = Instant::now();
                if self.at.is_some_and(|set| clock::instant(set) <= now) {
                    self.at = None;
                }
                if self.at.is_some_and(|set| set <= at) {
                    return false;
                }
                let left = clock::instant(at).saturating_duration_since(now);
                if left.is_zero() {
                    return true;
                }
                start(timer.get_ref(), left);
                self.at = Some(at);
                // Clears the readiness of an earlier alarm, so that the waker waits for this alarm.
                while let Poll::Ready(Ok(mut ready)) = timer.poll_read_ready(cx) {
                    ready.clear_ready();
                }
                false
            }
        }
    }
}

fn timer() -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: creates a descriptor and touches no memory.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was created above and belongs to nothing else.
    let timer = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the timer gives one descriptor for as long as it lives, and closes it when it is dropped, which `AsyncFd` does
    // after it has ended the watch.
    let watched = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
    watched.map_err(Into::into)
}

/// Sets the timer to expire once, after `left`, which is more than zero.
fn start(timer: &OwnedFd, left: Duration) {
    let value = libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() };
    let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    // SAFETY: the descriptor is our timer, `once` outlives the call, and nothing is written back.
    let result = unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const once, std::ptr::null_mut()) };
    debug_assert_eq!(result, 0, "a valid time for a timer of ours");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn late(exact: bool) -> Vec<Duration> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut alarm = Alarm::new(exact);
            let mut late = Vec::new();
            for _ in 0..50 {
                let at = clock::micros() + 3_000;
                poll_fn(|cx| {
                    // A later time does not delay an earlier alarm.
                    let passed = alarm.set(at, cx) || alarm.set(at + 1_000_000, cx);
                    let over = passed || clock::micros() >= at;
                    if over { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                late.push(Instant::now() - clock::instant(at));
            }
            late.sort();
            late
        })
    }

    #[test]
    fn both_clocks_wake_in_time() {
        for exact in [false, true] {
            let late = late(exact);
            // The machine may be busy: only the median counts.
            assert!(late[25] < Duration::from_millis(20), "{exact}: {late:?}");
        }
        assert!(late(true)[5] < Duration::from_micros(900), "a timer of the kernel is no later than a wake takes");
    }

    #[test]
    fn the_kernel_s_says_at_once_what_has_passed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(poll_fn(|cx| {
            assert!(Alarm::new(true).set(clock::micros(), cx));
            Poll::Ready(())
        }));
    }
}
