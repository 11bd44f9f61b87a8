//! Media as a peer receives them: times and content of 500 streams, captures, pauses, echoes.

mod received;

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strowger_load::engine::run::Run;
use strowger_load::media::{Echo, Legs, Plane, PlaneError, Refusal, Settings};
use strowger_measure::Counter;
use strowger_net::datagrams::{self, Incoming};
use strowger_scenario::action::Action;
use strowger_scenario::{Environment, Scenario};

/// Creates a document whose only step runs these actions.
fn scenario(folder: &Path, actions: &str) -> Scenario {
    let text = format!(
        "<?xml version=\"1.0\"?><scenario name=\"m\"><recv request=\"INVITE\"/><nop><action>{actions}</action></nop></scenario>"
    );
    Scenario::parse(text.as_bytes(), &folder.join("m.xml"), &Environment::default()).unwrap()
}

fn actions(scenario: &Scenario) -> Vec<Action> {
    scenario.steps[1].actions.to_vec()
}

fn settings() -> Settings {
    Settings { port: 0, seed: 7, ..Settings::default() }
}

fn offer(audio: SocketAddr) -> Vec<u8> {
    format!(
        "INVITE sip:x SIP/2.0\r\nContent-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 {}\r\nm=audio {} RTP/AVP 8\r\n",
        audio.ip(),
        audio.port()
    )
    .into_bytes()
}

/// RTP packet, as far as the tests need it.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    at: Instant,
    first: [u8; 2],
    sequence: u16,
    timestamp: u32,
    source: u32,
    payload: Vec<u8>,
}

fn packet(bytes: &[u8]) -> Packet {
    assert!(bytes.len() >= 12, "no RTP header in {bytes:?}");
    Packet {
        at: Instant::now(),
        first: [bytes[0], bytes[1]],
        sequence: u16::from_be_bytes([bytes[2], bytes[3]]),
        timestamp: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        source: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
        payload: bytes[12..].to_vec(),
    }
}

fn receiver() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn next(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 2_048];
    let (n, from) = socket.recv_from(&mut bytes).expect("a datagram comes");
    (bytes[..n].to_vec(), from)
}

fn silence(socket: &UdpSocket, ms: u64) {
    socket.set_read_timeout(Some(Duration::from_millis(ms))).unwrap();
    let mut bytes = [0; 2_048];
    let came = socket.recv_from(&mut bytes);
    assert!(came.is_err(), "{came:?}");
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
}

#[test]
fn five_hundred_streams_keep_their_time() {
    const STREAMS: u32 = 500;
    const PACKETS: u32 = 100;
    let folder = tempfile::tempdir().unwrap();
    // A second of sound, twice.
    std::fs::write(folder.path().join("a.alaw"), vec![0xd5; 8_000]).unwrap();
    let scenario = scenario(folder.path(), "<exec rtp_stream=\"a.alaw,2,8,PCMA/8000\"/>");
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    let socket = datagrams::bind("127.0.0.1:0".parse().unwrap(), 8 << 20, 1 << 20).unwrap();
    let address = socket.local_addr().unwrap();
    let done = AtomicBool::new(false);
    let action = &actions(&scenario)[0];
    let packets = std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut incoming = Incoming::new(256);
            let mut all = Vec::new();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            while !done.load(Relaxed) {
                let Ok(n) = incoming.receive(&socket) else {
                    let _ = socket.peek(&mut [0]);
                    continue;
                };
                all.extend((0..n).filter_map(|i| incoming.datagram(i)).map(|(bytes, _)| packet(bytes)));
            }
            all
        });
        for slot in 0..STREAMS {
            legs.learn(slot, &offer(address));
            legs.act(slot, action).unwrap();
            // Calls do not all begin at once.
            if slot % 25 == 24 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // The time of the measurement.
        std::thread::sleep(Duration::from_millis(2_500));
        done.store(true, Relaxed);
        reader.join().unwrap()
    });
    let snapshot = plane.snapshot();
    assert_eq!((snapshot.failures, snapshot.missed, snapshot.refused), (0, 0, 0));
    assert_eq!(snapshot.packets, u64::from(STREAMS * PACKETS));
    assert_eq!(snapshot.bytes, u64::from(STREAMS * PACKETS) * 172);
    assert_eq!(snapshot.delays.len(), snapshot.packets);
    assert_eq!(snapshot.streams, u64::from(STREAMS));
    assert_eq!(packets.len() as u64, snapshot.packets, "every packet arrives");

    let mut streams: HashMap<u32, Vec<&Packet>> = HashMap::new();
    for packet in &packets {
        streams.entry(packet.source).or_default().push(packet);
    }
    assert_eq!(streams.len(), STREAMS as usize, "a source of its own for each");
    let mut gaps = hdrhistogram::Histogram::<u64>::new(3).unwrap();
    for stream in streams.values() {
        assert_eq!(stream.len(), PACKETS as usize);
        // Only the first packet has the marker.
        assert_eq!(stream[0].first, [0x80, 0x88]);
        for pair in stream.windows(2) {
            assert_eq!(pair[1].first, [0x80, 0x08]);
            assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
            assert_eq!(pair[1].timestamp, pair[0].timestamp.wrapping_add(160));
            let gap = pair[1].at.duration_since(pair[0].at).as_micros() as i64;
            gaps.record((gap - 20_000).unsigned_abs().max(1)).unwrap();
        }
    }
    let starts: std::collections::HashSet<u16> = streams.values().map(|s| s[0].sequence).collect();
    assert!(starts.len() > 400, "first sequence numbers are drawn");
    println!(
        "sent after its time: median {} µs, 99 % {} µs, most {} µs; gaps off 20 ms: median {} µs, 99 % {} µs; late {}",
        snapshot.delays.value_at_quantile(0.5),
        snapshot.delays.value_at_quantile(0.99),
        snapshot.delays.max(),
        gaps.value_at_quantile(0.5),
        gaps.value_at_quantile(0.99),
        snapshot.late
    );
    // Allows for other work on the machine.
    assert!(snapshot.delays.value_at_quantile(0.5) < 5_000, "half of the packets leave within 5 ms of their time");
    assert!(gaps.value_at_quantile(0.5) < 5_000, "half of the gaps are 15 to 25 ms");
    // The recorder gets it once.
    let mut told = HashMap::new();
    legs.count(|counter, by| *told.entry(counter).or_insert(0) += by);
    legs.count(|counter, by| *told.entry(counter).or_insert(0) += by);
    plane.legs().count(|counter, by| *told.entry(counter).or_insert(0) += by);
    assert_eq!(told.get(&Counter::MediaSent), Some(&snapshot.packets));
    assert_eq!(told.get(&Counter::MediaBytesSent), Some(&snapshot.bytes));
    assert_eq!(told.get(&Counter::MediaFailures), None);
    for slot in 0..STREAMS {
        legs.end(slot);
    }
    // For packets still on their way.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(plane.snapshot().streams, 0);
}

#[test]
fn a_stream_pauses_goes_on_and_ends_with_its_call() {
    let folder = tempfile::tempdir().unwrap();
    let samples: Vec<u8> = (0..=249).collect();
    std::fs::write(folder.path().join("a.ulaw"), &samples).unwrap();
    let scenario = scenario(
        folder.path(),
        "<exec rtp_stream=\"a.ulaw,-1,0\"/><exec rtp_stream=\"pause\"/><exec rtp_stream=\"resume\"/>\
         <exec rtp_stream=\"a.ulaw,1,0\"/>",
    );
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    let actions = actions(&scenario);
    let (socket, address) = receiver();
    assert_eq!(legs.act(3, &actions[0]), Err(Refusal::NoAddress("audio")));
    legs.learn(3, &offer(address));
    legs.act(3, &actions[0]).unwrap();
    let mut last = None;
    let mut at = 0;
    for _ in 0..5 {
        let (bytes, from) = next(&socket);
        assert_eq!(from.port(), plane.port(), "it comes from the port that the peer was told");
        let packet = packet(&bytes);
        // Around the end of the file, so that every packet is full.
        let wanted: Vec<u8> = samples.iter().cycle().skip(at % 250).take(160).copied().collect();
        assert_eq!(packet.payload, wanted);
        at += 160;
        last = Some(packet);
    }
    let before = last.unwrap();
    legs.act(3, &actions[1]).unwrap();
    // For packets still on their way.
    std::thread::sleep(Duration::from_millis(60));
    socket.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while socket.recv(&mut [0; 2_048]).is_ok() {
        sent += 1;
    }
    socket.set_nonblocking(false).unwrap();
    assert!(sent < 4, "{sent} packets after the pause");
    silence(&socket, 300);
    legs.act(3, &actions[2]).unwrap();
    let after = packet(&next(&socket).0);
    // The clock continued, the sequence numbers did not; sound begins again.
    assert_eq!(after.sequence, before.sequence.wrapping_add(sent + 1));
    assert_eq!((after.source, after.first), (before.source, [0x80, 0x80]));
    let passed = after.timestamp.wrapping_sub(before.timestamp);
    assert!(passed % 160 == 0 && (160 * 17..160 * 200).contains(&passed), "{passed} ticks");
    // Another file replaces this one: two packets, in the same stream.
    legs.act(3, &actions[3]).unwrap();
    let mut more = Vec::new();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut bytes = [0; 2_048];
    while let Ok(n) = socket.recv(&mut bytes) {
        more.push(packet(&bytes[..n]));
    }
    let marked = more.iter().position(|p| p.first == [0x80, 0x80]).expect("it begins anew");
    assert_eq!(more.len() - marked, 2);
    assert!(more.iter().all(|p| p.source == before.source));
    assert!(more.windows(2).all(|p| p[1].sequence == p[0].sequence.wrapping_add(1)));
    assert!(more.windows(2).all(|p| p[1].timestamp.wrapping_sub(p[0].timestamp) < 160 * 100));
    // The end of the call ends its streams.
    legs.act(3, &actions[0]).unwrap();
    next(&socket);
    legs.end(3);
    // For packets still on their way.
    std::thread::sleep(Duration::from_millis(60));
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut bytes).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    silence(&socket, 200);
    assert_eq!(legs.act(3, &actions[0]), Err(Refusal::NoAddress("audio")), "the next call in this slot knows nothing");
}

/// Creates a capture of `(milliseconds, destination port, payload)`.
fn capture(packets: &[(u32, u16, &[u8])]) -> Vec<u8> {
    let mut file: Vec<u8> = Vec::new();
    for n in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(n.to_le_bytes());
    }
    for (ms, port, payload) in packets {
        let length = payload.len() as u16;
        let mut packet = vec![0x45, 0];
        packet.extend((28 + length).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0x10, 0]);
        packet.extend(port.to_be_bytes());
        packet.extend((8 + length).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(*payload);
        for n in [ms / 1_000, ms % 1_000 * 1_000, packet.len() as u32, packet.len() as u32] {
            file.extend(n.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

#[test]
fn captures_keep_their_times_and_how_far_their_ports_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let packets: [(u32, u16, &[u8]); 4] =
        [(100, 9_000, b"first"), (150, 9_001, b"control"), (160, 9_000, b"second"), (400, 9_000, b"third")];
    std::fs::write(folder.path().join("c.pcap"), capture(&packets)).unwrap();
    let scenario = scenario(folder.path(), "<exec play_pcap_audio=\"c.pcap\"/>");
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    // Two adjacent ports.
    let (media, control) = (0..100)
        .find_map(|_| {
            let media = UdpSocket::bind("127.0.0.1:0").unwrap();
            let above = media.local_addr().unwrap().port().checked_add(1)?;
            UdpSocket::bind(("127.0.0.1", above)).ok().map(|control| (media, control))
        })
        .expect("two ports above each other are free");
    for socket in [&media, &control] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    legs.learn(0, &offer(media.local_addr().unwrap()));
    let began = Instant::now();
    legs.act(0, &actions(&scenario)[0]).unwrap();
    let (bytes, from) = next(&media);
    assert_eq!((&bytes[..], from.port()), (&b"first"[..], plane.port()));
    let (bytes, from) = next(&control);
    assert_eq!((&bytes[..], from.port()), (&b"control"[..], plane.port() + 1));
    assert_eq!(next(&media).0, b"second");
    assert_eq!(next(&media).0, b"third");
    let took = began.elapsed().as_millis();
    assert!((295..600).contains(&took), "{took} ms");
    silence(&media, 100);
    assert_eq!(plane.snapshot().packets, 4);
}

#[test]
fn datagrams_are_echoed_while_it_is_switched_on() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(folder.path(), "<log message=\"x\"/>");
    let plane = Plane::start(Settings { echo: Echo::Always, ..settings() }, [&scenario]).unwrap();
    let legs = plane.legs();
    let (socket, _) = receiver();
    // Audio and video.
    for port in [plane.port(), plane.port() + 2] {
        socket.send_to(b"hello", ("127.0.0.1", port)).unwrap();
        let (bytes, from) = next(&socket);
        assert_eq!((&bytes[..], from.port()), (&b"hello"[..], port));
    }
    legs.echo(false);
    socket.send_to(b"lost", ("127.0.0.1", plane.port())).unwrap();
    silence(&socket, 300);
    legs.echo(true);
    socket.send_to(b"again", ("127.0.0.1", plane.port())).unwrap();
    assert_eq!(next(&socket).0, b"again");
    // A packet may arrive here before it is counted.
    let until = Instant::now() + Duration::from_secs(5);
    while plane.snapshot().echoed != [2, 1] && Instant::now() < until {
        // Between two looks.
        std::thread::sleep(Duration::from_millis(1));
    }
    let snapshot = plane.snapshot();
    assert_eq!((snapshot.received, snapshot.received_bytes), (4, 19));
    assert_eq!((snapshot.echoed, snapshot.echoed_bytes), ([2, 1], [10, 5]));
}

#[test]
fn without_an_echo_for_all_a_call_may_have_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(
        folder.path(),
        "<exec rtp_echo=\"startaudio,8,PCMA/8000\"/><exec rtp_echo=\"stopaudio,8,PCMA/8000\"/>",
    );
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    let actions = actions(&scenario);
    let (socket, address) = receiver();
    let (other, _) = receiver();
    legs.echo(true);
    socket.send_to(b"before", ("127.0.0.1", plane.port())).unwrap();
    silence(&socket, 200);
    legs.learn(0, &offer(address));
    legs.act(0, &actions[0]).unwrap();
    other.send_to(b"stranger", ("127.0.0.1", plane.port())).unwrap();
    socket.send_to(b"peer", ("127.0.0.1", plane.port())).unwrap();
    assert_eq!(next(&socket).0, b"peer");
    silence(&other, 100);
    legs.act(0, &actions[1]).unwrap();
    socket.send_to(b"after", ("127.0.0.1", plane.port())).unwrap();
    silence(&socket, 200);
}

#[test]
fn a_busy_port_is_passed_over_unless_it_is_wanted() {
    // Three in a row: audio on the first or its video two above would collide.
    let busy = (0..200)
        .find_map(|_| {
            let first = UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = first.local_addr().unwrap().port();
            let free = [4, 6].map(|n| port.checked_add(n).and_then(|p| UdpSocket::bind(("127.0.0.1", p)).ok()));
            (free.iter().all(Option::is_some)
                && port.checked_add(2).is_some_and(|p| UdpSocket::bind(("127.0.0.1", p)).is_ok()))
            .then_some(first)
        })
        .expect("a few ports in a row are free");
    let port = busy.local_addr().unwrap().port();
    let none: [&Scenario; 0] = [];
    // The highest port is that of video.
    let plane = Plane::start(Settings { port, highest: port + 4, ..settings() }, none).unwrap();
    assert_eq!(plane.port(), port + 2);
    let exact = Settings { port, exact: true, ..settings() };
    for settings in [exact, Settings { port, highest: port + 3, ..settings() }] {
        let refused = Plane::start(settings, none).err().expect("there is no other port to try");
        assert!(matches!(refused, PlaneError::NoPort { .. }), "{refused}");
    }
}

#[test]
fn a_stream_follows_its_peer() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.g729"), [7; 40]).unwrap();
    let scenario = scenario(folder.path(), "<exec rtp_stream=\"a.g729,-1,18\"/>");
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    let ((first, here), (second, there)) = (receiver(), receiver());
    legs.learn(0, &offer(here));
    legs.act(0, &actions(&scenario)[0]).unwrap();
    let mut before = packet(&next(&first).0);
    assert_eq!((before.first[1] & 0x7f, before.payload.len()), (18, 20));
    // Without a description nothing changes.
    legs.learn(0, b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    legs.learn(0, &offer(there));
    let after = packet(&next(&second).0);
    first.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut bytes = [0; 2_048];
    while let Ok(n) = first.recv(&mut bytes) {
        before = packet(&bytes[..n]);
    }
    assert_eq!((after.source, after.sequence), (before.source, before.sequence.wrapping_add(1)));
    assert_eq!(after.timestamp, before.timestamp.wrapping_add(160));
}

#[test]
fn unplayable_media_are_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let scenario =
        scenario(folder.path(), "<exec rtp_stream=\"apattern,1,1,0,PCMU/8000\"/><exec rtp_stream=\"pausevpattern\"/>");
    let plane = Plane::start(settings(), [&scenario]).unwrap();
    let mut legs = plane.legs();
    legs.learn(0, &offer("127.0.0.1:9".parse().unwrap()));
    for action in actions(&scenario) {
        let refused = legs.act(0, &action).expect_err("it is not played").to_string();
        assert!(refused.contains("is not run: play a "), "{refused}");
    }
    assert_eq!(plane.snapshot().streams, 0);
}

#[test]
fn a_run_gets_the_media_that_its_scenario_needs() {
    let folder = tempfile::tempdir().unwrap();
    let silent = Run::new(Arc::new(scenario(folder.path(), "<log message=\"x\"/>")));
    assert!(silent.clone().start_media().unwrap().is_none());
    let playing = Arc::new(scenario(folder.path(), "<rtp_echo value=\"1\"/>"));
    let mut run = Run { media_port: 0, out_of_call: Some(playing), ..silent };
    let plane = run.start_media().unwrap().expect("a scenario of the run has something to do with media");
    assert!(run.media_port != 0 && run.media_port == plane.port());
}

#[test]
fn too_many_commands_are_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.alaw"), [1]).unwrap();
    let scenario = scenario(folder.path(), "<exec rtp_stream=\"a.alaw,-1\"/>");
    let plane = Plane::start(Settings { commands: 0, ..settings() }, [&scenario]).unwrap();
    let mut legs: Legs = plane.legs();
    legs.learn(0, &offer("127.0.0.1:9".parse().unwrap()));
    assert_eq!(legs.act(0, &actions(&scenario)[0]), Err(Refusal::Busy));
    assert_eq!(plane.snapshot().refused, 1);
    // An end is accepted whatever waits.
    legs.end(0);
}

#[test]
fn files_that_cannot_be_played_are_named_before_the_first_call() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.pcap"), capture(&[])).unwrap();
    let scenario = scenario(folder.path(), "<exec play_pcap_audio=\"c.pcap\"/>");
    let refused = Plane::start(settings(), [&scenario]).err().expect("it has no datagram").to_string();
    assert!(refused.contains("c.pcap") && refused.contains("no UDP datagram"), "{refused}");
}
