//! Third-party phone behind the server, and a gateway of a carrier: caller numbers and emergency calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_tests::baresip::{Baresip, Phone, end, with_users};
use strowger_tests::port;
use strowger_tests::program::{BARESIP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{field, fields, request_uri, respond};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(15);

/// Opens the wire of a gateway at this address.
pub(crate) fn gateway(server: &Server, at: SocketAddr) -> Wire {
    Wire::connect_from(Udp, at, server.address(Udp), None).expect("the port is free")
}

/// Starts a server with this gateway; returns the wire of the gateway, too.
fn site(lines: &str) -> (Server, Wire) {
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 61)), port::free());
    let server = with_users(Setup::on(&[Udp]).with(&lines.replace("GATEWAY", &format!("sip:{at}"))));
    let wire = gateway(&server, at);
    (server, wire)
}

fn alice(server: &Server, password: &str) -> Baresip {
    Baresip::start(&Phone {
        user: "alice",
        domain: "example.org",
        password,
        server: server.address(Udp),
        outbound_name: None,
        transport: "udp",
        authority: None,
        answers: false,
        namespace: None,
        listen: end(),
    })
}

/// Baresip dials; the gateway gets the call and refuses it.
fn dials(phone: &mut Baresip, carrier: &mut Wire, uri: &str) -> Vec<u8> {
    phone.order("dial", uri);
    let got = carrier.request("INVITE", SOON).expect("the gateway gets the call");
    carrier.send(&respond(&got, 603, "carrier", &[])).expect("loopback");
    phone.expect("CALL_CLOSED", SOON);
    got
}

#[test]
fn a_carrier_sees_the_number_of_the_account() {
    if !have(&[BARESIP]) {
        return;
    }
    let (server, mut carrier) = site(
        "[[set]]\nname = \"numbers\"\nentries = { alice = \"+49301234560\" }\n\
         [[rule]]\nname = \"out\"\nwhen = \"authenticated and exists number\"\nto = [\"GATEWAY\"]\nidentity = \"numbers\"",
    );
    let mut phone = alice(&server, "secret-of-alice");
    phone.registered(SOON);
    let got = dials(&mut phone, &mut carrier, "sip:+4940123@example.org");
    assert!(request_uri(&got).starts_with("sip:+4940123@example.org"));
    assert_eq!(fields(&got, "P-Asserted-Identity"), ["<sip:+49301234560@example.org>"]);
    assert!(field(&got, "From").is_some_and(|from| from.contains("<sip:alice@example.org>")));
}

#[test]
fn a_telephone_that_is_banned_calls_for_help() {
    if !have(&[BARESIP]) {
        return;
    }
    let (server, mut carrier) = site(
        "ban.exempt = []\nban.failures = 1\nemergency.numbers = [\"112\"]\nemergency.target = \"GATEWAY\"\n\
         emergency.identity = \"+49301234560\"",
    );
    let mut phone = alice(&server, "not the password");
    server.log_with("source banned");
    let got = dials(&mut phone, &mut carrier, "sip:112@example.org");
    assert!(request_uri(&got).starts_with("sip:112@example.org"));
    assert_eq!(fields(&got, "P-Asserted-Identity"), ["<sip:+49301234560@example.org>"]);
    server.log_with("emergency call");
}
