//! Quality of the media streams of ended calls.

use std::time::Duration;

use super::{SOON, Stage};
use strowger_tests::echo::{Caller, with_echo};
use strowger_tests::meter::Shows::By;
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport::Udp;

pub(super) const SCENES: &[(&str, fn())] = &[("a stream with faults", faulty_stream)];

/// Octet of all packets: the echo returns each of them.
const OCTET: u8 = 0x55;

fn faulty_stream() {
    let setup = Setup::on(&[Udp]).open_registrar().in_memory();
    let mut stage = Stage::start(with_echo(setup, "127.0.0.54", "22000-22039"));
    let mut caller = Caller::call(&stage.server).expect("the echo answers");
    // Packets before the beginning of the session are none of the stream.
    let is_heard = (0..10).any(|_| {
        caller.play(OCTET);
        caller.hears(Duration::from_secs(1)).is_some()
    });
    assert!(is_heard, "no echo");
    let mut play = |packets: usize, then_skip: i16| {
        (0..packets).for_each(|_| caller.play(OCTET));
        caller.skip(then_skip);
    };
    // Of twenty numbers two are lost; one comes twice, another one late.
    play(4, 2);
    play(1, -1);
    play(1, 1);
    play(1, -2);
    play(1, 1);
    play(10, 0);
    assert!((0..18).all(|_| caller.hears(SOON).is_some()), "the echo returns each packet");
    caller.hang_up();
    for (name, more) in [
        ("media_streams_total", 1),
        ("media_streams_rated_total", 1),
        // R is 66.1, for a tenth of the packets of G.711 is lost.
        ("media_streams_poor_total", 1),
        ("media_mos_hundredths_total", 341),
        ("media_stream_packets_total", 19),
        ("media_stream_packets_lost_total", 2),
        ("media_stream_packets_reordered_total", 1),
        ("media_stream_packets_doubled_total", 1),
        ("media_max_delay_seconds_count", 1),
        ("media_jitter_seconds_count", 1),
    ] {
        assert!(stage.meter.sees(name, By(more), SOON), "{name}: {}", stage.meter.value(name));
    }
    stage.meter.begins_again();
    stage.end();
}
