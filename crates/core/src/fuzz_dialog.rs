//! Requests within dialogs with valid route tokens and seals, changed at random: a request that the proxy accepts as a
//! request of a call must go to a party of the call. The function panics otherwise; mutators and cargo-fuzz call it.

use crate::entropy::Entropy;
use crate::proxy::{Candidate, Plan, Proxy, ProxySettings};
use crate::routing::{Identity, ListenerAddress, NextHop, Request, Router};
use crate::timer::TimerSettings;
use crate::transaction::{Incoming, Role, Transactions};
use crate::{Arrival, Flow, ListenerId, Now, Outbox, Round, Target, Transport};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_message::{Index, Limits, Message};

const NOW: Now = Now { mono: 1_000, wall: 1_700_000_000_000 };

/// Addresses of the parties: caller and callee, their new address after a move, and the proxy between them.
const CALLER: &str = "192.0.2.1:5060";
const CALLED: &str = "192.0.2.2:5060";
const MOVED: &str = "192.0.2.3:5070";
const STREAM: &str = "192.0.2.4:40000";
const EDGE: &str = "192.0.2.5:5060";
const PARTIES: [&str; 5] = [CALLER, CALLED, MOVED, STREAM, EDGE];

const UDP: ListenerId = ListenerId(0);
const TLS: ListenerId = ListenerId(1);

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

/// Changes and forwards a request. The first byte selects it; then four bytes each describe a change: kind, position (two), value.
///
/// # Panics
/// If a message is sent to an address of no party by a route token or a seal.
pub fn dialog(data: &[u8]) {
    let Some((which, script)) = data.split_first() else { return };
    WORLD.with_borrow_mut(|world| {
        let mut bytes = world.requests[usize::from(*which) % world.requests.len()].clone();
        for [how, high, low, with] in script.as_chunks::<4>().0.iter().take(16) {
            change(&mut bytes, *how, usize::from(u16::from_be_bytes([*high, *low])), *with, &world.pieces);
        }
        world.judge(&bytes);
    });
}

/// Returns the number of requests to change.
pub fn requests() -> usize {
    WORLD.with_borrow(|world| world.requests.len())
}

/// Applies one change to a message. `pieces`: texts that may be inserted, at least one and none of them empty.
pub fn change(bytes: &mut Vec<u8>, how: u8, at: usize, with: u8, pieces: &[Vec<u8>]) {
    let at = at % (bytes.len() + 1);
    let piece = || pieces[usize::from(with) % pieces.len()].iter().copied();
    match how % 8 {
        0 => bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (with % 8)),
        1 => bytes.get_mut(at).into_iter().for_each(|byte| *byte = with),
        2 => drop(bytes.drain(at..bytes.len().min(at + 1 + usize::from(with % 16)))),
        3 => bytes.insert(at, with),
        4 => drop(bytes.splice(at..at, piece())),
        5 => drop(bytes.splice(at..bytes.len().min(at + usize::from(with >> 4)), piece())),
        // The inserted text may be a piece of the message itself, copied or moved.
        6 => {
            let copied = bytes[at..bytes.len().min(at + 1 + usize::from(with % 64))].to_vec();
            let to = (at * 7 + usize::from(with)) % (bytes.len() + 1);
            drop(bytes.splice(to..to, copied));
        }
        _ => bytes.truncate(at.max(16)),
    }
}

/// Proxy, and requests of calls that it admitted.
struct World {
    proxy: Proxy,
    tx: Transactions,
    out: Outbox,
    requests: Vec<Vec<u8>>,
    /// Replacement texts: route tokens, seals, Routes and Contacts of other calls and directions.
    pieces: Vec<Vec<u8>>,
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("written here")
}

fn arrival(listener: ListenerId, remote: &str) -> Arrival {
    let flow = (listener == TLS).then_some(Flow { node: 0, process: 7, shard: 0, slot: 3, generation: 9 });
    let transport = if listener == TLS { Transport::Tls } else { Transport::Udp };
    Arrival { transport, listener, remote: address(remote), flow }
}

impl World {
    fn new() -> Self {
        let listener = |transport, bound: &str| ListenerAddress {
            transport,
            bound: address(bound),
            sent_by: bound.as_bytes().into(),
            network: 0,
        };
        let listeners =
            vec![listener(Transport::Udp, "198.51.100.1:5060"), listener(Transport::Tls, "198.51.100.1:5061")];
        let identity = Identity::new(listeners, ["example.org"], &[]);
        let router = Arc::new(Router::new(Arc::new(identity), b"secret", 86_400));
        let mut world = Self {
            proxy: Proxy::new(router, ProxySettings::default(), Entropy::new([1; 32])),
            tx: Transactions::new(TimerSettings::default(), [1, 2]),
            out: Outbox::new(),
            requests: Vec::new(),
            pieces: Vec::new(),
        };
        world.call("plain", arrival(UDP, CALLER), "sip:caller@192.0.2.1", "sip:called@192.0.2.2", CALLED, "");
        world.call("hidden", arrival(UDP, CALLER), "sip:caller@10.0.0.1", "sip:called@10.0.0.2", CALLED, "");
        world.call("stream", arrival(TLS, STREAM), "sip:a@x.invalid;transport=tls", "sip:b@192.0.2.2", CALLED, "");
        let edge = "Record-Route: <sip:192.0.2.5;lr>\r\n";
        world.call("edge", arrival(UDP, CALLER), "sip:caller@192.0.2.1", "sip:called@10.0.0.2", EDGE, edge);
        world.pieces = pieces(&world.requests);
        world
    }

    /// Sets up a call of this name, and stores the requests of its parties before and after each party has moved.
    /// `beyond`: Record-Route of a proxy before the callee.
    fn call(&mut self, name: &str, from: Arrival, caller: &str, called: &str, at: &str, beyond: &str) {
        let line = |contact: &str| format!("Contact: <{contact}>\r\n");
        let invite = request("INVITE", "sip:called@192.0.2.2", name, "<sip:a@x>;tag=a", "<sip:b@x>", &line(caller));
        let sent = self.forward(&invite, from, at);
        let ok = answer(&sent, beyond, &line(called));
        let ok = self.answered(&ok, at);
        let own = |text: &str| text.replace("Record-Route: ", "Route: ");
        let mut there = (uri(&ok), own(&turned(&lines(&ok, "Record-Route"))));
        let mut back = (uri(&sent), own(&lines(&sent, "Record-Route")));
        for moved in [false, true] {
            let both = [("<sip:a@x>;tag=a", "<sip:b@x>;tag=b", &there), ("<sip:b@x>;tag=b", "<sip:a@x>;tag=a", &back)];
            for (from, to, (target, routes)) in both {
                for method in ["INVITE", "BYE"] {
                    let lines = format!("{routes}Contact: <sip:other@203.0.113.66>\r\n");
                    self.requests.push(request(method, target, name, from, to, &lines).into_bytes());
                }
            }
            if moved {
                break;
            }
            // Both parties renew their target: the caller in its request, the callee in its answer.
            let lines = format!("{}{}", there.1, line("sip:moved@192.0.2.3:5070"));
            let update = request("UPDATE", &there.0, name, "<sip:a@x>;tag=a", "<sip:b@x>;tag=b", &lines);
            let sent = self.forward(&update, from, "");
            let ok = self.answered(&answer(&sent, "", &line("sip:moved2@192.0.2.3:5070")), at);
            (there.0, back.0) = (uri(&ok), uri(&sent));
        }
    }

    /// Forwards the request to this address, or to its own target. Returns the sent message.
    fn forward(&mut self, text: &str, from: Arrival, at: &str) -> String {
        let to = if at.is_empty() { None } else { Some(arrival(UDP, at).reply()) };
        self.pass(text.as_bytes(), &from, to).expect("it is forwarded");
        let send = self.out.sends().last().expect("it is forwarded");
        let sent = String::from_utf8(self.out.bytes[send.range()].to_vec()).expect("written here");
        self.out.clear();
        sent
    }

    fn answered(&mut self, text: &str, at: &str) -> String {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("written here");
        let message = Message::new(text.as_bytes(), &index);
        let Incoming::Response { id, tu, .. } = self.tx.response(NOW, &message, &mut self.out) else {
            panic!("an answer to what was sent");
        };
        if let Role::Proxy(context) = tu.role() {
            self.proxy.response(
                &mut Round { now: NOW, tx: &mut self.tx, out: &mut self.out },
                context,
                &message,
                &arrival(UDP, at),
                id,
            );
        }
        let send = self.out.sends().last().expect("it goes upstream");
        let sent = String::from_utf8(self.out.bytes[send.range()].to_vec()).expect("written here");
        self.out.clear();
        sent
    }

    /// Forwards a request to this target, or to its own. Returns whether the request was accepted as a request of a
    /// call; `None` if it is malformed or has no target.
    fn pass(&mut self, bytes: &[u8], from: &Arrival, to: Option<Target>) -> Option<bool> {
        let mut index = Index::new();
        index.parse(bytes, &Limits::default()).ok()?;
        let message = Message::new(bytes, &index);
        let request = Request::of(message, from, 7).ok()?;
        let routing = self.proxy.router().route(NOW, &request);
        let next = routing.route.unwrap_or(routing.uri);
        let target = match (to.or(routing.device), self.proxy.router().next_hop(&next, routing.listener.unwrap_or(UDP)))
        {
            (Some(target), _) | (None, NextHop::Known(target)) => target,
            (None, NextHop::Name { host, .. }) => {
                // The name of a party was changed, which breaks its seal.
                let is_party = host.eq_ignore_ascii_case(b"x.invalid");
                assert!(is_party || !routing.in_dialog, "{}", String::from_utf8_lossy(bytes));
                return None;
            }
            (None, NextHop::Unreachable) => return None,
        };
        match self.tx.request(NOW, &message, from, 7, &mut self.out) {
            Incoming::Request(id) => {
                let candidate = Candidate { targets: &[target], q: 1000, fixed: true, ..Candidate::default() };
                self.proxy.forward(
                    &mut Round { now: NOW, tx: &mut self.tx, out: &mut self.out },
                    &request,
                    &routing,
                    id,
                    &[candidate],
                    &Plan::default(),
                );
            }
            Incoming::Ack => {
                let candidate = Candidate { targets: &[target], ..Candidate::default() };
                self.proxy.forward_ack(
                    &mut Round { now: NOW, tx: &mut self.tx, out: &mut self.out },
                    &request,
                    &routing,
                    &candidate,
                );
            }
            _ => return None,
        }
        Some(routing.in_dialog)
    }

    fn judge(&mut self, bytes: &[u8]) {
        self.tx = Transactions::new(TimerSettings::default(), [1, 2]);
        if self.pass(bytes, &arrival(UDP, "203.0.113.66:5060"), None) == Some(true) {
            for send in self.out.sends() {
                let to = send.target.address;
                let is_party = PARTIES.iter().any(|party| address(party) == to);
                // Responses about errors of the request are sent to its sender.
                let is_answer = self.out.bytes[send.range()].starts_with(b"SIP/2.0 ");
                assert!(is_party || is_answer, "to {to}: {}", String::from_utf8_lossy(bytes));
            }
        }
        self.out.clear();
    }
}

/// Returns `WORDS`, and the parts of these requests that name targets.
pub fn pieces(requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = WORDS.iter().map(|word| word.as_bytes().to_vec()).collect();
    for request in requests {
        let text = String::from_utf8_lossy(request);
        for start in [";d=", ";x-strowger=", "Route: <", "sip:", ";tag=", "Call-ID: "] {
            for (at, _) in text.match_indices(start) {
                let rest = &text[at..];
                let end = rest[1..].find(['>', '\r', ' ']).map_or(rest.len(), |end| end + 1);
                pieces.push(rest.as_bytes()[..end].to_vec());
            }
        }
    }
    pieces.sort();
    pieces.dedup();
    pieces
}

const WORDS: [&str; 16] = [
    "203.0.113.66",
    "@203.0.113.66",
    ":5061",
    ";transport=tls",
    ";transport=udp",
    ";maddr=203.0.113.66",
    ";maddr=198.51.100.1",
    ";lr",
    "sips:",
    "Route: <sip:203.0.113.66;lr>\r\n",
    "Route: <sip:198.51.100.1;lr>\r\n",
    "<sip:x@203.0.113.66>",
    ", <sip:203.0.113.66;lr>",
    "%40",
    "?Route=x",
    ";x-strowger=AAAA",
];

fn request(method: &str, uri: &str, call: &str, from: &str, to: &str, lines: &str) -> String {
    let branch = format!("{call}{method}{}{}", uri.len(), from.len() * 31 + usize::from(from.contains("tag=a")));
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.66;branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n{lines}\
         From: {from}\r\nTo: {to}\r\nCall-ID: {call}\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Returns the 200 to a request, with further lines above its Record-Route and at the end.
fn answer(request: &str, above: &str, besides: &str) -> String {
    let copied: String = ["Via", "From", "Call-ID", "CSeq"].map(|name| lines(request, name)).concat();
    let to = lines(request, "To");
    let to = if to.contains(";tag=") { to } else { to.replace("\r\n", ";tag=b\r\n") };
    let recorded = lines(request, "Record-Route");
    format!("SIP/2.0 200 OK\r\n{copied}{to}{above}{recorded}{besides}Content-Length: 0\r\n\r\n")
}

/// Returns all lines of this name.
fn lines(text: &str, name: &str) -> String {
    let is = |line: &&str| line.split(':').next() == Some(name);
    text.split_inclusive("\r\n").filter(is).collect()
}

/// Returns the lines in reverse order, including our own Routes that the sender would remove.
fn turned(lines: &str) -> String {
    lines.split_inclusive('\n').rev().collect()
}

/// Returns the URI of the Contact.
fn uri(text: &str) -> String {
    lines(text, "Contact").split(['<', '>']).nth(1).expect("a Contact").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_requests_reach_the_parties() {
        WORLD.with_borrow_mut(|world| {
            let mut reached: Vec<SocketAddr> = Vec::new();
            for bytes in world.requests.clone() {
                world.tx = Transactions::new(TimerSettings::default(), [1, 2]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                assert_eq!(world.pass(&bytes, &arrival(UDP, "203.0.113.66:5060"), None), Some(true), "{text}");
                reached.extend(world.out.sends().iter().map(|send| send.target.address));
                world.out.clear();
            }
            for party in PARTIES {
                assert!(reached.contains(&address(party)), "{party}");
            }
        });
    }

    #[test]
    fn scripts_of_random_bytes_reach_only_the_parties() {
        let mut random = Entropy::new([3; 32]);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..2 + random.u64() % 3).flat_map(|_| random.u64().to_le_bytes()).collect();
            dialog(&bytes[..1 + bytes.len() / 4 * 4 - 4]);
        }
    }
}
