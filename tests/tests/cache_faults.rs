//! Memcached and Redis servers that are stopped, frozen, slow and restarted: each request has its specified answer in
//! time, no request gets the answer to another request, and a lost server is found again automatically.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_cache::engine::{CacheHandle, RemoteEngine as _};
use strowger_cache::error::CacheError;
use strowger_cache::remote::{RemoteCache, RemoteSettings};
use strowger_cache::request::{CacheAnswer, Life, Promise, Request};
use strowger_cache::servers::{Endpoint, Service};
use strowger_cache::waiting::WaitingCache;
use strowger_lab::backend::{self, Backend};
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::undisturbed;

const TIMEOUT: Duration = Duration::from_millis(200);
/// Allowed delay of an answer beyond its deadline.
const LATE: Duration = Duration::from_millis(100);
/// Time limit of an immediate answer on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Requests per round.
const ROUND: u64 = 20;

struct Traffic {
    cache: WaitingCache,
    remote: Arc<RemoteCache>,
    round: u64,
}

/// Outcomes of the requests of some rounds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    found: u64,
    absent: u64,
    late: u64,
    unavailable: u64,
    longest: Duration,
}

impl Traffic {
    fn on(service: Service, server: SocketAddr) -> Self {
        let endpoint = Endpoint::Tcp(server.ip().to_string(), server.port());
        let settings = RemoteSettings { timeout: TIMEOUT, ..RemoteSettings::new(service, vec![endpoint]) };
        let remote = Arc::new(RemoteCache::start(settings).expect("a thread can be started"));
        Self { cache: WaitingCache::new(CacheHandle::Remote(remote.clone())), remote, round: 0 }
    }

    /// Stores and fetches for this time, each key with a value of its own.
    fn run(&mut self, time: Duration) -> Tally {
        let (start, mut tally) = (Instant::now(), Tally::default());
        while start.elapsed() < time {
            self.round(&mut tally);
            // Limits the rate to some hundred rounds per second.
            std::thread::sleep(Duration::from_millis(2));
        }
        tally
    }

    /// Runs rounds until all answers of a round are right. Returns the time until then.
    fn until_well(&mut self, limit: Duration) -> Duration {
        let start = Instant::now();
        loop {
            let mut tally = Tally::default();
            self.round(&mut tally);
            if tally.found == ROUND {
                return start.elapsed();
            }
            assert!(start.elapsed() < limit, "{tally:?} {:?}", self.remote.remote_gauges());
            // Avoids a busy loop.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn round(&mut self, tally: &mut Tally) {
        self.round += 1;
        let keys: Vec<Vec<u8>> = (0..ROUND).map(|n| format!("key {n} of {}", self.round).into_bytes()).collect();
        let mut requests = Vec::new();
        for key in &keys {
            requests.push(Request::Store { key, value: key, life: Life::ms(60_000) });
            requests.push(Request::Fetch { key });
        }
        let start = Instant::now();
        let outcomes = self.cache.ask(&requests, Promise::Held, 0, TIMEOUT * 10);
        tally.longest = tally.longest.max(start.elapsed());
        for (key, outcomes) in keys.iter().zip(outcomes.chunks(2)) {
            match outcomes[1].result {
                Ok(CacheAnswer::Found) => {
                    assert_eq!(outcomes[1].value.as_ref(), key, "the answer to another request");
                    tally.found += 1;
                }
                Ok(CacheAnswer::Absent) => tally.absent += 1,
                Err(CacheError::TimedOut) => tally.late += 1,
                Err(CacheError::Unavailable) => tally.unavailable += 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn each(test: impl Fn(Service, Backend) + Sync + std::panic::RefUnwindSafe) {
    if !have(&[REDIS, MEMCACHED]) {
        return;
    }
    let one = |service| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = match service {
            Service::Memcached => backend::memcached(folder.path()),
            _ => backend::redis(folder.path()),
        };
        test(service, server.expect("it starts"));
    };
    // Both wait most of the time.
    undisturbed(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| one(Service::Memcached));
            one(Service::Redis { database: 0 });
        });
    });
}

#[test]
fn a_cache_server_that_is_stopped_is_not_waited_for_and_found_again() {
    each(|service, mut server| {
        let mut traffic = Traffic::on(service, server.address());
        traffic.until_well(Duration::from_secs(10));
        for _ in 0..2 {
            backend::stop_cache(&mut server).expect("it ends");
            let tally = traffic.run(Duration::from_millis(700));
            assert!(tally.unavailable > 0 && tally.found == 0, "{tally:?}");
            assert!(tally.longest < AT_ONCE, "{tally:?}");
            server.start_again().expect("it starts");
            let after = traffic.until_well(Duration::from_secs(10));
            assert!(after < Duration::from_millis(1_500), "{after:?}");
            let tally = traffic.run(Duration::from_millis(300));
            assert_eq!((tally.late, tally.unavailable, tally.absent), (0, 0, 0), "{tally:?}");
        }
    });
}

#[test]
fn a_cache_server_that_is_frozen_is_waited_for_once_and_found_again() {
    each(|service, server| {
        let mut traffic = Traffic::on(service, server.address());
        traffic.until_well(Duration::from_secs(10));
        server.freeze();
        let mut first = Tally::default();
        traffic.round(&mut first);
        assert!(first.longest < TIMEOUT + LATE && first.late + first.unavailable == ROUND, "{first:?}");
        let tally = traffic.run(Duration::from_secs(1));
        assert!(tally.unavailable > 0 && tally.found == 0, "{tally:?}");
        assert!(tally.longest < TIMEOUT + LATE, "{tally:?}");
        // By now requests fail at once.
        let tally = traffic.run(Duration::from_millis(300));
        assert!(tally.longest < AT_ONCE && tally.late == 0, "{tally:?}");
        server.thaw();
        let after = traffic.until_well(Duration::from_secs(10));
        assert!(after < Duration::from_millis(1_500), "{after:?}");
        let tally = traffic.run(Duration::from_millis(300));
        assert_eq!((tally.late, tally.unavailable, tally.absent), (0, 0, 0), "{tally:?}");
    });
}

#[test]
fn a_cache_server_that_is_slow_is_given_up_until_it_is_fast() {
    each(|service, server| {
        let relay = SlowRelay::to(server.address());
        let mut traffic = Traffic::on(service, relay.address());
        traffic.until_well(Duration::from_secs(10));
        relay.slow_down(Duration::from_millis(500));
        let tally = traffic.run(Duration::from_secs(2));
        assert!(tally.late > 0 && tally.unavailable > 0 && tally.found == 0, "{tally:?}");
        assert!(tally.longest < TIMEOUT + LATE, "{tally:?}");
        relay.slow_down(Duration::ZERO);
        let after = traffic.until_well(Duration::from_secs(10));
        assert!(after < Duration::from_millis(2_500), "{after:?}");
    });
}

/// A server that is slower than usual, but within the deadline.
#[test]
fn a_cache_server_within_its_time_is_used_however_slow() {
    each(|service, server| {
        let relay = SlowRelay::to(server.address());
        let mut traffic = Traffic::on(service, relay.address());
        traffic.until_well(Duration::from_secs(10));
        relay.slow_down(Duration::from_millis(50));
        let tally = traffic.run(Duration::from_millis(700));
        assert!(tally.found >= ROUND && tally.late + tally.unavailable + tally.absent == 0, "{tally:?}");
    });
}
