//! Server with a ban, and requests with and without passwords.

use super::*;

pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// Time without an answer that proves a ban.
pub(super) const SHORT: Duration = Duration::from_millis(500);
pub(super) const RIGHT: &str = "his password";

/// Starts a server of example.org with a few users. Loopback is never banned by default, but all attackers here are on
/// it.
pub(crate) fn start(transports: &[Transport], lines: &str) -> Site {
    let lines = format!("domains = [\"example.org\"]\nban.exempt = []\n{lines}");
    let server = Setup::on(transports).with(&lines).site();
    for (user, password) in [("alice", "her password"), ("bob", RIGHT), ("mallory", "a secret")] {
        server.add_user(&format!("{user}@example.org"), password);
    }
    server
}

/// Connects a client from another loopback address.
pub(crate) fn at(server: &Site, transport: Transport, last: u8) -> Wire {
    let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
    server.connect_from(transport, from)
}

pub(crate) fn send(wire: &mut Wire, request: &Request) {
    wire.send(&request.bytes()).expect("loopback takes it");
}

/// Sends a request; returns the answer, if any.
pub(super) fn ask(wire: &mut Wire, request: &Request) -> Option<Vec<u8>> {
    ask_within(wire, request, LIMIT)
}

pub(super) fn ask_within(wire: &mut Wire, request: &Request, limit: Duration) -> Option<Vec<u8>> {
    send(wire, request);
    let end = wire.clock() + limit;
    loop {
        // An answer to another request may be retransmitted.
        let response = wire.final_response(end.saturating_sub(wire.clock()))?;
        if field(&response, "Via").is_some_and(|via| via.contains(&request.branch)) {
            return Some(response);
        }
    }
}

pub(crate) fn register(wire: &Wire, user: &str) -> Request {
    let contact = format!("sip:{user}@{}", wire.local());
    Request::register(user, "example.org", &contact, wire.transport().name(), wire.local())
}

pub(crate) fn invite(wire: &Wire, user: &str, uri: &str) -> Request {
    let mut request = Request::new("INVITE", uri, wire.transport().name(), wire.local());
    request.from = format!("<sip:{user}@example.org>;tag={}", unique("f"));
    request.with(format!("Contact: <sip:{user}@{}>", wire.local()))
}

/// Gets a challenge and returns this user's answer, to be changed or sent.
pub(crate) fn answer(wire: &mut Wire, request: &Request, user: &str, password: &str) -> DigestAnswer {
    let refusal = ask(wire, request).expect("a challenge");
    DigestAnswer::to(&refusal, request, user, password)
}

/// Sends the same request with this password, with a challenge of its own.
pub(crate) fn with_password(wire: &mut Wire, request: &Request, user: &str, password: &str) -> Option<Vec<u8>> {
    let answer = answer(wire, request, user, password);
    ask(wire, &answer.on(request))
}

/// Makes one guess at bob's password; returns the status, if any.
pub(super) fn guess(wire: &mut Wire, password: &str) -> Option<u16> {
    let request = register(wire, "bob");
    let refusal = ask(wire, &request)?;
    let answer = DigestAnswer::to(&refusal, &request, "bob", password);
    ask(wire, &answer.on(&request)).and_then(|response| status(&response))
}

/// Guesses until no answer comes, `most` times at most; returns the number of answered guesses.
pub(super) fn guesses(wire: &mut Wire, most: usize) -> usize {
    let mut request = register(wire, "bob");
    for n in 0..most {
        request = Request { call_id: unique("guess"), branch: unique("z9hG4bK"), ..request };
        let Some(refusal) = ask_within(wire, &request, SHORT) else { return n };
        let answer = DigestAnswer::to(&refusal, &request, "bob", &format!("guess {n}"));
        if ask(wire, &answer.on(&request)).is_none() {
            return n;
        }
    }
    most
}

pub(crate) fn code(response: Option<Vec<u8>>) -> Option<u16> {
    status(&response?)
}
