//! Devices of one user: assignment of bindings to devices, and the devices that a call reaches. With the default
//! configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_tests::account::challenged;
use strowger_tests::call::exchange;
use strowger_tests::dialog::invite;
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, fields, request_uri, respond, status};
use strowger_tests::wire::Transport::{self, Tcp, Udp};
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(5);
/// Longer than the delay of a message sent before another one that has arrived.
const AT_ONCE: Duration = Duration::from_millis(100);

fn start(transports: &[Transport]) -> Site {
    let server = Setup::on(transports).with("domains = [\"example.org\"]").site();
    server.add_user("bob@example.org", "bob");
    server
}

/// Registers bob's device with this Contact; returns the answer.
fn register(wire: &mut Wire, contact: &str, lines: &[&str]) -> Vec<u8> {
    let mut request = Request::register("bob", "example.org", "", wire.transport().name(), wire.local());
    request.headers[0] = format!("Contact: {contact}");
    request.headers.extend(lines.iter().map(ToString::to_string));
    let request = challenged(wire, &request, "bob", "bob");
    exchange(wire, &request)
}

/// Returns the Contact of a device at `local` with these parameters.
fn contact(local: SocketAddr, transport: Transport, parameters: &str) -> String {
    format!("<sip:bob@{local};transport={}>;expires=600{parameters}", transport.name())
}

#[test]
fn a_phone_that_starts_again_and_again_registers_each_time() {
    let server = start(&[Udp]);
    let instance = ";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000000000001>\"";
    let mut last = Vec::new();
    for _ in 0..14 {
        let mut wire = server.connect(Udp);
        // Nothing shows that the phone has left the earlier ports.
        let local = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), wire.local().port());
        last = register(&mut wire, &contact(local, Udp, instance), &[]);
        assert_eq!(status(&last), Some(200), "{}", String::from_utf8_lossy(&last));
        assert!(fields(&last, "Contact").iter().any(|bound| bound.contains(&local.to_string())));
    }
    assert_eq!(fields(&last, "Contact").len(), 10, "as many as registrar.max_contacts");
    // Another device of the same user replaces none.
    let mut wire = server.connect(Udp);
    let other = ";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000000000002>\"";
    let contact = contact(wire.local(), Udp, other);
    let answer = register(&mut wire, &contact, &[]);
    assert_eq!(status(&answer), Some(403), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn phones_with_one_private_address_behind_two_routers_ring_both() {
    let server = start(&[Udp]);
    let private: SocketAddr = "10.9.9.9:5060".parse().expect("an address");
    let mut phones = [2, 3].map(|host| server.connect_from(Udp, SocketAddr::from(([127, 0, 0, host], 0))));
    for (n, phone) in phones.iter_mut().enumerate() {
        let instance = format!(";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-00000000000{n}>\"");
        let answer = register(phone, &contact(private, Udp, &instance), &[]);
        assert_eq!((status(&answer), fields(&answer, "Contact").len()), (Some(200), n + 1));
    }
    let mut caller = server.connect(Udp);
    caller.send(&invite("sip:bob@example.org", &caller).bytes()).expect("the server takes messages");
    for phone in &mut phones {
        let got = phone.request("INVITE", SOON).expect("each of them rings");
        assert!(request_uri(&got).starts_with("sip:bob@10.9.9.9:5060"), "{}", request_uri(&got));
        phone.send(&respond(&got, 486, "bob", &[])).expect("the server takes messages");
    }
    assert_eq!(caller.final_response(SOON).map(|answer| status(&answer)), Some(Some(486)));
    // One of the devices unregisters.
    let instance = ";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000000000001>\"";
    let gone = contact(private, Udp, instance).replace("expires=600", "expires=0");
    let answer = register(&mut phones[1], &gone, &[]);
    let left = fields(&answer, "Contact");
    assert!(left.len() == 1 && left[0].contains("000000000000>"), "{left:?}");
}

#[test]
fn a_phone_with_two_flows_rings_once_and_by_the_other_when_one_is_gone() {
    let server = start(&[Udp, Tcp]);
    let instance = ";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000000000001>\"";
    let mut flows = [1, 2].map(|reg_id| {
        let mut wire = server.connect(Tcp);
        let parameters = format!("{instance};reg-id={reg_id}");
        let contact = contact(wire.local(), Tcp, &parameters).replace("sip:bob@", &format!("sip:flow{reg_id}@"));
        let answer = register(&mut wire, &contact, &["Supported: path, outbound"]);
        assert_eq!(fields(&answer, "Require"), ["outbound"], "{}", String::from_utf8_lossy(&answer));
        assert_eq!(fields(&answer, "Contact").len(), reg_id);
        wire
    });
    let mut caller = server.connect(Udp);
    let mut call = |flow: &mut Wire, user: &str| {
        caller.send(&invite("sip:bob@example.org", &caller).bytes()).expect("the server takes messages");
        let got = flow.request("INVITE", SOON).expect("it rings");
        // Each device is reached by the Contact that it registered.
        assert!(request_uri(&got).starts_with(&format!("sip:{user}@")), "{}", request_uri(&got));
        flow.send(&respond(&got, 486, "bob", &[])).expect("the server takes messages");
        assert_eq!(caller.final_response(SOON).map(|answer| status(&answer)), Some(Some(486)));
    };
    let [older, newer] = &mut flows;
    call(newer, "flow2");
    assert!(older.request("INVITE", AT_ONCE).is_none(), "it rings twice");
    let [mut older, newer] = flows;
    drop(newer);
    call(&mut older, "flow1");
}

#[test]
fn a_phone_that_does_not_know_flows_has_none() {
    let server = start(&[Tcp]);
    let instance = ";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000000000001>\"";
    let mut wire = server.connect(Tcp);
    let contact = contact(wire.local(), Tcp, &format!("{instance};reg-id=1"));
    let answer = register(&mut wire, &contact, &[]);
    assert_eq!(status(&answer), Some(200));
    assert_eq!(fields(&answer, "Require"), Vec::<String>::new());
    let bound = fields(&answer, "Contact");
    assert!(bound.len() == 1 && !bound[0].contains("reg-id"), "{bound:?}");
}
