//! Calls that servers count together through a cache: each server knows the calls of the other, and the calls of a dead
//! server expire.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_lab::backend::{self, Backend};
use strowger_tests::call::register;
use strowger_tests::control::metric;
use strowger_tests::dialog::{End, arrives, invite, set_up};
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::redis::say;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::status;
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(10);

/// Starts server number `node` of two that count together through this cache: at most two calls at a time.
fn start(node: u16, cache: &str, lines: &str) -> Server {
    Setup::on(&[Udp])
        .with(&format!(
            "server.node = {node}\ndomains = [\"example.org\"]\nregistrar.authenticate = false\nauth.calls = false\n\
             proxy.record_route = true\ncache = [{{ name = \"shared\", {cache} }}]\n\
             call_limit = [{{ name = \"all\", most = 2, status = 486, cache = \"shared\", servers = [1, 2]{lines} }}]\n\
             rule = [{{ name = \"counted\", call_limits = [\"all\"] }}]"
        ))
        .start()
}

fn of(engine: &str, server: &Backend) -> String {
    format!("engine = \"{engine}\", servers = [\"{}\"], timeout = \"100ms\"", server.address())
}

/// A caller and bob's phone at a server, with their current call.
struct Pair {
    caller: Wire,
    callee: Wire,
    call: Option<End>,
}

impl Pair {
    fn at(server: &Server) -> Self {
        Self { caller: server.connect(Udp), callee: server.connect(Udp), call: None }
    }

    fn calls(&mut self) {
        let user = strowger_tests::text::unique("bob");
        register(&mut self.callee, &user);
        let invite = invite(&format!("sip:{user}@example.org"), &self.caller);
        self.call = Some(set_up(&mut self.caller, &mut self.callee, &invite, true).0);
    }

    fn hangs_up(&mut self) {
        let bye = self.call.take().expect("there is a call").request("BYE");
        arrives(&mut self.caller, &mut self.callee, &bye, &[]);
    }
}

/// Tells whether the limit refuses one more call; the call that is made for this goes to an absent user.
fn is_full(server: &Server) -> bool {
    let mut wire = server.connect(Udp);
    let invite = invite("sip:gone@example.org", &wire);
    wire.send(&invite.bytes()).expect("the server takes messages");
    let answer = wire.final_response(SOON).expect("an answer");
    wire.send(&invite.ack(&answer).bytes()).expect("the server takes messages");
    match status(&answer) {
        Some(486) => true,
        Some(404 | 480) => false,
        other => panic!("{other:?}"),
    }
}

/// Returns the length of this server's value at a Redis, without the head of the value.
fn stored(redis: SocketAddr, node: u16) -> i64 {
    let said = say(redis, &[&format!("STRLEN strowger:calls:{node}:0")]).remove(0);
    said.trim_matches([':', '\r', '\n']).parse::<i64>().expect("a number") - 3
}

#[test]
fn servers_count_their_calls_together() {
    if !have(&[REDIS, MEMCACHED]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let redis = backend::redis(folder.path()).expect("it starts");
    let memcached = backend::memcached(folder.path()).expect("it starts");
    for cache in [of("memcached", &memcached), of("redis", &redis)] {
        let [mut first, second] = [1, 2].map(|node| start(node, &cache, ""));
        let (mut one, mut other) = (Pair::at(&first), Pair::at(&second));
        one.calls();
        other.calls();
        assert!(wait::until(SOON, || is_full(&first) && is_full(&second)), "a call at each");
        // The call ends, and both have room again.
        other.hangs_up();
        assert!(wait::until(SOON, || !is_full(&first) && !is_full(&second)));
        other.calls();
        assert!(wait::until(SOON, || is_full(&first) && is_full(&second)));
        // One server dies with its call, and its share of the count expires.
        first.kill();
        assert!(wait::until(SOON, || !is_full(&second)));
        first.start();
        let mut one = Pair::at(&first);
        one.calls();
        assert!(wait::until(SOON, || is_full(&first) && is_full(&second)));
        one.hangs_up();
        other.hangs_up();
        assert!(wait::until(SOON, || !is_full(&first) && !is_full(&second)));
        if cache.contains("redis") {
            let at = redis.address();
            assert!(wait::until(SOON, || stored(at, 1) == 0 && stored(at, 2) == 0), "no count is left");
            // A server that stops removes its value.
            first.stop();
            assert_eq!(say(at, &["EXISTS strowger:calls:1:0"]), [":0\r\n"]);
        }
    }
}

#[test]
fn without_its_cache_a_limit_counts_here_or_lets_no_call_through() {
    if !have(&[REDIS]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let redis = backend::redis(folder.path()).expect("it starts");
    let cache = of("redis", &redis);
    let (open, shut) = (start(1, &cache, ""), start(2, &cache, ", without_cache = \"refuse\""));
    let mut pair = Pair::at(&open);
    let mut another = Pair::at(&open);
    pair.calls();
    another.calls();
    assert!(wait::until(SOON, || is_full(&open) && is_full(&shut)));
    redis.freeze();
    another.hangs_up();
    // One server counts only its own calls, and the other refuses all calls.
    assert!(wait::until(SOON, || shut.log().contains("calls of other servers not counted")));
    assert!(wait::until(SOON, || !is_full(&open)));
    // Longer than the lifetime of a count, after which the server has forgotten the calls of the other.
    std::thread::sleep(Duration::from_millis(5_500));
    assert!(is_full(&shut) && !is_full(&open));
    assert_eq!(metric(&shut, "strowger_call_counts_outdated_total"), 1.0);
    redis.thaw();
    assert!(wait::until(SOON, || !is_full(&shut)));
    shut.log_with("calls of other servers counted again");
    pair.hangs_up();
}
