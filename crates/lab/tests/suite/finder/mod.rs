//! Finders against synthetic servers in simulated time.

mod cause;
mod others;
mod search;
mod server;

use self::server::Server;
use std::time::Duration;
use strowger_lab::finder::{Finder, Limit, Next};

/// Result of a search.
#[derive(Debug)]
struct Found {
    limit: Limit,
    /// Capacity of the server at the end.
    capacity: f64,
    /// Trials above 1.5 times the capacity that the server had then.
    too_high: usize,
    /// Length of all trials.
    time: Duration,
}

impl Found {
    /// Returns the relative difference of the limit to the capacity.
    fn error(&self) -> f64 {
        (self.limit.load / self.capacity - 1.0).abs()
    }
}

/// Trials after which a search that has not ended never will.
const ENDLESS: usize = 1_000;

fn search(finder: &mut dyn Finder, server: &mut dyn Server) -> Found {
    let (mut too_high, mut time) = (0, Duration::ZERO);
    for _ in 0..ENDLESS {
        match finder.next() {
            Next::Trial(trial) => {
                assert_eq!(finder.next(), Next::Trial(trial), "a finder stays at its trial until it has the outcome");
                too_high += usize::from(trial.load > 1.5 * server.capacity());
                time += trial.duration;
                finder.take(server.serve(trial.load, trial.duration));
            }
            Next::Done(limit) => return Found { limit, capacity: server.capacity(), too_high, time },
        }
    }
    panic!("the search has no end: {:?}", finder.next());
}
