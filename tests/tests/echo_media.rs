//! Media of calls that the server answers by an echo, as the generator and a phone judge them.

use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::fs;
use std::time::{Duration, Instant};

use strowger_tests::baresip::{Baresip, Phone, end};
use strowger_tests::control::json;
use strowger_tests::echo::{document, setup};
use strowger_tests::generator::Running;
use strowger_tests::program::{BARESIP, have};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::{undisturbed, wait};

const SOON: Duration = Duration::from_secs(30);

/// Returns the number of sockets at this address that a process watches by epoll. Free ports are bound, but not watched.
pub(crate) fn watched(process: u32, ip: [u8; 4]) -> usize {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let place = format!("{:08X}:", u32::from_le_bytes(ip));
    let sockets = read("net/udp");
    let inode = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.get(1)?.starts_with(&place).then(|| columns.get(9)?.parse::<u64>().ok())?
    };
    let sockets: BTreeSet<u64> = sockets.lines().filter_map(inode).collect();
    let descriptors = fs::read_dir(format!("/proc/{process}/fdinfo")).into_iter().flatten().flatten();
    let of_epoll = |name: String| {
        let of = |line: &str| u64::from_str_radix(line.split("ino:").nth(1)?.split(' ').next()?, 16).ok();
        let text = read(&format!("fdinfo/{name}"));
        text.lines().filter(|line| line.starts_with("tfd:")).filter_map(of).collect::<Vec<u64>>()
    };
    let targets = descriptors.flat_map(|entry| of_epoll(entry.file_name().to_string_lossy().into_owned()));
    targets.filter(|inode| sockets.contains(inode)).count()
}

#[test]
fn twenty_calls_at_a_time_hear_themselves_and_leave_nothing() {
    undisturbed(|| {
        // Each pair of ports serves several calls.
        let mut server = setup("127.0.0.51", "22000-22055").start();
        let target = server.address(Udp).to_string();
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = folder.path().join("echo.xml");
        fs::write(&file, document(Duration::from_secs(2))).expect("the folder can be written");
        fs::write(folder.path().join("sound.raw"), [0xff; 8_000]).expect("the folder can be written");
        let file = file.display().to_string();
        // An address of its own, because generators of other tests have the same ports for media.
        let mut words = vec![&*target, "--sf", &file, "--source", "127.0.0.53", "--no-preflight"];
        words.extend(["-r", "10", "-m", "80", "-l", "26"]);
        let required =
            ["media.silent==0", "media.lost==0", "media.doubled==0", "media.max_delta.p99<150ms", "media.mos.min>=4.3"];
        words.extend(required.into_iter().flat_map(|requirement| ["--require", requirement]));
        let mut generator = Running::start(&words);
        let (process, ip) = (server.process().id(), [127, 0, 0, 51]);
        let is_open = wait::until(SOON, || watched(process, ip) >= 20);
        let ran = generator.end(Duration::from_secs(60));
        assert!(is_open, "no ten calls had their sessions:\n{}", server.log());
        ran.ended_with(0);
        ran.all_successful(80);
        let count = |name: &str| ran.count("counters", name);
        assert_eq!((count("media.streams"), count("media.silent")), (80, 0), "{}", ran.said);
        // Two seconds of 50 packets a second, in each call.
        assert!((7_200..=8_400).contains(&count("media.heard")), "{}", ran.said);
        assert!(wait::until(SOON, || watched(process, ip) == 0), "{} sockets are left", watched(process, ip));
        assert_eq!(json(&server, &["calls", "list"]), serde_json::json!([]));
    });
}

/// Returns by how many decibels a tone stands over all other sound of samples at 8 kHz.
pub(crate) fn over_the_rest(samples: &[i16], frequency: f64) -> f64 {
    let (mut real, mut imaginary, mut all) = (0.0, 0.0, 0.0);
    for (place, sample) in samples.iter().enumerate() {
        let (sample, angle) = (f64::from(*sample), TAU * frequency * place as f64 / 8_000.0);
        real += sample * angle.cos();
        imaginary += sample * angle.sin();
        all += sample * sample;
    }
    let count = samples.len() as f64;
    let tone = 2.0 * (real * real + imaginary * imaginary) / (count * count);
    10.0 * (tone / (all / count - tone).max(1e-3)).log10()
}

#[test]
fn a_tone_is_found_over_other_sound() {
    let wave = |frequency: f64, level: f64, place: usize| level * (TAU * frequency * place as f64 / 8_000.0).sin();
    let sound = |other: f64| -> Vec<i16> {
        (0..1_600).map(|place| (wave(1_000.0, 8_000.0, place) + wave(440.0, other, place)) as i16).collect()
    };
    // A tenth of the level is 20 dB less.
    assert!((over_the_rest(&sound(800.0), 1_000.0) - 20.0).abs() < 0.1);
    assert!((over_the_rest(&sound(8_000.0), 1_000.0)).abs() < 0.1);
    assert!(over_the_rest(&sound(0.0), 700.0) < -20.0);
    assert!(over_the_rest(&[0; 1_600], 1_000.0) < 0.0);
}

#[test]
fn a_phone_hears_its_tone_within_a_second_of_the_answer() {
    if !have(&[BARESIP]) {
        return;
    }
    undisturbed(|| {
        let server = setup("127.0.0.52", "22000-22199").with("log.level = \"debug\"").start();
        let mut phone = Baresip::start_with_tone(
            &Phone {
                user: "alice",
                domain: "example.org",
                password: "secret-of-alice",
                server: server.address(Udp),
                outbound_name: None,
                transport: "udp",
                authority: None,
                answers: false,
                namespace: None,
                listen: end(),
            },
            1_000,
        );
        phone.registered(SOON);
        phone.order("dial", "sip:echo@example.org");
        phone.expect("CALL_ESTABLISHED", SOON);
        let answered = Instant::now();
        // A fifth of a second of tone, 20 dB over the rest.
        let is_heard = |phone: &Baresip| {
            let sound = phone.recording();
            sound.len().checked_sub(1_600).is_some_and(|from| over_the_rest(&sound[from..], 1_000.0) > 20.0)
        };
        let came = wait::until(SOON, || is_heard(&phone)).then(|| answered.elapsed());
        assert!(came.is_some_and(|time| time < Duration::from_secs(1)), "{came:?}\n{}", server.log());
        // The phone holds the call, and resumes it.
        for order in ["hold", "resume"] {
            phone.order(order, "");
            phone.expect("CALL_REMOTE_SDP", SOON);
        }
        phone.order("hangup", "");
        phone.expect("CALL_CLOSED", SOON);
        let log = server.log_with("stream ended");
        let line = log.lines().find(|line| line.contains("stream ended")).expect("it is there");
        let figure = |name: &str| -> u64 {
            let value = line.split(name).nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
            value.unwrap_or_else(|| panic!("no {name}: {line}"))
        };
        assert!(figure(" packets=") > 10 && figure(" lost=") == 0 && figure(" dropped=") == 0, "{line}");
    });
}
