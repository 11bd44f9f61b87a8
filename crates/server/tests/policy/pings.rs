//! Small requests that keep the flows of phones behind NAT open (RFC 5626 section 4.4).

use crate::site::*;
use std::time::Duration;
use strowger_core::Transport;

/// Registers a phone behind NAT: its Contact names a private address other than the source of its packets.
fn register_behind_nat(phone: &Phone, user: &str) {
    let call = phone.register_call("Expires: 600\n");
    let challenge = phone.ask(&call);
    let text = phone.text(&phone.authorized(&call, &challenge, user, user));
    phone.send(&text.replacen(&format!("<sip:phone@{}>", phone.address), "<sip:phone@192.168.7.7:5060>", 1));
    let got = phone.answer();
    assert_eq!(got.status(), 200, "{}", got.0);
}

/// Returns the pings that have arrived at this phone, including retransmissions.
fn pings_at(phone: &Phone) -> Vec<Got> {
    std::iter::from_fn(|| phone.ping_within(Duration::ZERO)).collect()
}

/// Advances the clock while the phones answer their pings. Returns the number of pings at each phone.
fn answer_pings(site: &Site, phones: &[Phone], time: Duration) -> Vec<usize> {
    let (step, mut heard) = (Duration::from_millis(250), vec![0; phones.len()]);
    for _ in 0..time.as_millis() / step.as_millis() {
        site.wait(step);
        for (phone, heard) in phones.iter().zip(&mut heard) {
            let pings = pings_at(phone);
            pings.iter().for_each(|ping| phone.respond(ping, 200, ""));
            *heard += pings.len();
        }
    }
    heard
}

#[test]
fn every_phone_behind_nat_is_pinged_once_an_interval() {
    let users: Vec<String> = (0..30).map(|n| format!("user{n}")).collect();
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    let site = start("nat.ping_interval = \"2s\"", &names);
    let phones: Vec<Phone> = names.iter().map(|name| site.phone(name)).collect();
    for (phone, name) in phones.iter().zip(&names) {
        register_behind_nat(phone, name);
    }
    // The round that began during the registrations, and the next one.
    let one = Duration::from_secs(2);
    let heard = answer_pings(&site, &phones, 2 * one);
    assert!(heard.iter().all(|heard| *heard > 0), "a ping in time: {heard:?}");
    // No more often than configured: pings use the batteries of phones.
    let before = site.counts().pings;
    let heard = answer_pings(&site, &phones, 10 * one);
    assert_eq!(site.counts().pings - before, 10 * 30);
    assert_eq!(heard.iter().sum::<usize>(), 10 * 30, "an answered ping is not repeated");
    assert_eq!(site.counts().pings_unanswered, 0);
}

/// Checks Timer E (RFC 3261 section 17.1.2.2).
#[test]
fn a_lost_ping_is_sent_again() {
    let site = start("nat.ping_interval = \"1h\"", &["bob"]);
    let bob = site.phone("bob");
    register_behind_nat(&bob, "bob");
    let ms = Duration::from_millis;
    let lost = bob.ping_within(ms(2_000)).expect("a ping");
    for pause in [500, 1_000] {
        assert!(!bob.is_pinged_within(ms(pause - 1)), "before {pause} ms");
        let again = bob.ping_within(ms(2)).unwrap_or_else(|| panic!("not after {pause} ms"));
        assert_eq!(again.0, lost.0);
    }
    assert_eq!(site.counts().pings_pending, 1);
    bob.respond(&lost, 486, "");
    assert!(!bob.is_pinged_within(Duration::from_secs(60)), "any final response shows that it lives");
    let counts = site.counts();
    assert_eq!((counts.pings, counts.pings_pending, counts.pings_unanswered, counts.retransmissions), (1, 0, 0, 2));
    assert_eq!((counts.client_transactions, counts.kept_bytes), (0, 0));
}

#[test]
fn a_phone_that_answers_no_ping_stays_registered() {
    let site = start("nat.ping_interval = \"10s\"", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    alice.register();
    register_behind_nat(&bob, "bob");
    // The first ping leaves after a second. Its repetitions take the place of the pings of three rounds, until Timer F.
    site.wait(Duration::from_secs(32));
    let pings = pings_at(&bob);
    assert!(pings.len() == 10 && pings.iter().all(|ping| ping.0 == pings[0].0), "{pings:?}");
    assert_eq!((site.counts().pings, site.counts().pings_pending), (1, 1));
    site.wait(Duration::from_secs(5));
    let counts = site.counts();
    assert_eq!((counts.pings, counts.pings_pending, counts.pings_unanswered, counts.timeouts), (1, 0, 1, 0));
    pings_at(&bob);
    let next = bob.ping_within(Duration::from_secs(8)).expect("the next round");
    assert_ne!(next.one("Call-ID"), pings[0].one("Call-ID"));
    bob.respond(&next, 200, "");
    alice.calls(&bob);
}

/// Checks that nothing is retransmitted over a reliable transport (RFC 3261 section 17.1.2.2), and that the ping ends
/// with its connection, over which no response can arrive afterwards (section 18.4).
#[test]
fn a_ping_ends_with_its_connection() {
    let site = start("nat.ping_interval = \"1h\"", &["bob"]);
    let bob = Phone::new(site.connect(Transport::Tcp), "sip:bob@example.org");
    bob.register();
    assert!(bob.is_pinged_within(Duration::from_secs(2)));
    assert!(!bob.is_pinged_within(Duration::from_secs(20)));
    assert_eq!((site.counts().pings_pending, site.counts().client_transactions), (1, 1));
    drop(bob);
    site.settle();
    let counts = site.counts();
    assert_eq!((counts.pings_pending, counts.client_transactions, counts.pings_unanswered), (0, 0, 0));
}

/// Checks that a ping beyond the bound still keeps its flow open, but is not retransmitted.
#[test]
fn pending_pings_are_bounded() {
    let users = ["alice", "bob", "carol"];
    let site = start("nat.ping_interval = \"1s\"\nlimits.transactions = 16", &users);
    let phones = users.map(|user| site.phone(user));
    phones.iter().zip(users).for_each(|(phone, user)| register_behind_nat(phone, user));
    site.wait(Duration::from_millis(1_200));
    let counts = site.counts();
    assert_eq!((counts.pings, counts.pings_pending, counts.pings_unrepeated), (3, 2, 1));
    site.wait(Duration::from_millis(500));
    let mut heard = phones.map(|phone| pings_at(&phone).len());
    heard.sort_unstable();
    assert_eq!(heard, [1, 2, 2]);
}

#[test]
fn no_other_phone_is_pinged() {
    let site = start("nat.ping_interval = \"1s\"", &["bob"]);
    let bob = site.phone("bob");
    bob.register();
    assert!(!bob.is_pinged_within(Duration::from_secs(60)), "its Contact says where it is");
    assert_eq!(site.counts().pings, 0);
}

/// Parameters of a Contact that is a flow (RFC 5626 section 4.2).
const FLOW: &str = ";reg-id=1;+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000A95A0E128>\"";

/// Lines of the REGISTER of a phone that supports flows.
const OUTBOUND: &str = "Expires: 600\nSupported: path, outbound\n";

/// Registers a phone with these parameters of its Contact and these lines. `device`: Via line of the phone if its edge proxy sends the REGISTER;
/// else empty.
fn register_with(phone: &Phone, parameters: &str, lines: &str, device: &str) -> Got {
    let own = format!("Contact: <sip:phone@{}>", phone.address);
    let text = phone.text(&phone.register_call(lines)).replacen(&own, &format!("{own}{parameters}"), 1);
    phone.send(&text.replacen("Max-Forwards", &format!("{device}Max-Forwards"), 1));
    let got = phone.answer();
    assert_eq!(got.status(), 200, "{}", got.0);
    got
}

/// Starts a registrar with this listener, and registers a phone of Bob as [`register_with`] does.
fn register_alone(transport: Transport, parameters: &str, lines: &str, device: &str) -> (Site, Phone, Got) {
    let site = Site::start(&format!(
        "listen = [\"{}:127.0.100.1:5060\"]\nrealm = \"example.org\"\ndomains = [\"example.org\"]\n\
         registrar.authenticate = false\nnat.ping_interval = \"10s\"\n",
        transport.text()
    ));
    let phone = Phone::new(site.connect(transport), "sip:bob@example.org");
    let got = register_with(&phone, parameters, lines, device);
    (site, phone, got)
}

/// Checks Flow-Timer (RFC 5626 section 4.4): it goes to each phone that is not pinged for it, and to no other.
#[test]
fn a_phone_that_supports_outbound_is_not_pinged() {
    let (_site, phone, got) = register_alone(Transport::Tcp, FLOW, OUTBOUND, "");
    assert_eq!((got.all("Flow-Timer"), got.all("Require")), (vec!["120"], vec!["outbound"]), "{}", got.0);
    assert!(!phone.is_pinged_within(Duration::from_secs(150)));
    let (number, instance) = FLOW.split_at(FLOW.find(";+").expect("two parameters"));
    let others = [
        (Transport::Tcp, FLOW, "Expires: 600\nSupported: path\n"),
        (Transport::Tcp, "", OUTBOUND),
        (Transport::Tcp, number, OUTBOUND),
        (Transport::Tcp, instance, OUTBOUND),
        // A browser has no keep-alive.
        (Transport::Ws, FLOW, OUTBOUND),
    ];
    for (transport, parameters, lines) in others {
        let (_site, phone, got) = register_alone(transport, parameters, lines, "");
        assert_eq!(got.all("Flow-Timer"), Vec::<&str>::new(), "{}", got.0);
        assert!(phone.is_pinged_within(Duration::from_secs(15)), "{}", got.0);
    }
    let (_site, phone, got) = register_alone(Transport::Udp, FLOW, OUTBOUND, "");
    assert_eq!((got.all("Flow-Timer").len(), got.all("Require").len()), (0, 0), "{}", got.0);
    assert!(!phone.is_pinged_within(Duration::from_secs(15)), "its Contact says where it is");
}

/// Checks `ob` in the Path (RFC 5626 section 5.1): the edge proxy keeps the flows of its phones, and promises nothing
/// about its connection to this server.
#[test]
fn phones_of_an_edge_proxy_that_keeps_flows_are_not_pinged() {
    let device = "Via: SIP/2.0/TCP 192.0.2.1;branch=z9hG4bKdevice\r\n";
    for (parameter, is_pinged) in [(";ob", false), ("", true)] {
        let lines = format!("{OUTBOUND}Path: <sip:192.0.2.7;lr{parameter}>\n");
        let (site, edge, got) = register_alone(Transport::Tcp, FLOW, &lines, device);
        assert_eq!(got.all("Flow-Timer"), Vec::<&str>::new(), "{}", got.0);
        assert_eq!(edge.is_pinged_within(Duration::from_secs(15)), is_pinged, "{}", got.0);
        site.wait(Duration::from_secs(300));
        assert_eq!(site.connections(), 1);
    }
}

/// Checks the grace time (RFC 5626 section 5.4): Flow-Timer, a quarter of it, and 10 s.
#[test]
fn a_phone_that_does_not_keep_its_flow_open_loses_it() {
    let (site, phone, _) = register_alone(Transport::Tcp, FLOW, OUTBOUND, "");
    for _ in 0..3 {
        site.wait(Duration::from_secs(100));
        phone.send("\r\n\r\n");
    }
    site.wait(Duration::from_secs(159));
    assert_eq!(site.connections(), 1);
    site.wait(Duration::from_secs(2));
    assert_eq!((site.connections(), site.bindings()), (0, 1), "it may connect again and refresh");
    let caller = Phone::new(site.connect(Transport::Tcp), "sip:mallory@example.net");
    let got = caller.ask(&caller.call("MESSAGE", "sip:bob@example.org"));
    assert_eq!(got.status(), 480, "{}", got.0);
}

#[test]
fn a_phone_that_is_not_registered_may_be_silent() {
    let (site, phone, _) = register_alone(Transport::Tcp, FLOW, OUTBOUND, "");
    let got = register_with(&phone, FLOW, "Expires: 0\nSupported: path, outbound\n", "");
    assert_eq!((site.bindings(), got.all("Flow-Timer").len()), (0, 0), "{}", got.0);
    site.wait(Duration::from_secs(400));
    assert_eq!(site.connections(), 1);
    // It may also leave its flow to the server.
    register_with(&phone, FLOW, OUTBOUND, "");
    register_with(&phone, FLOW, "Expires: 600\n", "");
    assert!(phone.is_pinged_within(Duration::from_secs(15)));
    site.wait(Duration::from_secs(400));
    assert_eq!(site.connections(), 1);
}

/// Checks that the keep-alives of a phone without outbound stand for pings (RFC 5626 section 3.5.1).
#[test]
fn a_phone_that_sends_keep_alives_is_not_pinged_meanwhile() {
    let (site, phone, _) = register_alone(Transport::Tcp, "", "Expires: 3600\n", "");
    for _ in 0..3 {
        phone.send("\r\n\r\n");
        assert!(!phone.is_pinged_within(Duration::from_secs(129)));
    }
    assert!(phone.is_pinged_within(Duration::from_secs(15)));
    assert_eq!(site.connections(), 1);
}
