//! Calls that the server answers by an echo: who is heard, and how they end.

use std::net::UdpSocket;
use std::time::Duration;

use crate::accounting::rows;
use strowger_tests::control::json;
use strowger_tests::echo::{Caller, document, setup};
use strowger_tests::generator::Running;
use strowger_tests::server::{Server, loopback};
use strowger_tests::text::{field, respond, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::{port, rtp, wait};

const SOON: Duration = Duration::from_secs(20);

/// Time in which a packet would have come back on a busy machine.
const QUIET: Duration = Duration::from_millis(300);

/// Accounting of a server, in files.
const ACCOUNTING: &str = "accounting.cdr = true\naccounting.to = \"json\"\naccounting.path = \"rows\"\n\
                          accounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"";

/// Calls the echo of this server, which answers.
fn call(server: &Server) -> Caller {
    Caller::call(server).unwrap_or_else(|answer| panic!("{}\n{}", String::from_utf8_lossy(&answer), server.log()))
}

#[test]
fn a_caller_hears_itself_until_a_hold_and_after_it() {
    let server = setup("127.0.0.41", "22000-22199").start();
    let mut caller = call(&server);
    assert!(caller.hears_itself(1), "{}", server.log());
    let held = caller.change("sendonly");
    assert!(held.starts_with("SIP/2.0 200") && held.contains("a=recvonly\r\n"), "{held}");
    // The session changes soon after the answer.
    let is_held = wait::until(SOON, || {
        caller.play(2);
        caller.hears(QUIET).is_none()
    });
    assert!(is_held, "{}", server.log());
    for _ in 0..5 {
        caller.play(3);
    }
    assert_eq!(caller.hears(QUIET), None);
    let resumed = caller.change("sendrecv");
    assert!(resumed.starts_with("SIP/2.0 200") && resumed.contains("a=sendrecv\r\n"), "{resumed}");
    assert!(caller.hears_itself(4), "{}", server.log());
    caller.hang_up();
}

#[test]
fn a_stranger_is_not_heard_and_hears_nothing() {
    let server = setup("127.0.0.42", "22000-22007").with("log.level = \"debug\"").start();
    let mut caller = call(&server);
    let (ip, ports) = (caller.server_media.ip(), 22_000_u16..22_008);
    let strange = UdpSocket::bind("127.0.0.43:0").expect("the address is of loopback");
    strange.set_read_timeout(Some(QUIET)).expect("it can be set");
    // RTP of G.711, and a receiver report (RFC 3550 section 6.4.2).
    let (rtp, rtcp) = (rtp::packet(0, 9, 1, &[99; 160]), [0x80_u8, 201, 0, 1, 0, 0, 0, 9]);
    let to_every_port = || {
        for port in ports.clone() {
            for bytes in [&rtp[..], &rtcp] {
                strange.send_to(bytes, (ip, port)).expect("it is sent");
            }
        }
    };
    // Before the first packet of the caller, and after it.
    to_every_port();
    assert_eq!(caller.hears(QUIET), None, "the stranger's sound came to the caller");
    assert!(caller.hears_itself(1), "{}", server.log());
    to_every_port();
    assert!(caller.hears_itself(2), "{}", server.log());
    while let Some(octet) = caller.hears(QUIET) {
        assert!(octet == 1 || octet == 2, "the stranger's sound came to the caller: {octet}");
    }
    assert!(strange.recv(&mut [0; 2_048]).is_err(), "the stranger got a packet");
    let call_id = caller.call_id().to_owned();
    caller.hang_up();
    let log = server.log_with("stream ended");
    let line = log.lines().find(|line| line.contains("stream ended") && line.contains(&call_id)).expect("of this call");
    let dropped = line.split("dropped=").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(dropped.is_some_and(|dropped| dropped >= 4), "{line}");
}

#[test]
fn a_call_beyond_the_ports_is_refused_until_one_ends() {
    let server = setup("127.0.0.44", "22000-22003").start();
    let mut calls = [(); 2].map(|()| call(&server));
    assert_ne!(calls[0].server_media, calls[1].server_media);
    let refusal = Caller::call(&server).err().expect("two pairs of ports carry two calls");
    let text = String::from_utf8_lossy(&refusal);
    assert!(status(&refusal) == Some(503) && field(&refusal, "Retry-After").is_some(), "{text}");
    let log = server.log_with("no port for media is free");
    assert!(log.lines().any(|line| line.contains("status=503") && line.contains("no port for media is free")), "{log}");
    for (octet, caller) in (1..).zip(&mut calls) {
        assert!(caller.hears_itself(octet), "{}", server.log());
    }
    let [first, second] = calls;
    let free = first.server_media;
    first.hang_up();
    // The media thread gives the ports back after the BYE.
    let mut third = wait::look(SOON, || Caller::call(&server).ok()).expect("the ports of an ended call are free");
    assert_eq!(third.server_media, free);
    assert!(third.hears_itself(3), "{}", server.log());
    second.hang_up();
    third.hang_up();
}

#[test]
fn a_silent_call_is_ended_and_its_cause_recorded() {
    let mut server = setup("127.0.0.45", "22000-22199").with(ACCOUNTING).start();
    // A generator that is killed leaves its call.
    let (target, port) = (server.address(Udp).to_string(), port::free());
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("echo.xml");
    std::fs::write(folder.path().join("sound.raw"), [0xff; 8_000]).expect("the folder can be written");
    std::fs::write(&file, document(Duration::from_secs(60))).expect("the folder can be written");
    let (file, own) = (file.display().to_string(), port.to_string());
    let words = [&*target, "--sf", &file, "-m", "1", "--source", "127.0.0.1", "--port", &own, "--no-preflight"];
    let mut generator = Running::start(&words);
    assert!(wait::until(SOON, || server.log().contains("call answered")), "{}", server.log());
    std::thread::sleep(Duration::from_secs(1)); // Some of its media arrive, without which the call would be one-way.
    generator.signal(libc::SIGKILL);
    generator.end(SOON);
    let socket = UdpSocket::bind(loopback(port)).expect("the generator has left its port");
    socket.set_read_timeout(Some(SOON)).expect("it can be set");
    // Another caller never sends.
    let mut mute = call(&server);
    let mut bye = [0; 4_096];
    let received = socket.recv_from(&mut bye);
    let (length, from) = received.unwrap_or_else(|error| panic!("no BYE: {error}\n{}", server.log()));
    let bye = &bye[..length];
    socket.send_to(&respond(bye, 200, "", &[]), from).expect("it is sent");
    let bye = String::from_utf8_lossy(bye);
    let reason = "Reason: Q.850;cause=41;text=\"no media\"";
    assert!(bye.starts_with("BYE ") && bye.contains(reason), "{bye}");
    let other = mute.hung_up(SOON).expect("a BYE to the caller that never sent");
    assert!(other.contains(reason), "{other}");
    server.log_with("one-way audio");
    server.stop();
    let log = server.log();
    let silent: Vec<&str> = log.lines().filter(|line| line.contains("one-way audio")).collect();
    let [line] = silent[..] else { panic!("{log}") };
    assert!(line.contains(mute.call_id()) && line.contains(&format!("expected={}", mute.media())), "{line}");
    let records = rows(&server, "cdr");
    let record = records.iter().find(|record| record["call_id"] == mute.call_id()).expect("a record");
    let figures = ["outcome", "ended_by", "cause"].map(|name| &*record[name]);
    assert_eq!((figures, records.len()), (["answered", "callee", "41"], 2), "{records:?}");
    let media = ["caller_packets", "caller_mos_x100", "callee_packets"].map(|name| &*record[name]);
    assert_eq!(media, ["0", "", ""], "{records:?}");
    let heard = records.iter().find(|record| record["call_id"] != mute.call_id()).expect("a record");
    assert!(heard["caller_packets"].parse::<u64>().is_ok_and(|packets| packets > 0), "{records:?}");
}

#[test]
fn the_quality_of_a_call_is_shown_and_recorded() {
    let server = setup("127.0.0.55", "22000-22007").with(ACCOUNTING).start();
    let mut caller = call(&server);
    assert!(caller.hears_itself(1), "{}", server.log());
    let calls = json(&server, &["calls", "list"]);
    let id = calls[0]["id"].as_str().expect("the call is tracked").to_owned();
    let shown = json(&server, &["calls", "show", &id]);
    let media = &shown["media"][0];
    assert_eq!((media["party"].as_str(), media["lost"].as_u64()), (Some("caller"), Some(0)), "{shown}");
    assert!(media["packets"].as_u64().is_some_and(|packets| packets > 0), "{shown}");
    assert_eq!((media["mos"].as_f64(), media["rating"].as_f64()), (Some(4.41), Some(93.2)), "{shown}");
    let path = &media["path"];
    assert_eq!(path["expected"].as_str(), Some(&*caller.media().to_string()), "{shown}");
    assert!(path["refused"] == 0 && path["refused_from"].is_null() && path["sent"].as_u64() > Some(0), "{shown}");
    assert!(path["silent_seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{shown}");
    assert_eq!(shown["media"].as_array().map(Vec::len), Some(1), "the echo sends nothing of its own: {shown}");
    caller.hang_up();
    assert!(wait::until(SOON, || rows(&server, "cdr").len() == 1), "{}", server.log());
    let record = rows(&server, "cdr").remove(0);
    let figures = ["caller_lost", "caller_r_x100", "caller_mos_x100", "callee_packets"].map(|name| &*record[name]);
    assert_eq!(figures, ["0", "9320", "441", ""], "{record:?}");
}

#[test]
fn an_open_call_does_not_delay_the_end_of_the_server() {
    let mut server = setup("127.0.0.46", "22000-22199").with(ACCOUNTING).start();
    let mut caller = call(&server);
    assert!(caller.hears_itself(1), "{}", server.log());
    server.process().signal(libc::SIGTERM);
    let status = server.process().end(SOON);
    assert!(status.success(), "{status:?}\n{}", server.log());
    server.log_with("calls left open");
    let records = rows(&server, "cdr");
    let ends: Vec<_> = records.iter().map(|record| (&*record["call_id"], &*record["ended_by"])).collect();
    assert_eq!(ends, [(caller.call_id(), "shutdown")]);
    // Its ports are free for the next process.
    UdpSocket::bind(caller.server_media).expect("no process has it");
}
