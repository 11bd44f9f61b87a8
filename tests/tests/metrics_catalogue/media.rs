//! Media of calls that the server answers or bridges: ports, packets, drops, callers that are never heard.

use std::net::UdpSocket;
use std::time::Duration;

use super::{SOON, Stage};
use strowger_tests::bridge::{Bridged, description, invite, party};
use strowger_tests::dialog::arrives;
use strowger_tests::echo::{Caller, with_echo};
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::rtp::packet;
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport::Udp;

pub(super) const SCENES: &[(&str, fn())] =
    &[("an echo", echo), ("a bridged call", bridge), ("a server without media", none)];

const USED: &str = "media_port_pairs{state=\"used\"}";
const LENT: &str = "media_port_pairs{state=\"lent\"}";
const FREE: &str = "media_port_pairs{state=\"free\"}";

/// Bytes of a packet of the caller: a header and 20 ms of G.711.
const LENGTH: u64 = 12 + 160;

fn bridge() {
    let keys =
        "media.addresses = [\"127.0.0.66\"]\nmedia.ports = \"22000-22199\"\n[[rule]]\nname = \"bridge\"\nb2bua = true";
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().with(keys));
    let [mut caller, mut callee] = ["127.0.0.67", "127.0.0.68"].map(|ip| party(&stage.server, ip));
    let [offer, answer] = [&caller, &callee].map(|wire| description(wire, "m=audio 40000 RTP/AVP 8\r\n"));
    let request = invite(&format!("sip:bob@{}", callee.local()), &caller, &offer);
    let call = Bridged::set_up(&mut caller, &mut callee, &request, &answer);
    let mut call = call.unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)));
    stage.shows(&[("calls_bridged", At(1)), ("calls_tracked", At(1)), ("call_setup_seconds_count", By(1))]);
    assert!(stage.meter.sees("media_sessions", At(1), SOON) && stage.meter.sees(USED, At(2), SOON));
    arrives(&mut caller, &mut callee, &call.near.request("BYE"), &[]);
    assert!(stage.meter.sees("calls_bridged", At(0), SOON) && stage.meter.sees("media_sessions", At(0), SOON));
    stage.meter.begins_again();
    stage.end();
}

fn echo() {
    let mut stage = Stage::start(with_echo(Setup::on(&[Udp]).open_registrar(), "127.0.0.64", "22000-22199"));
    stage.shows(&[
        ("media_threads", At(1)),
        ("media_sessions", At(0)),
        (USED, At(0)),
        // An eighth of 100 pairs.
        (LENT, At(12)),
        (FREE, At(88)),
    ]);
    let call = |stage: &Stage| match Caller::call(&stage.server) {
        Ok(caller) => caller,
        Err(answer) => panic!("{}\n{}", String::from_utf8_lossy(&answer), stage.server.log()),
    };
    let mut caller = call(&stage);
    assert!(stage.meter.sees("media_sessions", At(1), SOON) && stage.meter.sees(USED, At(1), SOON));
    stage.meter.begins_again();
    caller.play(7);
    assert_eq!(caller.hears(SOON), Some(7));
    stage.shows(&[
        ("media_packets_received_total", By(1)),
        ("media_received_bytes_total", By(LENGTH)),
        // Reports leave as well.
        ("media_packets_sent_total", More),
        ("media_sent_bytes_total", More),
        ("media_looks_total", More),
        ("media_longest_turn_seconds", Above(0.0)),
        ("media_packets_dropped_total{reason=\"source\"}", By(0)),
    ]);
    let other = UdpSocket::bind("127.0.0.65:0").expect("the address is of loopback");
    let rtp = packet(0, 9, 1, &[]);
    for (bytes, reason) in [(&rtp[..], "source"), (&b"noise"[..], "unreadable")] {
        other.send_to(bytes, caller.server_media).expect("it is sent");
        stage.shows(&[
            (&format!("media_packets_dropped_total{{reason=\"{reason}\"}}"), By(1)),
            ("media_packets_received_total", By(1)),
            ("media_received_bytes_total", By(bytes.len() as u64)),
        ]);
    }
    // The processor time is read once in 64 looks.
    for octet in 0..80 {
        caller.play(octet);
        assert_eq!(caller.hears(SOON), Some(octet));
    }
    stage.shows(&[
        ("media_busy_seconds_total", More),
        ("media_packets_received_total", By(80)),
        ("media_received_bytes_total", By(80 * LENGTH)),
        ("media_streams_unheard_total", By(0)),
    ]);
    caller.hang_up();
    assert!(stage.meter.sees("media_sessions", At(0), SOON) && stage.meter.sees(USED, At(0), SOON));
    // A caller that is never heard.
    stage.meter.begins_again();
    call(&stage).hang_up();
    assert!(stage.meter.sees("media_streams_unheard_total", By(1), SOON));
    stage.meter.begins_again();
    stage.end();
}

fn none() {
    let mut stage = Stage::start(Setup::on(&[Udp]).relay());
    stage.shows(&[
        ("media_threads", At(0)),
        (LENT, At(0)),
        (FREE, At(0)),
        ("media_longest_turn_seconds", At(0)),
        ("media_packets_received_total", By(0)),
    ]);
    // No thread works on media that nobody has asked for.
    assert!(!stage.meter.sees("media_looks_total", More, Duration::from_millis(100)));
    stage.end();
}
