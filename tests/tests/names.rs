//! Names of a domain beside its main one: the address of the server, as phones and carriers use it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use strowger_tests::account::authorized;
use strowger_tests::baresip::{Baresip, Phone, end, with_users};
use strowger_tests::binary::strowger;
use strowger_tests::call::exchange;
use strowger_tests::control::done;
use strowger_tests::port;
use strowger_tests::program::{BARESIP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, fields, status};
use strowger_tests::wire::Transport::Udp;

use crate::caller_numbers::gateway;

const SOON: Duration = Duration::from_secs(15);

fn phone(server: &Server, user: &str, domain: &str) -> Baresip {
    let mut phone = Baresip::start(&Phone {
        user,
        domain,
        password: &format!("secret-of-{user}"),
        server: server.address(Udp),
        outbound_name: None,
        transport: "udp",
        authority: None,
        answers: user == "bob",
        namespace: None,
        listen: end(),
    });
    phone.registered(SOON);
    phone
}

/// Returns the output of a command with the configuration of this server.
fn says(server: &Server, words: &[&str]) -> String {
    let output = Command::new(strowger()).args(words).arg("--config").arg(server.config()).output();
    let output = output.expect("the program runs");
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

#[test]
fn phones_and_carriers_may_use_the_address_of_the_server() {
    if !have(&[BARESIP]) {
        return;
    }
    let carrier = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 62)), port::free());
    let lines = "[[source]]\nname = \"carrier\"\nnetworks = [\"127.0.0.62\"]\ntrusted = true\n\
                 [[set]]\nname = \"office\"\nentries = { \"+49301234560\" = \"bob\" }\n\
                 [[rule]]\nname = \"in\"\nwhen = \"source.group == 'carrier' and number in office\"\ntranslate = \"office\"\n";
    let server = with_users(Setup::on(&[Udp]).with(lines));
    let at = server.address(Udp);
    let (mut alice, mut bob) = (phone(&server, "alice", "127.0.0.1"), phone(&server, "bob", "example.org"));
    for (name, domain) in [("alice", "127.0.0.1"), ("alice", "example.org"), ("bob", "127.0.0.1")] {
        let shown = says(&server, &["registrations", "--user", &format!("{name}@{domain}")]);
        assert!(shown.contains(&format!("{name}@example.org")), "{shown}");
    }
    for callee in ["sip:bob@example.org".to_owned(), format!("sip:bob@{at}"), "sip:bob@127.0.0.1".to_owned()] {
        alice.order("dial", &callee);
        alice.expect("CALL_ESTABLISHED", SOON);
        bob.expect("CALL_ESTABLISHED", SOON);
        alice.order("hangup", "");
        alice.expect("CALL_CLOSED", SOON);
        bob.expect("CALL_CLOSED", SOON);
    }
    // A number of the office, called at the address of the server.
    let mut carrier_wire = gateway(&server, carrier);
    let mut invite = Request::new("INVITE", &format!("sip:+49301234560@{at}"), "udp", carrier)
        .with("Content-Type: application/sdp")
        .with(format!("Contact: <sip:carrier@{carrier}>"));
    invite.body =
        b"v=0\r\no=- 1 1 IN IP4 127.0.0.62\r\ns=-\r\nc=IN IP4 127.0.0.62\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n"
            .into();
    carrier_wire.send(&invite.bytes()).expect("loopback");
    let answer = carrier_wire.final_response(SOON).expect("bob's phone answers");
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    carrier_wire.send(&invite.ack(&answer).bytes()).expect("loopback");
    bob.expect("CALL_ESTABLISHED", SOON);
}

/// A user is stored under the name of `domains` that the command gave, and is found under each.
#[test]
fn users_are_managed_by_each_name_of_their_domain() {
    let server =
        Setup::on(&[Udp]).with("domains = [\"example.org\", \"old.example\"]\nserver.names = [\"proxy.test\"]").start();
    assert!(server.user(&["add", "alice@old.example"], "a password").contains("added alice@old.example in the realm"));
    assert!(server.user(&["add", "bob@proxy.test"], "a password").contains("added bob@example.org in the realm"));
    assert!(
        server.user(&["passwd", "alice@127.0.0.1"], "another").contains("changed the password of alice@old.example")
    );
    let listed = says(&server, &["user", "list"]);
    assert!(listed.contains("alice@old.example") && listed.contains("bob@example.org"), "{listed}");
    let explain = |to: &str| says(&server, &["explain", "--from", "x@elsewhere.test", "--to", to]);
    assert!(
        explain("alice@proxy.test").contains("answer  480: the user is not registered\n"),
        "{}",
        explain("alice@proxy.test")
    );
    for host in ["example.org", "old.example", "127.0.0.1", "proxy.test", "sip.example.org", "sip.old.example"] {
        let said = explain(&format!("carol@{host}"));
        assert!(said.ends_with("answer  404: unknown user\n"), "{host}: {said}");
    }
    let mut wire = server.connect(Udp);
    let contact = format!("sip:bob@{}", wire.local());
    let request = Request::register("bob", "sip.example.org", &contact, "udp", wire.local());
    let challenge = exchange(&mut wire, &request);
    let answer = exchange(&mut wire, &authorized(&request, &challenge, "bob", "a password"));
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    assert!(says(&server, &["registrations", "--user", "bob@sip.old.example"]).contains("bob@example.org"));
    let removed = says(&server, &["user", "remove", "alice@proxy.test"]);
    assert!(removed.contains("removed alice@old.example"), "{removed}");
    assert!(explain("alice@example.org").ends_with("answer  404: unknown user\n"));
}

/// A phone that registered before the reload is found under the new name of its domain, also by the next process.
#[test]
fn a_domain_that_becomes_an_alias_keeps_its_registrations() {
    let before = "[[domain]]\nname = \"a.example\"\n[[domain]]\nname = \"b.example\"\n";
    let lines = format!("registrar.authenticate = false\nauth.calls = false\n{before}");
    let mut server = Setup::on(&[Udp]).with(&lines).start();
    let mut phone = server.connect(Udp);
    for domain in ["a.example", "b.example"] {
        let contact = format!("sip:{domain}@{}", phone.local());
        let register = Request::register("bob", domain, &contact, "udp", phone.local());
        assert_eq!(status(&exchange(&mut phone, &register)), Some(200));
    }
    let found = |server: &Server, domain: &str| {
        let mut caller = server.connect(Udp);
        let mut question = Request::register("bob", domain, "", "udp", caller.local());
        question.headers.clear();
        let answer = exchange(&mut caller, &question);
        let mut found: Vec<_> = fields(&answer, "Contact").iter().map(|contact| contact[..15].to_owned()).collect();
        found.sort();
        (status(&answer), found)
    };
    assert_eq!(found(&server, "b.example").1, ["<sip:b.example@"]);
    server.rewrite(before, "[[domain]]\nname = \"a.example\"\naliases = [\"b.example\"]\n");
    done(&server, &["reload"]);
    server.log_with("bindings stand under the new name of their domain bindings=1");
    let both = ["<sip:a.example@", "<sip:b.example@"].map(String::from).to_vec();
    for domain in ["a.example", "b.example"] {
        assert_eq!(found(&server, domain), (Some(200), both.clone()), "{domain}");
    }
    let shown = says(&server, &["registrations"]);
    assert!(shown.contains("bob@a.example") && !shown.contains("bob@b.example"), "{shown}");
    server.kill();
    server.start();
    assert_eq!(found(&server, "b.example"), (Some(200), both));
}

/// With several domains no domain owns the address; the log names the remedy, and the remedy works.
#[test]
fn the_cure_for_an_address_of_several_domains_works() {
    let tables = "auth.calls = false\n[[domain]]\nname = \"a.example\"\n[[domain]]\nname = \"b.example\"\n";
    let server = Setup::on(&[Udp]).with(tables).start();
    server.add_user("alice@b.example", "a password");
    let mut wire = server.connect(Udp);
    let to = format!("sip:alice@{}", server.address(Udp));
    let call = Request::new("MESSAGE", &to, "udp", wire.local());
    wire.send(&call.bytes()).expect("loopback");
    assert_eq!(wire.final_response(SOON).as_deref().and_then(status), Some(404));
    let log = server.log_with("which has several domains");
    assert!(log.contains("name the address in `aliases` of a [[domain]]"), "{log}");
    server.rewrite("name = \"b.example\"", "name = \"b.example\"\naliases = [\"127.0.0.1\"]");
    assert!(says(&server, &["reload"]).contains("reloaded"));
    let again = Request::new("MESSAGE", &to, "udp", wire.local());
    wire.send(&again.bytes()).expect("loopback");
    // The user exists, and her phone is not registered.
    assert_eq!(wire.final_response(SOON).as_deref().and_then(status), Some(480));
}

/// A carrier calls a number of the office at the address of the server: the unchanged example leads the call to its
/// user.
#[test]
fn the_example_of_a_trunk_takes_numbers_at_its_address() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/trunk.toml");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let config = folder.path().join("trunk.toml");
    std::fs::copy(example, &config).expect("it is there");
    let words = ["--from", "+4477@carrier.example", "--to", "+49301234560@203.0.113.5", "--source", "192.0.2.33:5060"];
    let output = Command::new(strowger()).arg("explain").args(words).arg("--config").arg(&config).output();
    let said = String::from_utf8_lossy(&output.expect("the program runs").stdout).into_owned();
    assert!(said.contains("uri     becomes sip:alice@203.0.113.5\n"), "{said}");
    assert!(said.contains("user    alice@office.example.org"), "{said}");
    assert!(said.ends_with("answer  480: the user is not registered; 404 if there is no such user\n"), "{said}");
}
