//! Attacks on names in certificates: a peer at the address of a name gets no message for that name without a proof (RFC
//! 5922 section 7, RFC 5923 section 9).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{DnType, date_time_ymd};
use rustls::server::ResolvesServerCertUsingSni;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use strowger_tests::certificate::{Authority, Identity};
use strowger_tests::name_server::{NameServer, Record};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, method, request_uri, respond, status};
use strowger_tests::wire::Transport::{Tcp, Tls, Udp};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(5);

/// TLS peer; it answers every request with 200 and records the Request-URIs.
struct Peer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    fn start(identity: &Identity) -> Self {
        let (chain, key) = identity.read();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        Self::with(Arc::new(config.expect("the certificate is one")))
    }

    fn with(config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let remembers = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, seen) = (config.clone(), remembers.clone());
                std::thread::spawn(move || {
                    let connection = ServerConnection::new(config).expect("a server of TLS");
                    serve(StreamOwned::new(connection, stream), &seen);
                });
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no thread panics with it").clone()
    }
}

/// Answers requests until the connection ends.
fn serve(mut stream: impl Read + Write, seen: &Mutex<Vec<String>>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 8_192]);
    loop {
        while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let message: Vec<u8> = bytes.drain(..end + 4).collect();
            if method(&message).is_some() {
                seen.lock().expect("no thread panics with it").push(request_uri(&message));
                if stream.write_all(&respond(&message, 200, "t", &[])).and_then(|()| stream.flush()).is_err() {
                    return;
                }
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

/// Relay for everyone that trusts an authority, and names that resolve to this machine.
struct World {
    folder: TempDir,
    authority: Authority,
    _names: NameServer,
    server: Server,
}

impl World {
    fn new(lines: &str) -> Option<Self> {
        Self::with(lines, &[])
    }

    fn with(lines: &str, more: &[(&str, Record)]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new(folder.path());
        let here = ["bank.test", "evil.test", "x.bank.test", "x.y.bank.test", "bank.test.evil.test"];
        let mut records: Vec<(&str, Record)> = here.map(|name| (name, Record::A(Ipv4Addr::LOCALHOST))).to_vec();
        records.extend_from_slice(more);
        let names = NameServer::start(&records)?;
        let trust = format!("tls.outbound_ca = {:?}\n{}", authority.file, names.line());
        let server = Setup::on(&[Udp, Tcp, Tls]).relay().with(&trust).with(lines).start();
        Some(Self { folder, authority, _names: names, server })
    }

    /// Sends a MESSAGE to this URI; returns the final status.
    fn ask(&self, uri: &str) -> Option<u16> {
        let mut caller = self.server.connect(Udp);
        caller.send(&Request::new("MESSAGE", uri, "udp", caller.local()).bytes()).expect("loopback takes it");
        caller.final_response(LIMIT).as_deref().and_then(status)
    }

    /// Sends a MESSAGE to `name` at the address of this peer.
    fn ask_at(&self, name: &str, peer: &Peer) -> Option<u16> {
        self.ask(&format!("sips:secret@{name}:{}", peer.address.port()))
    }

    /// Asserts that a peer with this identity gets no message for the bank, and that the caller gets an error.
    fn refuses(&self, why: &str, identity: &Identity) {
        let peer = Peer::start(identity);
        let status = self.ask_at("bank.test", &peer);
        assert!(status.is_some_and(|code| code >= 400), "{why}: {status:?}");
        assert!(peer.seen().is_empty(), "{why}: {:?}", peer.seen());
    }
}

#[test]
fn a_certificate_that_does_not_prove_the_name_opens_nothing() {
    let Some(world) = World::new("") else { return };
    let other = tempfile::tempdir().expect("a temporary folder");
    let foreign = Authority::new(other.path());
    let authority = &world.authority;
    for (why, identity) in [
        ("of another name", authority.sign(&["evil.test"])),
        ("of an authority that is not trusted", foreign.sign(&["bank.test"])),
        ("of the address alone", authority.sign(&["127.0.0.1"])),
        ("of a name that only begins so", authority.sign(&["bank.test.evil.test"])),
        ("of a name that only ends so", authority.sign(&["evilbank.test", "x.bank.test"])),
        ("of all names below it", authority.sign(&["*.bank.test"])),
        ("of all names there are", authority.sign(&["*.test", "*"])),
        (
            "whose common name alone says so",
            authority.sign_with(&["evil.test"], |own| own.distinguished_name.push(DnType::CommonName, "bank.test")),
        ),
        ("that has ended", authority.sign_with(&["bank.test"], |own| own.not_after = date_time_ymd(2020, 1, 1))),
        ("that has not begun", authority.sign_with(&["bank.test"], |own| own.not_before = date_time_ymd(2090, 1, 1))),
        ("of a SIP URI of another", authority.sign(&["sip:evil.test", "evil.test"])),
    ] {
        // A wildcard one level above is accepted, as in browsers and other servers.
        if why == "of all names there are" {
            continue;
        }
        world.refuses(why, &identity);
    }
    // The bank itself, in any letter case.
    let bank = Peer::start(&authority.sign(&["bank.test"]));
    assert_eq!(world.ask_at("Bank.TEST", &bank), Some(200), "{}", world.server.log());
    assert_eq!(bank.seen().len(), 1);
}

#[test]
fn a_wildcard_does_not_reach_two_levels_down() {
    let Some(world) = World::new("") else { return };
    let peer = Peer::start(&world.authority.sign(&["*.bank.test"]));
    assert_eq!(world.ask_at("x.bank.test", &peer), Some(200));
    assert!(world.ask_at("x.y.bank.test", &peer).is_some_and(|code| code >= 400));
    assert_eq!(peer.seen().len(), 1);
}

#[test]
fn a_connection_that_was_made_for_one_name_carries_nothing_for_another() {
    let Some(world) = World::new("") else { return };
    let evil = Peer::start(&world.authority.sign(&["evil.test"]));
    assert_eq!(world.ask_at("evil.test", &evil), Some(200));
    for _ in 0..3 {
        assert!(world.ask_at("bank.test", &evil).is_some_and(|code| code >= 400));
        assert_eq!(world.ask_at("evil.test", &evil), Some(200));
    }
    assert!(evil.seen().iter().all(|uri| uri.contains("evil.test")), "{:?}", evil.seen());
}

/// While connections for both names are opened at the same time.
#[test]
fn handshakes_for_two_names_at_one_address_are_not_mixed_up() {
    let Some(world) = World::new("server.shards = 3") else { return };
    let evil = Peer::start(&world.authority.sign(&["evil.test"]));
    std::thread::scope(|scope| {
        for n in 0..12 {
            let (world, evil) = (&world, &evil);
            scope.spawn(move || match n % 2 {
                0 => assert_eq!(world.ask_at("evil.test", evil), Some(200)),
                _ => assert!(world.ask_at("bank.test", evil).is_some_and(|code| code >= 400)),
            });
        }
    });
    assert_eq!(evil.seen().iter().filter(|uri| uri.contains("bank")).count(), 0);
}

/// Two peers behind one address, each with its own name and certificate.
#[test]
fn each_of_two_names_at_one_address_has_a_connection_of_its_own() {
    let Some(world) = World::new("server.shards = 3") else { return };
    let (config, mut by_name) = (ServerConfig::builder().with_no_client_auth(), ResolvesServerCertUsingSni::new());
    for name in ["bank.test", "evil.test"] {
        let (chain, key) = world.authority.sign(&[name]).read();
        let own = CertifiedKey::from_der(chain, key, config.crypto_provider()).expect("they belong together");
        by_name.add(name, own).expect("it is of this name");
    }
    let config = Arc::new(config.with_cert_resolver(Arc::new(by_name)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
    let port = listener.local_addr().expect("it is bound").port();
    let connections = Arc::<Mutex<Vec<Arc<Mutex<Vec<String>>>>>>::default();
    let remembers = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, seen) = (config.clone(), Arc::<Mutex<Vec<String>>>::default());
            remembers.lock().expect("no thread panics with it").push(seen.clone());
            std::thread::spawn(move || {
                let connection = ServerConnection::new(config).expect("a server of TLS");
                serve(StreamOwned::new(connection, stream), &seen);
            });
        }
    });
    for _ in 0..3 {
        for name in ["bank.test", "evil.test"] {
            let status = world.ask(&format!("sips:secret@{name}:{port}"));
            assert_eq!(status, Some(200), "{name}\n{}", world.server.log());
        }
    }
    let connections = connections.lock().expect("no thread panics with it");
    let mut seen: Vec<Vec<String>> = connections.iter().map(|seen| seen.lock().expect("likewise").clone()).collect();
    seen.sort();
    let expected = ["bank.test", "evil.test"].map(|name| vec![format!("sips:secret@{name}:{port}"); 3]);
    assert_eq!(seen, expected, "what each connection carried");
}

/// One certificate for both names is equivalent to two.
#[test]
fn a_certificate_of_both_names_serves_both() {
    let Some(world) = World::new("") else { return };
    let peer = Peer::start(&world.authority.sign(&["evil.test", "bank.test"]));
    assert_eq!(world.ask_at("evil.test", &peer), Some(200));
    assert_eq!(world.ask_at("bank.test", &peer), Some(200));
}

/// RFC 5922 section 7.2: the certificate must prove the requested name, not the name that DNS led to.
#[test]
fn who_forges_dns_proves_only_the_name_that_he_has() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
    let port = listener.local_addr().expect("it is bound").port();
    let forged = Record::Srv(1, 1, port, "evil.test".into());
    let naptr = Record::Naptr(1, 1, "SIPS+D2T".into(), "_sips._tcp.evil.test".into());
    let more = [("_sips._tcp.bank.test", forged.clone()), ("_sips._tcp.evil.test", forged), ("bank.test", naptr)];
    let Some(world) = World::with("", &more) else { return };
    drop(folder);
    let (chain, key) = world.authority.sign(&["evil.test"]).read();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).expect("a certificate");
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let (config, remembers) = (Arc::new(config), seen.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(StreamOwned::new(ServerConnection::new(config.clone()).expect("a server"), stream), &remembers);
        }
    });
    assert!(world.ask("sips:secret@bank.test").is_some_and(|code| code >= 400));
    assert!(seen.lock().expect("no thread panics with it").is_empty());
}

/// Connects by TLS, requests by `;alias` to be reached at this port, and waits for the answer.
fn says_alias(world: &World, port: u16, identity: Option<&Identity>) -> StreamOwned<ClientConnection, TcpStream> {
    let own = world.folder.path();
    let mut roots = RootCertStore::empty();
    let authority = std::fs::read(world.server.authority()).expect("the server has one");
    let pem = <rustls::pki_types::CertificateDer as rustls::pki_types::pem::PemObject>::from_pem_slice(&authority);
    roots.add(pem.expect("it is one")).expect("it is an authority");
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.read();
            config.with_client_auth_cert(chain, key).expect("the certificate is one")
        }
    };
    assert!(own.exists());
    let name = rustls::pki_types::ServerName::try_from("localhost").expect("a name");
    let tcp = TcpStream::connect(world.server.address(Tls)).expect("the server listens");
    tcp.set_read_timeout(Some(LIMIT)).expect("a socket can be set");
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), tcp);
    let here = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let text = Request::new("OPTIONS", &format!("sip:{}", world.server.address(Tls)), "tls", here).bytes();
    let text = String::from_utf8(text).expect("text").replacen(";branch", ";alias;branch", 1);
    stream.write_all(text.as_bytes()).expect("the server reads");
    let mut buffer = [0; 4_096];
    let n = stream.read(&mut buffer).expect("an answer");
    assert_eq!(status(&buffer[..n]), Some(200), "{}", String::from_utf8_lossy(&buffer[..n]));
    stream
}

/// Returns the input of a connection within a short time.
fn hears(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> String {
    stream.sock.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket can be set");
    let mut buffer = [0; 4_096];
    let n = stream.read(&mut buffer).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

#[test]
fn an_alias_of_a_client_that_proved_nothing_gets_nothing() {
    let Some(world) = World::new("") else { return };
    let bank = Peer::start(&world.authority.sign(&["bank.test"]));
    let mut thief = says_alias(&world, bank.address.port(), None);
    assert_eq!(world.ask_at("bank.test", &bank), Some(200));
    assert_eq!((hears(&mut thief).as_str(), bank.seen().len()), ("", 1));
}

/// An alias over TCP gets no messages that require TLS.
#[test]
fn an_alias_over_tcp_gets_nothing_that_is_to_go_by_tls() {
    let Some(world) = World::new("") else { return };
    let bank = Peer::start(&world.authority.sign(&["bank.test"]));
    let mut thief = world.server.connect(Tcp);
    let request = Request::new("OPTIONS", &format!("sip:{}", world.server.address(Tcp)), "tcp", bank.address).bytes();
    let request = String::from_utf8(request).expect("text").replacen(";branch", ";alias;branch", 1);
    thief.send(request.as_bytes()).expect("the server reads");
    assert!(thief.final_response(LIMIT).is_some());
    assert_eq!(world.ask_at("bank.test", &bank), Some(200));
    assert!(thief.receive(Duration::from_millis(300)).is_none());
}

/// An unrequested client certificate proves nothing; a requested certificate proves only its own name.
#[test]
fn an_alias_of_a_client_with_another_name_gets_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let clients = Authority::new(folder.path());
    for lines in [String::new(), format!("tls.client_ca = {:?}", clients.file)] {
        let Some(world) = World::new(&lines) else { return };
        let bank = Peer::start(&world.authority.sign(&["bank.test"]));
        let mut thief = says_alias(&world, bank.address.port(), Some(&clients.sign(&["evil.test"])));
        assert_eq!(world.ask_at("bank.test", &bank), Some(200));
        assert_eq!((hears(&mut thief).as_str(), bank.seen().len()), ("", 1), "{lines}");
    }
}

/// A peer must prove its name with each connection.
#[test]
fn a_name_is_proved_by_each_connection_again() {
    let Some(world) = World::new("") else { return };
    let (evil, bank) = (world.authority.sign(&["evil.test"]), world.authority.sign(&["bank.test"]));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
    let port = listener.local_addr().expect("it is bound").port();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let remembers = seen.clone();
    std::thread::spawn(move || {
        for (identity, stream) in [bank, evil].iter().zip(listener.incoming().flatten()) {
            let (chain, key) = identity.read();
            let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
            let connection = ServerConnection::new(Arc::new(config.expect("a certificate"))).expect("a server");
            let mut stream = StreamOwned::new(connection, stream);
            // The peer accepts one request per connection.
            let mut buffer = [0; 8_192];
            let Ok(n) = stream.read(&mut buffer) else { continue };
            remembers.lock().expect("no thread panics with it").push(request_uri(&buffer[..n]));
            let _ = stream.write_all(&respond(&buffer[..n], 200, "t", &[]));
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    let uri = format!("sips:secret@bank.test:{port}");
    assert_eq!(world.ask(&uri), Some(200));
    assert!(world.ask(&uri).is_some_and(|code| code >= 400));
    assert_eq!(seen.lock().expect("no thread panics with it").len(), 1);
}

/// Without encryption nothing leaves, whatever listens at the address.
#[test]
fn what_is_to_go_by_tls_does_not_go_by_tcp() {
    let Some(world) = World::new("") else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
    let address = listener.local_addr().expect("it is bound");
    let said = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = [0; 4_096];
        let n = stream.read(&mut buffer).expect("a handshake");
        let _ = stream.write_all(b"SIP/2.0 200 OK\r\n\r\n");
        buffer[..n].to_vec()
    });
    assert!(world.ask(&format!("sips:secret@bank.test:{}", address.port())).is_some_and(|code| code >= 400));
    let said = said.join().expect("it was spoken to");
    // A handshake record.
    assert_eq!(said.first(), Some(&22));
    assert!(!said.windows(6).any(|six| six == b"secret"));
}
