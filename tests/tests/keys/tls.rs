//! Certificates sent and required by the server.

use std::net::TcpStream;
use std::path::Path;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use strowger_tests::certificate::Certificate;
use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::wire::Transport::{Tcp, Tls};
use strowger_tests::wire::{Wire, trusting};

use super::{SOON, code, request, send};

/// Starts two listeners, of which the second has settings of its own.
fn two(lines: &str, own: &str) -> Server {
    let (first, second) = (port::free_address(), port::free_address());
    let table = |port: u16| format!("[[listener]]\ntransport = \"tls\"\naddress = \"127.0.0.1\"\nport = {port}\n");
    let lines = format!("domains = []\n{lines}\n{}{}{own}", table(first.port()), table(second.port()));
    Setup::tables(&[(Tls, first), (Tls, second)]).with(&lines).start()
}

/// Tells whether the listener with this number answers a client without a certificate that trusts these authorities.
fn hears(server: &Server, listener: usize, authority: &Path) -> bool {
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

/// Tells whether a client that requests this name (SNI) and trusts this authority alone gets a valid certificate for
/// it.
fn is_shown(server: &Server, listener: usize, name: &str, authority: &Path) -> bool {
    let config = trusting(authority).expect("the authority can be read");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(config, name).expect("a client");
    let mut stream = TcpStream::connect(server.listeners()[listener]).expect("the server listens");
    client.complete_io(&mut stream).is_ok()
}

#[test]
fn a_listener_shows_the_certificate_of_the_name_that_is_asked_for() {
    let folders = ["west", "east"].map(|_| tempfile::tempdir().expect("a temporary folder can be made"));
    let names = ["west.example", "east.example"];
    let [west, east] = [0, 1].map(|n| Certificate::in_folder(folders[n].path(), &[names[n]]));
    let table = |name: &str, own: &Certificate| {
        format!("[[certificate]]\nname = {name:?}\ncertificate = {:?}\nkey = {:?}\n", own.chain, own.key)
    };
    let tables = [table("west", &west), table("east", &east)].concat();
    for (listed, by_west, both) in
        [("\"west\", \"east\"", true, true), ("\"east\", \"west\"", false, true), ("\"east\"]\n#", false, false)]
    {
        let server = two("", &format!("certificates = [{listed}]\n{tables}"));
        assert_eq!([0, 1].map(|n| hears(&server, n, &server.authority())), [true, false]);
        // A client without a requested name gets the first.
        assert_eq!([&west, &east].map(|own| hears(&server, 1, &own.authority)), [by_west, !by_west], "{listed}");
        let shown =
            [("west.example", &west), ("EAST.example", &east), ("west.example", &east), ("east.example", &west)];
        let shown = shown.map(|(name, own)| is_shown(&server, 1, name, &own.authority));
        assert_eq!(shown, [both, true, false, false], "{listed}");
    }
}

/// Another server is reached if an authority of the setting has signed its certificate, or if verification is off.
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
