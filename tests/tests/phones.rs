//! Third-party phones on the default configuration: the digest algorithms of each, browsers, and phones that restart,
//! move or find the server at another port.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use strowger_tests::baresip::{Baresip, Phone, end, with_users};
use strowger_tests::browser::{Library, Page};
use strowger_tests::name_server::{NameServer, Record};
use strowger_tests::program::{BARESIP, CHROMIUM, LINPHONE, SIPP, SIPSAK, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::sipp::{Scenario, Sipp};
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Wss};
use strowger_tests::{linphone, port};

const SOON: Duration = Duration::from_secs(30);

/// The lists of the table in docs/phones.md.
const LISTS: [&str; 4] = ["[\"MD5\"]", "[\"MD5\", \"SHA-256\"]", "[\"SHA-256\", \"MD5\"]", "[\"SHA-256\"]"];

/// Starts a server with a UDP and a secure WebSocket listener for each list.
fn with_each_list() -> (Server, Vec<(SocketAddr, SocketAddr)>) {
    let ends: Vec<_> =
        LISTS.iter().map(|_| (strowger_tests::server::loopback(port::short()), port::free_address())).collect();
    let mut lines = String::from("domains = [\"example.org\", \"127.0.0.1\"]\n");
    let mut listen = Vec::new();
    for (list, (udp, wss)) in LISTS.iter().zip(&ends) {
        for (transport, address) in [(Udp, *udp), (Wss, *wss)] {
            lines.push_str(&format!(
                "[[listener]]\ntransport = \"{}\"\naddress = \"127.0.0.1\"\nport = {}\nalgorithms = {list}\n",
                transport.name(),
                address.port()
            ));
            listen.push((transport, address));
        }
    }
    let server = Setup::tables(&listen).with(&lines).start();
    server.add_user("alice@example.org", "secret-of-alice");
    // Some phones use the server's address as domain.
    server.add_user("carol@127.0.0.1", "secret-of-carol");
    (server, ends)
}

/// Reads the row of a list in the table of docs/phones.md: `yes` or `no` for each column.
fn documented(list: &str) -> [bool; 4] {
    let text = include_str!("../../docs/phones.md");
    let row = text.lines().find(|line| line.starts_with(&format!("| `{list}` |")));
    let row = row.unwrap_or_else(|| panic!("docs/phones.md has no row for {list}"));
    let cells: Vec<bool> = row.split('|').skip(2).take(4).map(|cell| cell.trim() == "yes").collect();
    cells.try_into().expect("four columns")
}

fn baresip_registers(server: SocketAddr) -> bool {
    let mut phone = Baresip::start(&alice(server, "udp"));
    phone.registers(SOON)
}

fn sipp_registers(server: SocketAddr) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let target = server.to_string();
    let arguments = [target.as_str(), "-m", "1", "-timeout", "20s"];
    let mut sipp =
        Sipp::start("register", folder.path(), Scenario::Ours("register_digest"), port::free(), "u1", &arguments);
    sipp.end(SOON).successful == 1
}

fn sipsak_registers(folder: &Path, server: SocketAddr) -> bool {
    let uri = format!("sip:carol@{server}");
    let arguments =
        ["-U", "-s", &uri, "-C", "sip:carol@127.0.0.1:5999", "-x", "120", "-u", "carol", "-a", "secret-of-carol", "-i"];
    let mut command = Command::new(SIPSAK.path().expect("sipsak is there"));
    command.args(arguments).current_dir(folder).output().expect("sipsak runs").status.success()
}

#[test]
fn each_phone_registers_with_the_lists_that_the_table_names() {
    if !have(&[BARESIP, SIPP, SIPSAK, LINPHONE, CHROMIUM]) {
        return;
    }
    let (server, ends) = with_each_list();
    let browsers = [Library::JsSip, Library::SipJs].map(|library| {
        let listeners: Vec<SocketAddr> = ends.iter().map(|(_, wss)| *wss).collect();
        (library, Page::open(library, &listeners))
    });
    for (list, (udp, _)) in LISTS.iter().zip(&ends) {
        let [baresip, sipp, _, linphone] = documented(list);
        assert_eq!(baresip_registers(*udp), baresip, "baresip with {list}\n{}", server.log());
        assert_eq!(sipp_registers(*udp), sipp, "SIPp with {list}\n{}", server.log());
        assert_eq!(sipsak_registers(server.folder(), *udp), sipp, "sipsak with {list}\n{}", server.log());
        let registered = linphone::registers(*udp, "carol", "secret-of-carol", "example.org", SOON);
        assert_eq!(registered, linphone, "Linphone with {list}\n{}", server.log());
    }
    for (library, mut page) in browsers {
        for (at, list) in LISTS.iter().enumerate() {
            let [_, _, browser, _] = documented(list);
            let expected = if browser { "registered" } else { "not registered" };
            page.expect(&format!("{at} {expected}"), SOON);
            let events = page.events();
            let other = if browser { "not registered" } else { "registered" };
            assert!(
                !events.iter().any(|event| event.starts_with(&format!("{at} {other}"))),
                "{library:?} {list} {events:?}"
            );
        }
    }
}

/// Describes alice's phone.
fn alice(server: SocketAddr, transport: &str) -> Phone<'_> {
    Phone {
        user: "alice",
        domain: "example.org",
        password: "secret-of-alice",
        server,
        outbound_name: None,
        transport,
        authority: None,
        answers: false,
        namespace: None,
        listen: end(),
    }
}

/// Describes bob's phone, which answers.
fn bob(server: SocketAddr, transport: &str) -> Phone<'_> {
    Phone { user: "bob", password: "secret-of-bob", answers: true, ..alice(server, transport) }
}

/// Two phones of one page register and talk, and their second call survives a restart of the server.
fn browsers(library: Library) {
    if !have(&[CHROMIUM]) {
        return;
    }
    let mut server = with_users(Setup::on(&[Wss]));
    let mut page = Page::open(library, &[server.address(Wss)]);
    page.expect("first call done", SOON);
    page.expect("second call stands", SOON);
    server.kill();
    server.start();
    page.expect("second call done", SOON);
    let events = page.events();
    assert!(!events.iter().any(|event| event.contains("failed") || event.contains("broke")), "{events:?}");
}

#[test]
fn jssip_calls_jssip_through_a_server_that_starts_again() {
    browsers(Library::JsSip);
}

#[test]
fn sipjs_calls_sipjs_through_a_server_that_starts_again() {
    browsers(Library::SipJs);
}

/// Bob's phone restarts at another port and another address, and the server restarts; alice calls bob after each step.
fn starts_again(transport: Transport, name: &str) {
    if !have(&[BARESIP]) {
        return;
    }
    let mut server = with_users(Setup::on(&[transport]));
    let address = server.address(transport);
    let authority = transport.is_secure().then(|| server.authority());
    let mut alice = Baresip::start(&Phone { authority: authority.clone(), ..alice(address, name) });
    alice.registered(SOON);
    let mut call = |listen: SocketAddr| {
        let mut phone = Baresip::start(&Phone { authority: authority.clone(), listen, ..bob(address, name) });
        phone.registered(SOON);
        alice.order("dial", "sip:bob@example.org");
        for end in [&mut alice, &mut phone] {
            end.expect("CALL_ESTABLISHED", SOON);
        }
        // The callee ends the call: this checks the way back to the caller.
        phone.order("hangup", "");
        for end in [&mut phone, &mut alice] {
            end.expect("CALL_CLOSED", SOON);
        }
        // Killed without a de-registration: its binding stays.
        phone.process().kill();
    };
    call(end());
    call(end());
    // An address of this test alone.
    call(SocketAddr::new(Ipv4Addr::new(127, 0, 0, 233).into(), end().port()));
    server.kill();
    server.start();
    call(end());
}

#[test]
fn a_phone_and_the_server_start_again_by_udp() {
    starts_again(Udp, "udp");
}

#[test]
fn a_phone_and_the_server_start_again_by_tcp() {
    starts_again(Tcp, "tcp");
}

#[test]
fn a_phone_and_the_server_start_again_by_tls() {
    starts_again(Tls, "tls");
}

/// The phones put the name into the Route of every request.
#[test]
fn phones_that_know_the_server_by_a_name_alone_call_each_other() {
    if !have(&[BARESIP]) {
        return;
    }
    let Some(names) = NameServer::start(&[("sip.example.org", Record::A(Ipv4Addr::LOCALHOST))]) else { return };
    for (transport, way) in [(Udp, "udp"), (Tcp, "tcp")] {
        let server = with_users(Setup::on(&[transport]).with(&names.line()));
        let address = server.address(transport);
        let outbound_name = Some(("sip.example.org", names.ip));
        let mut bob = Baresip::start(&Phone { outbound_name, ..bob(address, way) });
        let mut alice = Baresip::start(&Phone { outbound_name, ..alice(address, way) });
        bob.registered(SOON);
        alice.registered(SOON);
        alice.order("dial", "sip:bob@example.org");
        for end in [&mut alice, &mut bob] {
            end.expect("CALL_ESTABLISHED", SOON);
        }
        bob.order("hangup", "");
        alice.expect("CALL_CLOSED", SOON);
    }
}
