//! Bridged calls over `kill -9` of the server: media at the same ports, changes and ends by either side.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use strowger_net::descriptors;
use strowger_tests::amount;
use strowger_tests::bridge::{Bridged, description, invite, party, setup};
use strowger_tests::call::register;
use strowger_tests::dialog::arrives;
use strowger_tests::server::Server;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::talk::{Talk, packet};
use strowger_tests::text::respond;
use strowger_tests::wait;
use strowger_tests::wire::Wire;

use crate::kept_dialogs::{is_empty, keeps};

const STEP: Duration = Duration::from_secs(10);

/// Starts a server that keeps its calls, with a caller and a callee.
fn kept() -> (Server, Wire, Wire) {
    let server = setup("127.0.0.85", "22000-22999", "").with("dialogs.folder = \"calls\"").start();
    let (caller, mut callee) = (party(&server, "127.0.0.86"), party(&server, "127.0.0.87"));
    register(&mut callee, "bob");
    (server, caller, callee)
}

/// `STROWGER_BRIDGED_CALLS` (8, and 200 with `STROWGER_WHOLE=1`) is their number.
#[test]
fn bridged_calls_outlive_a_kill() {
    let calls = amount("STROWGER_BRIDGED_CALLS", 200, 8) as usize;
    // Each party has a socket in each call.
    descriptors::raise().expect("the limit can be read");
    let (mut server, mut caller, mut callee) = kept();
    let mut talks: Vec<Talk> = (0..calls).map(|_| Talk::begin(&mut caller, &mut callee)).collect();
    talks.iter().for_each(Talk::wait_until_heard);
    keeps(&server, calls);
    server.kill();
    server.start();
    let began = Stopwatch::start();
    talks.iter().for_each(Talk::wait_until_heard);
    assert!(began.took().is_below(Duration::from_secs(1)), "{:?}\n{}", began.took(), server.log());
    // No other call gets the ports of these calls.
    let other = Talk::begin(&mut caller, &mut callee);
    assert!(talks.iter().all(|talk| talk.ports.iter().all(|port| !other.ports.contains(port))));
    talks.push(other);
    for (number, mut talk) in talks.into_iter().enumerate() {
        if number % 3 == 0 {
            talk.hold(&mut caller, &mut callee);
        }
        if number % 2 == 0 {
            arrives(&mut caller, &mut callee, &talk.call.near.request("BYE"), &[]);
        } else {
            arrives(&mut callee, &mut caller, &talk.call.far.request("BYE"), &[]);
        }
    }
    is_empty(&server);
}

/// Waits until the kept state has this source of media.
#[track_caller]
fn keeps_source(server: &Server, source: SocketAddr) {
    let SocketAddr::V4(source) = source else { panic!("{source} is an IPv6 address") };
    // Kind of the address, octets, port in groups of seven bits.
    let mut bytes = [&[0_u8][..], &source.ip().octets()[..]].concat();
    let mut port = source.port();
    while port > 127 {
        bytes.push((port & 127) as u8 | 128);
        port >>= 7;
    }
    bytes.push(port as u8);
    let is_kept = || {
        let files = fs::read_dir(server.folder().join("calls")).expect("calls are kept in it").filter_map(Result::ok);
        let mut texts = files.filter_map(|file| fs::read(file.path()).ok());
        texts.any(|text| text.windows(bytes.len()).any(|part| *part == *bytes))
    };
    assert!(wait::until(STEP, is_kept), "{}", server.log());
}

#[test]
fn a_party_behind_nat_hears_the_other_one_after_a_kill_without_sending() {
    let mut server = setup("127.0.0.151", "22000-22199", "").with("dialogs.folder = \"calls\"").start();
    let (mut caller, mut callee) = (party(&server, "127.0.0.152"), party(&server, "127.0.0.153"));
    register(&mut callee, "bob");
    let talk = Talk::begin_behind_nat(&mut caller, &mut callee);
    talk.wait_until_heard();
    keeps(&server, 1);
    keeps_source(&server, talk.parties[0].local_addr().expect("it is bound"));
    server.kill();
    server.start();
    let began = Stopwatch::start();
    talk.wait_until_hears(1, 0);
    assert!(began.took().is_below(Duration::from_secs(1)), "{:?}\n{}", began.took(), server.log());
    // Another host does not take the place of the party.
    let stranger = UdpSocket::bind("127.0.0.154:0").expect("loopback has a port");
    stranger.send_to(&packet(9), talk.ports[0]).expect("loopback takes it");
    talk.wait_until_heard();
}

#[test]
fn a_call_whose_port_another_program_takes_goes_on_at_others() {
    let mut server = setup("127.0.0.155", "22000-22199", "").with("dialogs.folder = \"calls\"").start();
    let (mut caller, mut callee) = (party(&server, "127.0.0.156"), party(&server, "127.0.0.157"));
    register(&mut callee, "bob");
    let mut talk = Talk::begin(&mut caller, &mut callee);
    talk.wait_until_heard();
    keeps(&server, 1);
    server.kill();
    let taken = UdpSocket::bind(talk.ports[1]).expect("the process has ended");
    server.start();
    talk.accept_other_ports(&mut caller, &mut callee);
    talk.wait_until_heard();
    talk.hold(&mut caller, &mut callee);
    arrives(&mut caller, &mut callee, &talk.call.near.request("BYE"), &[]);
    is_empty(&server);
    drop(taken);
}

#[test]
fn parties_of_calls_that_are_not_kept_get_a_bye_at_the_end() {
    let mut server = setup("127.0.0.88", "22000-22199", "").start();
    let (mut caller, mut callee) = (party(&server, "127.0.0.89"), party(&server, "127.0.0.90"));
    register(&mut callee, "bob");
    let invite = invite("sip:bob@example.org", &caller, &description(&caller, "m=audio 40000 RTP/AVP 8\r\n"));
    let answer = description(&callee, "m=audio 50000 RTP/AVP 8\r\n");
    let call = Bridged::set_up(&mut caller, &mut callee, &invite, &answer);
    assert!(call.is_ok());
    server.process().signal(libc::SIGTERM);
    for wire in [&mut caller, &mut callee] {
        let bye = wire.request("BYE", STEP).expect("the server is the other party");
        let text = String::from_utf8_lossy(&bye);
        assert!(text.contains("Reason: Q.850;cause=31\r\n"), "{text}");
        wire.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
    }
    let ended = server.process().end(STEP);
    assert!(ended.success(), "{ended:?}\n{}", server.log());
}
