//! Certificates that are shown and demanded.

use strowger_tests::certificate::Certificate;
use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::wire::Transport::{Tcp, Tls};
use strowger_tests::wire::Wire;

use super::{SOON, code, request, send};

/// Two listeners, of which the second has what is its own.
fn two(lines: &str, own: &str) -> Server {
    let (first, second) = (port::free_address(), port::free_address());
    let table = |port: u16| format!("[[listener]]\ntransport = \"tls\"\naddress = \"127.0.0.1\"\nport = {port}\n");
    let lines = format!("domains = []\n{lines}\n{}{}{own}", table(first.port()), table(second.port()));
    Setup::tables(&[(Tls, first), (Tls, second)]).with(&lines).start()
}

/// Whether a client without a certificate that trusts these authorities is heard by the listener of this number.
fn hears(server: &Server, listener: usize, authority: &std::path::Path) -> bool {
    let Ok(mut wire) = Wire::connect(Tls, server.listeners()[listener], Some(authority)) else { return false };
    let options = request(&wire, "OPTIONS", &format!("sip:{};transport=tls", server.listeners()[listener]));
    wire.send(&options.bytes()).is_ok() && wire.final_response(SOON).is_some()
}

#[test]
fn a_listener_shows_its_own_certificate_and_demands_one_of_its_own_authorities() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let other = Certificate::in_folder(folder.path(), &["example.net"]);
    let server = two("", &format!("certificate = {:?}\nkey = {:?}", other.chain, other.key));
    assert_eq!([0, 1].map(|n| hears(&server, n, &server.authority())), [true, false]);
    assert_eq!([0, 1].map(|n| hears(&server, n, &other.authority)), [false, true]);

    let server = two("", &format!("client_ca = {:?}", other.authority));
    assert_eq!([0, 1].map(|n| hears(&server, n, &server.authority())), [true, false]);
    let server = two(&format!("tls.client_ca = {:?}", other.authority), "");
    assert_eq!([0, 1].map(|n| hears(&server, n, &server.authority())), [false, false]);
}

/// A client that asks for none of their names gets the first.
#[test]
fn a_listener_shows_the_certificates_that_it_names() {
    let folders = ["west", "east"].map(|_| tempfile::tempdir().expect("a temporary folder can be made"));
    let [west, east] = folders.each_ref().map(|folder| Certificate::in_folder(folder.path(), &[]));
    let table = |name: &str, own: &Certificate| {
        format!("[[certificate]]\nname = {name:?}\ncertificate = {:?}\nkey = {:?}\n", own.chain, own.key)
    };
    let tables = [table("west", &west), table("east", &east)].concat();
    for (names, by_west) in [("\"west\", \"east\"", true), ("\"east\", \"west\"", false), ("\"east\"]\n#", false)] {
        let server = two("", &format!("certificates = [{names}]\n{tables}"));
        assert_eq!([0, 1].map(|n| hears(&server, n, &server.authority())), [true, false]);
        assert_eq!([&west, &east].map(|own| hears(&server, 1, &own.authority)), [by_west, !by_west], "{names}");
    }
}

/// Another server is reached if its certificate is signed by whom the setting names, or if it is not looked at.
#[test]
fn certificates_of_other_servers_are_verified() {
    let other = Setup::on(&[Tls]).in_memory().with("domains = []").start();
    let uri = format!("sip:{};transport=tls", other.address(Tls));
    let relay = |lines: &str| {
        let server = Setup::on(&[Tcp, Tls]).relay().with(lines).start();
        let mut wire = server.connect(Tcp);
        let options = request(&wire, "OPTIONS", &uri);
        send(&mut wire, &options);
        code(&wire.final_response(SOON).expect("an answer"))
    };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let stranger = Certificate::in_folder(folder.path(), &["example.net"]).authority;
    assert_eq!(relay(&format!("tls.outbound_ca = {:?}", other.authority())), 200);
    assert!(relay(&format!("tls.outbound_ca = {stranger:?}")) >= 500);
    assert_eq!(relay(&format!("tls.outbound_ca = {stranger:?}\ntls.outbound_verify = false")), 200);
}
