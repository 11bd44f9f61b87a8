//! The generator hears: the figures of a received stream against the record of its sender, and against tshark.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strowger_tests::generator::{Ran, answers_at, load, reply};
use strowger_tests::program::{self, TSHARK};
use strowger_tests::random::Random;
use strowger_tests::text::audio_port;
use strowger_tests::{rtp, undisturbed};

/// Packets of a stream, and the time between two, microseconds.
const PACKETS: u16 = 200;
const PACKET_TIME: u64 = 20_000;
/// First sequence number.
const FIRST: u16 = 1_000;

/// Packets that a stall of the path delays, and its length in microseconds.
const STALL: std::ops::Range<u16> = 100..104;
const STALLED: u64 = 70_000;

/// Longest time of sending a packet. The kernel stamps its arrival early in the system call, which may then wait for the
/// receiver; a longer call was interrupted before as well.
const WIDEST: Duration = Duration::from_millis(2);

/// Largest difference of a time from tshark's, microseconds.
const TOLERANCE: f64 = 100.0;

/// Packet that leaves a faulty path `due` microseconds after the first.
#[derive(Clone, Copy, Debug)]
struct Departure {
    due: u64,
    sequence: u16,
}

/// Counts that the receiver must have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Truth {
    packets: u64,
    lost: u64,
    reordered: u64,
    doubled: u64,
}

/// Creates the departures from a path that loses, doubles, delays and perhaps reorders packets.
fn path(seed: u64, reorders: bool) -> (Vec<Departure>, Truth) {
    let mut random = Random::new(seed);
    let (mut departures, mut truth) = (Vec::new(), Truth::default());
    let mut place = 0;
    while place < PACKETS {
        let due = |place: u16, delay: u64| u64::from(place) * PACKET_TIME + delay;
        let now = due(place, random.below(8_000) as u64);
        let departs = |due: u64, place: u16| Departure { due, sequence: FIRST + place };
        // The first and the last packets arrive in time, because no receiver can know of others; so do those around the stall.
        let is_faultless = place < 2 || place + 3 > PACKETS || (90..115).contains(&place);
        match random.below(10) {
            _ if STALL.contains(&place) => {
                let end = due(STALL.start, STALLED);
                departures.push(departs(end + 300 * u64::from(place - STALL.start), place));
            }
            0 if !is_faultless => truth.lost += 1,
            1 if !is_faultless => {
                truth.doubled += 1;
                departures.extend([departs(now, place), departs(now + 1_000, place)]);
            }
            2 if !is_faultless && reorders => {
                truth.reordered += 1;
                let overtakes = due(place + 1, random.below(8_000) as u64);
                departures.extend([departs(overtakes, place + 1), departs(overtakes + 500, place)]);
                place += 1;
            }
            _ => departures.push(departs(now, place)),
        }
        place += 1;
    }
    departures.sort_by_key(|departure| departure.due);
    truth.packets = departures.len() as u64;
    (departures, truth)
}

/// Sent stream.
struct Played {
    /// Addresses of the sender and the receiver.
    from: SocketAddr,
    to: SocketAddr,
    /// Time since 1970 and bytes of each packet.
    sent: Vec<(Duration, Vec<u8>)>,
    /// Longest time of sending a packet.
    widest: Duration,
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later")
}

fn play(socket: &UdpSocket, to: SocketAddr, departures: &[Departure]) -> Played {
    let from = socket.local_addr().expect("it is bound");
    let (mut sent, mut widest) = (Vec::with_capacity(departures.len()), Duration::ZERO);
    // The receiver has read the ACK by then.
    let begin = Instant::now() + Duration::from_millis(100);
    for Departure { due, sequence } in departures {
        let bytes = rtp::packet(0, 0xfeed, *sequence, &[0xff; 160]);
        let due = begin + Duration::from_micros(*due);
        // Sleeping is coarse, so the last millisecond is a busy wait.
        std::thread::sleep(due.saturating_duration_since(Instant::now()).saturating_sub(Duration::from_millis(1)));
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        let (at, began) = (since_1970(), Instant::now());
        socket.send_to(&bytes, to).expect("it is sent");
        widest = widest.max(began.elapsed());
        sent.push((at, bytes));
    }
    Played { from, to, sent, widest }
}

/// Starts a phone that answers one call and plays these packets once the call is acknowledged.
fn phone(departures: Vec<Departure>) -> (SocketAddr, Receiver<Played>) {
    let bind = || UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let (socket, media) = (bind(), bind());
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    let own = socket.local_addr().expect("it is bound");
    let port = media.local_addr().expect("it is bound").port();
    let sdp = format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"
    );
    let body = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}", sdp.len());
    let (out, played) = channel();
    std::thread::spawn(move || {
        let mut waiting = Some((media, departures, out));
        let mut peer = None;
        let mut buffer = [0; 4_096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let answer = reply("200 OK", &text, own);
            if text.starts_with("INVITE") {
                peer = audio_port(text.as_bytes()).map(|port| SocketAddr::new(from.ip(), port));
                let _ = socket.send_to(answer.replace("Content-Length: 0\r\n\r\n", &body).as_bytes(), from);
            } else if !text.starts_with("ACK") {
                let _ = socket.send_to(answer.as_bytes(), from);
            } else if let (Some((media, departures, out)), Some(peer)) = (waiting.take(), peer) {
                std::thread::spawn(move || out.send(play(&media, peer, &departures)));
            }
        }
    });
    (own, played)
}

/// Returns a request of a document; `body` is its description.
fn request(method: &str, cseq: u32, body: &str) -> String {
    let tag = if method == "INVITE" { "" } else { "[peer_tag_param]" };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\n" };
    format!(
        "<send><![CDATA[\n{method} sip:a@[remote_ip]:[remote_port] SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
         From: <sip:me@[local_ip]>;tag=[call_number]\nTo: <sip:a@[remote_ip]>{tag}\nCall-ID: [call_id]\nCSeq: {cseq} {method}\n\
         Contact: <sip:me@[local_ip]:[local_port]>\nMax-Forwards: 70\n{kind}Content-Length: [len]\n\n{body}\n]]></send>"
    )
}

/// Description with the port of the call.
const OFFER: &str =
    "v=0\no=- 1 1 IN IP4 [local_ip]\ns=-\nc=IN IP4 [media_ip]\nt=0 0\nm=audio [auto_media_port] RTP/AVP 0";

/// Returns a document of a caller that does this between ACK and BYE.
fn caller(work: &str) -> String {
    let (invite, ack, bye) = (request("INVITE", 1, OFFER), request("ACK", 1, ""), request("BYE", 2, ""));
    format!(
        "<?xml version=\"1.0\"?><scenario name=\"hears\">{invite}<recv response=\"200\"/>{ack}{work}{bye}<recv response=\"200\"/></scenario>"
    )
}

/// Calls the phone, which plays these packets. Returns the report and the sent stream.
fn call(departures: Vec<Departure>, requirements: &[&str]) -> (Ran, Played) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let document = folder.path().join("hears.xml");
    let length = u64::from(PACKETS) * PACKET_TIME / 1_000 + 600;
    fs::write(&document, caller(&format!("<pause milliseconds=\"{length}\"/>"))).expect("the folder can be written");
    let (phone, played) = phone(departures);
    let (phone, document) = (phone.to_string(), document.display().to_string());
    let words = [phone.as_str(), "--sf", document.as_str(), "-m", "1", "--no-preflight"];
    let ran = load(&[&words[..], requirements].concat());
    (ran, played.recv_timeout(Duration::from_secs(10)).expect("the phone has played"))
}

/// Figures of tshark; times in milliseconds.
struct Oracle {
    packets: u64,
    /// Missing packets, less duplicates.
    lost: i64,
    max_delta: f64,
    max_jitter: f64,
    mean_jitter: f64,
}

/// Writes the packets as raw IP with their times in nanoseconds (draft-ietf-opsawg-pcap).
fn write_capture(file: &Path, played: &Played) {
    let SocketAddr::V4(from) = played.from else { panic!("the phone is at 127.0.0.1") };
    let SocketAddr::V4(to) = played.to else { panic!("the generator is at 127.0.0.1") };
    let mut bytes: Vec<u8> = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        bytes.extend(word.to_le_bytes());
    }
    for (at, payload) in &played.sent {
        let length = 28 + payload.len() as u16;
        for word in [at.as_secs() as u32, at.subsec_nanos(), u32::from(length), u32::from(length)] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0x45, 0]);
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        bytes.extend(from.ip().octets());
        bytes.extend(to.ip().octets());
        bytes.extend(from.port().to_be_bytes());
        bytes.extend(to.port().to_be_bytes());
        bytes.extend((length - 20).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
    }
    fs::write(file, bytes).expect("the folder can be written");
}

/// Lets tshark judge the packets.
fn judge(played: &Played) -> Oracle {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("sent.pcap");
    write_capture(&file, played);
    let output = Command::new(TSHARK.path().expect("tshark is there"))
        .arg("-r")
        .arg(&file)
        .args(["-d", &format!("udp.port=={},rtp", played.to.port()), "-q", "-z", "rtp,streams"])
        .output()
        .expect("tshark starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    read_streams(&text).unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Reads the only stream of `-z rtp,streams`.
fn read_streams(text: &str) -> Option<Oracle> {
    let head = text.lines().find(|line| line.contains("Max Delta(ms)"))?;
    let names = ["Min Delta", "Mean Delta", "Max Delta", "Min Jitter", "Mean Jitter", "Max Jitter"];
    let place = |name: &'static str| Some((head.find(name)?, name));
    let mut columns: Vec<(usize, &str)> = names.into_iter().filter_map(place).collect();
    columns.sort_unstable();
    let (counts, times) = text.lines().find(|line| line.contains("0x0000FEED"))?.split_once('(')?;
    let mut counts = counts.split_whitespace().rev();
    let (lost, packets) = (counts.next()?.parse().ok()?, counts.next()?.parse().ok()?);
    let times: Vec<f64> = times.split_once(')')?.1.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let of = |name: &str| times.get(columns.iter().position(|(_, column)| *column == name)?).copied();
    Some(Oracle {
        packets,
        lost,
        max_delta: of("Max Delta")?,
        max_jitter: of("Max Jitter")?,
        mean_jitter: of("Mean Jitter")?,
    })
}

#[test]
fn the_table_of_tshark_is_read() {
    let text = "========================= RTP Streams ========================\n   \
        Start time      End time     Src IP addr  Port    Dest IP addr  Port       SSRC          Payload  Pkts         Lost   \
        Min Delta(ms)  Mean Delta(ms)   Max Delta(ms)  Min Jitter(ms) Mean Jitter(ms)  Max Jitter(ms) Problems?\n     \
        0.000000      3.960000       127.0.0.1 40000       127.0.0.1  6000 0x0000FEED            g711U   205    -3 (-1.5%)           \
        0.500          19.800          85.125           0.000           2.250           9.750 X\n";
    let oracle = read_streams(text).expect("it has a stream");
    assert_eq!((oracle.packets, oracle.lost), (205, -3));
    assert_eq!((oracle.max_delta, oracle.mean_jitter, oracle.max_jitter), (85.125, 2.25, 9.75));
    // Earlier versions have three times.
    let old = "SSRC Payload Pkts Lost Max Delta(ms) Max Jitter(ms) Mean Jitter(ms) Problems?\n 0x0000FEED g711U 9 0 (0.0%) 3.5 2.5 1.5\n";
    let oracle = read_streams(old).expect("it has a stream");
    assert_eq!((oracle.max_delta, oracle.mean_jitter, oracle.max_jitter), (3.5, 1.5, 2.5));
}

/// Runs a call over a faulty path, and compares the figures of its stream.
fn compare(seed: u64, reorders: bool) {
    let has_oracle = program::have(&[TSHARK]);
    let (departures, truth) = path(seed, reorders);
    assert!(truth.lost > 5 && truth.doubled > 5 && (truth.reordered > 5) == reorders, "{truth:?}");
    let required = ["media.max_delta.p99<200ms", "media.mos.min>=1", "media.jitter.max<20ms", "media.silent==0"];
    let words: Vec<&str> = required.into_iter().flat_map(|requirement| ["--require", requirement]).collect();
    let (ran, played) = call(departures, &words);
    ran.ended_with(0);
    ran.all_successful(1);
    let count = |name: &str| ran.count("counters", name);
    let heard = Truth {
        packets: count("media.heard"),
        lost: count("media.lost"),
        reordered: count("media.reordered"),
        doubled: count("media.doubled"),
    };
    assert_eq!(heard, truth);
    assert_eq!((count("media.streams"), count("media.expected")), (1, u64::from(PACKETS)));
    let loss = ran.json["ratios"]["media.loss"]["value"].as_f64().expect("packets came");
    assert!((loss - 100.0 * truth.lost as f64 / f64::from(PACKETS)).abs() < 1e-9, "{loss}");
    // G.711 with this loss: R is 93.2 less 95 loss / (loss + 25.1).
    let rating = ran.delay("media.rating", "min");
    assert!((rating - (93.2 - 95.0 * loss / (loss + 25.1))).abs() < 0.001, "{rating}");
    assert!((2.0..4.4).contains(&ran.delay("media.mos", "max")), "{}", ran.said);
    if !has_oracle {
        return;
    }
    assert!(played.widest < WIDEST, "this machine was busy: a packet took {:?} to send", played.widest);
    let oracle = judge(&played);
    assert_eq!((oracle.packets, oracle.lost), (truth.packets, truth.lost as i64 - truth.doubled as i64));
    let near = |name: &str, theirs: f64| (ran.delay(name, "max") - theirs * 1_000.0).abs() <= TOLERANCE;
    let shown = |name: &str, theirs: f64| format!("{name}: {} µs, tshark {theirs} ms", ran.delay(name, "max"));
    for (name, theirs) in [("media.max_delta", oracle.max_delta), ("media.max_jitter", oracle.max_jitter)] {
        assert!(near(name, theirs), "{}", shown(name, theirs));
    }
    // Wireshark leaves late packets out of its mean, which is of jitters, in earlier versions of deviations.
    let mean = oracle.mean_jitter;
    let is_near = near("media.jitter", mean) || near("media.deviation", mean);
    assert!(reorders || is_near, "{}; {}", shown("media.jitter", mean), shown("media.deviation", mean));
}

#[test]
fn a_stream_that_is_lost_doubled_and_delayed_is_judged_as_by_tshark() {
    undisturbed(|| compare(0x5eed, false));
}

#[test]
fn a_stream_that_is_reordered_too_is_judged_as_by_tshark() {
    undisturbed(|| compare(0xfeed, true));
}

#[test]
fn a_missed_requirement_of_a_stream_fails_the_run() {
    undisturbed(|| {
        let (departures, _) = path(1, false);
        // A packet waited for 70 ms.
        let (ran, _) = call(departures, &["--require", "media.max_delta.p99<50ms"]);
        ran.ended_with(3);
        assert_eq!(ran.json["requirements"][0]["met"], false, "{}", ran.said);
    });
}

#[test]
fn each_call_of_two_generators_hears_at_its_own_port() {
    undisturbed(|| {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("the folder can be written");
            path.display().to_string()
        };
        file("sound.raw", &[0xff; 8_000]);
        let play = "<nop><action><exec rtp_stream=\"sound.raw,-1,0\"/></action></nop>";
        let calling = file("caller.xml", caller(&format!("{play}<pause milliseconds=\"1500\"/>")).as_bytes());
        let (party, request) = ("[last_Via:]\n[last_From:]\n[last_To:]", "[last_Call-ID:]\n[last_CSeq:]");
        let contact = "Contact: <sip:[local_ip]:[local_port]>\nContent-Type: application/sdp";
        let accept = format!("{party};tag=a[call_number]\n{request}\n{contact}\nContent-Length: [len]\n\n{OFFER}");
        let end = format!("{party}\n{request}\nContent-Length: 0\n");
        let answer = format!(
            "<?xml version=\"1.0\"?><scenario name=\"answers\"><recv request=\"INVITE\"/>\
             <send retrans=\"500\"><![CDATA[\nSIP/2.0 200 OK\n{accept}\n]]></send><recv request=\"ACK\"/>{play}\
             <recv request=\"BYE\"/><send><![CDATA[\nSIP/2.0 200 OK\n{end}\n]]></send></scenario>"
        );
        let answering = file("answerer.xml", answer.as_bytes());
        // Each side has an address of its own, so that their ports do not meet.
        let uas = answers_at([127, 0, 0, 2].into(), &["--scenario", &answering]);
        let target = uas.address.to_string();
        let ran = load(&[target.as_str(), "--sf", calling.as_str(), "-r", "10", "-m", "3", "--no-preflight"]);
        ran.all_successful(3);
        let answered = uas.report();
        for side in [&ran, &answered] {
            let count = |name: &str| side.count("counters", name);
            assert_eq!(
                (count("media.streams"), count("media.silent"), count("media.lost")),
                (3, 0, 0),
                "{}",
                side.said
            );
            // A second and a half of 50 packets a second, in three calls.
            assert!((180..=240).contains(&count("media.heard")), "{}", side.said);
            assert!(side.delay("media.mos", "min") > 4.4, "{}", side.said);
            assert!(side.delay("media.max_delta", "max") > 19_000.0, "{}", side.said);
        }
    });
}
