//! Targets that a peer may name: in each part of a message that can name a target, in each form of an address, from
//! senders of each scope.

use crate::peer::{answer, receive, sent, status};
use crate::site::{SERVER, Site, line};
use std::net::{IpAddr, SocketAddr};
use strowger_core::Transport;
use strowger_core::routing::{Identity, ListenerAddress, Machine};
use strowger_server::engine::{Effect, EngineInput};
use strowger_server::question::Resolved;

pub(crate) const WORLD: &str = "198.51.100.7:5060";
const LAN: &str = "10.1.2.7:5060";
pub(crate) const LOOPBACK: &str = "127.0.0.1:5080";
/// Address of the machine, at a port without a listener.
const OWN: &str = "192.0.2.1:5080";
pub(crate) const PHONE: &str = "198.51.100.8:5060";

/// Settings that refuse nothing, so that every refusal is one of reach.
pub(crate) const OPEN: &str = "proxy.relay_for = \"everyone\"\nauth.calls = false\n";

/// Starts a server with listeners at a public address and on loopback, interfaces of each kind, and services that it
/// uses.
pub(crate) fn site(settings: &str) -> Site {
    let listen = ["udp:192.0.2.1:5060", "tcp:192.0.2.1:5060", "udp:127.0.0.1:5070", "tcp:127.0.0.1:5070"];
    let mut site = Site::start(
        strowger_core::Now { mono: 10_000, wall: 1_700_000_000_000 },
        &[&listen[..], &["udp:[::1]:5070", "udp:[2001:db8::1]:5060"]].concat(),
        &format!("{OPEN}{settings}"),
    );
    take(&mut site, &["192.0.2.1", "10.1.2.3", "2001:db8::1", "fe80::1"], &["127.0.0.1:6379", "10.1.2.9:3306"]);
    site
}

/// Gives the server other interfaces and other services.
pub(crate) fn take(site: &mut Site, interfaces: &[&str], services: &[&str]) {
    let interfaces: Vec<IpAddr> = interfaces.iter().map(|ip| ip.parse().expect("an address")).collect();
    let services = services.iter().map(|service| service.parse().expect("an address"));
    let config = site.shared.policy().config.clone();
    let listener = |listener: &strowger_config::Listener| ListenerAddress {
        transport: listener.transport,
        bound: listener.address,
        sent_by: listener.address.to_string().into_bytes().into(),
        network: 0,
    };
    let machine = Machine::new(interfaces.iter().copied(), services);
    let listeners = config.listeners.iter().map(listener).collect();
    let policy = site.shared.set_identity(
        Identity::on(machine, listeners, config.domain_names(), &interfaces).with_aliases(config.aliases()),
    );
    for engine in &mut site.engines {
        engine.answered(site.now, EngineInput::Policy(policy.clone()), &mut site.out);
    }
}

pub(crate) fn message(uri: &str, from: &str, lines: &str) -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!(
        "MESSAGE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bKm{number};rport\r\n{lines}Max-Forwards: 70\r\n\
         From: <sip:x@example.net>;tag=a\r\nTo: <sip:y@example.net>\r\nCall-ID: m{number}\r\nCSeq: 1 MESSAGE\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

/// Returns the targets to which a request of this sender is forwarded, with each name resolved to these addresses. A
/// request without a target must be answered with a failure.
pub(crate) fn goes(site: &mut Site, from: &str, text: &str, names: &[&str]) -> Vec<String> {
    let mut all = receive(site, from, text);
    all.extend(resolved(site, names));
    let is_request = |(_, text): &&(String, String)| status(text).is_none();
    let to: Vec<String> = all.iter().filter(is_request).map(|(to, _)| to.clone()).collect();
    let refused = all.iter().any(|(_, text)| status(text).is_some_and(|status| status >= 300));
    assert!(to.is_empty() == refused, "{all:?}");
    to
}

/// Resolves each requested name to these addresses. Returns the messages that leave.
pub(crate) fn resolved(site: &mut Site, names: &[&str]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some(at) = site.engines[0].effects.iter().position(|effect| matches!(effect, Effect::Resolve { .. })) {
        let Effect::Resolve { ticket, name, .. } = site.engines[0].effects.remove(at) else { unreachable!() };
        let transport = name.2.unwrap_or(Transport::Udp);
        let targets = names.iter().map(|address| (transport, address.parse().expect("an address"))).collect();
        let to = Resolved { targets, name: None };
        site.work(|engine, now, out| engine.answered(now, EngineInput::Resolved { ticket, name, to }, out));
        all.extend(sent(site));
    }
    all
}

/// Forms of addresses that no foreign peer may name.
const INNER: [&str; 34] = [
    "127.0.0.1",
    "127.0.0.2",
    "127.255.255.254",
    "0.0.0.0",
    "0.0.0.1",
    "10.0.0.1",
    "10.1.2.3",
    "10.1.2.7",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "240.0.0.1",
    "192.0.2.1",
    "[::1]",
    "[::]",
    "[fe80::1]",
    "[fe80::2]",
    "[fd00::1]",
    "[fc00::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:192.0.2.1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:a00:1::1]",
    "[2001:db8::5efe:10.0.0.1]",
];

/// Returns the ways in which a MESSAGE names a host and a port, by this transport.
fn ways(host: &str, port: u16, transport: &str) -> Vec<(String, String)> {
    let there = format!("{host}:{port};transport={transport}");
    vec![
        (format!("sip:x@{there}"), String::new()),
        (format!("sip:{there}"), String::new()),
        ("sip:x@example.net".into(), format!("Route: <sip:{there};lr>\r\n")),
        ("sip:x@example.net".into(), format!("Route: <sip:{there}>\r\n")),
        ("sip:x@example.net".into(), format!("Route: <sip:{SERVER};lr>, <sip:{there};lr>\r\n")),
        (format!("sip:x@example.net:{port};maddr={host};transport={transport}"), String::new()),
        ("sip:x@a".into(), format!("Route: <sip:a:{port};maddr={host};transport={transport};lr>\r\n")),
    ]
}

#[test]
fn no_peer_of_the_world_names_an_inner_address() {
    let mut site = site("");
    for host in INNER {
        for (uri, lines) in ["udp", "tcp"].iter().flat_map(|transport| ways(host, 6380, transport)) {
            let none = goes(&mut site, WORLD, &message(&uri, WORLD, &lines), &[]);
            assert!(none.is_empty(), "{uri} {lines} {none:?}");
        }
    }
    // Any peer may name an address of the world.
    for (uri, lines) in ways("203.0.113.9", 6380, "udp") {
        assert_eq!(goes(&mut site, WORLD, &message(&uri, WORLD, &lines), &[]), ["203.0.113.9:6380"], "{uri} {lines}");
    }
}

#[test]
fn a_name_is_judged_by_each_of_its_addresses() {
    let mut site = site("");
    for host in INNER {
        let (inner, outer) = (format!("{host}:6380"), "203.0.113.9:5060");
        for (uri, lines) in ways("n.example.net", 6380, "udp") {
            let text = || message(&uri, WORLD, &lines);
            assert!(goes(&mut site, WORLD, &text(), &[&inner]).is_empty(), "{uri} {lines} {host}");
            assert!(goes(&mut site, WORLD, &text(), &[&inner, &inner]).is_empty(), "{uri} {lines} {host}");
            assert_eq!(goes(&mut site, WORLD, &text(), &[&inner, outer]), [outer], "{uri} {lines} {host}");
        }
    }
}

/// Checks that refused addresses are not tried when the first address does not answer.
#[test]
fn no_refused_address_is_tried_after_others() {
    let mut site = site("");
    let text = message("sip:x@n.example.net;transport=udp", WORLD, "");
    let names = ["203.0.113.9:5060", "127.0.0.1:6380", "10.1.2.7:5060"];
    assert_eq!(goes(&mut site, WORLD, &text, &names), ["203.0.113.9:5060"]);
    for _ in 0..60 {
        site.wait(1_000);
        let others: Vec<String> = sent(&site).into_iter().map(|(to, _)| to).collect();
        assert!(others.iter().all(|to| to == "203.0.113.9:5060" || to == WORLD), "{others:?}");
    }
}

#[test]
fn peers_in_a_network_name_its_addresses() {
    let mut site = site("");
    for (from, reached, refused) in [
        (LAN, &["10.1.2.8:5060", "192.168.7.7:5060", "203.0.113.9:5060"][..], &["10.1.2.3:22", "169.254.0.9:80"][..]),
        (LAN, &["100.64.1.9:5060"], &[]),
        // A customer of a carrier, outside the operator's networks.
        (
            "100.64.0.7:5060",
            &["100.64.1.9:5060", "100.127.0.9:5060", "203.0.113.9:5060"],
            &["10.1.2.8:5060", "172.16.0.9:5060", "192.168.7.7:5060", "[fd00::9]:5060", "127.0.0.1:5090"],
        ),
        (LOOPBACK, &["127.0.0.1:5090"], &[]),
        (OWN, &["192.0.2.1:5090", "10.1.2.8:5060"], &[]),
        (WORLD, &["203.0.113.9:5060"], &["10.1.2.8:5060", "100.64.1.9:5060", "192.0.2.1:5090"]),
    ] {
        for to in reached {
            let text = message(&format!("sip:x@{to}"), from, "");
            assert_eq!(goes(&mut site, from, &text, &[]), [*to], "{from}");
        }
        for to in refused {
            let text = message(&format!("sip:x@{to}"), from, "");
            assert!(goes(&mut site, from, &text, &[]).is_empty(), "{from} {to}");
        }
    }
}

#[test]
fn no_peer_names_a_service() {
    let mut site = site("proxy.reachable = [\"0.0.0.0/0\", \"::/0\"]\n");
    let services =
        ["127.0.0.1:6379", "127.0.0.9:6379", "192.0.2.1:6379", "10.1.2.3:6379", "[::1]:6379", "10.1.2.9:3306"];
    for from in [WORLD, LAN, LOOPBACK, OWN] {
        for service in services {
            let address: SocketAddr = service.parse().expect("an address");
            let host = service.rsplit_once(':').expect("a port").0;
            for (uri, lines) in ways(host, address.port(), "tcp") {
                assert!(goes(&mut site, from, &message(&uri, from, &lines), &[]).is_empty(), "{from} {uri} {lines}");
            }
            let text = message("sip:x@n.example.net;transport=tcp", from, "");
            assert!(goes(&mut site, from, &text, &[service]).is_empty(), "{from} {service}");
        }
    }
    // A response goes to the source, not to the port of a service in the Via.
    let text = message("sip:x@127.0.0.1:6379", "127.0.0.1:6379", "").replace(";rport", "");
    let answered = receive(&mut site, LOOPBACK, &text);
    assert!(!answered.is_empty() && answered.iter().all(|(to, _)| to == LOOPBACK), "{answered:?}");
    // The database gets another address: the old one is free, the new one is refused.
    take(&mut site, &["192.0.2.1", "10.1.2.3"], &["10.1.2.10:3306"]);
    for (to, passes) in [("10.1.2.9:3306", true), ("10.1.2.10:3306", false), ("127.0.0.1:6379", true)] {
        let text = message(&format!("sip:x@{to}"), LOOPBACK, "");
        assert_eq!(!goes(&mut site, LOOPBACK, &text, &[]).is_empty(), passes, "{to}");
    }
}

#[test]
fn networks_of_the_configuration_are_reachable() {
    let mut site = site(
        "proxy.reachable = [\"10.1.2.0/24\", \"fd00::/8\"]\n\
         [[source]]\nname = \"pbx\"\nnetworks = [\"10.7.7.7\", \"10.8.0.0/16\", \"127.0.0.1\", \"0.0.0.0/0\"]\n\
         [[rule]]\nname = \"out\"\nwhen = \"request.user == 'ruled'\"\nto = [\"sip:10.5.5.5:5060\", \"sip:127.0.0.1:5090\"]\n",
    );
    for (uri, reached) in [
        ("sip:x@10.1.2.8", Some("10.1.2.8:5060")),
        ("sip:x@10.1.3.8", None),
        ("sip:x@10.7.7.7:5070", Some("10.7.7.7:5070")),
        ("sip:x@10.8.0.1", Some("10.8.0.1:5060")),
        ("sip:x@10.9.0.1", None),
        ("sip:x@192.168.0.1", None),
        ("sip:x@239.0.0.1", None),
        ("sip:x@127.0.0.1:5090", None),
        ("sip:ruled@example.net", Some("10.5.5.5:5060")),
    ] {
        let to = goes(&mut site, WORLD, &message(uri, WORLD, ""), &[]);
        assert_eq!(to.first().map(|to| &**to), reached, "{uri}");
    }
}

/// Checks that the networks of a source open neither a service in them nor a port of this machine.
#[test]
fn a_network_of_a_source_opens_no_service() {
    let mut site = site("[[source]]\nname = \"lan\"\nnetworks = [\"10.1.0.0/16\"]\n");
    take(&mut site, &["192.0.2.1", "10.1.2.3"], &["10.1.2.9:3306"]);
    for (to, passes) in [("10.1.2.9:5060", true), ("10.1.2.9:3306", false), ("10.1.2.3:22", false)] {
        let text = message(&format!("sip:x@{to};transport=tcp"), WORLD, "");
        assert_eq!(!goes(&mut site, WORLD, &text, &[]).is_empty(), passes, "{to}");
    }
}

/// Checks interfaces that appear and disappear while the server runs.
#[test]
fn an_address_of_the_machine_may_change() {
    let mut site = site("");
    let text = || message("sip:x@203.0.113.77:22", WORLD, "");
    assert_eq!(goes(&mut site, WORLD, &text(), &[]).len(), 1);
    take(&mut site, &["192.0.2.1", "203.0.113.77"], &[]);
    assert!(goes(&mut site, WORLD, &text(), &[]).is_empty());
}

/// Registers a user from this address with this Contact and these lines. Returns the AOR of the user.
fn registered(site: &mut Site, from: &str, contact: &str, lines: &str) -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let user = format!("sip:u{}@example.org", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let text = format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bKr{user}\r\nFrom: <{user}>;tag=b\r\n\
         To: <{user}>\r\nCall-ID: {user}\r\nCSeq: 1 REGISTER\r\nContact: <{contact}>;expires=3600\r\n{lines}\
         Content-Length: 0\r\n\r\n"
    );
    let answered = receive(site, from, &text);
    assert_eq!(status(&answered[0].1), Some(200), "{answered:?}");
    user
}

/// Checks that requests of every sender are sent to a binding only where the sender of its REGISTER may send.
#[test]
fn what_is_registered_is_judged_by_where_it_was_registered() {
    let mut site = site("registrar.path = \"keep\"\n");
    for host in INNER {
        let there = format!("{host}:6380");
        let path = format!("Supported: path\r\nPath: <sip:{there};lr>\r\n");
        let strict = format!("Supported: path\r\nPath: <sip:{there};transport=tcp>\r\n");
        for (contact, lines) in [
            ("sip:u@203.0.113.9", &*path),
            ("sip:u@203.0.113.9", &strict),
            (&format!("sip:u@n.example.net:6380;maddr={host}"), ""),
            (&format!("sip:u@n.example.net:6380;maddr={host};transport=tcp"), ""),
        ] {
            let user = registered(&mut site, WORLD, contact, lines);
            for from in [WORLD, LAN, LOOPBACK] {
                let to = goes(&mut site, from, &message(&user, from, ""), &[]);
                // A phone with an unreachable Contact is reached at its source.
                assert!(to.is_empty() || to == [WORLD], "{host} {contact} {lines} {to:?}");
            }
        }
        let named = registered(&mut site, WORLD, "sip:u@n.example.net:6380;transport=tcp", "");
        for from in [WORLD, LAN, LOOPBACK] {
            assert!(goes(&mut site, from, &message(&named, from, ""), &[&there]).is_empty(), "{host} {from}");
        }
    }
    // The world reaches a telephone at a private address, and one on this machine.
    for (from, contact) in [
        (LAN, "sip:u@10.1.2.7:5060"),
        (LAN, "sip:u@10.1.2.7:5066"),
        (LOOPBACK, "sip:u@127.0.0.1:5080"),
        (OWN, "sip:u@192.0.2.1:5081"),
    ] {
        let user = registered(&mut site, from, contact, "");
        let to = goes(&mut site, WORLD, &message(&user, WORLD, ""), &[]);
        assert_eq!(to, [contact.trim_start_matches("sip:u@")], "{contact}");
    }
    let behind =
        registered(&mut site, LAN, "sip:u@192.168.9.9", "Supported: path\r\nPath: <sip:10.1.2.20:5060;lr>\r\n");
    assert_eq!(goes(&mut site, WORLD, &message(&behind, WORLD, ""), &[]), ["10.1.2.20:5060"]);
    // A telephone behind a translator that names its private address.
    let translated = registered(&mut site, "198.51.100.9:40000", "sip:u@10.1.2.7:5060", "");
    assert_eq!(goes(&mut site, WORLD, &message(&translated, WORLD, ""), &[]), ["198.51.100.9:40000"]);
}

/// Makes a call to a phone, whose 200 has these lines. Returns the targets of a request to the caller, and of one to
/// the callee.
fn in_call(site: &mut Site, from: &str, caller: &str, callee: &str) -> (Vec<String>, Vec<String>) {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let invite = format!(
        "INVITE sip:b@{PHONE} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bKc{number};rport\r\n{caller}Max-Forwards: 70\r\n\
         From: <sip:x@example.net>;tag=a\r\nTo: <sip:y@example.net>\r\nCall-ID: c{number}\r\nCSeq: 1 INVITE\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let got = receive(site, from, &invite);
    let (_, got) = got.iter().find(|(to, _)| to == PHONE).unwrap_or_else(|| panic!("{got:?}")).clone();
    let said = receive(site, PHONE, &answer(&got, 200, callee));
    let (_, said) = said.iter().find(|(to, _)| to == from).unwrap_or_else(|| panic!("{said:?}")).clone();
    let contact =
        |text: &str| line(text, "Contact").trim_start_matches('<').split('>').next().unwrap_or_default().to_owned();
    let routes = |text: &str| {
        let routes = text.split("\r\n").filter_map(|line| line.strip_prefix("Record-Route: "));
        routes.map(|route| format!("Route: {route}\r\n")).collect::<Vec<_>>()
    };
    let bye = |uri: &str, routes: String, ends: (&str, &str), n: u32| {
        format!(
            "INFO {uri} SIP/2.0\r\nVia: SIP/2.0/UDP x.invalid;branch=z9hG4bKi{number}-{n};rport\r\n{routes}Max-Forwards: 70\r\n\
             From: <sip:x@example.net>;tag={}\r\nTo: <sip:y@example.net>;tag={}\r\nCall-ID: c{number}\r\nCSeq: 7 INFO\r\n\
             Content-Length: 0\r\n\r\n",
            ends.0, ends.1
        )
    };
    let to_caller = bye(&contact(&got), routes(&got).concat(), ("t", "a"), 1);
    let to_callee = bye(&contact(&said), routes(&said).into_iter().rev().collect(), ("a", "t"), 2);
    (goes(site, PHONE, &to_caller, &["127.0.0.1:6380"]), goes(site, from, &to_callee, &["127.0.0.1:6380"]))
}

#[test]
fn the_parties_of_a_call_lead_no_request_further_in() {
    let mut site = site("nat.contact_repair = false\n");
    for host in
        INNER.iter().filter(|host| !host.starts_with('[')).chain(&["[::ffff:10.0.0.1]", "[::1]", "n.example.net"])
    {
        let there = format!("{host}:6380");
        for said in [
            format!("Contact: <sip:p@{there}>\r\n"),
            format!("Contact: <sip:p@{there};transport=tcp>\r\n"),
            format!("Contact: <sip:p@203.0.113.9:6380;maddr={host}>\r\n"),
            format!("Contact: <sip:p@203.0.113.9>\r\nRecord-Route: <sip:{there};lr>\r\n"),
        ] {
            let well = format!("Contact: <sip:p@{PHONE}>\r\n");
            let (to_caller, to_callee) = in_call(&mut site, WORLD, &said, &well);
            assert!(to_caller.is_empty(), "{said} {to_caller:?}");
            if said.contains("Record-Route") {
                // The caller itself would follow this Record-Route before it reaches the server.
                continue;
            }
            assert_eq!(to_callee, [PHONE], "{said}");
            let (to_caller, to_callee) = in_call(&mut site, WORLD, &format!("Contact: <sip:p@{WORLD}>\r\n"), &said);
            assert_eq!((&*to_caller, to_callee.len()), (&[WORLD.to_owned()][..], 0), "{said}");
        }
    }
    // The world reaches the party in a private network there.
    let (to_caller, _) =
        in_call(&mut site, LAN, "Contact: <sip:p@10.1.2.77:5060>\r\n", &format!("Contact: <sip:p@{PHONE}>\r\n"));
    assert_eq!(to_caller, ["10.1.2.77:5060"]);
}

/// Covers a transfer as in RFC 5589 section 7: the transferor names a party by the Contact that it knows from its call
/// with that party.
#[test]
fn a_contact_that_this_server_handed_out_leads_a_third_party_there() {
    const THIRD: &str = "198.51.100.20:5060";
    let mut site = site("nat.contact_repair = false\n");
    let uri_of = |text: &str| line(text, "Contact").split(['<', '>']).nth(1).unwrap_or_default().to_owned();
    let phone = "sip:c@10.1.2.7:5060";
    site.register("<sip:c@198.51.100.8:5060>");
    // A caller of the world and a callee of the network, then the other way round.
    let mut known = Vec::new();
    for (n, from, to) in [(1, WORLD, LAN), (2, LAN, WORLD), (3, LAN, "10.1.2.20:5060")] {
        let contact = |at: &str| if at == LAN { format!("<{phone}>") } else { format!("<sip:a@{at}>") };
        let registered = registered(&mut site, to, &format!("sip:u{n}@{to}"), "");
        let invite =
            message(&registered, from, &format!("Contact: {}\r\n", contact(from))).replace("MESSAGE", "INVITE");
        let got = receive(&mut site, from, &invite);
        let (_, got) = got.iter().find(|(at, _)| at == to).unwrap_or_else(|| panic!("{got:?}")).clone();
        let answers = receive(&mut site, to, &answer(&got, 200, &format!("Contact: {}\r\n", contact(to))));
        let (_, ok) = answers.iter().find(|(at, _)| at == from).unwrap_or_else(|| panic!("{answers:?}")).clone();
        known.push(uri_of(if from == LAN { &got } else { &ok }));
    }
    assert_eq!(known[2], phone, "within its network it is handed out as it is");
    for sealed in &known[..2] {
        assert!(sealed.starts_with(phone) && sealed.contains(";x-strowger="), "{sealed}");
        let replaces =
            |uri: &str| message(uri, THIRD, "Replaces: x;to-tag=1;from-tag=2\r\n").replace("MESSAGE", "INVITE");
        let got = receive(&mut site, THIRD, &replaces(sealed));
        let (_, invite) = got.iter().find(|(at, _)| at == LAN).unwrap_or_else(|| panic!("{got:?}"));
        assert!(invite.starts_with(&format!("INVITE {phone} SIP/2.0\r\n")), "the phone sees its own Contact: {invite}");
        // The seal is valid for this Contact only, and a peer that names the Contact itself has none.
        for uri in [
            phone.to_owned(),
            sealed.replace("10.1.2.7", "10.1.2.77"),
            sealed.replace(":5060", ":80"),
            sealed.replace("sip:c", "sip:d"),
            format!("{sealed};maddr=10.1.2.77"),
            format!("{sealed};transport=tcp"),
        ] {
            assert!(goes(&mut site, THIRD, &replaces(&uri), &[]).is_empty(), "{uri}");
        }
    }
}
