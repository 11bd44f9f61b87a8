//! Several shards: messages of one call from different ports and connections, and calls from the phone of one shard to
//! that of another. The kernel gives each datagram to the shard of its call; most messages of connections land at a shard
//! that does not own them.

use std::fs;
use std::time::Duration;

use strowger_measure::process::anonymous_memory;
use strowger_tests::call::{self, exchange, register};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{self, Request, respond};
use strowger_tests::wire::Transport::{self, Tcp, Udp, Ws};
use strowger_tests::wire::{self, Wire};

const STEP: Duration = Duration::from_secs(5);
/// Enough calls that each shard has some: with four shards, 40 calls miss one once in 25,000 runs.
const CALLS: usize = 40;

fn four_shards(transports: &[Transport]) -> Server {
    Setup::on(transports).open_registrar().in_memory().with("server.shards = 4").start()
}

fn show(message: &[u8]) -> String {
    String::from_utf8_lossy(message).into_owned()
}

#[test]
fn one_call_from_many_ports() {
    let server = four_shards(&[Udp]);
    let mut callee = server.connect(Udp);
    register(&mut callee, "bob");
    for _ in 0..CALLS {
        // INVITE, its copy, CANCEL and ACK each come from their own port; Via names the first one, and responses go to
        // the source of each request (RFC 3581).
        let mut ports: Vec<Wire> = (0..4).map(|_| server.connect(Udp)).collect();
        let here = ports[0].local();
        let invite =
            Request::new("INVITE", "sip:bob@example.org", "udp", here).with(format!("Contact: <sip:caller@{here}>"));
        ports[0].send(&invite.bytes()).expect("loopback takes datagrams");
        let got = callee.request("INVITE", STEP).expect("the INVITE arrives");
        callee.send(&respond(&got, 180, "bob", &[])).expect("loopback takes datagrams");
        loop {
            let answer = ports[0].receive(STEP).expect("180 comes back");
            if text::status(&answer) == Some(180) {
                break;
            }
        }
        // The copy creates no second call: the server retransmits the last provisional response to the source of the
        // original or of the copy.
        ports[1].send(&invite.bytes()).expect("loopback takes datagrams");
        let again = (0..100).find_map(|n| ports[n % 2].receive(STEP / 100)).expect("the copy is answered");
        assert_eq!(text::status(&again), Some(180), "{}", show(&again));

        ports[2].send(&invite.cancel().bytes()).expect("loopback takes datagrams");
        let cancelled = ports[2].final_response(STEP).expect("the CANCEL is answered");
        assert_eq!(text::status(&cancelled), Some(200), "{}", show(&cancelled));
        let cancel = callee.request("CANCEL", STEP).expect("the CANCEL arrives, and no second INVITE before it");
        callee.send(&respond(&cancel, 200, "bob", &[])).expect("loopback takes datagrams");
        callee.send(&respond(&got, 487, "bob", &[])).expect("loopback takes datagrams");
        callee.request("ACK", STEP).expect("the server acknowledges 487");

        let end = ports[0].final_response(STEP).or_else(|| ports[1].final_response(STEP)).expect("the call ends");
        assert_eq!(text::status(&end), Some(487), "{}", show(&end));
        ports[3].send(&invite.ack(&end).bytes()).expect("loopback takes datagrams");
        // The ACK has ended the transaction: no port receives a retransmission.
        for port in &mut ports {
            port.drain();
        }
        for port in &mut ports {
            let more = port.receive(Duration::from_millis(20));
            assert!(more.is_none(), "{}", show(&more.unwrap_or_default()));
        }
        let second = callee.receive(Duration::from_millis(1));
        assert!(second.is_none(), "{}", show(&second.unwrap_or_default()));
    }
}

#[test]
fn answers_come_by_other_connections() {
    // The contact is not the source of its REGISTER, on purpose.
    let server = Setup::on(&[Udp, Tcp])
        .open_registrar()
        .in_memory()
        .with("server.shards = 4\nnat.contact_repair = false")
        .start();
    let mut caller = server.connect(Tcp);
    for _ in 0..CALLS {
        // The server connects to the phone; the phone answers over its own connections.
        let (listener, here) = wire::listen();
        let user = text::unique("listener");
        let contact = format!("sip:{user}@{here};transport=tcp");
        let registrar = &mut server.connect(Udp);
        let answer = exchange(registrar, &Request::register(&user, "example.org", &contact, "udp", registrar.local()));
        assert_eq!(text::status(&answer), Some(200), "{}", show(&answer));

        let invite = Request::new("INVITE", &format!("sip:{user}@example.org"), "tcp", caller.local())
            .with(format!("Contact: <sip:caller@{};transport=tcp>", caller.local()));
        caller.send(&invite.bytes()).expect("the connection is open");
        let mut telephone = wire::accept(&listener, STEP);
        let got = telephone.request("INVITE", STEP).expect("the INVITE arrives");
        let headers = [format!("Contact: <{contact}>")];
        let mut other = server.connect(Tcp);
        other.send(&respond(&got, 180, "t", &headers)).expect("the connection is open");
        let mut third = server.connect(Tcp);
        third.send(&respond(&got, 200, "t", &headers)).expect("the connection is open");
        let answer = caller.final_response(STEP).expect("the answer comes through");
        assert_eq!(text::status(&answer), Some(200), "{}", show(&answer));

        caller.send(&invite.ack(&answer).bytes()).expect("the connection is open");
        telephone.request("ACK", STEP).expect("the ACK arrives");
        // The BYE comes over another connection of the caller.
        let mut elsewhere = server.connect(Tcp);
        elsewhere.send(&invite.within("BYE", &answer).bytes()).expect("the connection is open");
        let bye = telephone.request("BYE", STEP).expect("the BYE arrives");
        telephone.send(&respond(&bye, 200, "t", &[])).expect("the connection is open");
        let ended = elsewhere.final_response(STEP).expect("the BYE is answered where it came from");
        assert_eq!(text::status(&ended), Some(200), "{}", show(&ended));
    }
}

#[test]
fn telephones_of_one_shard_are_called_from_another() {
    let server = four_shards(&[Udp, Tcp, Ws]);
    // A connection belongs to one shard, a call to the shard that its Call-ID selects.
    for (caller, callee) in [(Udp, Tcp), (Tcp, Udp), (Tcp, Tcp), (Ws, Tcp), (Tcp, Ws), (Ws, Ws), (Udp, Udp)] {
        for _ in 0..CALLS / 4 {
            let (mut caller, mut callee) = (server.connect(caller), server.connect(callee));
            call::complete(&mut caller, &mut callee, &text::unique("user"));
        }
    }
}

/// A ring between two shards has no slots before a message goes over: filled ones between any two of 32 shards would
/// take 400 MB.
#[test]
fn shards_without_traffic_need_little_memory() {
    const MOST: u64 = 60_000_000;
    let mut server = Setup::on(&[Udp, Tcp]).open_registrar().in_memory().with("server.shards = 32").start();
    let id = server.process().id();
    let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("the server runs").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    assert_eq!(names.filter(|name| name.starts_with("shard-")).count(), 32);
    let memory = anonymous_memory(id);
    assert!((1..=MOST).contains(&memory), "{memory} bytes");
}
