//! Thread with its own connections to a cache.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use strowger_cache::engine::RemoteEngine;
use strowger_cache::error::CacheError;
use strowger_cache::remote::{RemoteCache, RemoteSettings};
use strowger_cache::request::{CacheAnswer, Life, Request};
use strowger_cache::servers::{Endpoint, Service};
use strowger_cache::ticket::{Answered, Receiver, ReceiverId, Ticket};
use tokio::runtime::LocalRuntime;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Memcached that stores nothing, and answers stores once its gate is open.
#[derive(Default)]
struct Server {
    /// Received keys, each with the number of its connection.
    heard: Mutex<Vec<(usize, String)>>,
    is_shut: Mutex<bool>,
    changed: Condvar,
    connections: AtomicUsize,
}

impl Server {
    fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (server, address) = (Arc::<Self>::default(), listener.local_addr().unwrap());
        let of_thread = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, stream) = (of_thread.clone(), stream.unwrap());
                let number = server.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || server.serve(number, stream));
            }
        });
        (server, address)
    }

    fn serve(&self, number: usize, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(1..)) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let reply = match words[..] {
                ["mn"] => "MN\r\n".to_owned(),
                ["mg", key, ..] => {
                    self.heard.lock().unwrap().push((number, key.into()));
                    "EN\r\n".to_owned()
                }
                ["ms", key, length, .., token] => {
                    let mut value = vec![0; length.parse::<usize>().unwrap() + 2];
                    reader.read_exact(&mut value).unwrap();
                    self.heard.lock().unwrap().push((number, key.into()));
                    let _is_open = self.changed.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap();
                    format!("HD {token}\r\n")
                }
                _ => panic!("{line}"),
            };
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
            line.clear();
        }
    }

    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.changed.notify_all();
    }

    /// Waits for this many requests for a key. Returns their connections.
    fn heard(&self, key: &str, count: usize) -> Vec<usize> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let heard = self.heard.lock().unwrap();
            let of_key: Vec<usize> = heard.iter().filter(|(_, own)| own == key).map(|(number, _)| *number).collect();
            if of_key.len() >= count {
                return of_key;
            }
            assert!(Instant::now() < end, "{heard:?}");
            drop(heard);
            // Lets the server read more.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Receiver that passes answers on, with the thread they came on.
struct Taken(mpsc::Sender<(ThreadId, Answered)>);

impl Receiver for Taken {
    fn answered(&self, answers: Vec<Answered>) {
        for answer in answers {
            let _is_over = self.0.send((std::thread::current().id(), answer));
        }
    }
}

/// Requesting thread, with its runtime.
struct Asker {
    runtime: LocalRuntime,
    cache: Arc<dyn RemoteEngine>,
    receiver: ReceiverId,
    answers: mpsc::Receiver<(ThreadId, Answered)>,
}

impl Asker {
    fn new(remote: &RemoteCache) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        let runtime = runtime.unwrap();
        let (cache, task) = remote.local().unwrap();
        runtime.spawn_local(task);
        let (sender, answers) = mpsc::channel();
        let receiver = cache.receivers().register(Arc::new(Taken(sender)));
        let this = Self { runtime, cache, receiver, answers };
        this.run(|| this.cache.remote_gauges().connections == 2);
        this
    }

    fn ask(&self, value: u64, request: &Request<'_>) -> Result<(), CacheError> {
        let asked = self.cache.ask(request, Ticket { receiver: self.receiver, value }, 0);
        self.cache.flush();
        asked
    }

    fn store(&self, ticket: u64, key: &str) {
        self.ask(ticket, &Request::Store { key: key.as_bytes(), value: b"value", life: Life::FOREVER }).unwrap();
    }

    /// Runs the tasks of the thread until the condition holds.
    fn run(&self, until: impl Fn() -> bool) {
        let end = Instant::now() + TIMEOUT;
        self.runtime.block_on(async {
            while !until() {
                assert!(Instant::now() < end, "{:?}", self.cache.remote_gauges());
                // Events meanwhile wake the tasks.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    /// Returns the next answers, and whether each came on this thread.
    fn answers(&self, count: usize) -> Vec<(u64, Result<CacheAnswer, CacheError>, bool)> {
        let got = std::cell::RefCell::new(Vec::new());
        self.run(|| {
            got.borrow_mut().extend(self.answers.try_iter());
            got.borrow().len() >= count
        });
        let own = std::thread::current().id();
        let shown = |(thread, answer): (ThreadId, Answered)| (answer.ticket, answer.result, thread == own);
        got.into_inner().into_iter().map(shown).collect()
    }
}

fn remote(address: SocketAddr) -> RemoteCache {
    let endpoint = Endpoint::Tcp(address.ip().to_string(), address.port());
    let settings = RemoteSettings {
        timeout: TIMEOUT,
        connections: 1,
        queue: 3,
        ..RemoteSettings::new(Service::Memcached, vec![endpoint])
    };
    RemoteCache::start(settings).unwrap()
}

#[test]
fn a_thread_has_its_answers_by_itself() {
    let (server, address) = Server::start();
    let remote = remote(address);
    let asker = Asker::new(&remote);
    asker.store(1, "a");
    asker.ask(2, &Request::Fetch { key: b"a" }).unwrap();
    assert_eq!(asker.answers(2), [(1, Ok(CacheAnswer::Stored), true), (2, Ok(CacheAnswer::Absent), true)]);
    let by = server.heard("a", 2);
    assert_eq!(by[0], by[1]);
    // Requests of other threads use the thread of the engine, and the figures count all together.
    remote.ask(&Request::Fetch { key: b"b" }, Ticket { receiver: asker.receiver, value: 3 }, 0).unwrap();
    remote.flush();
    assert_eq!(asker.answers(1), [(3, Ok(CacheAnswer::Absent), false)]);
    assert_ne!(server.heard("b", 1), by[..1]);
    let (gauges, of_servers) = (remote.gauges(), remote.remote_gauges());
    assert_eq!((gauges.stores, gauges.misses), (1, 2));
    assert_eq!((of_servers.connections, of_servers.connected, of_servers.in_flight), (2, 2, 0));
}

/// Otherwise the first change could arrive last.
#[test]
fn changes_of_a_key_keep_their_order_among_threads() {
    let (server, address) = Server::start();
    let remote = remote(address);
    let asker = Asker::new(&remote);
    server.shut(true);
    let store = Request::Store { key: b"a", value: b"first", life: Life::FOREVER };
    remote.ask(&store, Ticket { receiver: asker.receiver, value: 1 }, 0).unwrap();
    remote.flush();
    let first = server.heard("a", 1);
    asker.store(2, "a");
    asker.ask(3, &Request::Fetch { key: b"a" }).unwrap();
    server.shut(false);
    let want =
        [(1, Ok(CacheAnswer::Stored), false), (2, Ok(CacheAnswer::Stored), false), (3, Ok(CacheAnswer::Absent), false)];
    assert_eq!(asker.answers(3), want);
    assert_eq!(server.heard("a", 3), [first[0]; 3]);
    // No change is in progress any more.
    asker.store(4, "a");
    assert_eq!(asker.answers(1), [(4, Ok(CacheAnswer::Stored), true)]);
    assert_ne!(server.heard("a", 4)[3], first[0]);
}

#[test]
fn the_bound_of_requests_is_that_of_all_threads() {
    let (server, address) = Server::start();
    let remote = remote(address);
    let asker = Asker::new(&remote);
    server.shut(true);
    asker.store(1, "a");
    asker.store(2, "b");
    remote.ask(&Request::Store { key: b"c", value: b"", life: Life::FOREVER }, Ticket::NONE, 0).unwrap();
    assert_eq!(asker.ask(3, &Request::Fetch { key: b"d" }), Err(CacheError::Full));
    assert_eq!(remote.remote_gauges().in_flight, 3);
    server.shut(false);
    asker.answers(2);
}

#[test]
fn the_end_of_a_thread_answers_all_that_it_has_asked() {
    let (server, address) = Server::start();
    let remote = remote(address);
    let asker = Asker::new(&remote);
    server.shut(true);
    asker.store(1, "a");
    asker.run(|| !server.heard.lock().unwrap().is_empty());
    let Asker { runtime, cache, answers, .. } = asker;
    runtime.shutdown_background();
    assert_eq!(answers.try_iter().map(|(_, answer)| answer.result).collect::<Vec<_>>(), [Err(CacheError::Unavailable)]);
    assert_eq!(cache.ask(&Request::Fetch { key: b"b" }, Ticket::NONE, 0), Err(CacheError::Unavailable));
    let gauges = remote.remote_gauges();
    assert_eq!((gauges.in_flight, gauges.connections, gauges.is_down, gauges.silent), (0, 1, false, 0));
    server.shut(false);
}
