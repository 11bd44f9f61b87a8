//! Names that lead to servers (RFC 3263), at name servers that lack some records.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use strowger_tests::control::metric;
use strowger_tests::name_server::{A, NAPTR, NameServer, Record, SRV};
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::{Stopwatch, Took};
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport::{Tcp, Udp};

const LIMIT: Duration = Duration::from_secs(10);

/// Binds a UDP socket of a peer; returns its port too.
fn peer(address: Ipv4Addr) -> (UdpSocket, u16) {
    let socket = UdpSocket::bind((address, 0)).expect("a loopback address");
    socket.set_read_timeout(Some(LIMIT)).expect("a socket can be set");
    let port = socket.local_addr().expect("it is bound").port();
    (socket, port)
}

fn relay(names: &NameServer, lines: &str) -> Server {
    Setup::on(&[Udp, Tcp]).relay().with(&names.line()).with(lines).start()
}

/// Sends a request for this name; returns the time until it reaches the peer.
fn reaches(server: &Server, name: &str, peer: &UdpSocket) -> Took {
    let since = Stopwatch::start();
    let mut caller = server.connect(Udp);
    caller.send(&Request::new("MESSAGE", &format!("sip:x@{name}"), "udp", caller.local()).bytes()).expect("loopback");
    let came = peer.recv(&mut [0; 2_000]);
    assert!(came.is_ok(), "{name}: nothing came; the caller got {:?}", caller.final_response(LIMIT));
    since.took()
}

#[test]
fn a_question_that_fails_or_stays_unanswered_spoils_no_answer_to_another() {
    let (socket, port) = peer(Ipv4Addr::LOCALHOST);
    let srv = || Record::Srv(1, 1, port, "host.test".into());
    let Some(names) = NameServer::start(&[
        ("host.test", Record::A(Ipv4Addr::LOCALHOST)),
        ("_sip._udp.fails.test", srv()),
        ("_sip._tcp.fails.test", Record::Fails(SRV)),
        ("_sips._tcp.fails.test", Record::Fails(SRV)),
        ("_sip._udp.silent.test", srv()),
        ("silent.test", Record::Silent(NAPTR)),
        ("_sip._tcp.silent.test", Record::Silent(SRV)),
    ]) else {
        return;
    };
    let server = relay(&names, "");
    reaches(&server, "fails.test", &socket);
    // A query may take two seconds, and is sent twice.
    let took = reaches(&server, "silent.test", &socket);
    assert!(took.is_below(Duration::from_millis(1_800)), "{took:?}");
}

/// RFC 3263 section 4.1: services "for those transport protocols it supports".
#[test]
fn services_by_transports_that_no_listener_speaks_are_not_asked_for() {
    let (socket, port) = peer(Ipv4Addr::LOCALHOST);
    let Some(names) = NameServer::start(&[
        ("host.test", Record::A(Ipv4Addr::LOCALHOST)),
        ("_sip._udp.all.test", Record::Srv(1, 1, port, "host.test".into())),
        ("_sips._tcp.all.test", Record::Srv(1, 1, port, "host.test".into())),
        ("all.test", Record::Naptr(1, 1, "SIPS+D2T".into(), "_sips._tcp.all.test".into())),
        ("all.test", Record::Naptr(2, 1, "SIP+D2U".into(), "_sip._udp.all.test".into())),
    ]) else {
        return;
    };
    let server = relay(&names, "");
    reaches(&server, "all.test", &socket);
    assert_eq!(names.asked("_sips._tcp.all.test", SRV), 0);
    assert!(names.asked("_sip._udp.all.test", SRV) > 0);
}

/// RFC 2782: "A Target of "." means that the service is decidedly not available at this domain."
#[test]
fn a_service_that_is_said_not_to_be_available_is_not_looked_for_elsewhere() {
    let none = || Record::Srv(0, 0, 0, ".".into());
    let Some(names) = NameServer::start(&[
        ("none.test", Record::A(Ipv4Addr::LOCALHOST)),
        ("_sip._udp.none.test", none()),
        ("_sip._tcp.none.test", none()),
    ]) else {
        return;
    };
    let server = relay(&names, "");
    let mut caller = server.connect(Udp);
    let since = Stopwatch::start();
    caller.send(&Request::new("MESSAGE", "sip:x@none.test", "udp", caller.local()).bytes()).expect("loopback");
    let answer = caller.final_response(LIMIT).expect("an answer");
    // A transaction towards port 5060 would take 32 s, or end by an ICMP error.
    assert!(status(&answer).is_some_and(|code| code >= 400) && since.took().is_below(Duration::from_secs(4)));
    assert_eq!(names.asked("none.test", 1), 0, "its address is not asked for");
}

#[test]
fn of_the_addresses_that_a_name_leads_to_as_many_are_tried_as_may_be() {
    let [(first, port), (second, _)] = [peer(Ipv4Addr::new(127, 0, 0, 2)), peer(Ipv4Addr::new(127, 0, 0, 3))];
    drop((first, second));
    let hosts: Vec<String> = (0..18).map(|n| format!("host{n}.test")).collect();
    let srv = |host: &String| ("_sip._udp.many.test", Record::Srv(1, 0, port, host.clone()));
    let mut all: Vec<(&str, Record)> = hosts.iter().map(srv).collect();
    all.extend(hosts.iter().map(|host| (&**host, Record::A(Ipv4Addr::new(127, 0, 0, 4)))));
    let Some(names) = NameServer::start(&all) else { return };
    let server = relay(&names, "control.socket = \"orders\"");
    let mut caller = server.connect(Udp);
    caller.send(&Request::new("MESSAGE", "sip:x@many.test", "udp", caller.local()).bytes()).expect("loopback");
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(500));
    assert_eq!(hosts.iter().filter(|host| names.asked(host, 1) > 0).count(), 16);
    assert_eq!(metric(&server, "strowger_name_addresses_left_out_total"), 2.0);
}

/// The resolver's sockets receive datagrams of any sender.
#[test]
fn datagrams_to_the_sockets_of_the_resolver_are_no_lines_of_the_log() {
    let silent = [A, SRV, NAPTR].map(Record::Silent);
    let hosts = ["_sip._udp.silent.test", "_sip._tcp.silent.test", "_sips._tcp.silent.test", "silent.test"];
    let records: Vec<(&str, Record)> =
        hosts.iter().flat_map(|host| silent.iter().map(move |record| (*host, record.clone()))).collect();
    let Some(names) = NameServer::start(&records) else { return };
    let server = relay(&names, "dns.timeout = \"300ms\"");
    let (sender, _) = peer(Ipv4Addr::new(127, 0, 0, 66));
    let mut caller = server.connect(Udp);
    let before = server.log().lines().count();
    caller.send(&Request::new("MESSAGE", "sip:x@silent.test", "udp", caller.local()).bytes()).expect("loopback");
    let begun = Instant::now();
    let mut sprayed = 0;
    while begun.elapsed() < Duration::from_millis(250) {
        for asker in names.askers() {
            let _ = sender.send_to(b"no answer to anything that was asked", asker);
            sprayed += 1;
        }
        // A thousand bursts a second.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(sprayed > 20, "{sprayed} datagrams were sent");
    assert!(caller.final_response(LIMIT).as_deref().and_then(status).is_some_and(|code| code >= 400));
    let log = server.log();
    assert!(log.lines().count() <= before + 3, "{log}");
}
