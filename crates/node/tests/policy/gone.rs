//! Phones whose connection has ended since their registration.

use crate::site::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Sends a REGISTER of `user` over a connection of its own, with this Contact.
fn begin(site: &Site, user: &str, contact: &str) -> TcpStream {
    let phone = site.phone(user);
    let mut stream = TcpStream::connect(site.udp).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let text = phone.text(&phone.register_call("Expires: 600\n")).replace("SIP/2.0/UDP", "SIP/2.0/TCP");
    stream.write_all(text.replace(&format!("<sip:phone@{}>", phone.address), contact).as_bytes()).unwrap();
    stream
}

/// Sends a REGISTER as `begin` does, and returns the response.
fn register(site: &Site, user: &str, contact: &str) -> (TcpStream, Got) {
    let mut stream = begin(site, user, contact);
    let mut buffer = [0; 4096];
    let len = stream.read(&mut buffer).unwrap();
    (stream, Got(String::from_utf8_lossy(&buffer[..len]).into_owned()))
}

/// Closes the connection and waits until the server notices.
fn hang_up(site: &Site, stream: TcpStream) {
    let open = || site.server().handle().total().tcp_connections;
    let before = open();
    drop(stream);
    until("the closed connection is still there", || open() < before);
}

fn until(otherwise: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !is_so() {
        assert!(Instant::now() < end, "{otherwise}");
        std::thread::yield_now();
    }
}

#[test]
fn who_cannot_be_reached_any_more_is_not_available() {
    for shards in [1, 3] {
        let mut site = Site::start(&format!("server.shards = {shards}\nregistrar.authenticate = false"), &[]);
        let (stream, ok) = register(&site, "bob", "<sip:bob@10.44.44.44:5060;transport=tcp>");
        assert_eq!(ok.status(), 200, "{}", ok.0);
        hang_up(&site, stream);
        for restart in [false, true] {
            if restart {
                site.restart();
            }
            let caller = site.stranger();
            for method in ["INVITE", "MESSAGE"] {
                let got = caller.ask(&caller.call(method, "sip:bob@example.org"));
                assert_eq!(got.status(), 480, "{}", got.0);
            }
            assert_eq!(site.server().bindings(), 1, "it may connect again and refresh");
        }
    }
}

#[test]
fn the_other_phone_of_the_user_rings() {
    let site = Site::start("registrar.authenticate = false", &[]);
    let (stream, _) = register(&site, "bob", "<sip:bob@10.44.44.44:5060;transport=tcp>");
    let desk = site.phone("bob");
    assert_eq!(desk.ask(&desk.register_call("Expires: 600\n")).all("Contact").len(), 2);
    hang_up(&site, stream);
    let caller = site.stranger();
    caller.send(&caller.text(&caller.call("MESSAGE", "sip:bob@example.org")));
    desk.respond(&desk.next(), 486, "");
    assert_eq!(caller.answer().status(), 486);
}

#[test]
fn connections_that_ended_leave_their_places_to_others() {
    let site = Site::start("registrar.authenticate = false\nregistrar.max_contacts = 2", &[]);
    let contact = |n: u32| format!("<sip:tab{n}@10.44.44.44;transport=tcp>");
    let (first, _) = register(&site, "bob", &contact(1));
    let (second, ok) = register(&site, "bob", &contact(2));
    assert_eq!(ok.all("Contact").len(), 2);
    assert_eq!(register(&site, "bob", &contact(3)).1.status(), 403, "both are there");
    hang_up(&site, first);
    let (third, ok) = register(&site, "bob", &contact(3));
    assert_eq!(ok.status(), 200, "{}", ok.0);
    assert!(!ok.0.contains("tab1@") && ok.0.contains("tab2@") && ok.0.contains("tab3@"), "{}", ok.0);
    assert_eq!(site.server().bindings(), 2);
    drop((second, third));
}

/// The shard of the Call-ID receives the REGISTER after the shard of the connection has seen its end.
#[test]
fn a_connection_may_end_before_its_registration_is_worked_on() {
    let site = Site::start("server.shards = 3\nregistrar.authenticate = false\nregistrar.max_contacts = 1", &[]);
    let users: Vec<String> = (0..20).map(|n| format!("bob{n}")).collect();
    for user in &users {
        drop(begin(&site, user, "<sip:tab1@10.44.44.44;transport=tcp>"));
    }
    until("they do not register", || site.server().bindings() == users.len());
    until("connections stay", || site.server().handle().total().tcp_connections == 0);
    for user in &users {
        let (_stream, ok) = register(&site, user, "<sip:tab2@10.44.44.44;transport=tcp>");
        assert_eq!(ok.status(), 200, "nobody is reached by the first: {}", ok.0);
    }
}
