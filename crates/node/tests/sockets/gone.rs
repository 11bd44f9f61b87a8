//! A phone whose connection has ended before its registration.

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

fn until(otherwise: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !is_so() {
        assert!(Instant::now() < end, "{otherwise}");
        std::thread::yield_now();
    }
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
