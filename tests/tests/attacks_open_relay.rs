//! Attempts of a stranger, without a password and without a call, to make the server send to a third party. With the
//! default configuration, where a stranger may call only users of the server.

use std::time::Duration;

use strowger_rig::Listener;
use strowger_tests::account::register;
use strowger_tests::call::exchange;
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, status, unique};
use strowger_tests::wire::Transport::{self, Tcp, Udp};
use strowger_tests::wire::Wire;

/// Name, start line without the version, and header lines. Placeholders in braces: `victim`, its `port`, `tcp` (a
/// victim that listens), `server`, `own` (its port), `sender`.
type Attack = (&'static str, &'static str, &'static str);

const TARGETS: &[Attack] = &[
    ("the address itself", "INVITE sip:x@{victim}", ""),
    ("an address without a user", "INVITE sip:{victim}", ""),
    ("sips", "INVITE sips:x@{victim}", ""),
    ("the scheme in capitals", "INVITE SIP:x@{victim}", ""),
    ("maddr beside our domain", "INVITE sip:bob@example.org:{port};maddr=127.0.0.1", ""),
    ("maddr beside our address", "INVITE sip:x@{server};maddr={victim}", ""),
    ("our address as maddr", "INVITE sip:x@{victim};maddr=127.0.0.1", ""),
    ("another port of our domain", "INVITE sip:bob@example.org:{port}", ""),
    ("another port of our address", "INVITE sip:bob@127.0.0.1:{port}", ""),
    ("another transport", "INVITE sip:x@{tcp};transport=tcp", ""),
    ("an escaped at sign", "INVITE sip:bob%40example.org@{victim}", ""),
    ("two at signs", "INVITE sip:bob@example.org@{victim}", ""),
    ("our domain as password", "INVITE sip:bob:example.org@{victim}", ""),
    ("our domain as a parameter of the user", "INVITE sip:bob;x=example.org@{victim}", ""),
    ("a Route in the headers of the URI", "INVITE sip:bob@example.org?Route=%3Csip:{victim}%3Blr%3E", ""),
    ("a To in the headers of the URI", "INVITE sip:x@{victim}?To=%3Csip:bob%40example.org%3E", ""),
    ("our domain with a dot behind, and a port", "INVITE sip:bob@example.org.:{port}", ""),
    ("our domain escaped, and a port", "INVITE sip:bob@ex%61mple.org:{port}", ""),
    ("a domain below ours", "INVITE sip:bob@x.example.org:{port}", ""),
    ("an address as one number", "INVITE sip:x@2130706433:{port}", ""),
    ("an address in hexadecimal digits", "INVITE sip:x@0x7f.0.0.1:{port}", ""),
    ("an address in octal digits", "INVITE sip:x@0177.0.0.1:{port}", ""),
    ("an address of two parts", "INVITE sip:x@127.1:{port}", ""),
    ("IPv4 in IPv6", "INVITE sip:x@[::ffff:127.0.0.1]:{port}", ""),
    ("an unspecified address", "INVITE sip:x@0.0.0.0:{port}", ""),
    ("localhost", "INVITE sip:x@localhost:{port}", ""),
    ("angle brackets", "INVITE <sip:x@{victim}>", ""),
    ("a scheme in a scheme", "INVITE sip:sip:x@{victim}", ""),
    ("a scheme of the web", "INVITE http://{victim}/", ""),
    ("a scheme of instant messages", "INVITE im:x@{victim}", ""),
    ("a telephone number that names a place", "INVITE tel:+19005551234;phone-context={victim}", ""),
    ("a telephone number of ours", "INVITE sip:+19005551234@example.org;user=phone", ""),
    ("an emergency service", "INVITE urn:service:sos", ""),
    ("two Request-URIs", "INVITE sip:bob@example.org sip:x@{victim}", ""),
    ("lr in the Request-URI", "INVITE sip:{victim};lr", ""),
];

const ROUTES: &[Attack] = &[
    ("a Route of its own", "INVITE sip:x@example.net", "Route: <sip:{victim};lr>\r\n"),
    ("a Route behind ours", "INVITE sip:x@example.net", "Route: <sip:{server};lr>\r\nRoute: <sip:{victim};lr>\r\n"),
    ("a Route behind ours in one line", "INVITE sip:x@example.net", "Route: <sip:{server};lr>, <sip:{victim};lr>\r\n"),
    ("ours twice, then another", "INVITE sip:x@a", "Route: <sip:{server};lr>,<sip:{server};lr>,<sip:{victim};lr>\r\n"),
    ("ours, and an address as target", "INVITE sip:x@{victim}", "Route: <sip:{server};lr>\r\n"),
    ("ours with a user", "INVITE sip:x@{victim}", "Route: <sip:bob@{server};lr>\r\n"),
    ("ours by name", "INVITE sip:x@{victim}", "Route: <sip:example.org;lr>\r\n"),
    ("ours without lr", "INVITE sip:x@{victim}", "Route: <sip:{server}>\r\n"),
    ("ours by another transport", "INVITE sip:x@{victim}", "Route: <sip:{server};transport=tcp;lr>\r\n"),
    ("a route token of nothing", "INVITE sip:x@{victim}", "Route: <sip:{server};lr;d=>\r\n"),
    (
        "a route token of zeros",
        "INVITE sip:x@{victim}",
        "Route: <sip:{server};lr;d=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA>\r\n",
    ),
    ("a route token that is too long", "INVITE sip:x@{victim}", "Route: <sip:{server};lr;d={long}>\r\n"),
    ("a strict router's form", "INVITE sip:{server};lr", "Route: <sip:x@{victim}>\r\n"),
    (
        "a strict router's form, with a route token",
        "INVITE sip:{server};lr;d=AAAAAAAAAAAAAAAAAAAAAAAA",
        "Route: <sip:x@{victim}>\r\n",
    ),
    ("a Route in small letters", "INVITE sip:x@example.net", "route: <sip:{victim};lr>\r\n"),
    ("a folded Route", "INVITE sip:x@example.net", "Route:\r\n <sip:{victim};lr>\r\n"),
    ("a Route with a name that has brackets", "INVITE sip:x@a", "Route: \"<sip:{server};lr>\" <sip:{victim};lr>\r\n"),
    ("a Route with maddr", "INVITE sip:x@example.net", "Route: <sip:{server};maddr=127.0.0.1;lr>\r\n"),
    (
        "a Route to a user, then a place",
        "INVITE sip:x@a",
        "Route: <sip:bob@example.org;lr>\r\nRoute: <sip:{victim};lr>\r\n",
    ),
    (
        "a Route that is a scheme of its own",
        "INVITE sip:x@example.net",
        "Route: <tel:+1>\r\nRoute: <sip:{victim};lr>\r\n",
    ),
    ("a Path", "INVITE sip:x@{victim}", "Path: <sip:{victim};lr>\r\nSupported: path\r\n"),
    ("a Record-Route of ours", "INVITE sip:x@{victim}", "Record-Route: <sip:{server};lr>\r\n"),
    ("a Service-Route", "INVITE sip:x@{victim}", "Service-Route: <sip:{server};lr>\r\n"),
];

const SHAPES: &[Attack] = &[
    ("an ACK that nobody waits for", "ACK sip:x@{victim}", ""),
    ("an ACK with a Route of ours", "ACK sip:x@{victim}", "Route: <sip:{server};lr>\r\n"),
    ("a CANCEL that cancels nothing", "CANCEL sip:x@{victim}", ""),
    ("a BYE of no call", "BYE sip:x@{victim}", "Route: <sip:{server};lr>\r\n"),
    ("a PRACK of no call", "PRACK sip:x@{victim}", "RAck: 1 1 INVITE\r\n"),
    ("a REGISTER of elsewhere", "REGISTER sip:{victim}", ""),
    ("a REGISTER by our Route", "REGISTER sip:{victim}", "Route: <sip:{server};lr>\r\n"),
    ("a SUBSCRIBE", "SUBSCRIBE sip:x@{victim}", "Event: presence\r\n"),
    ("an OPTIONS that ends here", "OPTIONS sip:x@{victim}", "Max-Forwards: 0\r\n"),
    ("a method that nobody knows", "EXTERMINATE sip:x@{victim}", ""),
    ("a method in small letters", "invite sip:x@{victim}", ""),
    ("credentials of no scheme", "INVITE sip:x@{victim}", "Proxy-Authorization: Basic YWxpY2U6YWxpY2U=\r\n"),
    (
        "credentials of nobody",
        "INVITE sip:x@{victim}",
        "Proxy-Authorization: Digest username=\"\", realm=\"example.org\"\r\n",
    ),
    (
        "an identity that a proxy would assert",
        "INVITE sip:x@{victim}",
        "P-Asserted-Identity: <sip:alice@example.org>\r\n",
    ),
    ("an identity that it prefers", "INVITE sip:x@{victim}", "P-Preferred-Identity: <sip:alice@example.org>\r\n"),
    ("a second From", "INVITE sip:x@{victim}", "From: <sip:alice@example.org>;tag=2\r\n"),
    ("a From in the compact form", "INVITE sip:x@{victim}", "f: <sip:alice@example.org>;tag=2\r\n"),
    ("a Via of ours", "INVITE sip:x@{victim}", "Via: SIP/2.0/UDP {server};branch=z9hG4bKours\r\n"),
    ("a Refer-To", "REFER sip:{server}", "Refer-To: <sip:x@{victim}>\r\n"),
    ("a call to be replaced", "INVITE sip:x@{victim}", "Replaces: x;to-tag=1;from-tag=2\r\n"),
];

/// Claimed identities of a stranger.
const FROMS: &[&str] = &[
    "<sip:x@example.net>",
    "<sip:alice@example.org>",
    "\"alice@example.org\" <sip:alice@EXAMPLE.org>",
    "<sip:{server}>",
    "sip:bob@example.org",
];

struct RelaySetup {
    server: Site,
    victim: Wire,
    listener: Listener,
    tcp: String,
}

impl RelaySetup {
    fn new() -> Self {
        let server = Setup::on(&[Udp, Tcp]).with("domains = [\"example.org\"]").site();
        for user in ["alice", "bob"] {
            server.add_user(&format!("{user}@example.org"), user);
        }
        let (listener, tcp) = server.listen();
        Self { victim: server.connect(Udp), listener, tcp: tcp.to_string(), server }
    }

    fn fill(&self, text: &str, wire: &Wire) -> String {
        let (victim, server) = (self.victim.local(), self.server.address(Udp));
        text.replace("{victim}", &victim.to_string())
            .replace("{port}", &victim.port().to_string())
            .replace("{tcp}", &self.tcp)
            .replace("{server}", &server.to_string())
            .replace("{own}", &server.port().to_string())
            .replace("{sender}", &wire.local().to_string())
            .replace("{long}", &"A".repeat(5_000))
    }

    fn bytes(&self, (name, start, lines): Attack, from: &str, to_tag: &str, wire: &Wire) -> Vec<u8> {
        let method = start.split(' ').next().expect("split gives one part at least");
        let (branch, call) = (unique("z9hG4bK"), unique("call"));
        let text = format!(
            "{start} SIP/2.0\r\nVia: SIP/2.0/{} {{sender}};branch={branch};rport\r\n{lines}Max-Forwards: 70\r\nFrom: {from};tag=1\r\n\
             To: <sip:bob@example.org>{to_tag}\r\nCall-ID: {call}\r\nCSeq: 1 {method}\r\nContact: <sip:x@{{sender}}>\r\n\
             X-Attack: {name}\r\nContent-Length: 0\r\n\r\n",
            wire.transport().name().to_uppercase()
        );
        self.fill(&text, wire).into_bytes()
    }

    /// Waits until all earlier requests have been processed, and records the parties that received any.
    fn judge(&mut self, wire: &mut Wire, name: &str, faults: &mut Vec<String>) {
        let uri = format!("sip:{}", self.server.address(Udp));
        let mut fence = Request::new("OPTIONS", &uri, wire.transport().name(), wire.local());
        fence.call_id = unique("fence");
        wire.send(&fence.bytes()).expect("the server takes messages");
        while wire.receive(Duration::from_secs(5)).is_some_and(|got| !text(&got).contains(&fence.call_id)) {}
        if self.victim.has_come() {
            let heard = self.victim.receive(Duration::from_millis(1)).unwrap_or_default();
            faults.push(format!("{name}: {}", text(&heard)));
        }
        if self.listener.accept(Duration::ZERO).is_some() {
            faults.push(format!("{name}: a connection"));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn no_target_route_or_shape_of_a_strangers_request_leads_elsewhere() {
    let mut place = RelaySetup::new();
    let mut faults = Vec::new();
    let attacks = TARGETS.iter().chain(ROUTES).chain(SHAPES);
    assert!(attacks.clone().count() > 70);
    for transport in [Udp, Tcp] {
        for attack in attacks.clone() {
            for from in FROMS {
                for to_tag in ["", ";tag=2"] {
                    if transport == Tcp && (from, to_tag) != (&FROMS[0], "") {
                        continue;
                    }
                    let mut wire = place.server.connect(transport);
                    let bytes = place.bytes(*attack, from, to_tag, &wire);
                    wire.send(&bytes).expect("the server takes messages");
                    let name = format!("{} from {from}{to_tag} by {}", attack.0, transport.name());
                    place.judge(&mut wire, &name, &mut faults);
                }
            }
        }
    }
    // Delayed requests have been processed, too.
    if let Some(heard) = place.victim.receive(Duration::from_millis(100)) {
        faults.push(text(&heard));
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    place.server.assert_answers(Udp);
}

/// An answer follows its Via only if it matches a request: there is none here.
#[test]
fn answers_to_nothing_lead_nowhere() {
    let mut place = RelaySetup::new();
    let mut stranger = place.server.connect(Udp);
    let mut faults = Vec::new();
    let own = "Via: SIP/2.0/UDP {server};branch=z9hG4bK";
    let below = "Via: SIP/2.0/UDP {victim};branch=z9hG4bKv;rport\r\n";
    for (name, top) in [
        ("a branch of zeros", format!("{own}0000000000000000\r\n{below}")),
        ("a branch of another", format!("{own}51c323e8f00379f4\r\n{below}")),
        ("no branch", format!("Via: SIP/2.0/UDP {{server}}\r\n{below}")),
        ("two Vias of ours", format!("{own}1\r\n{own}2\r\n{below}")),
        ("a Via of ours in the compact form", format!("v: SIP/2.0/UDP {{server}};branch=z9hG4bK1\r\n{below}")),
        ("a Via of ours by name", format!("Via: SIP/2.0/UDP example.org;branch=z9hG4bK1\r\n{below}")),
        ("a Via that is not ours", below.into()),
        ("received", format!("{own}1\r\nVia: SIP/2.0/UDP x;branch=z9hG4bKv;received=127.0.0.1;rport={{port}}\r\n")),
        ("maddr", format!("{own}1\r\nVia: SIP/2.0/UDP x:{{port}};branch=z9hG4bKv;maddr=127.0.0.1\r\n")),
        ("another transport", format!("{own}1\r\nVia: SIP/2.0/TCP {{tcp}};branch=z9hG4bKv\r\n")),
        ("a Via of two in one line", "Via: SIP/2.0/UDP {server};branch=z9hG4bK1, SIP/2.0/UDP {victim}\r\n".into()),
    ] {
        for status in ["100 Trying", "180 Ringing", "200 OK", "302 Moved", "407 Prove", "500 No"] {
            for method in ["INVITE", "MESSAGE", "REGISTER", "CANCEL"] {
                let text = format!(
                    "SIP/2.0 {status}\r\n{top}From: <sip:x@a>;tag=1\r\nTo: <sip:y@b>;tag=2\r\nCall-ID: {}\r\nCSeq: 1 {method}\r\n\
                     Contact: <sip:x@{{victim}}>\r\nContent-Length: 0\r\n\r\n",
                    unique("answer")
                );
                stranger.send(place.fill(&text, &stranger).as_bytes()).expect("loopback takes it");
            }
            place.judge(&mut stranger, &format!("{status}, {name}"), &mut faults);
        }
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
}

/// Our answers go to the source of the request; the Via determines only their port.
#[test]
fn answers_go_back_to_the_source_whatever_the_via_says() {
    let mut place = RelaySetup::new();
    let mut faults = Vec::new();
    let mut victim = at_another_address(&place.server, Udp);
    let there = victim.local();
    for (name, via) in [
        ("the victim's address", "SIP/2.0/UDP {there}"),
        ("the victim's address as received", "SIP/2.0/UDP {sender};received={host}"),
        ("the victim as received, with its port", "SIP/2.0/UDP {sender};rport={its};received={host}"),
        ("maddr", "SIP/2.0/UDP {sender};maddr={host}"),
        ("maddr and the port", "SIP/2.0/UDP 127.0.0.1:{its};maddr={host}"),
        ("a name", "SIP/2.0/UDP victim.example;received={host}"),
        ("received twice", "SIP/2.0/UDP {sender};received=127.0.0.1;received={host}"),
        ("an empty received", "SIP/2.0/UDP {there};received="),
        ("another transport", "SIP/2.0/TCP {there}"),
        ("ttl", "SIP/2.0/UDP {there};ttl=255;maddr={host}"),
        ("a second Via in the line", "SIP/2.0/UDP {sender};branch=z9hG4bKa, SIP/2.0/UDP {there}"),
        ("alias", "SIP/2.0/UDP {there};alias;keep"),
    ] {
        for method in ["INVITE", "OPTIONS", "REGISTER", "MESSAGE", "CANCEL", "BYE"] {
            let mut wire = place.server.connect(Udp);
            let via = via
                .replace("{there}", &there.to_string())
                .replace("{host}", &there.ip().to_string())
                .replace("{its}", &there.port().to_string());
            let text = format!(
                "{method} sip:example.org SIP/2.0\r\nVia: {via};branch={}\r\nFrom: <sip:alice@example.org>;tag=1\r\n\
                 To: <sip:bob@example.org>\r\nCall-ID: {}\r\nCSeq: 1 {method}\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n",
                unique("z9hG4bK"),
                unique("call")
            );
            wire.send(place.fill(&text, &wire).as_bytes()).expect("loopback takes it");
            place.judge(&mut wire, name, &mut faults);
            if victim.has_come() {
                let heard = victim.receive(Duration::from_millis(1)).unwrap_or_default();
                faults.push(format!("{method}, {name}: {}", String::from_utf8_lossy(&heard)));
            }
        }
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
}

fn at_another_address(server: &Site, transport: Transport) -> Wire {
    let from = "127.0.0.77:0".parse().expect("an address");
    server.connect_from(transport, from)
}

/// A user may call any address. The password of the user allows nothing to other users, and without the password no
/// such call is allowed.
#[test]
fn a_binding_leads_its_callers_only_where_its_user_said() {
    let mut place = RelaySetup::new();
    let mut bob = place.server.connect(Udp);
    register(&mut bob, "bob", "bob");
    let mut stranger = place.server.connect(Udp);
    // Calls to bob reach bob, whatever other targets the request contains.
    let mut faults = Vec::new();
    for (name, uri, line) in [
        ("another port", "sip:bob@example.org:{port}", ""),
        ("maddr", "sip:bob@example.org;maddr={victim}", ""),
        ("maddr and port", "sip:bob@example.org:{port};maddr=127.0.0.1", ""),
        ("a Route behind ours", "sip:bob@example.org", "Route: <sip:{server};lr>, <sip:{victim};lr>\r\n"),
        ("a Route", "sip:bob@example.org", "Route: <sip:{victim};lr>\r\n"),
        ("headers of the URI", "sip:bob@example.org?Route=%3Csip:{victim}%3Blr%3E", ""),
        ("the transport", "sip:bob@{tcp};transport=tcp", ""),
    ] {
        let start = format!("MESSAGE {uri}");
        let start: &'static str = start.leak();
        let bytes = place.bytes((name, start, line), FROMS[0], "", &stranger);
        stranger.send(&bytes).expect("loopback takes it");
        place.judge(&mut stranger, name, &mut faults);
    }
    // Bindings that a stranger tries to create.
    for (name, line) in [
        ("no credentials", "Contact: <sip:x@{victim}>\r\n"),
        ("two Contacts", "Contact: <sip:x@{victim}>, <sip:y@{victim}>\r\n"),
        ("all of them", "Contact: *\r\nExpires: 0\r\n"),
        ("a Path", "Contact: <sip:x@{victim}>\r\nPath: <sip:{victim};lr>\r\n"),
    ] {
        let bytes = place.bytes((name, "REGISTER sip:example.org", line), "<sip:bob@example.org>", "", &stranger);
        stranger.send(&bytes).expect("loopback takes it");
        place.judge(&mut stranger, name, &mut faults);
    }
    let call = Request::new("MESSAGE", "sip:bob@example.org", "udp", stranger.local());
    bob.drain();
    stranger.send(&call.bytes()).expect("loopback takes it");
    let got = bob.request("MESSAGE", Duration::from_secs(5)).expect("bob is where he was");
    bob.send(&strowger_tests::text::respond(&got, 200, "t", &[])).expect("loopback takes it");
    place.judge(&mut stranger, "a plain one", &mut faults);
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    let options = Request::new("OPTIONS", &format!("sip:{}", place.server.address(Udp)), "udp", stranger.local());
    assert_eq!(status(&exchange(&mut stranger, &options)), Some(200));
}
