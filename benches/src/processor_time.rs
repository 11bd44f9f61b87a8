//! Processor time, user and system, as the kernel charges it.

use std::time::{Duration, Instant};

use strowger_tests::process::Process;

/// Returns the processor time of this thread so far, to the nanosecond. Other work on the machine does not count.
///
/// # Panics
/// This is not Linux.
pub fn of_thread() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells its times");
    Duration::from_nanos(stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("the first is a number"))
}

/// Returns the processor time of all threads of this process so far, to the microsecond.
pub fn of_process() -> Duration {
    usage(libc::RUSAGE_SELF)
}

/// Waits for the end of a program that was started here. Returns the processor time of the program and of its reaped
/// children, to the microsecond. No other thread may wait for a program meanwhile.
///
/// # Panics
/// The program is still running after `limit`.
pub fn until_end(program: &mut Process, limit: Duration) -> Duration {
    let before = usage(libc::RUSAGE_CHILDREN);
    program.end(limit);
    usage(libc::RUSAGE_CHILDREN) - before
}

/// Acts as [`until_end`] for a program that does not end by itself: terminates it, and kills it after two seconds.
pub fn until_ended(program: &mut Process) -> Duration {
    let before = usage(libc::RUSAGE_CHILDREN);
    program.signal(libc::SIGTERM);
    let end = Instant::now() + Duration::from_secs(2);
    while program.ended().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    if program.ended().is_none() {
        program.kill();
    }
    usage(libc::RUSAGE_CHILDREN) - before
}

fn usage(who: i32) -> Duration {
    // SAFETY: a plain C structure for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the place outlives the call.
    unsafe { libc::getrusage(who, &raw mut usage) };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A shell that counts uses processor time; a shell that sleeps uses hardly any, however long it runs.
    #[test]
    fn the_time_of_a_program_is_its_own() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shell =
            |name: &str, script: &str| Process::start(name, folder.path(), Command::new("sh").args(["-c", script]));
        let mut busy = shell("busy", "n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done");
        let mut idle = shell("idle", "exec sleep 60");
        let busy = until_end(&mut busy, Duration::from_secs(60));
        let begun = Instant::now();
        let idle = until_ended(&mut idle);
        assert!(begun.elapsed() < Duration::from_secs(2), "sleep ends when asked");
        assert!(busy > 4 * idle && busy > Duration::from_millis(10), "{busy:?} {idle:?}");
    }
}
