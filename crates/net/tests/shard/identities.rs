//! Replacement of certificates, keys and authorities while connections are open.

use crate::authority::{Authority, Client, accept, read, secure};
use crate::echo::{bounds, settings};
use crate::relay::{listener, message, start};
use crate::streams::{ask, counted, expect, refusing, udp};
use rustls::ALL_VERSIONS;
use rustls::version::{TLS12, TLS13};
use std::io::Write;
use std::time::Duration;
use strowger_core::Transport::{Tcp, Tls, Udp};
use strowger_net::tls::{self, Identities};
use strowger_net::{Bounds, Listener, NetSettings};

#[test]
fn a_renewed_certificate_is_shown_to_the_next_connection_and_an_old_connection_goes_on() {
    for (shards, version) in [(1, &TLS12), (1, &TLS13), (3, &TLS13)] {
        let authority = Authority::new();
        let certificate = authority.issue("own", &["a.test"]);
        let listeners = vec![listener(Udp, "127.0.0.1:0"), secure(&[&certificate])];
        let node = start(settings(shards), listeners.clone());
        let (address, client) = (node.handle().addresses()[1], Client::new(&[version], None));
        let before = read(&certificate);
        let mut old = client.connect(address, Some("a.test"));
        assert_eq!(old.exchange().unwrap(), before);
        for _ in 0..3 {
            let mut again = client.connect(address, Some("a.test"));
            assert!(again.exchange().unwrap() == before && again.resumed(), "{version:?} sessions are resumed");
        }
        // The new files alone have no effect.
        authority.issue("own", &["a.test"]);
        assert_eq!(client.connect(address, Some("a.test")).exchange().unwrap(), before);
        node.handle().set_identities(Identities::load(&listeners, &tls::Client::default()).unwrap());
        let renewed = read(&certificate);
        assert_ne!(renewed, before);
        // A session of the earlier identity is not resumed: the handshake is a full one.
        let mut next = client.connect(address, Some("a.test"));
        assert!(next.exchange().unwrap() == renewed && !next.resumed(), "{version:?} with {shards} shards");
        let mut again = client.connect(address, Some("a.test"));
        assert!(again.exchange().unwrap() == renewed && again.resumed());
        for connection in [&mut old, &mut next, &mut again] {
            connection.exchange().expect("it goes on");
        }
        assert_eq!(node.handle().total().handshakes_failed, 0);
    }
}

#[test]
fn a_file_that_cannot_be_used_leaves_everything_as_it_is() {
    let authority = Authority::new();
    let [certificate, other] = ["own", "other"].map(|file| authority.issue(file, &["a.test"]));
    let listeners = vec![secure(&[&certificate]), listener(Tcp, "127.0.0.1:0")];
    let node = start(settings(1), listeners.clone());
    let (address, client) = (node.handle().addresses()[0], Client::new(ALL_VERSIONS, None));
    let mut old = client.connect(address, None);
    let shown = old.exchange().unwrap();
    let wrong = tls::Certificate::new(&certificate.chain, &other.key);
    let nowhere = authority.file("nowhere");
    let demanding = |file| {
        let server = tls::Server { client_authorities: Some(file), ..tls::Server::new(certificate.clone()) };
        Listener { tls: Some(server), ..listeners[0].clone() }
    };
    let trusting = tls::Client { authorities: Some(nowhere.clone()), ..tls::Client::default() };
    let showing = tls::Client { certificate: Some(wrong.clone()), ..tls::Client::default() };
    for (first, client, file) in [
        (secure(&[&wrong]), tls::Client::default(), &wrong.key),
        (demanding(nowhere.clone()), tls::Client::default(), &nowhere),
        (demanding(certificate.key.clone()), tls::Client::default(), &certificate.key),
        (listeners[0].clone(), trusting, &nowhere),
        (listeners[0].clone(), showing, &wrong.key),
    ] {
        let error = Identities::load(&[first, listeners[1].clone()], &client).expect_err("it is refused").to_string();
        assert!(error.contains(&*file.to_string_lossy()), "{error}");
    }
    old.exchange().expect("it goes on");
    let mut next = client.connect(address, None);
    assert!(next.exchange().unwrap() == shown && next.resumed());
}

#[test]
#[should_panic(expected = "the identities are of other listeners")]
fn identities_of_other_listeners_are_refused() {
    let node = start(settings(1), vec![listener(Tcp, "127.0.0.1:0")]);
    let others = [listener(Tcp, "127.0.0.1:0"), listener(Tcp, "127.0.0.1:0")];
    node.handle().set_identities(Identities::load(&others, &tls::Client::default()).unwrap());
}

/// A client is asked for a certificate of one authority from one handshake to the next, then of another one, then for
/// none.
#[test]
fn clients_are_judged_by_the_authorities_in_force() {
    for (shards, version) in [(1, &TLS12), (1, &TLS13), (3, &TLS13)] {
        let (authority, another) = (Authority::new(), Authority::new());
        let own = authority.issue("own", &["a.test"]);
        let node = start(settings(shards), vec![secure(&[&own])]);
        let address = node.handle().addresses()[0];
        let demand = |of: Option<&Authority>| {
            let client_authorities = of.map(|of| of.file("authority"));
            let server = tls::Server { client_authorities, ..tls::Server::new(own.clone()) };
            let listener = Listener { tls: Some(server), ..listener(Tls, "127.0.0.1:0") };
            node.handle().set_identities(Identities::load(&[listener], &tls::Client::default()).unwrap());
        };
        let nameless = Client::new(&[version], None);
        let [ours, theirs] =
            [&authority, &another].map(|of| Client::new(&[version], Some(&of.issue("client", &["client.test"]))));
        // Each client has sessions to resume.
        let admitted = |expected: [bool; 3]| {
            for (client, expected) in [&nameless, &ours, &theirs].into_iter().zip(expected) {
                let mut connection = client.connect(address, None);
                let came = connection.exchange();
                assert_eq!(came.is_ok(), expected, "{version:?} with {shards} shards: {came:?}");
                if expected {
                    let mut again = client.connect(address, None);
                    assert!(again.exchange().is_ok() && again.resumed() && !connection.resumed());
                }
            }
        };
        admitted([true, true, true]);
        let mut standing: Vec<_> = [&nameless, &ours, &theirs].map(|client| client.connect(address, None)).into();
        standing.iter_mut().for_each(|connection| drop(connection.exchange().unwrap()));
        demand(Some(&authority));
        admitted([false, true, false]);
        standing.push(ours.connect(address, None));
        standing[3].exchange().unwrap();
        demand(Some(&another));
        admitted([false, false, true]);
        demand(None);
        admitted([true, true, true]);
        for connection in &mut standing {
            connection.exchange().expect("what stands goes on");
        }
    }
}

#[test]
fn servers_are_judged_by_the_authorities_in_force() {
    for shards in [1, 3] {
        let (authority, another) = (Authority::new(), Authority::new());
        let [own, other] = [&authority, &another].map(|of| of.issue("own", &["localhost"]));
        let far = start(settings(1), vec![secure(&[&own]), secure(&[&other])]);
        let [ours, theirs] = far.handle().addresses() else { panic!("two listeners") };
        let listeners = vec![listener(Udp, "127.0.0.1:0")];
        let near = start(NetSettings { tls: authority.trust(), ..settings(shards) }, listeners.clone());
        let mut call = 0;
        let mut reaches = |to| {
            call += 1;
            let text = message(&format!("TO tls@localhost {to}"), &format!("call {call}"), 0);
            // A new socket is used, because the socket of an earlier call gets a report of the end of its connection.
            ask(&udp(near.handle().addresses()[0]), &text).starts_with("AT")
        };
        assert!(reaches(ours) && !reaches(theirs));
        near.handle().set_identities(Identities::load(&listeners, &another.trust()).unwrap());
        // The open connection continues, though the authority of its server is no longer trusted.
        assert!(reaches(theirs) && reaches(ours));
        assert_eq!(near.handle().total().connected, 2);
        // The client does not make the connection again, and resumes none of its sessions.
        far.handle().set_bounds(Bounds { idle_timeout: Duration::from_millis(50), ..bounds() });
        counted(&near, |t| t.tls_connections, 0);
        far.handle().set_bounds(bounds());
        assert!(!reaches(ours));
        near.handle().set_identities(Identities::load(&listeners, &authority.trust()).unwrap());
        assert!(reaches(ours));
        let total = near.handle().total();
        assert_eq!((total.connected, total.tls_resumed, total.handshakes_failed), (3, 0, 2));
    }
}

/// A connection may serve another address of its server (RFC 5923) only if the server was verified when the connection was made, with the identities
/// of that time.
#[test]
fn a_server_that_was_not_verified_does_not_stand_for_another_address() {
    let authority = Authority::new();
    let own = authority.issue("own", &["localhost"]);
    let any = tls::Client { unverified: true, ..tls::Client::default() };
    for (at_first, later, is_believed) in [(any.clone(), authority.trust(), false), (authority.trust(), any, true)] {
        let far = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners = vec![listener(Udp, "127.0.0.1:0")];
        let near = start(NetSettings { tls: at_first, ..settings(1) }, listeners.clone());
        let (held, closed) = refusing();
        let to = far.local_addr().unwrap();
        let caller = udp(near.handle().addresses()[0]);
        caller.send(message(&format!("TO tls@localhost {to}"), "1", 0).as_bytes()).unwrap();
        let mut server = accept(&far, &own);
        let first = message(&format!("AT tls@localhost {to}"), "1", 0);
        expect(&mut server, first.as_bytes());
        near.handle().set_identities(Identities::load(&listeners, &later).unwrap());
        let alias = message(&format!("ALIAS {closed}"), "2", 0);
        server.write_all(alias.as_bytes()).unwrap();
        server.flush().unwrap();
        expect(&mut server, alias.as_bytes());
        let second = message(&format!("TO tls@localhost {closed}"), "3", 0);
        if is_believed {
            caller.send(second.as_bytes()).unwrap();
            expect(&mut server, second.replacen("TO", "AT", 1).as_bytes());
        } else {
            assert!(ask(&udp(near.handle().addresses()[0]), &second).starts_with("FAILED"));
        }
        drop(held);
    }
}

/// The own certificate for peers that ask for one is replaced too.
#[test]
fn the_certificate_that_we_show_as_a_client_is_the_one_in_force() {
    let authority = Authority::new();
    let own = authority.issue("own", &["localhost"]);
    let mut demanding = secure(&[&own]);
    demanding.tls.as_mut().unwrap().client_authorities = Some(authority.file("authority"));
    let far = start(settings(1), vec![demanding]);
    let to = far.handle().addresses()[0];
    let listeners = vec![listener(Udp, "127.0.0.1:0")];
    let near = start(NetSettings { tls: authority.trust(), ..settings(1) }, listeners.clone());
    let socket = udp(near.handle().addresses()[0]);
    let text = |call: &str| message(&format!("TO tls@localhost {to}"), call, 0);
    // In TLS 1.3 the refusal follows the handshake: the message may have been sent.
    assert!(!ask(&socket, &text("1")).starts_with("AT"));
    counted(&near, |t| t.tls_connections, 0);
    let certificate = Some(authority.issue("client", &["client.test"]));
    let client = tls::Client { certificate, ..authority.trust() };
    near.handle().set_identities(Identities::load(&listeners, &client).unwrap());
    assert!(ask(&socket, &text("2")).starts_with("AT"));
}
