//! Targets that a peer names through this server itself, or through a web server on its machine. The peer still has the
//! scope of the world.

use crate::peer::{answer, receive, sent, status};
use crate::reach::{LOOPBACK, OPEN, PHONE, WORLD, goes, message, resolved, site, take};
use crate::site::{SERVER, Site, line};
use strowger_core::{Arrival, Flow, ListenerId, Now, Transport};

/// Targets that a peer of the world may not name.
const INNER: [&str; 4] = ["127.0.0.1:6380", "10.1.2.7:6380", "192.0.2.1:6380", "169.254.169.254:80"];

/// Returns the request that the server sends to itself for this request of the world, by a name that resolves to its
/// listener.
fn to_itself(site: &mut Site, text: &str) -> String {
    let mut all = receive(site, WORLD, text);
    all.extend(resolved(site, &[SERVER]));
    let request = all.iter().find(|(to, text)| to == SERVER && status(text).is_none());
    request.unwrap_or_else(|| panic!("{all:?}")).1.clone()
}

#[test]
fn what_this_server_sends_to_itself_names_no_inner_address() {
    let mut site = site("");
    for target in INNER.iter().flat_map(|inner| [format!("{inner};transport=tcp"), (*inner).to_owned()]) {
        for (uri, lines) in [
            ("sip:x@far.example.com".to_owned(), format!("Route: <sip:own.example.com>, <sip:{target};lr>\r\n")),
            ("sip:x@far.example.com".to_owned(), format!("Route: <sip:a;maddr=own.example.com>, <sip:{target}>\r\n")),
            (format!("sip:x@{target}"), "Route: <sip:own.example.com>\r\n".to_owned()),
        ] {
            // By TCP the request comes from any port.
            for from in [SERVER, "192.0.2.1:40000"] {
                let again = to_itself(&mut site, &message(&uri, WORLD, &lines));
                assert!(goes(&mut site, from, &again, &[]).is_empty(), "{uri} {lines}");
            }
        }
    }
    // A name leads to this server first, and then elsewhere.
    for inner in INNER {
        let again = to_itself(&mut site, &message("sip:x@turns.example.com", WORLD, ""));
        assert!(goes(&mut site, SERVER, &again, &[inner]).is_empty(), "{inner}");
    }
    // A target in the world is reached.
    let again = to_itself(&mut site, &message("sip:x@203.0.113.9", WORLD, "Route: <sip:own.example.com>\r\n"));
    assert_eq!(goes(&mut site, SERVER, &again, &[]), ["203.0.113.9:5060"]);
}

/// Makes a call that passes this server twice, to a phone whose 200 has this Contact.
fn twice_here(site: &mut Site, caller: &str, callee: &str) -> (String, String) {
    let invite = message(&format!("sip:b@{PHONE}"), WORLD, "Route: <sip:own.example.com>\r\n");
    let invite =
        invite.replace("MESSAGE", "INVITE").replace("Max-Forwards", &format!("Contact: <{caller}>\r\nMax-Forwards"));
    let again = to_itself(site, &invite);
    let got = receive(site, SERVER, &again);
    let (_, got) = got.iter().find(|(to, _)| to == PHONE).unwrap_or_else(|| panic!("{got:?}")).clone();
    let said = receive(site, PHONE, &answer(&got, 200, &format!("Contact: <{callee}>\r\n")));
    let (_, said) = said.iter().find(|(to, _)| to == SERVER).unwrap_or_else(|| panic!("{said:?}")).clone();
    let said = receive(site, SERVER, &said);
    let (_, said) = said.iter().find(|(to, _)| to == WORLD).unwrap_or_else(|| panic!("{said:?}")).clone();
    (got, said)
}

/// Writes an INFO in the dialog of this message, to its Contact along its Record-Routes.
fn info(text: &str, is_to_callee: bool) -> String {
    let contact = line(text, "Contact").trim_start_matches('<').split('>').next().unwrap_or_default().to_owned();
    let mut routes: Vec<&str> = text.split("\r\n").filter_map(|line| line.strip_prefix("Record-Route: ")).collect();
    if is_to_callee {
        routes.reverse();
    }
    let routes: String = routes.iter().map(|route| format!("Route: {route}\r\n")).collect();
    let call_id = line(text, "Call-ID");
    let (from, to) = if is_to_callee { ("a", "t") } else { ("t", "a") };
    format!(
        "INFO {contact} SIP/2.0\r\nVia: SIP/2.0/UDP x.invalid;branch=z9hG4bKi{from}{call_id};rport\r\n{routes}Max-Forwards: 70\r\n\
         From: <sip:x@example.net>;tag={from}\r\nTo: <sip:y@example.net>;tag={to}\r\nCall-ID: {call_id}\r\nCSeq: 7 INFO\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

#[test]
fn in_a_call_that_passes_twice_no_party_names_an_inner_address() {
    for settings in ["", "nat.contact_repair = false\n"] {
        let mut site = site(settings);
        let (good, named) = (format!("sip:p@{WORLD}"), "sip:p@n.example.com:6380;transport=tcp");
        for inner in INNER {
            let (got, said) = twice_here(&mut site, &good, named);
            assert!(goes(&mut site, WORLD, &info(&said, true), &[inner]).is_empty(), "{inner}");
            assert_eq!(goes(&mut site, PHONE, &info(&got, false), &[]), [WORLD]);
            let (got, said) = twice_here(&mut site, named, &format!("sip:p@{PHONE}"));
            assert!(goes(&mut site, PHONE, &info(&got, false), &[inner]).is_empty(), "{inner}");
            assert_eq!(goes(&mut site, WORLD, &info(&said, true), &[]), [PHONE]);
        }
    }
}

/// Returns the messages that are sent for this message of a browser behind a web server on this machine.
fn by_browser(site: &mut Site, listener: u16, text: &str) -> Vec<(String, String)> {
    let remote = LOOPBACK.parse().expect("an address");
    let arrival = Arrival { transport: Transport::Ws, listener: ListenerId(listener), remote, flow: None };
    site.work(|engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out));
    let mut all = sent(site);
    all.extend(resolved(site, &["127.0.0.1:6380"]));
    all
}

#[test]
fn a_browser_counts_as_one_of_the_world() {
    let listen =
        ["udp:192.0.2.1:5060", "tcp:192.0.2.1:5060", "udp:127.0.0.1:5070", "tcp:127.0.0.1:5070", "ws:127.0.0.1:80"];
    let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
    let mut site = Site::start(now, &listen, OPEN);
    take(&mut site, &["192.0.2.1", "10.1.2.3"], &[]);
    let by_ws = |text: String| text.replace("SIP/2.0/UDP", "SIP/2.0/WS");
    let targets =
        ["127.0.0.1:6380;transport=tcp", "10.1.2.7:6380", "192.0.2.1:6380;transport=tcp", "n.example.com:6380"];
    for target in targets {
        for (uri, lines) in [
            (format!("sip:x@{target}"), String::new()),
            ("sip:x@far.example.com".to_owned(), format!("Route: <sip:{target};lr>\r\n")),
        ] {
            let all = by_browser(&mut site, 4, &by_ws(message(&uri, LOOPBACK, &lines)));
            assert!(all.iter().all(|(_, text)| status(text).is_some_and(|status| status >= 300)), "{uri} {all:?}");
        }
    }
    // All senders reach a phone on this machine that registered from there.
    let register = format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {LOOPBACK};branch=z9hG4bKr\r\nFrom: <sip:in@example.org>;tag=b\r\n\
         To: <sip:in@example.org>\r\nCall-ID: in\r\nCSeq: 1 REGISTER\r\nContact: <sip:in@{LOOPBACK}>;expires=3600\r\n\
         Content-Length: 0\r\n\r\n"
    );
    assert_eq!(status(&receive(&mut site, LOOPBACK, &register)[0].1), Some(200));
    let all = by_browser(&mut site, 4, &by_ws(message("sip:in@example.org", LOOPBACK, "")));
    assert!(all.iter().any(|(to, text)| to == LOOPBACK && text.starts_with("MESSAGE ")), "{all:?}");
}

/// Receives a message of a WebSocket peer in the network of this server.
fn by_web_peer(site: &mut Site, listener: u16, text: &str) -> Vec<(String, String)> {
    let remote = WEB_PEER.parse().expect("an address");
    let flow = Some(Flow { node: 0, process: 1, shard: 0, slot: 3, generation: 8 });
    let arrival = Arrival { transport: Transport::Ws, listener: ListenerId(listener), remote, flow };
    site.work(|engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out));
    sent(site)
}

/// Address of a WebSocket peer in the network of this server.
const WEB_PEER: &str = "10.1.2.7:8088";

/// A rule names a WebSocket peer by its address: the Contact of that peer reaches as far as the address. A peer that
/// connects to this server may be a web server in front of browsers of the world.
#[test]
fn a_websocket_peer_that_this_server_called_counts_by_its_address() {
    let rule = format!(
        "{OPEN}nat.contact_repair = false\n[[rule]]\nname = \"web\"\nwhen = \"request.user == 'k'\"\n\
         to = [\"sip:{WEB_PEER};transport=ws\"]\n"
    );
    for is_called in [true, false] {
        let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
        let mut site = Site::start(now, &["udp:192.0.2.1:5060", "ws:192.0.2.1:80"], &rule);
        take(&mut site, &["192.0.2.1", "10.1.2.3"], &[]);
        let user = if is_called { "sip:k@example.org" } else { "sip:browser@example.org" };
        if !is_called {
            let register = format!(
                "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/WS x.invalid;branch=z9hG4bKr\r\nFrom: <{user}>;tag=b\r\n\
                 To: <{user}>\r\nCall-ID: web\r\nCSeq: 1 REGISTER\r\nContact: <sip:u@x.invalid;transport=ws>;expires=3600\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            assert_eq!(status(&by_web_peer(&mut site, 1, &register)[0].1), Some(200));
        }
        let invite = message(user, WORLD, "").replace("MESSAGE", "INVITE");
        let invite = invite.replace("Max-Forwards", &format!("Contact: <sip:c@{WORLD}>\r\nMax-Forwards"));
        let got = receive(&mut site, WORLD, &invite);
        let (_, got) = got.iter().find(|(to, _)| to == WEB_PEER).unwrap_or_else(|| panic!("{got:?}")).clone();
        let contact = format!("Contact: <sip:k@{WEB_PEER};transport=ws>\r\n");
        let said = by_web_peer(&mut site, 1, &answer(&got, 200, &contact));
        let (_, said) = said.iter().find(|(to, _)| to == WORLD).unwrap_or_else(|| panic!("{said:?}")).clone();
        let to = goes(&mut site, WORLD, &info(&said, true), &[]);
        assert_eq!(to, if is_called { vec![WEB_PEER] } else { vec![] }, "is called: {is_called}");
    }
}

/// Covers networks of a phone and of this server that use the same private addresses.
#[test]
fn a_phone_behind_a_translator_may_have_an_address_of_this_server() {
    let mut site = site("");
    for (number, contact) in ["sip:u@127.0.0.1:5070", "sip:example.org@127.0.0.1:5070;ob"].iter().enumerate() {
        let from = format!("198.51.100.9:{}", 40_000 + number);
        let user = format!("sip:u{number}@example.org");
        let register = format!(
            "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:5070;branch=z9hG4bKr;rport\r\nFrom: <{user}>;tag=b\r\n\
             To: <{user}>\r\nCall-ID: {user}\r\nCSeq: 1 REGISTER\r\nContact: <{contact}>;expires=3600\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(status(&receive(&mut site, &from, &register)[0].1), Some(200), "{contact}");
        assert_eq!(goes(&mut site, WORLD, &message(&user, WORLD, ""), &[]), [from]);
    }
    // From this machine the address names this server.
    let register = format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {LOOPBACK};branch=z9hG4bKr\r\nFrom: <sip:in@example.org>;tag=b\r\n\
         To: <sip:in@example.org>\r\nCall-ID: in\r\nCSeq: 1 REGISTER\r\nContact: <sip:in@127.0.0.1:5070>\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(status(&receive(&mut site, LOOPBACK, &register)[0].1), Some(403));
}

#[test]
fn a_reachable_network_opens_no_port_of_this_machine() {
    for (reachable, to, passes) in [
        ("10.1.2.0/24", "10.1.2.8:22", true),
        ("10.1.2.0/24", "10.1.2.3:22", false),
        ("0.0.0.0/0", "10.1.2.3:22", false),
        ("0.0.0.0/0", "127.0.0.1:22", false),
        ("10.1.2.3", "10.1.2.3:22", true),
        ("127.0.0.0/8", "127.0.0.1:22", true),
    ] {
        let mut site = site(&format!("proxy.reachable = [\"{reachable}\"]\n"));
        let to_there = goes(&mut site, WORLD, &message(&format!("sip:x@{to}"), WORLD, ""), &[]);
        assert_eq!(to_there.len(), usize::from(passes), "{reachable} {to}");
    }
}
