//! Every configuration of `examples/` is valid, and a server with it starts and answers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use strowger_lab::backend::{MariaDb, subscribers};
use strowger_media::wave::{Coding, WaveFormat};
use strowger_tests::account::challenged;
use strowger_tests::binary::strowger;
use strowger_tests::call::exchange;
use strowger_tests::certificate::Certificate;
use strowger_tests::control::done;
use strowger_tests::dialog::invite;
use strowger_tests::port;
use strowger_tests::process::Process;
use strowger_tests::program::{MARIADB, MARIADBD, have, lacking};
use strowger_tests::server::{Server, Setup, loopback};
use strowger_tests::text::{self, Request};
use strowger_tests::wire::{Transport, Wire};
use tempfile::TempDir;

use crate::caller_numbers::gateway;
use crate::rules::{LIMIT, taker};

fn examples() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let files = std::fs::read_dir(folder).expect("there is a folder of examples").flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    files
}

/// Writes the example unchanged, with the certificates and data files that it names.
fn laid_out(file: &Path, text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let certificate = Certificate::in_folder(folder.path(), &["sip.example.org"]);
    std::fs::create_dir(folder.path().join("tls")).expect("the folder can be written");
    std::fs::copy(&certificate.chain, folder.path().join("tls/fullchain.pem")).expect("the folder can be written");
    std::fs::copy(&certificate.key, folder.path().join("tls/privkey.pem")).expect("the folder can be written");
    let data = file.parent().expect("it lies in a folder").join("data");
    std::fs::create_dir(folder.path().join("data")).expect("the folder can be written");
    for set in std::fs::read_dir(data).expect("there is a folder of data").flatten() {
        std::fs::copy(set.path(), folder.path().join("data").join(set.file_name())).expect("the folder can be written");
    }
    let to = folder.path().join(file.file_name().expect("a file has a name"));
    std::fs::write(&to, text).expect("the folder can be written");
    (folder, to)
}

#[test]
fn every_example_is_right() {
    for file in examples() {
        let text = std::fs::read_to_string(&file).expect("an example can be read");
        let (_folder, at) = laid_out(&file, &text);
        for words in [&["check"][..], &["serve", "--check", "--config"]] {
            let output = Command::new(strowger()).args(words).arg(&at).output().expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{words:?} {}: {said}", file.display());
        }
    }
}

/// Returns the configurations in this document, each with the line where it begins.
fn shown_in(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (at, line) in text.lines().enumerate() {
        match line.trim() {
            "```toml" => {
                is_inside = true;
                blocks.push((at + 2, String::new()));
            }
            "```" => is_inside = false,
            _ if is_inside => {
                let (_, block) = blocks.last_mut().expect("one has begun");
                *block += &format!("{line}\n");
            }
            _ => (),
        }
    }
    blocks
}

/// Readers copy the examples. So each example is used unchanged, except for the domain, the certificates and the files
/// that a reader must provide.
#[test]
fn every_example_of_a_document_is_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let documents = std::fs::read_dir(root.join("docs")).expect("there is a folder of documents").flatten();
    let mut documents: Vec<PathBuf> = documents.map(|entry| entry.path()).collect();
    documents.retain(|file| file.extension().is_some_and(|end| end == "md"));
    documents.push(root.join("README.md"));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let certificate = Certificate::in_folder(folder.path(), &["sip.example.org"]);
    std::fs::write(folder.path().join("carriers.csv"), "prefix,carrier\n49,west\n4930,berlin\n")
        .expect("it can be written");
    let mut sound = Vec::new();
    WaveFormat { coding: Coding::Pcm16, channels: 1, rate: 8_000 }.write_header(320, &mut sound);
    sound.extend([0; 320]);
    std::fs::write(folder.path().join("closed.wav"), sound).expect("it can be written");
    std::fs::create_dir(folder.path().join("recordings")).expect("it can be made");
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in documents {
        let text = std::fs::read_to_string(&file).expect("a document can be read");
        for (line, block) in shown_in(&text) {
            seen += 1;
            // Experiments of the laboratory have a separate check.
            let is_experiment = block.contains("[[system]]");
            let mut config = String::new();
            for line in block.lines() {
                let key = line.split('=').next().unwrap_or_default().trim();
                let own = match key.rsplit('.').next() {
                    Some("certificate") => Some(&certificate.chain),
                    Some("key") if line.contains(".pem") => Some(&certificate.key),
                    _ => None,
                };
                config += &own.map_or_else(|| line.to_owned(), |own| format!("{key} = {own:?}"));
                config += "\n";
            }
            if !is_experiment && !block.contains("domains =") && !block.contains("[[domain]]") {
                config = format!("domains = [\"example.org\"]\n{config}");
            }
            if !is_experiment && !block.contains("certificate") {
                config += &format!("[tls]\ncertificate = {:?}\nkey = {:?}\n", certificate.chain, certificate.key);
            }
            // The folder of an installed server.
            let config = config.replace("/var/lib/strowger", &folder.path().display().to_string());
            let at = folder.path().join("strowger.toml");
            std::fs::write(&at, config).expect("it can be written");
            let check = if is_experiment { &["lab", "check"][..] } else { &["check"] };
            let output = Command::new(strowger()).args(check).arg(&at).output().expect("the program runs");
            if !output.status.success() {
                wrong.push(format!("{}:{line}: {}", file.display(), String::from_utf8_lossy(&output.stderr)));
            }
        }
    }
    assert!(seen >= 15, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Starts a database server with the subscribers of the examples; `None` if it is not installed.
fn subscribers() -> Option<(MariaDb, TempDir)> {
    if !have(&[MARIADBD, MARIADB]) {
        return None;
    }
    if !Path::new(subscribers::KAMAILIO_TABLES).is_dir() {
        lacking("the tables of Kamailio are missing: apt-get install kamailio-mysql-modules");
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let database = MariaDb::start(folder.path()).expect("it starts");
    subscribers::prepare(&database, subscribers::USERS).expect("the tables of Kamailio");
    Some((database, folder))
}

/// Starts an example as a server of this machine alone; `changes` replace parts of its text.
pub(crate) fn on_loopback(name: &str, changes: &[(&str, &str)]) -> Server {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    let mut text = std::fs::read_to_string(&file).expect("an example can be read");
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    let at = port::free_address();
    let text =
        text.replace("\"0.0.0.0\"", "\"127.0.0.1\"").replace("\nport = 5060\n", &format!("\nport = {}\n", at.port()));
    // The file has all settings itself.
    Setup::tables(&[(Transport::Udp, at)]).with("# store.database, log.level").with(&text).start()
}

/// Returns the address of a gateway on loopback, with a free port.
pub(crate) fn beside(last: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), port::free())
}

/// Registers a phone of the user alice of a domain; returns it with its contact.
pub(crate) fn phone_of_alice(server: &Server, domain: &str) -> (Wire, String) {
    server.add_user(&format!("alice@{domain}"), "secret");
    let mut phone = server.connect(Transport::Udp);
    let contact = format!("sip:alice@{}", phone.local());
    let register = Request::register("alice", domain, &contact, "udp", phone.local());
    let register = challenged(&mut phone, &register, "alice", "secret");
    assert_eq!(text::status(&exchange(&mut phone, &register)), Some(200));
    (phone, contact)
}

#[test]
fn the_trunk_has_two_gateways_and_bounds_its_calls() {
    let at = [33, 34].map(beside);
    let gateways = at.map(|at| format!("sip:{at}"));
    let server = on_loopback(
        "trunk.toml",
        &[
            ("sip:192.0.2.33:5060", &gateways[0]),
            ("sip:192.0.2.34:5060", &gateways[1]),
            ("[\"192.0.2.33\", \"192.0.2.34\"]", "[\"127.0.0.33\", \"127.0.0.34\"]"),
            ("most = 20", "most = 1"),
        ],
    );
    let mut gateways = at.map(|at| gateway(&server, at));
    let (mut phone, contact) = phone_of_alice(&server, "office.example.org");
    // Outgoing: one call to each gateway, which accepts one, and no third one.
    let mut rings = Vec::new();
    for n in 0..3 {
        let mut call = invite("sip:0049301234@office.example.org", &phone);
        call.from = "<sip:alice@office.example.org>;tag=1".into();
        let call = challenged(&mut phone, &call, "alice", "secret");
        phone.send(&call.bytes()).expect("loopback");
        if n == 2 {
            let answer = phone.final_response(LIMIT).expect("an answer");
            assert_eq!(text::status(&answer), Some(503));
            phone.send(&call.ack(&answer).bytes()).expect("loopback");
            continue;
        }
        let (place, got) = taker(&mut gateways, "INVITE");
        assert_eq!((place, text::request_uri(&got).as_str()), (n, "sip:+49301234@office.example.org"));
        assert_eq!(text::fields(&got, "P-Asserted-Identity"), ["<sip:+49301234560@office.example.org>"]);
        gateways[place].send(&text::respond(&got, 180, "g", &[])).expect("loopback");
        rings.push((call, got));
    }
    // An emergency call needs no channel and no password.
    let mut call = invite("sip:112@office.example.org", &phone);
    call.from = "<sip:alice@office.example.org>;tag=2".into();
    phone.send(&call.bytes()).expect("loopback");
    let (place, got) = taker(&mut gateways, "INVITE");
    assert_eq!((place, text::request_uri(&got).as_str()), (0, "sip:112@office.example.org"));
    assert_eq!(text::fields(&got, "P-Asserted-Identity"), ["<sip:+49301234560@office.example.org>"]);
    gateways[place].send(&text::respond(&got, 603, "g", &[])).expect("loopback");
    let answer = phone.final_response(LIMIT).expect("an answer");
    assert_eq!(text::status(&answer), Some(603));
    phone.send(&call.ack(&answer).bytes()).expect("loopback");
    let limits = done(&server, &["limits"]);
    assert!(limits.contains("trunk") && limits.contains("channels"), "{limits}");
    // After the end of one there is a free channel, and when the first gateway fails the second is used.
    for (place, (call, got)) in rings.iter().enumerate() {
        gateways[place].send(&text::respond(got, 486, "g", &[])).expect("loopback");
        let answer = phone.final_response(LIMIT).expect("an answer");
        phone.send(&call.ack(&answer).bytes()).expect("loopback");
    }
    // A national number.
    let mut call = invite("sip:0301234@office.example.org", &phone);
    call.from = "<sip:alice@office.example.org>;tag=1".into();
    let call = challenged(&mut phone, &call, "alice", "secret");
    phone.send(&call.bytes()).expect("loopback");
    for (expected, status) in [(0, 503), (1, 404)] {
        let (place, got) = taker(&mut gateways, "INVITE");
        assert_eq!((place, text::request_uri(&got).as_str()), (expected, "sip:+49301234@office.example.org"));
        gateways[place].send(&text::respond(&got, status, "g", &[])).expect("loopback");
    }
    let answer = phone.final_response(LIMIT).expect("an answer");
    assert_eq!(text::status(&answer), Some(404));
    phone.send(&call.ack(&answer).bytes()).expect("loopback");
    // Incoming: to the user of the number, and to no other target.
    let call = invite("sip:+49301234560@office.example.org", &gateways[0]);
    gateways[0].send(&call.bytes()).expect("loopback");
    let got = phone.request("INVITE", LIMIT).expect("it rings");
    assert_eq!(text::request_uri(&got), contact);
    phone.send(&text::respond(&got, 486, "p", &[])).expect("loopback");
    let answer = gateways[0].final_response(LIMIT).expect("an answer");
    gateways[0].send(&call.ack(&answer).bytes()).expect("loopback");
    let call = invite("sip:+49999@office.example.org", &gateways[0]);
    gateways[0].send(&call.bytes()).expect("loopback");
    assert_eq!(gateways[0].final_response(LIMIT).as_deref().and_then(text::status), Some(404));
    // An unauthenticated caller cannot call out.
    let mut stranger = server.connect(Transport::Udp);
    let call = invite("sip:0049301234@office.example.org", &stranger);
    stranger.send(&call.bytes()).expect("loopback");
    let answer = stranger.final_response(LIMIT).as_deref().and_then(text::status);
    assert!(matches!(answer, Some(404 | 407 | 480)), "{answer:?}");
}

#[test]
fn the_load_balancer_takes_turns_and_leaves_out_what_is_silent() {
    let at = [41, 42, 43].map(beside);
    let servers = at.map(|at| format!("sip:{at}"));
    let server = on_loopback(
        "load-balancer.toml",
        &[
            ("sip:192.0.2.41:5060", &servers[0]),
            ("sip:192.0.2.42:5060", &servers[1]),
            ("sip:192.0.2.43:5060", &servers[2]),
            ("\"192.0.2.0/28\"", "\"127.0.0.1\""),
        ],
    );
    let mut servers = at.map(|at| gateway(&server, at));
    let mut peer = server.connect(Transport::Udp);
    let mut takes = |servers: &mut [Wire]| {
        let call = invite("sip:4930@example.net", &peer);
        peer.send(&call.bytes()).expect("loopback");
        let (place, got) = taker(servers, "INVITE");
        servers[place].send(&text::respond(&got, 486, "s", &[])).expect("loopback");
        let answer = peer.final_response(LIMIT).expect("an answer");
        assert_eq!(text::status(&answer), Some(486));
        peer.send(&call.ack(&answer).bytes()).expect("loopback");
        place
    };
    let turns: Vec<usize> = (0..6).map(|_| takes(&mut servers)).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    // The first becomes silent: one call waits for it, the others bypass it.
    let [silent, rest @ ..] = &mut servers;
    let turns: Vec<usize> = (0..6).map(|_| takes(rest)).collect();
    assert_eq!(turns, [0, 0, 1, 0, 0, 1]);
    let mut asked = std::collections::BTreeSet::new();
    while let Some(got) = silent.request("INVITE", Duration::from_millis(20)) {
        asked.insert(text::field(&got, "Call-ID"));
    }
    assert_eq!(asked.len(), 1, "{asked:?}");
    // Other callers are refused.
    let mut stranger =
        Wire::connect_from(Transport::Udp, beside(9), server.address(Transport::Udp), None).expect("loopback");
    let call = invite("sip:4930@example.net", &stranger);
    stranger.send(&call.bytes()).expect("loopback");
    let answer = stranger.final_response(LIMIT).as_deref().and_then(text::status);
    assert!(matches!(answer, Some(403 | 407)), "{answer:?}");
}

#[test]
fn the_redirect_server_says_where_users_and_numbers_are() {
    let server = on_loopback("redirect.toml", &[("\"192.0.2.0/28\"", "\"127.0.0.7\"")]);
    let (mut phone, contact) = phone_of_alice(&server, "sip.example.org");
    let from = |last| {
        Wire::connect_from(Transport::Udp, beside(last), server.address(Transport::Udp), None).expect("loopback")
    };
    let (mut peer, mut other) = (from(7), from(9));
    let asks = |wire: &mut Wire, uri: &str| {
        let call = invite(uri, wire);
        wire.send(&call.bytes()).expect("loopback");
        let answer = wire.final_response(LIMIT).expect("an answer");
        wire.send(&call.ack(&answer).bytes()).expect("loopback");
        (text::status(&answer).unwrap_or_default(), text::fields(&answer, "Contact").join(", "))
    };
    let (status, places) = asks(&mut peer, "sip:alice@sip.example.org");
    assert!(status == 302 && places.contains(&contact), "{status} {places}");
    let (status, places) = asks(&mut peer, "sip:+4930123@sip.example.org");
    let (first, second) = (places.find("sip:+4930123@192.0.2.33:5060"), places.find("sip:+4930123@192.0.2.34:5060"));
    assert!(status == 300 && first.is_some() && first < second && places.contains("q="), "{status} {places}");
    for (uri, expected) in [("sip:bob@sip.example.org", 404), ("sip:alice@elsewhere.example.net", 403)] {
        assert_eq!(asks(&mut peer, uri), (expected, String::new()), "{uri}");
    }
    assert_eq!(asks(&mut other, "sip:alice@sip.example.org"), (403, String::new()));
    assert!(phone.request("INVITE", Duration::from_millis(50)).is_none(), "a call went through the server");
}

#[test]
fn a_server_starts_with_every_example() {
    let mut database = None;
    for file in examples() {
        let text = std::fs::read_to_string(&file).expect("an example can be read");
        // Fixed ports would collide; each port in the example is replaced by a free one.
        let mut ports: BTreeMap<u16, u16> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let quoted = line.split('"').filter_map(|part| part.rsplit_once(':')?.1.parse().ok());
            let alone = line.strip_prefix("port = ").and_then(|port| port.trim().parse().ok());
            for port in quoted.chain(alone) {
                ports.entry(port).or_insert_with(port::free);
            }
        }
        assert!(!ports.is_empty(), "{} names no port", file.display());
        let lines = text.lines().map(|line| {
            let mut line = line.to_owned();
            for (from, to) in &ports {
                line = line.replace(&format!(":{from}\""), &format!(":{to}\""));
                if line == format!("port = {from}") {
                    line = format!("port = {to}");
                }
            }
            // Reachable only from this machine.
            line.replace("\"0.0.0.0\"", "\"127.0.0.1\"") + "\n"
        });
        let mut text = lines.collect::<String>();
        if text.lines().any(|line| line.starts_with("subscribers = ")) {
            database = database.or_else(subscribers);
            let Some((database, _)) = &database else { continue };
            // The test's database listens elsewhere than the one in the example, on a port that was taken for one of
            // the server's.
            let urls = |line: &str| match line.split_once(" = \"mysql://") {
                Some((key, _)) => format!("{key} = \"{}\"\n", database.url()),
                None => format!("{line}\n"),
            };
            text = text.lines().map(urls).collect();
        }
        let (folder, at) = laid_out(&file, &text);
        if text.contains("to = \"sql\"") {
            let made =
                Command::new(strowger()).args(["db", "init", "--config"]).arg(&at).output().expect("the program runs");
            assert!(made.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&made.stderr));
        }
        let mut command = Command::new(strowger());
        command.args(["serve", "--config"]).arg(&at).current_dir(folder.path());
        let mut server = Process::start("strowger", folder.path(), &mut command);
        server.wait_for("\nready", 1, Duration::from_secs(20));
        let log = server.log();
        let mut answered = 0;
        for transport in [Transport::Udp, Transport::Tcp, Transport::Ws, Transport::Tls] {
            for port in ports.values() {
                if !log.contains(&format!("{:<4} 127.0.0.1:{port}", transport.name())) {
                    continue;
                }
                let authority = folder.path().join("authority.pem");
                let authority = transport.is_secure().then_some(authority.as_path());
                let mut wire = Wire::connect(transport, loopback(*port), authority).expect("it listens");
                let uri = format!("sip:127.0.0.1:{port};transport={}", transport.name());
                wire.send(&Request::new("OPTIONS", &uri, transport.name(), wire.local()).bytes()).expect("it reads");
                let answer = wire.final_response(Duration::from_secs(5)).expect("it answers");
                // If a rule says so, a request without a user is refused, an OPTIONS too.
                let refused = text.contains("when = \"not exists request.user\"\nanswer = 484");
                let expected = if refused { 484 } else { 200 };
                assert_eq!(text::status(&answer), Some(expected), "{}", String::from_utf8_lossy(&answer));
                answered += 1;
            }
        }
        assert!(answered >= 1, "{}: nobody asked:\n{log}", file.display());
    }
}
