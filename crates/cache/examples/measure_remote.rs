//! Cost of an operation of a cache in another process: processor time of this process, and latency.
//!
//! `cargo run --release -p strowger-cache --features remote --example measure_remote -- --engine redis --server 127.0.0.1:6379`

use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_cache::engine::CacheHandle;
use strowger_cache::remote::{RemoteCache, RemoteSettings};
use strowger_cache::request::{CacheAnswer, Life, Promise, Request};
use strowger_cache::servers::Service;
use strowger_cache::waiting::WaitingCache;

const LIFE: Life = Life::ms(3_600_000);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut service, mut server, mut connections) = (Service::Redis { database: 0 }, "127.0.0.1".to_owned(), None);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--engine", Some(value)) => {
                service = match value.as_str() {
                    "memcached" => Service::Memcached,
                    "redis" => Service::Redis { database: 0 },
                    _ => panic!("--engine memcached or redis"),
                }
            }
            ("--server", Some(value)) => server = value,
            ("--connections", Some(value)) => connections = Some(value.parse().expect("a number of connections")),
            _ => panic!("measure_remote [--engine ENGINE] [--server SERVER] [--connections N]"),
        }
    }
    elsewhere(service, &server, connections);
}

/// Measures a cache in another process: processor time of all threads of this process per operation, and latency.
fn elsewhere(service: Service, server: &str, connections: Option<usize>) {
    let mut settings = RemoteSettings::new(service, vec![server.parse().expect("a server")]);
    settings.connections = connections.unwrap_or(settings.connections);
    println!("{:?}, {} connections; processor time of this process alone", settings.service, settings.connections);
    let mut cache = WaitingCache::new(CacheHandle::Remote(Arc::new(RemoteCache::start(settings).expect("a thread"))));
    const WAIT: Duration = Duration::from_secs(5);
    for (rounds, of_one, pause) in [(1_000, 1, 1_000), (1_000, 2, 2_000), (1_000, 10, 10_000), (2_000, 100, 0)] {
        for is_store in [true, false] {
            let (start, before) = (Instant::now(), processor_time_of_all());
            let mut times = Vec::new();
            for round in 0..rounds {
                let keys: Vec<[u8; 32]> = (0..of_one).map(|n| key(round * of_one + n)).map(printable).collect();
                let value = [b'7'; 48];
                let request = |key| match is_store {
                    true => Request::Store { key, value: &value, life: LIFE },
                    false => Request::Fetch { key },
                };
                let requests: Vec<Request<'_>> = keys.iter().map(|key| request(&key[..])).collect();
                let asked = Instant::now();
                let outcomes = cache.ask(&requests, Promise::Held, 0, WAIT);
                times.push(asked.elapsed());
                let want = if is_store { CacheAnswer::Stored } else { CacheAnswer::Found };
                assert!(outcomes.iter().all(|outcome| outcome.result == Ok(want)), "{:?}", outcomes[0]);
                if pause > 0 {
                    // At a rate, as calls arrive.
                    std::thread::sleep(Duration::from_micros(pause).saturating_sub(asked.elapsed()));
                }
            }
            times.sort_unstable();
            let (all, took) = ((rounds * of_one) as u32, start.elapsed());
            println!(
                "{:<44} {:>9.1} us each, {:.0} /s; a round takes {:?} median, {:?} 99 %",
                format!("{} in rounds of {of_one}", if is_store { "stores" } else { "fetches" }),
                (processor_time_of_all() - before).as_secs_f64() * 1e6 / f64::from(all),
                f64::from(all) / took.as_secs_f64(),
                times[times.len() / 2],
                times[times.len() * 99 / 100],
            );
        }
    }
}

/// Returns a key that each protocol accepts unchanged.
fn printable(mut key: [u8; 32]) -> [u8; 32] {
    key.iter_mut().for_each(|octet| *octet = b'a' + *octet % 26);
    key
}

/// Returns the processor time of all threads.
fn processor_time_of_all() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of_task).sum())
}

fn key(n: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (at, bytes) in key.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&(n + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    key
}
