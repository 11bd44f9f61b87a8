//! One end of a call by hand: what it must write to reach the other end.

use crate::text::{Request, address, field, fields, respond, status, unique};
use crate::wire::Wire;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long each step may take.
const STEP: Duration = Duration::from_secs(5);

/// What one party knows of the dialog (RFC 3261 section 12.1).
#[derive(Clone, Debug)]
pub struct End {
    /// The remote target.
    pub uri: String,
    /// The route set, nearest first.
    pub routes: Vec<String>,
    /// Its own From, with the tag.
    pub from: String,
    /// Of the other party, with the tag.
    pub to: String,
    /// Of the call.
    pub call_id: String,
    /// Transport and sent-by of its Via.
    pub via: (String, SocketAddr),
    /// Of the next request.
    pub cseq: u32,
}

impl End {
    /// That of who sent a request, by a response to it.
    pub fn caller(request: &Request, response: &[u8]) -> Self {
        let mut routes = fields(response, "Record-Route");
        routes.reverse();
        Self {
            uri: field(response, "Contact").map(|contact| address(&contact)).unwrap_or_default(),
            routes,
            from: request.from.clone(),
            to: field(response, "To").unwrap_or_default(),
            call_id: request.call_id.clone(),
            via: request.via.clone(),
            cseq: request.cseq + 1,
        }
    }

    /// That of who got a request over this wire and answers it with this tag.
    pub fn called(request: &[u8], tag: &str, wire: &Wire) -> Self {
        let part = |name: &str| field(request, name).unwrap_or_default();
        let to = part("To");
        Self {
            uri: address(&part("Contact")),
            routes: fields(request, "Record-Route"),
            from: if to.contains(";tag=") { to } else { format!("{to};tag={tag}") },
            to: part("From"),
            call_id: part("Call-ID"),
            via: (wire.transport().name().to_uppercase(), wire.local()),
            cseq: 1_000,
        }
    }

    /// The next request to the other party.
    pub fn request(&mut self, method: &str) -> Request {
        self.cseq += 1;
        let mut request = Request::new(method, &self.uri, "udp", self.via.1);
        request.via = self.via.clone();
        request.branch = unique("z9hG4bK");
        request.from.clone_from(&self.from);
        request.to.clone_from(&self.to);
        request.call_id.clone_from(&self.call_id);
        request.cseq = self.cseq;
        request.headers = self.routes.iter().map(|route| format!("Route: {route}")).collect();
        request
    }

    /// The next request, with this Request-URI in place of the remote target.
    pub fn request_to(&mut self, method: &str, uri: &str) -> Request {
        Request { uri: uri.into(), ..self.request(method) }
    }
}

/// `Contact: <sip:USER@ADDRESS;transport=...>` of this wire.
pub fn contact(user: &str, wire: &Wire) -> String {
    format!("Contact: <sip:{user}@{};transport={}>", wire.local(), wire.transport().name())
}

/// An INVITE from this wire's own address.
pub fn invite(uri: &str, wire: &Wire) -> Request {
    Request::new("INVITE", uri, wire.transport().name(), wire.local()).with(contact("caller", wire))
}

/// The INVITE goes from one wire to the other, which rings and, if `answers`, accepts: the end of the one and of the other.
///
/// # Panics
/// A message does not arrive.
pub fn set_up(caller: &mut Wire, callee: &mut Wire, invite: &Request, answers: bool) -> (End, End) {
    let lines = [contact("callee", callee)];
    set_up_with(caller, callee, invite, answers, &lines)
}

/// The same with these header lines in the answer.
///
/// # Panics
/// A message does not arrive.
pub fn set_up_with(
    caller: &mut Wire,
    callee: &mut Wire,
    invite: &Request,
    answers: bool,
    lines: &[String],
) -> (End, End) {
    caller.send(&invite.bytes()).expect("the server takes messages");
    let got = callee.request("INVITE", STEP).expect("the INVITE arrives");
    let tag = unique("callee");
    callee.send(&respond(&got, 180, &tag, lines)).expect("the server takes messages");
    let mut answer = answer_to(invite, caller, 101).expect("it rings");
    assert_eq!(status(&answer), Some(180), "{}", String::from_utf8_lossy(&answer));
    if answers {
        callee.send(&respond(&got, 200, &tag, lines)).expect("the server takes messages");
        answer = answer_to(invite, caller, 200).expect("the call is answered");
        assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    }
    let (mut one, other) = (End::caller(invite, &answer), End::called(&got, &tag, callee));
    if answers {
        let mut ack = one.request("ACK");
        ack.cseq = invite.cseq;
        caller.send(&ack.bytes()).expect("the server takes messages");
        callee.request("ACK", STEP).expect("the ACK arrives");
    }
    (one, other)
}

/// The next response to a request with at least this status. Answers to earlier requests, which a busy machine brings late, are passed over.
fn answer_to(request: &Request, wire: &mut Wire, least: u16) -> Option<Vec<u8>> {
    let end = Instant::now() + STEP;
    loop {
        let message = wire.receive(end.saturating_duration_since(Instant::now()))?;
        let is_of_request = field(&message, "Call-ID").as_deref() == Some(&request.call_id)
            && field(&message, "CSeq") == Some(format!("{} {}", request.cseq, request.method));
        if is_of_request && status(&message).is_some_and(|status| status >= least) {
            return Some(message);
        }
    }
}

/// The request arrives, as this method, and is answered 200; returns what arrived and the answer that came back.
///
/// # Panics
/// It does not.
pub fn arrives(from: &mut Wire, to: &mut Wire, request: &Request, lines: &[String]) -> (Vec<u8>, Vec<u8>) {
    from.send(&request.bytes()).expect("the server takes messages");
    let got = to.request(&request.method, STEP).unwrap_or_else(|| panic!("{} does not arrive", request.method));
    to.send(&respond(&got, 200, "callee", lines)).expect("the server takes messages");
    let answer = answer_to(request, from, 200).expect("it is answered");
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    (got, answer)
}
