//! Media that the generator receives: at which ports, of which call, and when they end.

use super::*;
use strowger_load::media::Snapshot;
use strowger_measure::HeardMedia;
use strowger_media::rtp::Header;

/// Returns a packet of G.711.
fn sound(source: u32, sequence: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let timestamp = u32::from(sequence) * 160;
    Header { payload_type: 8, marker: false, sequence, timestamp, source }.write(&mut bytes);
    bytes.extend([0xd5; 160]);
    bytes
}

/// Waits until the plane shows this, a second at most.
fn shows(plane: &Plane, wanted: impl Fn(&Snapshot) -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(1);
    while !wanted(&plane.snapshot()) && Instant::now() < until {
        // Between two looks.
        std::thread::sleep(Duration::from_millis(1));
    }
    wanted(&plane.snapshot())
}

#[test]
fn the_port_of_a_call_is_read_until_the_call_ends() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(folder.path(), "<exec rtp_echo=\"startaudio,8,PCMA/8000\"/>");
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    let (socket, address) = receiver();
    legs.learn(0, &offer(address));
    legs.act(0, &actions(&scenario)[0]).unwrap();
    let port = legs.own_port(0, 1).unwrap();
    assert_eq!(legs.own_port(0, 1), Ok(port), "one port for each call");
    assert_ne!(port, plane.port());
    for sequence in [1, 2, 4, 4, 3] {
        socket.send_to(&sound(9, sequence), ("127.0.0.1", port)).unwrap();
    }
    assert!(shows(&plane, |snapshot| snapshot.received == 5), "{:?}", plane.snapshot());
    // They are echoed, too.
    assert_eq!((next(&socket).0, next(&socket).1.port()), (sound(9, 1), port));
    let heard = legs.end(0);
    let [stream] = heard.streams[..] else { panic!("{heard:?}") };
    assert_eq!((stream.packets, stream.expected, stream.lost), (5, 4, 0));
    assert_eq!((stream.reordered, stream.doubled, heard.is_silent), (1, 1, false));
    assert_eq!(legs.end(0), HeardMedia::default());
    let is_free = || UdpSocket::bind(("127.0.0.1", port)).is_ok();
    let until = Instant::now() + Duration::from_secs(5);
    while !is_free() && Instant::now() < until {
        // The thread that reads may still hold the socket.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_free());
}

#[test]
fn a_call_that_plays_and_hears_nothing_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.alaw"), [0xd5; 1_600]).unwrap();
    let scenario = scenario(folder.path(), "<exec rtp_stream=\"a.alaw,1,8\"/>");
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    let (socket, address) = receiver();
    legs.learn(0, &offer(address));
    legs.act(0, &actions(&scenario)[0]).unwrap();
    legs.learn(1, &offer(address));
    assert!(legs.end(0).is_silent);
    // A call that only listens may hear nothing.
    assert!(!legs.end(1).is_silent);
    // The stream of one call is not heard by the next call of the same peer, at the common port or at its own.
    for (slot, has_port) in [(0, false), (1, false), (2, true)] {
        if has_port {
            legs.own_port(slot, 1).unwrap();
        }
        legs.learn(slot, &offer(address));
        legs.act(slot, &actions(&scenario)[0]).unwrap();
        if slot == 0 {
            socket.send_to(&sound(9, 1), ("127.0.0.1", plane.port())).unwrap();
            assert!(shows(&plane, |snapshot| snapshot.received == 1), "{:?}", plane.snapshot());
        }
        assert_eq!(legs.end(slot).is_silent, slot > 0, "{slot}");
    }
}

/// Returns a message with a description of audio and video at these ports.
fn described(audio: u16, video: u16) -> Vec<u8> {
    let media = format!("m=audio {audio} RTP/AVP 8\r\nm=video {video} RTP/AVP 99\r\n");
    format!("SIP/2.0 200 OK\r\nContent-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 127.0.0.1\r\n{media}").into_bytes()
}

#[test]
fn video_above_the_port_of_a_call_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let plane = Plane::start(settings(), [&scenario(folder.path(), "<rtp_echo value=\"0\"/>")]).unwrap();
    let mut legs = plane.legs();
    let (socket, _) = receiver();
    // The port above may be that of another program.
    let found = (0..20).find_map(|slot| {
        let port = legs.own_port(slot, 1).unwrap();
        legs.describe(slot, &described(port, port + 2)).is_ok().then_some((slot, port))
    });
    let (slot, port) = found.expect("two ports are free");
    socket.send_to(&sound(9, 1), ("127.0.0.1", port)).unwrap();
    socket.send_to(&sound(9, 1), ("127.0.0.1", port + 2)).unwrap();
    assert!(shows(&plane, |snapshot| snapshot.received == 2), "{:?}", plane.snapshot());
    let heard = legs.end(slot);
    assert_eq!(heard.streams.iter().map(|stream| stream.quality.is_some()).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn calls_of_two_sides_have_ports_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(folder.path(), "<rtp_echo value=\"0\"/>");
    let first = Plane::start(settings(), [&scenario]).unwrap();
    // Its common port is that of a call of the first side.
    let port = first.port().saturating_add(4);
    let planes = [Plane::start(Settings { port, ..settings() }, [&scenario]).unwrap(), first];
    let mut sides = planes.each_ref().map(Plane::legs);
    let (socket, _) = receiver();
    let mut ports = std::collections::HashSet::new();
    for legs in &mut sides {
        // Two shards number alike, and numbers repeat after 2,500 calls.
        for (slot, number) in [(0, 1), (1, 2), (2, 1), (3, 2_501)] {
            let port = legs.own_port(slot, number).unwrap();
            assert!(ports.insert(port), "{port} is given twice");
            socket.send_to(&sound(slot, 1), ("127.0.0.1", port)).unwrap();
        }
    }
    for (plane, legs) in planes.iter().zip(&mut sides) {
        assert!(!ports.contains(&plane.port()) && !ports.contains(&(plane.port() + 2)));
        assert!(shows(plane, |snapshot| snapshot.received == 4), "{:?}", plane.snapshot());
        assert!((0..4).all(|slot| legs.end(slot).streams.len() == 1));
    }
}

#[test]
fn the_first_call_of_sipp_has_the_common_port() {
    let none: [&Scenario; 0] = [];
    let plane = Plane::start(Settings { first_is_common: true, ..settings() }, none).unwrap();
    let mut legs = plane.legs();
    assert_eq!(legs.own_port(0, 1), Ok(plane.port()));
    assert_ne!(legs.own_port(1, 2), Ok(plane.port()));
}

#[test]
fn a_peer_that_stops_before_a_caller_who_still_talks_has_lost_packets() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.alaw"), [0xd5; 800]).unwrap();
    let scenario = scenario(folder.path(), "<exec rtp_stream=\"a.alaw,-1,8\"/><exec rtp_stream=\"a.alaw,1,8\"/>");
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    let actions = actions(&scenario);
    let (socket, address) = receiver();
    // Of the callers the first talks on, the second has nothing more to say, the third only listens, the fourth is on hold.
    let ports = [0, 1, 2, 3].map(|slot| legs.own_port(slot, 1).unwrap());
    for (slot, port) in (0..4).zip(ports) {
        legs.learn(slot, &offer(address));
        if slot != 2 {
            legs.act(slot, &actions[usize::from(slot == 1)]).unwrap();
        }
        for sequence in 0..3 {
            socket.send_to(&sound(9, sequence), ("127.0.0.1", port)).unwrap();
        }
    }
    assert!(shows(&plane, |snapshot| snapshot.received == 12), "{:?}", plane.snapshot());
    let hold = [&offer(SocketAddr::from(([127, 0, 0, 1], ports[3])))[..], b"a=sendonly\r\n"].concat();
    legs.describe(3, &hold).unwrap();
    // The silence before the BYE.
    std::thread::sleep(Duration::from_millis(800));
    (0..4).for_each(|slot| legs.read_sent(slot, b"BYE sip:x SIP/2.0\r\n\r\n"));
    let heard = [0, 1, 2, 3].map(|slot| legs.end(slot));
    let first = &heard[0].streams[0];
    // The packets came within a few milliseconds.
    assert!(first.lost > 30 && first.expected == first.lost + 3 && first.max_delta >= 800_000, "{first:?}");
    assert!(first.quality.is_some_and(|quality| quality.score < 1.5), "{first:?}");
    for heard in &heard[1..] {
        assert_eq!((heard.streams[0].packets, heard.streams[0].lost), (3, 0), "{heard:?}");
    }
    assert_eq!(plane.snapshot().early, 1);
}

#[test]
fn streams_above_the_limit_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(folder.path(), "<rtp_echo value=\"0\"/>");
    let plane = Plane::start(Settings { streams: 1, ..settings() }, [&scenario]).unwrap();
    let mut legs = plane.legs();
    let (socket, address) = receiver();
    legs.learn(0, &offer(address));
    for source in [1, 2, 1] {
        socket.send_to(&sound(source, 1), ("127.0.0.1", plane.port())).unwrap();
    }
    assert!(shows(&plane, |snapshot| (snapshot.received, snapshot.unjudged) == (3, 1)), "{:?}", plane.snapshot());
    let mut unjudged = 0;
    legs.count(|counter, by| unjudged += u64::from(counter == Counter::MediaUnjudged) * by);
    assert_eq!((unjudged, legs.end(0).streams.len()), (1, 1));
}
