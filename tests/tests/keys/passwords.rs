//! Digest authentication, and bans.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_tests::digest::{DigestAnswer, is_stale};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

use super::{NEVER, ask, code, request, send};

const RIGHT: &str = "his password";

fn with_bob(setup: Setup, lines: &str) -> Server {
    let server = setup.with("domains = [\"example.org\"]").with(lines).start();
    server.add_user("bob@example.org", RIGHT);
    server
}

fn start(lines: &str) -> Server {
    with_bob(Setup::on(&[Udp]), &format!("ban.exempt = []\n{lines}"))
}

fn at(server: &Server, last: u8) -> Wire {
    let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
    Wire::connect_from(Udp, from, server.address(Udp), None).expect("loopback takes it")
}

fn register(wire: &Wire) -> Request {
    Request::register("bob", "example.org", &format!("sip:bob@{}", wire.local()), "udp", wire.local())
}

/// Makes one guess at bob's password. Returns false if there is no answer.
fn guess(wire: &mut Wire) -> bool {
    let request = register(wire);
    send(wire, &request);
    let Some(refusal) = wire.final_response(2 * NEVER) else { return false };
    let answer = DigestAnswer::to(&refusal, &request, "bob", "a guess");
    send(wire, &answer.on(&request));
    wire.final_response(2 * NEVER).is_some()
}

/// Servers that share a secret, one by a key and another by a file, accept each other's nonces: those issued after their
/// own start, by more than the allowed clock difference of 10 s.
#[test]
fn servers_of_one_secret_take_nonces_of_each_other() {
    let secret = "0123456789abcdef0123456789abcdef";
    let first = start(&format!("auth.secret = \"{secret}\""));
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), secret).expect("it can be written");
    let others = [(format!("auth.secret_file = {:?}", file.path()), true), (String::new(), false)]
        .map(|(lines, takes)| (start(&lines), lines, takes));
    // Nonces have a resolution of seconds.
    std::thread::sleep(Duration::from_millis(11_100));
    let mut wire = first.connect(Udp);
    let request = register(&wire);
    let refusal = ask(&mut wire, &request);
    for (server, lines, takes) in others {
        let mut wire = server.connect(Udp);
        let request = register(&wire);
        let response = ask(&mut wire, &DigestAnswer::to(&refusal, &request, "bob", RIGHT).on(&request));
        assert_eq!(code(&response) == 200, takes, "{lines}");
    }
}

#[test]
fn answers_without_qop_are_taken_if_the_setting_says_so() {
    for (setting, status) in [(true, 200), (false, 401)] {
        let server = start(&format!("auth.without_qop = {setting}"));
        let mut wire = server.connect(Udp);
        let request = register(&wire);
        let refusal = ask(&mut wire, &request);
        let answer = DigestAnswer { qop: None, ..DigestAnswer::to(&refusal, &request, "bob", RIGHT) };
        let response = ask(&mut wire, &answer.on(&request));
        assert_eq!(code(&response), status, "{setting}");
        assert!(status == 200 || !is_stale(&response));
    }
}

/// Two failures within a second ban, not with more than a second between.
#[test]
fn failures_count_within_the_window() {
    let server = start("ban.failures = 2\nban.window = \"1s\"");
    let mut wire = at(&server, 2);
    assert!(guess(&mut wire));
    // Longer than the window.
    std::thread::sleep(Duration::from_millis(1_200));
    assert!(guess(&mut wire) && guess(&mut wire), "one of them is the second of its window");
    assert!(!guess(&mut wire));
}

#[test]
fn scanners_are_those_of_the_list() {
    let server = start("ban.scanners = [\"nosy\"]");
    for (agent, heard) in [("friendly-scanner", true), ("A Nosy thing", false)] {
        let mut wire = server.connect(Udp);
        let options = request(&wire, "OPTIONS", &format!("sip:{}", server.address(Udp)));
        send(&mut wire, &options.with(format!("User-Agent: {agent}")));
        assert_eq!(wire.final_response(2 * NEVER).is_some(), heard, "{agent}");
    }
}

/// Each address is a source; by default a whole /64 is one.
#[test]
fn sources_are_networks_of_so_many_bits() {
    if !namespace::possible() {
        return;
    }
    let net = Namespace::new("bits");
    // Programs inside may use any address of 2001:db8::/32.
    let sysctl = net.command().args(["sysctl", "-q", "-w", "net.ipv6.ip_nonlocal_bind=1"]).status();
    assert!(sysctl.is_ok_and(|status| status.success()));
    net.ip(&["-6", "route", "add", "local", "2001:db8::/32", "dev", "lo"]);
    let address: SocketAddr = "[2001:db8:ffff::1]:5060".parse().expect("an address");
    let setup = Setup::default().listen(Udp, address).inside(&net);
    let _server = with_bob(setup, "limits.ipv6_prefix = 128\nban.failures = 2\nban.account_failures = 1000");
    for last in 1..10 {
        let from: SocketAddr = format!("[2001:db8:1:2::{last}]:0").parse().expect("an address");
        let mut wire = net.inside(|| Wire::connect_from(Udp, from, address, None)).expect("the route is there");
        assert!(guess(&mut wire), "{last}");
    }
}
