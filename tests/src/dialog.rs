//! One party of a dialog by hand: state for its requests to the other party.

use crate::text::{Request, address, field, fields, respond, status, unique};
use crate::wire::Wire;
use std::net::SocketAddr;
use std::time::Duration;

/// Time limit of each step.
const STEP: Duration = Duration::from_secs(5);

/// Dialog state of one party (RFC 3261 section 12.1).
#[derive(Clone, Debug)]
pub struct End {
    /// Remote target.
    pub uri: String,
    /// Route set, nearest first.
    pub routes: Vec<String>,
    /// Own From, with the tag.
    pub from: String,
    /// Other party with its tag, for To.
    pub to: String,
    /// Call-ID.
    pub call_id: String,
    /// Transport and sent-by of its Via.
    pub via: (String, SocketAddr),
    /// CSeq number of the next request.
    pub cseq: u32,
}

impl End {
    /// Creates the state of a caller from its request and a response.
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

    /// Creates the state of a callee, which got a request over this wire and answers it with this tag.
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

    /// Returns the next request to the other party.
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

    /// Returns the next request, with this Request-URI in place of the remote target.
    pub fn request_to(&mut self, method: &str, uri: &str) -> Request {
        Request { uri: uri.into(), ..self.request(method) }
    }
}

/// Returns `Contact: <sip:USER@ADDRESS;transport=...>` of this wire.
pub fn contact(user: &str, wire: &Wire) -> String {
    format!("Contact: <sip:{user}@{};transport={}>", wire.local(), wire.transport().name())
}

/// Returns an INVITE from this wire's own address.
pub fn invite(uri: &str, wire: &Wire) -> Request {
    Request::new("INVITE", uri, wire.transport().name(), wire.local()).with(contact("caller", wire))
}

/// Sends the INVITE from one wire to the other, where the phone rings and, if `answers`, accepts the call. Returns the
/// dialog states of caller and callee.
///
/// # Panics
/// A message does not arrive.
pub fn set_up(caller: &mut Wire, callee: &mut Wire, invite: &Request, answers: bool) -> (End, End) {
    let lines = [contact("callee", callee)];
    set_up_with(caller, callee, invite, answers, &lines)
}

/// Acts as [`set_up`], with these header lines in the answer.
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

/// Returns the next response to a request with at least this status. Skips late answers to earlier requests.
pub fn answer_to(request: &Request, wire: &mut Wire, least: u16) -> Option<Vec<u8>> {
    let end = wire.clock() + STEP;
    loop {
        let message = wire.receive(end.saturating_sub(wire.clock()))?;
        let is_of_request = field(&message, "Call-ID").as_deref() == Some(&request.call_id)
            && field(&message, "CSeq") == Some(format!("{} {}", request.cseq, request.method));
        if is_of_request && status(&message).is_some_and(|status| status >= least) {
            return Some(message);
        }
    }
}

/// Sends the request, which must arrive with this method; answers it with 200. Returns the request as received, and the
/// answer.
///
/// # Panics
/// The request or the answer does not arrive.
pub fn arrives(from: &mut Wire, to: &mut Wire, request: &Request, lines: &[String]) -> (Vec<u8>, Vec<u8>) {
    from.send(&request.bytes()).expect("the server takes messages");
    let got = to.request(&request.method, STEP).unwrap_or_else(|| panic!("{} does not arrive", request.method));
    to.send(&respond(&got, 200, "callee", lines)).expect("the server takes messages");
    let answer = answer_to(request, from, 200).expect("it is answered");
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    (got, answer)
}
