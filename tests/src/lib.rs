//! Common code of the system tests: the program under test, other programs, messages by hand.

pub mod account;
pub mod amount;
pub mod baresip;
pub mod binary;
pub mod bridge;
pub mod browser;
pub mod call;
pub mod certificate;
pub mod control;
pub mod corpora;
pub mod credential_cache;
pub mod database;
pub mod devtools;
pub mod dialog;
pub mod digest;
pub mod duel;
pub mod echo;
pub mod frozen_database;
pub mod fuzz_calls;
pub mod generator;
pub mod homes;
pub mod kamailio;
pub mod limits;
pub mod linphone;
pub mod meter;
pub mod mutation;
pub mod name_server;
pub mod namespace;
pub mod peer;
pub mod plant;
pub mod process;
pub mod program;
pub mod random;
pub mod redis;
pub mod reload;
pub mod rtp;
pub mod scrape;
pub mod server;
pub mod sipp;
pub mod sipp_phone;
pub mod site;
pub mod slow_relay;
pub mod smuggling;
pub mod sound;
pub mod stalls;
pub mod stopwatch;
pub mod stranger;
pub mod strict;
pub mod talk;
pub mod terminal;
pub mod trace;
pub mod turn;
pub mod wire;

pub use amount::amount;
pub use strowger_lab::{port, wait};
pub use strowger_rig::text;
pub use turn::{alone, in_background, shared, undisturbed};

/// Runs cases that measure no time, each on a thread of its own, a few at a time, because they wait more than they
/// compute. With the environment variable CASE only the cases run whose name contains its value.
///
/// # Panics
/// A case failed; the others run to their end first.
pub fn together(cases: &[(&str, fn())]) {
    each_together(cases);
}

/// Runs cases that share data, such as a list.
///
/// # Panics
/// See [`together`].
pub fn each_together<F: Fn() + Sync + std::panic::RefUnwindSafe>(cases: &[(&str, F)]) {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    const AT_ONCE: usize = 6;
    let wanted = std::env::var("CASE").unwrap_or_default();
    let cases: Vec<_> = cases.iter().filter(|(name, _)| name.contains(&wanted)).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(cases.len()) {
            scope.spawn(|| {
                while let Some((name, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = std::time::Instant::now();
                    let ended = std::panic::catch_unwind(case);
                    let word = if ended.is_ok() { "ok" } else { "FAILED" };
                    eprintln!("case {name} ... {word} ({:.1} s)", begun.elapsed().as_secs_f64());
                    if ended.is_err() {
                        failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}
