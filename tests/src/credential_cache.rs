//! Alice, whose credentials stand in a cache alone, and servers that share it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_lab::backend::Backend;

use crate::account::authorized;
use crate::server::{Server, Setup};
use crate::text::{Request, status};
use crate::wait;
use crate::wire::Transport::Tcp;
use crate::wire::Wire;

/// Where credentials of Alice stand.
pub const ALICE: &str = "strowger:registered:11:example.org:alice";
/// Hers, at first.
pub const PASSWORD: &str = "a password of Alice";
/// What an answer may take that comes at once, on a machine that does other things too.
pub const SOON: Duration = Duration::from_secs(10);
/// What the cache has for an answer.
pub const TIMEOUT: Duration = Duration::from_millis(400);

/// What a server answers to a request that has shown the right password, for a user whom it does not know.
pub const VERIFIED: u16 = 404;
/// What it answers to one that has not.
pub const CHALLENGED: u16 = 407;

/// A server with the credentials in this cache.
pub fn setup(cache: &str, lines: &str) -> Setup {
    Setup::on(&[Tcp]).with(&format!(
        "domains = [\"example.org\"]\nban.enabled = false\nauth.credential_cache = \"shared\"\nstore.poll_interval = \"10ms\"\n\
         cache = [{{ name = \"shared\", timeout = \"{}ms\", {cache} }}]\n{lines}",
        TIMEOUT.as_millis()
    ))
}

/// Lines of a cache of this engine.
pub fn of(engine: &str, server: &Backend) -> String {
    format!("engine = \"{engine}\", servers = [\"{}\"]", server.address())
}

fn ask(wire: &mut Wire, request: &Request) -> Vec<u8> {
    wire.send(&request.bytes()).expect("the server takes messages");
    wire.final_response(SOON).expect("an answer")
}

/// The status of a request of Alice with this password, and how long its answer took.
///
/// # Panics
/// It is not challenged, or there is no answer.
pub fn timed(server: &Server, request: impl Fn(SocketAddr) -> Request, password: &str) -> (u16, Duration) {
    let mut wire = server.connect(Tcp);
    let request = request(wire.local());
    let challenge = ask(&mut wire, &request);
    let request = authorized(&request, &challenge, "alice", password);
    let start = Instant::now();
    let answer = ask(&mut wire, &request);
    (status(&answer).expect("a response"), start.elapsed())
}

/// Her REGISTER for so many seconds.
pub fn registers(seconds: u32) -> impl Fn(SocketAddr) -> Request {
    move |here| {
        let mut request = Request::register("alice", "example.org", "sip:alice@127.0.0.1", "tcp", here);
        request.headers.retain(|line| !line.starts_with("Expires"));
        request.with(format!("Expires: {seconds}"))
    }
}

/// Her message.
pub fn writes(here: SocketAddr) -> Request {
    let mut request = Request::new("MESSAGE", "sip:bob@example.org", "tcp", here);
    request.from = "<sip:alice@example.org>;tag=a".into();
    request
}

/// What is answered to her REGISTER with this password.
///
/// # Panics
/// As [`timed`].
pub fn register(server: &Server, password: &str) -> u16 {
    timed(server, registers(600), password).0
}

/// What is answered to her message with this password.
///
/// # Panics
/// As [`timed`].
pub fn message(server: &Server, password: &str) -> u16 {
    timed(server, writes, password).0
}

/// She is added, and registers once the server has heard of her.
///
/// # Panics
/// She cannot.
pub fn add_alice(server: &Server) {
    server.add_user("alice@example.org", PASSWORD);
    assert!(wait::until(SOON, || register(server, PASSWORD) == 200));
}
