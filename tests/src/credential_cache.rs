//! Alice, whose credentials are in a cache alone, and servers that share it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_lab::backend::Backend;

use crate::account::authorized;
use crate::server::{Server, Setup};
use crate::text::{Request, status};
use crate::wait;
use crate::wire::Transport::Tcp;
use crate::wire::Wire;

/// Cache key of Alice's credentials.
pub const ALICE: &str = "strowger:registered:11:example.org:alice";
/// Initial password of Alice.
pub const PASSWORD: &str = "a password of Alice";
/// Time limit of an immediate answer on a busy machine.
pub const SOON: Duration = Duration::from_secs(10);
/// Deadline of the cache.
pub const TIMEOUT: Duration = Duration::from_millis(400);

/// Status for a request with the right password to an unknown user.
pub const VERIFIED: u16 = 404;
/// Status for a request without valid credentials.
pub const CHALLENGED: u16 = 407;

/// Returns the setup of a server with the credentials in this cache.
pub fn setup(cache: &str, lines: &str) -> Setup {
    Setup::on(&[Tcp]).with(&format!(
        "domains = [\"example.org\"]\nban.enabled = false\nauth.credential_cache = \"shared\"\n\
         cache = [{{ name = \"shared\", timeout = \"{}ms\", {cache} }}]\n{lines}",
        TIMEOUT.as_millis()
    ))
}

/// Returns the configuration of a cache of this engine.
pub fn of(engine: &str, server: &Backend) -> String {
    format!("engine = \"{engine}\", servers = [\"{}\"]", server.address())
}

fn ask(wire: &mut Wire, request: &Request) -> Vec<u8> {
    wire.send(&request.bytes()).expect("the server takes messages");
    wire.final_response(SOON).expect("an answer")
}

/// Returns the status of a request of Alice with this password, and the time until the answer.
///
/// # Panics
/// There is no challenge, or no answer.
pub fn timed(server: &Server, request: impl Fn(SocketAddr) -> Request, password: &str) -> (u16, Duration) {
    let mut wire = server.connect(Tcp);
    let request = request(wire.local());
    let challenge = ask(&mut wire, &request);
    let request = authorized(&request, &challenge, "alice", password);
    let start = Instant::now();
    let answer = ask(&mut wire, &request);
    (status(&answer).expect("a response"), start.elapsed())
}

/// Returns a REGISTER of Alice for this many seconds.
pub fn registers(seconds: u32) -> impl Fn(SocketAddr) -> Request {
    move |here| {
        let mut request = Request::register("alice", "example.org", "sip:alice@127.0.0.1", "tcp", here);
        request.headers.retain(|line| !line.starts_with("Expires"));
        request.with(format!("Expires: {seconds}"))
    }
}

/// Returns a MESSAGE of Alice.
pub fn writes(here: SocketAddr) -> Request {
    let mut request = Request::new("MESSAGE", "sip:bob@example.org", "tcp", here);
    request.from = "<sip:alice@example.org>;tag=a".into();
    request
}

/// Returns the status of Alice's REGISTER with this password.
///
/// # Panics
/// See [`timed`].
pub fn register(server: &Server, password: &str) -> u16 {
    timed(server, registers(600), password).0
}

/// Returns the status of Alice's message with this password.
///
/// # Panics
/// See [`timed`].
pub fn message(server: &Server, password: &str) -> u16 {
    timed(server, writes, password).0
}

/// Adds Alice, and registers her once the server knows this user.
///
/// # Panics
/// The registration fails.
pub fn add_alice(server: &Server) {
    server.add_user("alice@example.org", PASSWORD);
    assert!(wait::until(SOON, || register(server, PASSWORD) == 200));
}
