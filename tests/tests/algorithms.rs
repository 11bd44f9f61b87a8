//! Algorithms of digest authentication: the offer, and the stored passwords it needs.

use std::process::Command;
use std::time::Duration;

use strowger_core::digest::Algorithm;
use strowger_tests::binary::strowger;
use strowger_tests::digest::{DigestAnswer, challenges};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport::{self, Tcp, Udp};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(5);

fn register(wire: &Wire) -> Request {
    Request::register("bob", "example.org", "sip:bob@127.0.0.1", wire.transport().name(), wire.local())
}

/// Sends a request; returns the answer.
fn ask(wire: &mut Wire, request: &Request) -> Vec<u8> {
    wire.send(&request.bytes()).expect("loopback takes it");
    wire.final_response(LIMIT).expect("an answer")
}

fn offered(refusal: &[u8]) -> Vec<String> {
    let name =
        |value: &String| value.split("algorithm=").nth(1).and_then(|rest| rest.split(',').next()).map(String::from);
    challenges(refusal).iter().filter_map(name).collect()
}

/// Registers bob, who answers with this algorithm whatever the challenge offers.
fn registers(server: &Server, transport: Transport, algorithm: Algorithm) -> Option<u16> {
    let mut wire = server.connect(transport);
    let request = register(&wire);
    let refusal = ask(&mut wire, &request);
    let answer = DigestAnswer { algorithm, ..DigestAnswer::to(&refusal, &request, "bob", "his password") };
    status(&ask(&mut wire, &answer.on(&request)))
}

#[test]
fn md5_alone_is_offered_unless_the_configuration_says_otherwise() {
    let server = Setup::on(&[Udp]).with("domains = [\"example.org\"]").start();
    let mut wire = server.connect(Udp);
    let request = register(&wire);
    let refusal = ask(&mut wire, &request);
    assert_eq!(offered(&refusal), ["MD5"], "{}", String::from_utf8_lossy(&refusal));
}

/// Starts a server with two ports of loopback, one for each listener.
fn two_lists() -> Server {
    let (udp, tcp) = (strowger_tests::port::free_address(), strowger_tests::port::free_address());
    let table = |transport: &str, port: u16, lists: &str| {
        format!("[[listener]]\ntransport = \"{transport}\"\naddress = \"127.0.0.1\"\nport = {port}\n{lists}\n")
    };
    let lines = format!(
        "domains = [\"example.org\"]\nauth.algorithms = [\"SHA-256\", \"MD5\"]\n{}{}",
        table("udp", udp.port(), ""),
        table("tcp", tcp.port(), "algorithms = [\"SHA-512-256\"]"),
    );
    Setup::tables(&[(Udp, udp), (Tcp, tcp)]).with(&lines).start()
}

#[test]
fn a_listener_offers_its_own_algorithms_and_accepts_no_others() {
    let server = two_lists();
    server.add_user("bob@example.org", "his password");
    for (transport, list) in [(Udp, &["SHA-256", "MD5"][..]), (Tcp, &["SHA-512-256"])] {
        let mut wire = server.connect(transport);
        let request = register(&wire);
        let refusal = ask(&mut wire, &request);
        assert_eq!(offered(&refusal), list, "{}", transport.name());
    }
    for (transport, algorithm, status) in [
        (Udp, Algorithm::MD5, 200),
        (Udp, Algorithm::SHA_256, 200),
        (Udp, Algorithm::SHA_512_256, 401),
        (Tcp, Algorithm::SHA_512_256, 200),
        (Tcp, Algorithm::SHA_256, 401),
        (Tcp, Algorithm::MD5, 401),
    ] {
        assert_eq!(registers(&server, transport, algorithm), Some(status), "{} {algorithm}", transport.name());
    }
}

#[test]
fn another_list_needs_no_new_passwords() {
    let mut server = Setup::on(&[Udp]).with("domains = [\"example.org\"]\nauth.algorithms = [\"SHA-256\"]").prepare();
    server.add_user("bob@example.org", "his password");
    server.rewrite("[\"SHA-256\"]", "[\"MD5\"]");
    server.start();
    assert_eq!(registers(&server, Udp, Algorithm::MD5), Some(200), "{}", server.log());
    server.stop();
    server.rewrite("[\"MD5\"]", "[\"SHA-512-256\"]");
    server.start();
    assert_eq!(registers(&server, Udp, Algorithm::SHA_512_256), Some(200), "{}", server.log());
}

/// Deletes MD5 digests: older versions stored MD5 only if it was offered.
fn forget_md5(server: &Server) {
    let database = rusqlite::Connection::open(server.folder().join("test.sqlite")).expect("it opens");
    let gone = database.execute("DELETE FROM credential WHERE username = 'bob' AND algorithm = 'MD5'", []);
    assert_eq!(gone.expect("it can be changed"), 1);
}

#[test]
fn users_whose_password_was_stored_without_md5_are_named() {
    let mut server = Setup::on(&[Udp]).with("domains = [\"example.org\"]").prepare();
    server.add_user("alice@example.org", "her password");
    server.add_user("bob@example.org", "his password");
    let check = |server: &Server| {
        let output = Command::new(strowger()).arg("check").arg(server.config()).output().expect("the program runs");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(check(&server), "");
    forget_md5(&server);
    let said = check(&server);
    assert!(said.contains("1 user of ") && said.contains("cannot register by MD5"), "{said}");
    assert!(said.contains("strowger user passwd USER@example.org"), "{said}");
    // The log of the started server has it, too.
    server.start();
    server.process().wait_for("cannot register by MD5", 1, LIMIT);
    assert_eq!(registers(&server, Udp, Algorithm::MD5), Some(401));
}

#[test]
fn what_md5_costs_is_no_warning_and_what_a_list_shuts_out_is() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let check = |list: &str| {
        let file = folder.path().join("strowger.toml");
        std::fs::write(&file, format!("auth.algorithms = {list}\n")).expect("it is ours");
        let output = Command::new(strowger()).arg("check").arg(file).output().expect("the program runs");
        assert!(output.status.success(), "{list}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(check("[\"MD5\"]"), "");
    for (list, phones) in [
        ("[\"MD5\", \"SHA-256\"]", "baresip 1.0, JsSIP 3.13 and SIP.js 0.21"),
        ("[\"SHA-256\", \"MD5\"]", "baresip 1.0, SIPp 3.6 and sipsak 0.9.8"),
        ("[\"SHA-256\"]", "JsSIP 3.13 and SIP.js 0.21, Linphone 5.1"),
    ] {
        let said = check(list);
        assert!(said.contains(phones) && said.contains("docs/phones.md"), "{list}: {said}");
    }
}
