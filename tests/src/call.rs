//! Call by hand: two phones whose messages are all visible.

use std::time::Duration;

use crate::server::Server;
use crate::text::{self, Request, respond};
use crate::wire::{Transport, Wire};

/// Time limit of each step.
const STEP: Duration = Duration::from_secs(5);

/// Registers a user of `example.org` at this wire's own address.
///
/// # Panics
/// The answer is not 200.
pub fn register(wire: &mut Wire, user: &str) {
    let transport = wire.transport().name();
    let contact = format!("sip:{user}@{};transport={transport}", wire.local());
    let request = Request::register(user, "example.org", &contact, transport, wire.local());
    let answer = exchange(wire, &request);
    assert_eq!(text::status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
}

/// Sends a request and waits for the final response; retransmits by UDP like RFC 3261 section 17.1.2.2.
///
/// # Panics
/// No response comes.
pub fn exchange(wire: &mut Wire, request: &Request) -> Vec<u8> {
    let udp = wire.transport() == Transport::Udp;
    for _ in 0..if udp { 5 } else { 1 } {
        wire.send(&request.bytes()).expect("the server takes messages");
        let limit = if udp { STEP / 5 } else { STEP };
        let end = wire.clock() + limit;
        while let Some(answer) = wire.final_response(end.saturating_sub(wire.clock())) {
            if text::field(&answer, "Call-ID").as_deref() == Some(&request.call_id)
                && text::cseq_method(&answer) == request.method
            {
                return answer;
            }
        }
    }
    panic!("no answer to {} by {}", request.method, wire.transport().name());
}

/// Makes a whole call: `callee` registers as `user`, `caller` calls it, it rings, answers, and the caller hangs up.
///
/// # Panics
/// A message does not arrive.
pub fn complete(caller: &mut Wire, callee: &mut Wire, user: &str) {
    register(callee, user);
    let way = |wire: &Wire| (wire.transport().name(), wire.local());
    let (caller_way, callee_way) = (way(caller), way(callee));
    let contact = |(name, local): (&str, std::net::SocketAddr)| format!("Contact: <sip:{local};transport={name}>");
    let invite = Request::new("INVITE", &format!("sip:{user}@example.org"), caller_way.0, caller_way.1)
        .with(contact(caller_way));
    caller.send(&invite.bytes()).expect("the server takes messages");
    let got = callee.request("INVITE", STEP).expect("the INVITE arrives");
    callee.send(&respond(&got, 180, "callee", &[contact(callee_way)])).expect("the server takes messages");
    callee.send(&respond(&got, 200, "callee", &[contact(callee_way)])).expect("the server takes messages");
    let answer = caller.final_response(STEP).expect("the call is answered");
    assert_eq!(text::status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    caller.send(&invite.ack(&answer).bytes()).expect("the server takes messages");
    callee.request("ACK", STEP).expect("the ACK arrives");
    let bye = invite.within("BYE", &answer);
    caller.send(&bye.bytes()).expect("the server takes messages");
    let got = callee.request("BYE", STEP).expect("the BYE arrives");
    callee.send(&respond(&got, 200, "callee", &[])).expect("the server takes messages");
    let answer = caller.final_response(STEP).expect("the BYE is answered");
    assert_eq!(text::status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
}

/// Makes a whole call between two new wires of this transport.
///
/// # Panics
/// A message does not arrive.
pub fn through(server: &Server, transport: Transport) {
    let (mut caller, mut callee) = (server.connect(transport), server.connect(transport));
    complete(&mut caller, &mut callee, &text::unique("user"));
}
