//! Bridged calls in trouble: floods, malformed packets, no descriptor, a party that is gone, a media thread that stands still. Other calls go on.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use strowger_media::rtcp::is_rtcp;
use strowger_tests::bridge::{invite, party, setup};
use strowger_tests::call::{exchange, register};
use strowger_tests::control::{json, metric, wait_for_no_calls};
use strowger_tests::dialog::{arrives, contact};
use strowger_tests::limits::limit_descriptors;
use strowger_tests::process::Process;
use strowger_tests::program::{STRACE, have};
use strowger_tests::rtp::PACKET_TIME;
use strowger_tests::server::Server;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::stranger::Stranger;
use strowger_tests::talk::{Talk, packet};
use strowger_tests::text::{field, respond, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;
use strowger_tests::{shared, undisturbed, wait};

const SOON: Duration = Duration::from_secs(20);

/// Largest delay of the packets of a call beside another one in trouble.
const DELAY: Duration = Duration::from_millis(90);

/// Packets of a measurement: three seconds.
const PACKETS: u16 = 150;

/// Packets a second of the flood.
const FLOOD: u32 = 50_000;

/// Connects two callers and bob, whose addresses of loopback end with octets from this one on.
fn parties(server: &Server, octet: u8) -> ([Wire; 2], Wire) {
    let callers = [octet, octet + 1].map(|octet| party(server, &format!("127.0.0.{octet}")));
    let mut callee = party(server, &format!("127.0.0.{}", octet + 2));
    register(&mut callee, "bob");
    (callers, callee)
}

fn dropped(server: &Server, reason: &str) -> f64 {
    metric(server, &format!("strowger_media_packets_dropped_total{{reason=\"{reason}\"}}"))
}

/// Asserts that packets of a call came, all of them in time.
fn assert_in_time(when: &str, (largest, heard): (Duration, usize)) {
    println!("{when}: largest delay {largest:?}");
    assert!(largest < DELAY, "{when}: {largest:?}");
    assert_eq!(heard, usize::from(PACKETS), "{when}: packets are lost");
}

/// Ends a call by its caller.
fn hang_up(mut talk: Talk, caller: &mut Wire, callee: &mut Wire) {
    arrives(caller, callee, &talk.call.near.request("BYE"), &[]);
}

#[test]
fn a_flood_at_one_port_delays_no_other_call() {
    undisturbed(|| {
        let server = setup("127.0.0.121", "22000-22199", "").start();
        let ([mut of_target, mut of_other], mut callee) = parties(&server, 122);
        let target = Talk::begin(&mut of_target, &mut callee);
        let mut other = Talk::begin(&mut of_other, &mut callee);
        target.wait_until_heard();
        other.wait_until_heard();
        assert_in_time("before the flood", other.largest_delay(PACKETS));
        let strange = UdpSocket::bind("127.0.0.125:0").expect("loopback has a port");
        let ear = strange.try_clone().expect("a descriptor is free");
        for side in [0, 1] {
            target.take(side);
        }
        let (before, port) = (dropped(&server, "source"), target.ports[0]);
        let flood = Stranger::start(vec![strange], port.ip(), port.port()..=port.port(), FLOOD, 1_500);
        let begun = Stopwatch::start();
        let figures = other.largest_delay(PACKETS);
        let (sent, seconds) = (flood.reached() as f64, begun.elapsed().as_secs_f64());
        drop(flood);
        assert!(sent > 0.8 * f64::from(FLOOD) * seconds, "{sent} packets in {seconds} s are no flood");
        assert_in_time("beside the flood", figures);
        // The kernel drops packets that the thread does not read in time.
        let is_counted = wait::until(SOON, || dropped(&server, "source") - before >= 500.0);
        assert!(is_counted, "{}", dropped(&server, "source"));
        for side in [0, 1] {
            let heard = target.take(side);
            assert!(heard.iter().all(|datagram| is_rtcp(datagram)), "the flood is relayed: {heard:?}");
        }
        ear.set_read_timeout(Some(PACKET_TIME)).expect("a time");
        assert!(ear.recv(&mut [0; 2_048]).is_err(), "the stranger gets packets");
        target.wait_until_heard();
        hang_up(target, &mut of_target, &mut callee);
        hang_up(other, &mut of_other, &mut callee);
    });
}

/// Datagrams that are no RTP: too short, of other versions, with contributors, an extension or padding beyond their end.
fn no_rtp() -> Vec<Vec<u8>> {
    let with = |first: u8, last: u8| {
        let mut packet = packet(1);
        packet[0] = first;
        *packet.last_mut().expect("it has bytes") = last;
        packet
    };
    let mut extended = with(0x90, 0);
    extended[14..16].fill(0xff);
    let contributors = with(0x8f, 0)[..40].to_vec();
    vec![
        Vec::new(),
        vec![0x80],
        with(0, 0),
        with(0x40, 0),
        with(0xc0, 0),
        with(0xa0, 0xff),
        with(0xa0, 0),
        extended,
        contributors,
    ]
}

/// Datagrams that are no RTCP, or end before their length.
fn no_rtcp() -> Vec<Vec<u8>> {
    let mut all = no_rtp();
    all.extend(
        [&[0x80, 200][..], &[0x80, 200, 0xff, 0xff, 0, 0, 0, 7], &[0x9f, 201, 0, 1, 0, 0, 0, 7], &[0x81, 206, 0, 0]]
            .map(<[u8]>::to_vec),
    );
    all.push(packet(2));
    all
}

#[test]
fn malformed_packets_are_counted_and_not_relayed() {
    undisturbed(|| {
        let server = setup("127.0.0.126", "22000-22199", "").start();
        let ([mut of_target, mut of_other], mut callee) = parties(&server, 127);
        let target = Talk::begin(&mut of_target, &mut callee);
        let mut other = Talk::begin(&mut of_other, &mut callee);
        target.wait_until_heard();
        other.wait_until_heard();
        assert_in_time("before", other.largest_delay(PACKETS));
        for side in [0, 1] {
            target.take(side);
        }
        let (before, is_over) = (dropped(&server, "unreadable"), AtomicBool::new(false));
        let (rtp, rtcp) = (no_rtp(), no_rtcp());
        let (sockets, ports) = (&target.parties, target.ports);
        let figures = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for (socket, port) in sockets.iter().zip(ports) {
                        let control = SocketAddr::new(port.ip(), port.port() + 1);
                        rtp.iter().for_each(|bytes| drop(socket.send_to(bytes, port)));
                        rtcp.iter().for_each(|bytes| drop(socket.send_to(bytes, control)));
                    }
                    thread::sleep(PACKET_TIME); // Some thousand packets a second.
                }
            });
            let figures = other.largest_delay(PACKETS);
            is_over.store(true, Ordering::Relaxed);
            figures
        });
        assert_in_time("beside malformed packets", figures);
        let is_counted = wait::until(SOON, || dropped(&server, "unreadable") - before >= 500.0);
        assert!(is_counted, "{}", dropped(&server, "unreadable"));
        for side in [0, 1] {
            let heard = target.take(side);
            // Reports come to the port from which RTCP has come.
            assert!(heard.iter().all(|bytes| is_rtcp(bytes) && !rtcp.contains(bytes)), "{heard:?}");
        }
        target.wait_until_heard();
        hang_up(target, &mut of_target, &mut callee);
        hang_up(other, &mut of_other, &mut callee);
    });
}

#[test]
fn offers_that_cannot_be_read_are_refused_and_the_call_goes_on() {
    let _shared = shared();
    let server = setup("127.0.0.145", "22000-22199", "").start();
    let ([mut caller, mut of_other], mut callee) = parties(&server, 146);
    let mut talk = Talk::begin(&mut caller, &mut callee);
    talk.wait_until_heard();
    for text in ["nonsense", "m=audio 4000 RTP/AVP 8\r\n", "v=0\r\nnonsense\r\n"] {
        let call = invite("sip:bob@example.org", &of_other, text);
        let refusal = exchange(&mut of_other, &call);
        assert_eq!(status(&refusal), Some(488), "{text:?}");
        of_other.send(&call.ack(&refusal).bytes()).expect("the server takes messages");
        let mut change =
            talk.call.near.request("INVITE").with("Content-Type: application/sdp").with(contact("alice", &caller));
        change.body = text.as_bytes().to_vec();
        let refusal = exchange(&mut caller, &change);
        assert_eq!(status(&refusal), Some(488), "{text:?}");
        caller.send(&change.ack(&refusal).bytes()).expect("the server takes messages");
    }
    talk.wait_until_heard();
    hang_up(talk, &mut caller, &mut callee);
}

#[test]
fn without_descriptors_further_calls_are_refused_and_others_go_on() {
    let _shared = shared();
    let mut server = setup("127.0.0.131", "22000-22199", "").start();
    let ([mut caller, _], mut callee) = parties(&server, 132);
    let first = Talk::begin(&mut caller, &mut callee);
    first.wait_until_heard();
    let id = server.process().id();
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).expect("the process lives").count() as u64;
    let before = limit_descriptors(&mut server, open);
    // Ports that are bound already serve some calls.
    let mut talks = vec![first];
    let refusal = loop {
        assert!(talks.len() < 40, "{}", server.log());
        match Talk::try_begin(&mut caller, &mut callee) {
            Ok(talk) => talks.push(talk),
            Err(refusal) => break refusal,
        }
    };
    let text = String::from_utf8_lossy(&refusal);
    assert!(status(&refusal) == Some(503) && field(&refusal, "Retry-After").is_some(), "{text}");
    server.log_with("no descriptor for ports of media");
    let log = server.log_with("no port for media is free");
    assert!(log.lines().any(|line| line.contains("status=503") && line.contains("no port for media is free")), "{log}");
    talks.iter().for_each(Talk::wait_until_heard);
    limit_descriptors(&mut server, before);
    let next = wait::look(SOON, || Talk::try_begin(&mut caller, &mut callee).ok());
    talks.push(next.expect("descriptors are free again"));
    for talk in talks {
        talk.wait_until_heard();
        hang_up(talk, &mut caller, &mut callee);
    }
    wait_for_no_calls(&server, SOON);
}

#[test]
fn a_party_that_is_gone_ends_its_call_after_the_silence() {
    let _shared = shared();
    let server = setup("127.0.0.135", "22000-22199", "").with("media.timeout = \"5s\"").start();
    let ([mut caller, mut of_other], mut callee) = parties(&server, 136);
    let talk = Talk::begin(&mut caller, &mut callee);
    let other = Talk::begin(&mut of_other, &mut callee);
    talk.wait_until_heard();
    other.wait_until_heard();
    let at = talk.parties[0].local_addr().expect("it is bound");
    let control = UdpSocket::bind((at.ip(), at.port() + 1)).expect("no other program has addresses of this test");
    control.set_read_timeout(Some(SOON)).expect("a time");
    let Talk { call, parties: [mouth, gone], ports, .. } = talk;
    // Its kernel answers the packets by ICMP errors.
    drop(gone);
    let (mut sequence, end) = (2_000, caller.clock() + SOON);
    let bye = loop {
        assert!(caller.clock() < end, "the call lasts:\n{}", server.log());
        mouth.send_to(&packet(sequence), ports[0]).expect("loopback takes it");
        // The other call goes on.
        for (from, port) in other.parties.iter().zip(other.ports) {
            from.send_to(&packet(sequence), port).expect("loopback takes it");
        }
        sequence += 1;
        if let Some(bye) = caller.request("BYE", PACKET_TIME) {
            break bye;
        }
    };
    caller.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
    let to_callee = callee.request("BYE", SOON).expect("both sides get a BYE");
    callee.send(&respond(&to_callee, 200, "", &[])).expect("the server takes messages");
    assert_eq!(field(&to_callee, "Call-ID"), Some(call.far.call_id));
    for bye in [bye, to_callee] {
        assert_eq!(field(&bye, "Reason").as_deref(), Some("Q.850;cause=41;text=\"no media\""));
    }
    // A report, or at least the goodbye.
    let mut report = [0; 1_500];
    let length = control.recv(&mut report).expect("the caller gets RTCP");
    assert!(is_rtcp(&report[..length]));
    other.wait_until_heard();
    hang_up(other, &mut of_other, &mut callee);
}

/// Time for which the media thread stands still: longer than the longest silence of a party.
const STILL: Duration = Duration::from_secs(7);

#[test]
fn a_media_thread_that_stands_still_holds_up_no_signalling() {
    if !have(&[STRACE]) {
        return;
    }
    undisturbed(|| {
        let mut server = setup("127.0.0.141", "22000-22199", "").with("media.timeout = \"5s\"").start();
        let ([mut caller, mut of_other], mut callee) = parties(&server, 142);
        let talk = Talk::begin(&mut caller, &mut callee);
        talk.wait_until_heard();
        // Both parties talk all the time, in a format that goes no further.
        let mouths = talk.parties.iter().zip(talk.ports).map(|(party, port)| {
            let party = party.try_clone().expect("a descriptor is free");
            Stranger::start(vec![party], port.ip(), port.port()..=port.port(), 50, 700)
        });
        let mouths: Vec<Stranger> = mouths.collect();
        let media = server.process().thread("media-0");
        let mut strace = Command::new(STRACE.path().expect("it is there"));
        let still = format!("inject=sendto:delay_enter={}:when=1", STILL.as_micros());
        strace.args(["-e", "trace=sendto", "-e", &still, "-p", &media.to_string()]);
        let mut strace = Process::start("strace", server.folder(), &mut strace);
        strace.wait_for("attached", 1, SOON);
        talk.parties[0].send_to(&packet(1_000), talk.ports[0]).expect("loopback takes it");
        let begun = Stopwatch::start();
        let longest = || metric(&server, "strowger_media_longest_turn_seconds");
        assert!(wait::until(SOON, || longest() >= 0.5), "{}", longest());
        // Ports for this call were lent before.
        let mut next = Talk::begin(&mut of_other, &mut callee);
        next.hold(&mut of_other, &mut callee);
        assert!(begun.took().is_below(STILL), "signalling waits for media: {:?}", begun.took());
        assert!(wait::until(SOON, || longest() >= STILL.as_secs_f64() - 0.5), "{}", longest());
        drop(mouths);
        talk.wait_until_heard();
        assert_eq!(json(&server, &["calls", "list"]).as_array().map(Vec::len), Some(2), "{}", server.log());
        hang_up(next, &mut of_other, &mut callee);
        hang_up(talk, &mut caller, &mut callee);
        wait_for_no_calls(&server, SOON);
        drop(strace);
        server.assert_answers(Udp);
    });
}
