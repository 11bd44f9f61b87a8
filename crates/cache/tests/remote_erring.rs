//! Faulty servers: garbage, truncated replies, connections that break in the middle, long silences. Each request gets
//! one answer in time, and no request gets the answer to another request.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strowger_cache::engine::{CacheHandle, RemoteEngine as _};
use strowger_cache::error::CacheError;
use strowger_cache::remote::{RemoteCache, RemoteSettings};
use strowger_cache::request::{CacheAnswer, Life, Promise, Request};
use strowger_cache::servers::{Endpoint, Service};
use strowger_cache::waiting::WaitingCache;

const TIMEOUT: Duration = Duration::from_millis(150);
/// Allowed delay of an answer on a machine that is busy with other tests.
const LATE: Duration = Duration::from_millis(400);

/// Pseudorandom numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Server that knows the value of each key, and errs as often as requested.
struct Erring {
    address: SocketAddr,
    /// One error in this many replies; 0: none.
    every: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Erring {
    fn start(service: Service, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (every, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let this = Self { address, every: every.clone(), is_over: is_over.clone() };
        std::thread::spawn(move || {
            for (number, stream) in (0..).zip(listener.incoming()) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (service, every) = (service.clone(), every.clone());
                let random = Random(seed.wrapping_add(number));
                std::thread::spawn(move || serve(stream.unwrap(), &service, &every, random));
            }
        });
        this
    }

    fn err_once_in(&self, every: u64) {
        self.every.store(every, Ordering::Relaxed);
    }
}

impl Drop for Erring {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, service: &Service, every: &AtomicU64, mut random: Random) {
    let (mut input, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        input.extend_from_slice(&bytes[..length]);
        while let Some((used, reply, is_probe)) = reply(&input, service) {
            input.drain(..used);
            let every = every.load(Ordering::Relaxed);
            let errs = every > 0 && !is_probe && random.below(every) == 0;
            let sent = if errs { err(&mut stream, &reply, service, &mut random) } else { stream.write_all(&reply) };
            if sent.is_err() {
                return;
            }
        }
    }
}

/// Sends a faulty reply. Returns an error if the fault ends the connection.
fn err(stream: &mut TcpStream, reply: &[u8], service: &Service, random: &mut Random) -> std::io::Result<()> {
    let end = || Err(ErrorKind::Other.into());
    match random.below(5) {
        // The reply ends in the middle.
        0 => {
            stream.write_all(&reply[..reply.len() / 2])?;
            end()
        }
        1 => {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
            Ok(())
        }
        // The server is silent beyond the deadline.
        2 => {
            std::thread::sleep(TIMEOUT * 3);
            stream.write_all(reply)
        }
        3 => {
            // In two pieces.
            let (first, second) = reply.split_at(reply.len() / 2);
            stream.write_all(first)?;
            std::thread::sleep(Duration::from_millis(5));
            stream.write_all(second)
        }
        // A reply twice, which is undetectable with Redis.
        _ if *service == Service::Memcached => {
            stream.write_all(reply)?;
            stream.write_all(reply)
        }
        _ => end(),
    }
}

/// Reads a complete request at the front of `input`. Returns its bytes, the reply to it, and whether it is a no-op.
fn reply(input: &[u8], service: &Service) -> Option<(usize, Vec<u8>, bool)> {
    let line_end = input.windows(2).position(|two| two == b"\r\n")? + 2;
    if *service == Service::Memcached {
        let line = String::from_utf8_lossy(&input[..line_end - 2]).into_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let token = words.last().unwrap();
        return Some(match words[0] {
            "mn" => (line_end, b"MN\r\n".to_vec(), true),
            "mg" => {
                let value = value_of(words[1].as_bytes());
                let head = format!("VA {} f0 k{} {token}\r\n", value.len(), words[1]);
                (line_end, [head.as_bytes(), &value, b"\r\n"].concat(), false)
            }
            "ms" => {
                let whole = line_end + words[2].parse::<usize>().unwrap() + 2;
                if input.len() < whole {
                    return None;
                }
                (whole, format!("HD {token}\r\n").into_bytes(), false)
            }
            other => panic!("{other}"),
        });
    }
    let mut at = line_end;
    let count: usize = std::str::from_utf8(&input[1..line_end - 2]).unwrap().parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        let end = at + input[at..].windows(2).position(|two| two == b"\r\n")? + 2;
        let length: usize = std::str::from_utf8(&input[at + 1..end - 2]).unwrap().parse().unwrap();
        words.push(input.get(end..end + length)?);
        at = end + length + 2;
    }
    if at > input.len() {
        return None;
    }
    Some(match words[0] {
        b"PING" => (at, b"+PONG\r\n".to_vec(), true),
        b"GET" => {
            let value = value_of(words[1]);
            (at, [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat(), false)
        }
        b"SET" => (at, b"+OK\r\n".to_vec(), false),
        other => panic!("{}", other.escape_ascii()),
    })
}

fn value_of(key: &[u8]) -> Vec<u8> {
    [key, &b"-".repeat(usize::from(key[key.len() - 1]) * 3), key].concat()
}

fn cache(service: Service, address: SocketAddr) -> (Arc<RemoteCache>, WaitingCache) {
    let endpoint = Endpoint::Tcp(address.ip().to_string(), address.port());
    let settings = RemoteSettings { timeout: TIMEOUT, ..RemoteSettings::new(service, vec![endpoint]) };
    let remote = Arc::new(RemoteCache::start(settings).unwrap());
    (remote.clone(), WaitingCache::new(CacheHandle::Remote(remote)))
}

/// Sends a round of requests. Returns how many of them got their value. Asserts that an answer has the value of its
/// request, or says that there is none.
fn round(cache: &mut WaitingCache, number: u64) -> usize {
    let keys: Vec<Vec<u8>> = (0..30).map(|n| format!("key:{number}:{n}").into_bytes()).collect();
    let mut requests = Vec::new();
    for key in &keys {
        requests.push(Request::Store { key, value: key, life: Life::ms(60_000) });
        requests.push(Request::Fetch { key });
    }
    let start = Instant::now();
    let outcomes = cache.ask(&requests, Promise::Held, 0, Duration::from_secs(20));
    let took = start.elapsed();
    assert!(took < TIMEOUT + LATE, "{took:?}");
    let mut right = 0;
    for (key, outcomes) in keys.iter().zip(outcomes.chunks(2)) {
        for outcome in outcomes {
            match outcome.result {
                Ok(CacheAnswer::Found) => assert_eq!(*outcome.value, *value_of(key), "the answer to another request"),
                Ok(CacheAnswer::Stored) | Err(CacheError::TimedOut | CacheError::Unavailable) => {}
                // Reaction to an unknown line.
                Err(CacheError::Denied) => {}
                other => panic!("{other:?}"),
            }
        }
        right += usize::from(outcomes[1].result == Ok(CacheAnswer::Found));
    }
    right
}

fn until_well(cache: &mut WaitingCache) {
    let end = Instant::now() + Duration::from_secs(20);
    while round(cache, 0) < 30 {
        assert!(Instant::now() < end, "it is never found again");
        // Avoids a busy loop.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_that_errs_answers_no_request_by_the_reply_to_another() {
    std::thread::scope(|scope| {
        for service in [Service::Memcached, Service::Redis { database: 0 }] {
            for seed in 0..4 {
                let service = service.clone();
                scope.spawn(move || {
                    let server = Erring::start(service.clone(), seed * 1000);
                    let (remote, mut cache) = cache(service, server.address);
                    until_well(&mut cache);
                    server.err_once_in(40);
                    let mut right = 0;
                    for number in 1..80 {
                        right += round(&mut cache, number);
                        // The pause of a shard between two rounds.
                        std::thread::sleep(Duration::from_millis(3));
                    }
                    let gauges = remote.remote_gauges();
                    assert!(gauges.lost > 0 && right > 0, "{right} {gauges:?}");
                    server.err_once_in(0);
                    until_well(&mut cache);
                    assert_eq!(remote.remote_gauges().in_flight, 0);
                });
            }
        }
    });
}

#[test]
fn a_server_that_is_not_there_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (remote, mut cache) = cache(Service::Memcached, address);
    let ask = |cache: &mut WaitingCache| {
        let start = Instant::now();
        let outcome = cache.ask_one(&Request::Fetch { key: b"key" }, 0, Duration::from_secs(20));
        (outcome.result, start.elapsed())
    };
    // The first request waits for the first attempt.
    assert_eq!(ask(&mut cache).0, Err(CacheError::Unavailable));
    let (result, took) = ask(&mut cache);
    assert!(result == Err(CacheError::Unavailable) && took < LATE, "{took:?}");
    assert_eq!(remote.remote_gauges().connections, 0);
}

#[test]
fn a_cache_that_ends_answers_all_that_it_was_asked() {
    // A server that accepts connections and sends nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (remote, mut cache) = cache(Service::Redis { database: 0 }, listener.local_addr().unwrap());
    let keys: Vec<Vec<u8>> = (0..100).map(|n: u32| n.to_string().into_bytes()).collect();
    let fetches: Vec<Request<'_>> = keys.iter().map(|key| Request::Fetch { key }).collect();
    let asks = std::thread::scope(|scope| {
        let asks = scope.spawn(|| cache.ask(&fetches, Promise::Held, 0, Duration::from_secs(20)));
        drop(remote);
        asks.join().unwrap()
    });
    let failed = [Err(CacheError::TimedOut), Err(CacheError::Unavailable)];
    assert!(asks.iter().all(|outcome| failed.contains(&outcome.result)), "{asks:?}");
}

#[test]
fn more_than_the_bound_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = Endpoint::Tcp(address.ip().to_string(), address.port());
    let settings =
        RemoteSettings { queue: 10, timeout: TIMEOUT, ..RemoteSettings::new(Service::Memcached, vec![endpoint]) };
    let remote = Arc::new(RemoteCache::start(settings).unwrap());
    let mut cache = WaitingCache::new(CacheHandle::Remote(remote.clone()));
    let fetches = [Request::Fetch { key: b"key" }; 25];
    let outcomes = cache.ask(&fetches, Promise::Held, 0, Duration::from_secs(20));
    let full = outcomes.iter().filter(|outcome| outcome.result == Err(CacheError::Full)).count();
    assert_eq!(full, 15);
    assert_eq!((remote.remote_gauges().in_flight, remote.remote_gauges().bound), (0, 10));
}
