//! Abuse of a party's route token and seal, to reach a third party, or more of the other party than it has agreed to.
//! With the default configuration: a stranger has called bob, and the call is answered.

use std::time::Duration;

use strowger_rig::Listener;
use strowger_tests::account::register_at;
use strowger_tests::call::exchange;
use strowger_tests::dialog::{End, arrives, set_up_with};
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, request_uri, status, unique};
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

const HIDDEN: &str = "10.99.99.99:5060";

/// Input of an attack: the correct request, and targets.
struct Bounds {
    /// Party that was not called.
    victim: String,
    port: String,
    /// TCP listener.
    tcp: String,
    server: String,
    /// Dialog state of a second call of the caller, and of the other party of this one.
    other: End,
    back: End,
}

type Attack = (&'static str, fn(&mut Request, &Bounds));

/// Changes the text of the first Route.
fn route(request: &mut Request, change: impl FnOnce(&str) -> String) {
    let value =
        request.headers[0].strip_prefix("Route: <").and_then(|v| v.strip_suffix('>')).expect("a Route").to_owned();
    request.headers[0] = format!("Route: {}", change(&value));
}

/// Splits a URI into the part before the seal, and its value.
fn seal(uri: &str) -> (&str, &str) {
    uri.split_once(";x-strowger=").unwrap_or((uri, "AAAA"))
}

fn token(route: &str) -> &str {
    route.split_once(";d=").expect("a route token").1.trim_end_matches('>')
}

/// Attacks that aim at a third party.
const ELSEWHERE: &[Attack] = &[
    ("the target", |r, b| r.uri = format!("sip:x@{}", b.victim)),
    ("the target, with the seal", |r, b| r.uri = format!("sip:b@{};x-strowger={}", b.victim, seal(&r.uri).1)),
    ("the target, with the seal of another", |r, b| {
        r.uri = format!("sip:b@{};x-strowger={}", b.victim, seal(&b.other.uri).1)
    }),
    ("the host before the seal", |r, b| r.uri = r.uri.replace(HIDDEN, &b.victim)),
    ("the port before the seal", |r, b| r.uri = r.uri.replace(HIDDEN, &format!("127.0.0.1:{}", b.port))),
    ("maddr beside the seal", |r, b| r.uri.push_str(&format!(";maddr={}", b.victim))),
    ("maddr before the seal", |r, _| r.uri = r.uri.replace(";x-strowger", ";maddr=127.0.0.1;x-strowger")),
    ("the transport beside the seal", |r, b| {
        r.uri = format!("sip:b@{};transport=tcp;x-strowger={}", b.tcp, seal(&r.uri).1)
    }),
    ("two seals", |r, b| r.uri = format!("{};x-strowger={}", r.uri, seal(&b.other.uri).1)),
    ("the seal of another first", |r, b| {
        r.uri = r.uri.replace(";x-strowger", &format!(";x-strowger={};x-strowger", seal(&b.other.uri).1))
    }),
    ("the seal in capitals, and another", |r, b| r.uri = format!("sip:b@{};X-STROWGER={}", b.victim, seal(&r.uri).1)),
    ("the seal in the user", |r, b| r.uri = format!("sip:b;x-strowger={}@{}", seal(&r.uri).1, b.victim)),
    ("the seal in the headers of the URI", |r, b| r.uri = format!("sip:b@{}?x-strowger={}", b.victim, seal(&r.uri).1)),
    ("the seal of the other party", |r, b| {
        r.uri = format!("sip:b@{};x-strowger={}", b.victim, b.back.uri.rsplit('=').next().unwrap_or_default())
    }),
    ("an address where the seal stands", |r, b| r.uri = format!("{};x-strowger={}", seal(&r.uri).0, b.victim)),
    ("the address of old", |r, b| r.uri = format!("sip:b@{HIDDEN};alias=127.0.0.1~{}~0", b.port)),
    ("a Route behind the route token", |r, b| r.headers.insert(1, format!("Route: <sip:{};lr>", b.victim))),
    ("a Route behind the route token in its line", |r, b| r.headers[0].push_str(&format!(", <sip:{};lr>", b.victim))),
    ("a Route before the route token", |r, b| r.headers.insert(0, format!("Route: <sip:{};lr>", b.victim))),
    ("the route token on another address", |r, b| route(r, |old| format!("<sip:{};lr;d={}>", b.victim, token(old)))),
    ("the route token and maddr", |r, b| route(r, |old| format!("<{old};maddr={}>", b.victim))),
    ("the route token with a user", |r, b| {
        route(r, |old| format!("<{}>", old.replace("sip:", "sip:x@")));
        r.uri = format!("sip:x@{}", b.victim);
    }),
    ("the route token as target, the victim as Route", |r, b| {
        r.uri = format!("sip:{};lr;d={}", b.server, token(&r.headers[0]));
        r.headers[0] = format!("Route: <sip:x@{}>", b.victim);
    }),
    ("the route token as target, two Routes", |r, b| {
        let own = r.headers[0].clone();
        r.uri = format!("sip:{};lr;d={}", b.server, token(&own));
        r.headers.push(format!("Route: <sip:x@{}>", b.victim));
    }),
    ("the route token of the other call", |r, b| {
        r.headers[0] = format!("Route: {}", b.other.routes[0]);
        r.uri = format!("sip:x@{}", b.victim);
    }),
    ("both route tokens", |r, b| {
        r.headers.insert(1, format!("Route: {}", b.other.routes[0]));
        r.uri = format!("sip:x@{}", b.victim);
    }),
    ("the route token that leads back", |r, b| {
        r.headers[0] = format!("Route: {}", b.back.routes[0]);
        r.uri = format!("sip:x@{}", b.victim);
    }),
    ("a call that begins", |r, b| (r.uri, r.to) = (format!("sip:x@{}", b.victim), "<sip:bob@example.org>".into())),
    ("a renewed target", |r, b| {
        (r.uri, r.method) = (format!("sip:x@{}", b.victim), "UPDATE".into());
        r.headers.push(format!("Contact: <sip:x@{}>", b.victim));
    }),
    ("a registration", |r, b| (r.uri, r.method) = (format!("sip:{}", b.victim), "REGISTER".into())),
    ("an ACK", |r, b| (r.uri, r.method) = (format!("sip:x@{}", b.victim), "ACK".into())),
    ("a CANCEL", |r, b| (r.uri, r.method) = (format!("sip:x@{}", b.victim), "CANCEL".into())),
    ("the other party's From", |r, b| {
        std::mem::swap(&mut r.from, &mut r.to);
        r.uri = format!("sip:x@{}", b.victim);
    }),
];

/// Attacks on bob, who is at the address of his Contact, without the route token of this call and direction.
const MARKS: &[Attack] = &[
    ("no route token", |r, b| r.headers[0] = format!("Route: <sip:{};lr>", b.server)),
    ("an empty route token", |r, b| r.headers[0] = format!("Route: <sip:{};lr;d=>", b.server)),
    ("a route token in capitals", |r, _| {
        route(r, |old| format!("<{}>", old.replace(token(old), &token(old).to_uppercase())))
    }),
    ("a route token cut short", |r, _| route(r, |old| format!("<{}>", &old[..old.len() - 4]))),
    ("a route token and more", |r, _| route(r, |old| format!("<{old}AAAA>"))),
    ("a route token with a character changed", |r, _| {
        route(r, |old| {
            let (at, last) = (old.len() - 5, old.as_bytes()[old.len() - 5]);
            format!("<{}{}{}>", &old[..at], if last == b'A' { 'B' } else { 'A' }, &old[at + 1..])
        });
    }),
    ("a time to come", |r, _| {
        route(r, |old| format!("<{}>", old.replace(token(old), &format!("__{}", &token(old)[2..]))))
    }),
    ("the route token of another call", |r, b| r.headers[0] = format!("Route: {}", b.other.routes[0])),
    ("the route token that leads back", |r, b| r.headers[0] = format!("Route: {}", b.back.routes[0])),
    ("another call", |r, _| r.call_id = unique("another")),
    ("the call in other letters", |r, _| r.call_id = r.call_id.to_uppercase()),
    ("another tag", |r, _| r.to.push('x')),
    ("the tag in other letters", |r, _| {
        let (name, tag) = r.to.split_once(";tag=").expect("a tag");
        r.to = format!("{name};tag={}", tag.to_uppercase());
    }),
    ("no tag", |r, _| r.to = "<sip:bob@example.org>".into()),
    ("the caller's tag", |r, _| r.to.clone_from(&r.from)),
    ("another user", |r, _| r.uri = r.uri.replacen("sip:b@", "sip:+19005551234@", 1)),
    ("no user", |r, _| r.uri = r.uri.replacen("sip:b@", "sip:", 1)),
    ("another transport", |r, _| r.uri.push_str(";transport=tcp")),
    ("sips", |r, _| r.uri = r.uri.replacen("sip:", "sips:", 1)),
    ("maddr", |r, _| r.uri.push_str(";maddr=127.0.0.1")),
];

/// Attacks on bob, who is behind NAT, without the seal of this call.
const SEALS: &[Attack] = &[
    ("no seal", |r, _| r.uri = seal(&r.uri).0.into()),
    ("a seal with a character changed", |r, _| {
        let other = if r.uri.ends_with('A') { "B" } else { "A" };
        r.uri.replace_range(r.uri.len() - 1.., other);
        // The last character may have unused bits.
        let at = r.uri.len() - 6;
        let other = if r.uri.as_bytes()[at] == b'A' { "B" } else { "A" };
        r.uri.replace_range(at..=at, other);
    }),
    ("the seal in another call", |r, _| r.call_id = unique("another")),
    ("the seal with another tag", |r, _| r.to.push('x')),
    ("the seal without a tag", |r, _| r.to = "<sip:bob@example.org>".into()),
    ("the seal with the caller's tag", |r, _| r.to.clone_from(&r.from)),
    ("the seal of another user", |r, b| r.uri = b.other.uri.clone()),
    ("another user before the seal", |r, _| r.uri = r.uri.replace("sip:b@", "sip:+19005551234@")),
    ("no user before the seal", |r, _| r.uri = r.uri.replace("sip:b@", "sip:")),
    ("a password before the seal", |r, _| r.uri = r.uri.replace("sip:b@", "sip:b:x@")),
    ("sips before the seal", |r, _| r.uri = r.uri.replacen("sip:", "sips:", 1)),
];

/// Call of a caller and bob, each with its dialog state, and others.
struct Scene {
    server: Site,
    /// Caller, then bob.
    parties: [Wire; 2],
    ends: [End; 2],
    carol: Wire,
    victim: Wire,
    listener: Listener,
    bounds: Bounds,
}

impl Scene {
    fn new(hidden: bool) -> Self {
        let server = Setup::on(&[Udp, Tcp]).with("domains = [\"example.org\"]").site();
        let (mut caller, victim) = (server.connect(Udp), server.connect(Udp));
        let (listener, tcp) = server.listen();
        let at = |user: &str, wire: &Wire| {
            let own = wire.local().to_string();
            format!("sip:{user}@{}", if hidden { HIDDEN } else { &own })
        };
        let mut called = |user: &str| {
            server.add_user(&format!("{user}@example.org"), user);
            let mut wire = server.connect(Udp);
            let contact = at(&user[..1], &wire);
            register_at(&mut wire, user, user, &contact);
            let call = Request::new("INVITE", &format!("sip:{user}@example.org"), "udp", caller.local())
                .with(format!("Contact: <{}>", at("a", &caller)));
            let (end, back) = set_up_with(&mut caller, &mut wire, &call, true, &[format!("Contact: <{contact}>")]);
            (wire, end, back)
        };
        let (bob, end, back) = called("bob");
        let (carol, other, _) = called("carol");
        let bounds = Bounds {
            victim: victim.local().to_string(),
            port: victim.local().port().to_string(),
            tcp: tcp.to_string(),
            server: server.address(Udp).to_string(),
            other,
            back: back.clone(),
        };
        Self { server, parties: [caller, bob], ends: [end, back], carol, victim, listener, bounds }
    }

    /// Sends a request of this party; returns the parties that received anything, and the messages.
    fn heard(&mut self, party: usize, request: &Request) -> Vec<(&'static str, Vec<u8>)> {
        let [caller, bob] = &mut self.parties;
        let (sender, other) = if party == 0 { (caller, ("bob", bob)) } else { (bob, ("the caller", caller)) };
        sender.send(&request.bytes()).expect("loopback takes it");
        let fence = Request::new("OPTIONS", &format!("sip:{}", self.bounds.server), "udp", sender.local());
        assert_eq!(status(&exchange(sender, &fence)), Some(200));
        let mut heard = Vec::new();
        for (name, wire) in [other, ("carol", &mut self.carol), ("the victim", &mut self.victim)] {
            while wire.has_come() {
                let message = wire.receive(Duration::from_millis(1)).unwrap_or_default();
                // Time passes: the server pings phones behind NAT, and senders get 100s.
                let is_ping = String::from_utf8_lossy(&message).contains("Call-ID: ping-");
                if !is_ping && status(&message) != Some(100) {
                    heard.push((name, message));
                }
            }
        }
        if self.listener.accept(Duration::ZERO).is_some() {
            heard.push(("the victim", b"a connection".into()));
        }
        heard
    }
}

#[test]
fn no_route_token_or_seal_leads_to_a_third_party() {
    let mut scene = Scene::new(true);
    let mut faults = Vec::new();
    for (party, other, own) in [(0, "bob", format!("sip:b@{HIDDEN}")), (1, "the caller", format!("sip:a@{HIDDEN}"))] {
        scene.bounds.back = scene.ends[1 - party].clone();
        for (name, change) in ELSEWHERE {
            for method in ["INVITE", "BYE", "MESSAGE", "REFER"] {
                let mut request = scene.ends[party].request(method);
                change(&mut request, &scene.bounds);
                for (who, heard) in scene.heard(party, &request) {
                    // The other party may receive requests to targets that this party wrote itself.
                    if who != other || !request_uri(&heard).starts_with(&own) {
                        faults.push(format!("{name}, {method}: {who} heard {}", String::from_utf8_lossy(&heard)));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    for party in [0, 1] {
        let request = scene.ends[party].request("INFO");
        let [caller, bob] = &mut scene.parties;
        let (from, to) = if party == 0 { (caller, bob) } else { (bob, caller) };
        to.drain();
        from.drain();
        arrives(from, to, &request, &[]);
    }
    scene.server.assert_answers(Udp);
}

#[test]
fn nothing_that_is_not_of_the_call_reaches_its_party() {
    for (hidden, attacks) in [(false, MARKS), (true, SEALS)] {
        let mut scene = Scene::new(hidden);
        let mut faults = Vec::new();
        for (name, change) in attacks {
            for method in ["INVITE", "BYE", "MESSAGE", "REFER", "ACK"] {
                let mut request = scene.ends[0].request(method);
                change(&mut request, &scene.bounds);
                faults.extend(
                    scene.heard(0, &request).into_iter().map(|(who, heard)| {
                        format!("{name}, {method}: {who} heard {}", String::from_utf8_lossy(&heard))
                    }),
                );
            }
        }
        assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
        // The correct request gets through.
        let request = scene.ends[0].request("BYE");
        let [caller, bob] = &mut scene.parties;
        arrives(caller, bob, &request, &[]);
    }
}
