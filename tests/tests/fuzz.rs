//! A minute of fuzzing on stable: seeds mutated by a seeded generator, as input of the same functions that cargo-fuzz
//! runs (`make fuzz`).
//!
//! `STROWGER_FUZZ_SECONDS` (1, and 9 with `STROWGER_WHOLE=1`) is the processor time of each function, `STROWGER_FUZZ_SEED` the generator's
//! seed (default: a fixed one; `random` draws one). No panic, no hang, memory bounded by the input: an input that
//! violates one of these is written to a file, and its seed printed.

use std::alloc::System;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use strowger_allocations::{Counting, most_held};
use strowger_media::rtcp::{CompoundWriter, ReportBlock, SenderInfo};
use strowger_tests::{amount, in_background};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Longest processor time of an input.
const SLOW: Duration = Duration::from_secs(5);
/// Maximum number of bytes held for an input: a constant, and a factor of its length.
const HELD_ALWAYS: usize = 1 << 20;
const HELD_EACH: usize = 1 << 10;
/// Longest input.
const LONGEST: usize = 20_000;

/// xorshift64*: equal seeds give equal inputs on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() >> 11) as usize % n }
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let from = self.below(len + 1);
        let most = if self.below(4) == 0 { len } else { 16 };
        from..from + self.below((len - from).min(most) + 1)
    }
}

/// Words of SIP and SDP, and words that are difficult for parsers.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\r\n ",
    b"\n\t",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    b":",
    b";",
    b",",
    b"=",
    b"<",
    b">",
    b"\"",
    b"\\",
    b"\\\"",
    b"@",
    b"[",
    b"]",
    b"[::1]",
    b"[2001:db8::1]:5060",
    b"%",
    b"%00",
    b"%zz",
    b"?",
    b"/",
    b"&",
    b"(",
    b")",
    b"*",
    b"SIP/2.0",
    b"sip:",
    b"sips:",
    b"tel:+1",
    b"urn:service:sos",
    b"INVITE ",
    b"ACK ",
    b"SIP/2.0 200 OK\r\n",
    b"Via: SIP/2.0/UDP a",
    b"v:",
    b"i:",
    b"l:",
    b"Content-Length: 0\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"l: -1\r\n",
    b"Call-ID: a\r\n",
    b"Contact: *\r\n",
    b"Max-Forwards: 0\r\n",
    b"CSeq: 1 ACK\r\n",
    b"Route: <sip:a;lr>,<sip:b;lr>\r\n",
    b";branch=z9hG4bK",
    b";tag=",
    b";lr",
    b";rport",
    b";received=",
    b";maddr=",
    b"0",
    b"1",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"2147483648",
    b"4294967296",
    b"18446744073709551616",
    b"v=0\r\n",
    b"m=audio 0 RTP/AVP 0\r\n",
    b"a=rtpmap:0 PCMU/8000\r\n",
    b"c=IN IP4 0.0.0.0\r\n",
    b"o=- 0 0 IN IP6 ::\r\n",
];

fn mutate(random: &mut Random, seeds: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<u8> {
    let mut data = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(6) {
        let len = data.len();
        match random.below(10) {
            0 if len > 0 => data[random.below(len)] = random.next() as u8,
            1 if len > 0 => data[random.below(len)] ^= 1 << random.below(8),
            2 => drop(data.drain(random.range(len))),
            3 => {
                let part = data[random.range(len)].to_vec();
                let at = random.below(len + 1);
                data.splice(at..at, part);
            }
            4 | 5 => {
                let at = random.below(len + 1);
                data.splice(at..at, words[random.below(words.len())].iter().copied());
            }
            6 => {
                let range = random.range(len);
                data.splice(range, words[random.below(words.len())].iter().copied());
            }
            7 => {
                let other = &seeds[random.below(seeds.len())];
                let part = other[random.range(other.len())].to_vec();
                let range = random.range(len);
                data.splice(range, part);
            }
            8 => {
                // The same piece many times.
                let part = data[random.range(len)].to_vec();
                let at = random.below(len + 1);
                let times = random.below(1 + 4_000 / part.len().max(1));
                data.splice(at..at, part.repeat(times));
            }
            9 => data.truncate(random.below(len + 1)),
            _ => (),
        }
    }
    data.truncate(LONGEST);
    data
}

fn seed() -> u64 {
    match std::env::var("STROWGER_FUZZ_SEED") {
        Err(_) => 0x5712_0a6e,
        Ok(text) if text == "random" => {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as u64
                | 1
        }
        Ok(text) => text.parse().expect("STROWGER_FUZZ_SEED is a number"),
    }
}

fn run(name: &str, seeds: &[Vec<u8>], function: fn(&[u8])) {
    in_background(|| try_all(name, seeds, function));
}

fn try_all(name: &str, seeds: &[Vec<u8>], function: fn(&[u8])) {
    let seconds = Duration::from_secs(amount("STROWGER_FUZZ_SECONDS", 9, 1));
    let seed = seed();
    assert!(!seeds.is_empty() && seed != 0);
    let words = words();
    let mut random = Random(seed);
    let (start, mut inputs) = (processor_time(), 0u64);
    let (mut now, mut next) = (start, seeds.iter().cloned());
    while now - start < seconds || inputs < seeds.len() as u64 {
        let data = next.next().unwrap_or_else(|| mutate(&mut random, seeds, &words));
        let (result, most) = most_held(|| catch_unwind(AssertUnwindSafe(|| function(&data))));
        let before = std::mem::replace(&mut now, processor_time());
        let time = now - before;
        let fault = match result {
            Err(_) => Some("panics".to_owned()),
            Ok(()) if time > SLOW => Some(format!("takes {time:?}")),
            Ok(()) if most > HELD_ALWAYS + HELD_EACH * data.len() => Some(format!("holds {most} bytes")),
            Ok(()) => None,
        };
        if let Some(fault) = fault {
            let path = std::env::temp_dir().join(format!("strowger-fuzz-{name}-{seed}-{inputs}"));
            std::fs::write(&path, &data).expect("the temporary folder can be written");
            panic!("{name} {fault} on input {inputs} of seed {seed}, {} bytes: {}", data.len(), path.display());
        }
        inputs += 1;
    }
    println!("{name}: {inputs} inputs in {:.1} s, seed {seed}", (now - start).as_secs_f64());
}

/// Returns the processor time of this thread: on a busy machine the number of inputs is the same.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to our own variable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn corpora() -> PathBuf {
    std::env::var_os("STROWGER_CORPORA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora"), PathBuf::from)
}

/// Returns the words above and those of the corpora's dictionary.
fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<_> = WORDS.iter().map(|w| w.to_vec()).collect();
    let dictionary = std::fs::read_to_string(corpora().join("fuzz-seeds/sip.dict")).unwrap_or_default();
    words.extend(dictionary.lines().filter(|l| !l.is_empty()).map(|l| l.as_bytes().to_vec()));
    words
}

/// Returns all files of these folders, as far as they exist.
fn files(folders: &[PathBuf]) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(folder) else {
            eprintln!("{} is missing", folder.display());
            continue;
        };
        let mut paths: Vec<_> = entries.map(|e| e.expect("readable").path()).filter(|p| p.is_file()).collect();
        // The order of the entries in a folder differs between machines.
        paths.sort();
        files.extend(
            paths
                .iter()
                .filter(|p| p.extension().is_none_or(|e| e != "json"))
                .map(|p| std::fs::read(p).expect("readable")),
        );
    }
    files
}

fn messages() -> Vec<Vec<u8>> {
    let (own, corpora) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), corpora());
    let mut seeds = files(&[
        own.join("crates/message/tests/torture"),
        own.join("crates/lab/messages"),
        corpora.join("fuzz-seeds/sip"),
        corpora.join("fuzz-seeds/sip-dialog"),
        corpora.join("rfc4475"),
        corpora.join("rfc5118"),
    ]);
    seeds.retain(|s| s.len() <= LONGEST);
    seeds
}

/// Returns single values of header fields, for the views.
fn values() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for message in messages() {
        for line in message.split(|&b| b == b'\n') {
            if let Some(colon) = line.iter().position(|&b| b == b':') {
                seeds.push(line[colon + 1..].trim_ascii().to_vec());
            }
        }
    }
    seeds.sort();
    seeds.dedup();
    seeds.extend(files(&[corpora().join("fuzz-seeds/uri")]));
    seeds
}

/// Target whose seeded test is in its own crate, `strowger-rules`.
const ELSEWHERE: &str = "conditions";

/// Checks that each fuzz target is built, run by `make fuzz`, and promised in SECURITY.md.
#[test]
fn each_target_is_built_run_and_promised() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (makefile, manifest, promises) = (read("Makefile"), read("fuzz/Cargo.toml"), read("tests/promises.toml"));
    let folder = std::fs::read_dir(root.join("fuzz/fuzz_targets")).expect("the targets have a folder");
    let paths = folder.map(|entry| entry.expect("it is read").path());
    let mut targets: Vec<String> =
        paths.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    let listed = makefile.lines().find_map(|line| line.strip_prefix("FUZZ_TARGETS ?= ")).expect("make fuzz has a list");
    let mut listed: Vec<&str> = listed.split_whitespace().collect();
    targets.sort_unstable();
    listed.sort_unstable();
    assert_eq!(targets, listed);
    for target in &targets {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target} is not built");
        let is_promised = promises.contains(&format!("\"fuzz::{target}\""));
        assert!(is_promised || target == ELSEWHERE, "no promise names the test of {target}");
    }
}

#[test]
fn message() {
    run("message", &messages(), strowger_message::fuzz::message);
}

#[test]
fn views() {
    let mut seeds = messages();
    seeds.extend(values());
    run("views", &seeds, strowger_message::fuzz::views);
}

#[test]
fn framing() {
    // Four bytes describe the pieces of the stream; then several messages and keep-alives follow.
    let seeds: Vec<_> = messages()
        .chunks(3)
        .enumerate()
        .map(|(n, some)| [&[n as u8, n as u8 + 5, 1, 47][..], &some.join(&b"\r\n\r\n"[..])].concat())
        .map(|mut s| {
            s.truncate(LONGEST);
            s
        })
        .collect();
    run("framing", &seeds, strowger_message::fuzz::framing);
}

#[test]
fn sdp() {
    run("sdp", &descriptions(), strowger_message::sdp::fuzz::fuzz_sdp);
}

/// Exchanges of descriptions: two bytes for their course, and a zero byte after each description.
#[test]
fn negotiation() {
    let descriptions = descriptions();
    let mut seeds = files(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/negotiation")]);
    for (n, some) in descriptions.chunks(4).enumerate() {
        // Some of the offers are their own answers.
        let twice = some.iter().chain(some.iter().rev());
        let texts: Vec<u8> = twice.flat_map(|text| text.iter().copied().chain([0])).take(LONGEST - 2).collect();
        seeds.push([&[n as u8, (n >> 8) as u8 ^ 0x1b][..], &texts].concat());
    }
    run("negotiation", &seeds, strowger_core::fuzz_negotiation::negotiation);
}

/// Returns descriptions, some of them the bodies of messages.
fn descriptions() -> Vec<Vec<u8>> {
    let mut seeds = files(&[corpora().join("fuzz-seeds/sdp")]);
    seeds.push(b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 30000 RTP/AVP 0 8 101\r\na=rtpmap:101 telephone-event/8000\r\na=sendrecv\r\n".to_vec());
    for message in messages() {
        if let Some(at) = message.windows(4).position(|w| w == b"v=0\r" || w == b"v=0\n") {
            seeds.push(message[at..].to_vec());
        }
    }
    seeds
}

/// Datagrams of RTP and RTCP, WAV files, and scripts of five bytes a packet.
#[test]
fn media() {
    let mut random = Random(0x3ed1a);
    let mut seeds: Vec<Vec<u8>> = vec![
        b"\x80\x88\0\x01\0\0\0\xa0\0\0\0\x07sound".to_vec(),
        b"\xb1\xe5\0\x01\0\0\0\xa0\0\0\0\x07CSRC\xbe\xde\0\x01word\x05\x8a\x06\x40\0\0\0\x04".to_vec(),
        b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x04\0\0\0abcd".to_vec(),
    ];
    let block = ReportBlock {
        source: 7,
        fraction_lost: 51,
        lost: -2,
        highest: 0x1_0002,
        jitter: 14,
        last_report: 9,
        delay: 65_536,
    };
    let info = SenderInfo { ntp: 1 << 63, timestamp: 160, packets: 2, octets: 320 };
    let mut compound = Vec::new();
    let mut writer = CompoundWriter::new(&mut compound);
    writer.sender_report(7, &info, &[block, block]).receiver_report(7, &[block]);
    writer.description(7, b"leg@example.org").goodbye(&[7, 8], b"ends");
    seeds.push(compound);
    seeds.extend((1..60).map(|n| (0..10 * n).map(|_| (random.next() >> 32) as u8).collect()));
    run("media", &seeds, strowger_media::fuzz::fuzz_media);
}

/// Scripts of packets, changes and time, whose packets look like RTP and RTCP.
#[test]
fn session() {
    let mut random = Random(0x5e55);
    let seeds: Vec<Vec<u8>> = (1..60)
        .map(|items| {
            let mut script = vec![random.next() as u8, random.next() as u8];
            for _ in 0..items {
                let [action, time, from, second, sequence, length] = [(); 6].map(|()| (random.next() >> 32) as u8);
                let second = [0, 8, 101, 200, 201, 206][usize::from(second % 6)];
                let payload = usize::from(length % 40);
                script.extend([action, time & 63, from & 0x73, 12 + payload as u8]);
                script.extend([0x80, second, 0, sequence, 0, 0, 0, 160, 0, 0, 0, 7]);
                script.extend((0..payload).map(|_| (random.next() >> 32) as u8));
            }
            script
        })
        .collect();
    run("session", &seeds, strowger_media::fuzz::fuzz_session);
}

/// Headers of the PROXY protocol in both forms.
#[test]
fn proxy_header() {
    let lines = ["TCP4 192.0.2.1 198.51.100.7 40000 5060", "TCP6 2001:db8::1 ::1 40000 5061", "UNKNOWN"];
    let mut seeds: Vec<Vec<u8>> = lines.map(|line| format!("PROXY {line}\r\n").into_bytes()).into();
    // Command, family and protocol, and length.
    for [command, family, length] in [[0x20, 0, 0], [0x21, 0, 4], [0x21, 0x11, 12], [0x21, 0x11, 19], [0x21, 0x21, 36]]
    {
        let head = [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, family, 0, length]].concat();
        let body = [192, 0, 2, 1, 198, 51, 100, 7, 156, 64, 19, 196, 4, 0, 4, 0, 0, 0, 0].into_iter().cycle();
        seeds.push(head.into_iter().chain(body.take(length.into())).collect());
    }
    run("proxy_header", &seeds, strowger_net::proxy_protocol::fuzz_header);
}

#[test]
fn transaction() {
    // Scripts of commands; some with whole messages in them (command 10, then the length in words).
    let mut random = Random(0x7a11);
    let script =
        |length: usize, random: &mut Random| (0..length).map(|_| (random.next() >> 32) as u8).collect::<Vec<u8>>();
    let mut seeds: Vec<Vec<u8>> = (1..60).map(|n| script(10 * n, &mut random)).collect();
    for message in messages().into_iter().filter(|m| m.len() < 1020) {
        seeds.push([&script(20, &mut random), &[10, message.len().div_ceil(4) as u8][..], &message].concat());
    }
    run("transaction", &seeds, strowger_core::fuzz::transaction);
}

/// Scripts that change requests with valid route tokens and seals: each request accepted as part of a call reaches its
/// parties alone.
#[test]
fn dialog() {
    let mut random = Random(0xd1a1);
    let script = |n: usize, random: &mut Random| {
        let steps = 1 + random.below(4);
        let changes = (0..4 * steps).map(|_| (random.next() >> 32) as u8);
        std::iter::once(n as u8).chain(changes).collect::<Vec<u8>>()
    };
    let requests = strowger_core::fuzz_dialog::requests();
    let seeds: Vec<Vec<u8>> = (0..20 * requests).map(|n| script(n % requests, &mut random)).collect();
    run("dialog", &seeds, strowger_core::fuzz_dialog::dialog);
}

/// Requests within calls, each changed in up to seven ways, through the whole service: shards, sockets and connections.
///
/// `STROWGER_FUZZ_CALLS` (60,000, and 1,000,000 with `STROWGER_WHOLE=1`) is their number.
#[test]
fn calls() {
    in_background(many_calls);
}

fn many_calls() {
    let wanted = amount("STROWGER_FUZZ_CALLS", 1_000_000, 60_000);
    let kinds = strowger_tests::fuzz_calls::requests();
    let (mut random, mut sent) = (Random(seed()), 0);
    let begun = Instant::now();
    while sent < wanted {
        let mut data = Vec::new();
        for _ in 0..100 {
            // Most changes desynchronize the stream, so few requests use a stream.
            let often = if random.below(100) == 0 { 250 + random.below(6) } else { 1 + random.below(4) } as u8;
            data.extend([random.below(kinds) as u8, often]);
            data.extend((0..4 * usize::from(often % 8)).map(|_| (random.next() >> 32) as u8));
        }
        strowger_tests::fuzz_calls::calls(&data);
        sent += 100;
    }
    let (left, seconds) = (strowger_tests::fuzz_calls::left(), begun.elapsed().as_secs_f64());
    println!(
        "calls: {sent} requests in {seconds:.1} s, {:.0} a second; {left} left for a party",
        sent as f64 / seconds
    );
    assert!(left > sent / 25, "{left} of {sent} left for a party");
}
