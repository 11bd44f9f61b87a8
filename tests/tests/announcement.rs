//! Calls that the server answers by a sound of its own: a file, a test tone.

use std::f64::consts::TAU;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use strowger_media::g711::Law;
use strowger_media::wave::{Coding, WaveFormat};
use strowger_tests::control::{done, run};
use strowger_tests::echo::Caller;
use strowger_tests::server::{Server, Setup};
use strowger_tests::wire::Transport::Udp;

const SOON: Duration = Duration::from_secs(20);

/// Starts a server whose media are at these ports of an address, and whose rule for `echo` has these keys.
fn start(ip: &str, keys: &str) -> Server {
    let media = format!("media.addresses = [\"{ip}\"]\nmedia.ports = \"22000-22199\"");
    let rule = format!("[[rule]]\nname = \"line\"\nwhen = \"request.user == 'echo'\"\n{keys}");
    Setup::on(&[Udp]).open_registrar().with("server.shards = 1").with(&media).with(&rule).start()
}

/// Calls the line, which answers. The caller sends no media.
fn call(server: &Server) -> Caller {
    Caller::call(server).unwrap_or_else(|answer| panic!("{}\n{}", String::from_utf8_lossy(&answer), server.log()))
}

/// Returns the samples of the next packets, which PCMU carries.
fn heard(caller: &Caller, packets: usize) -> Vec<i16> {
    let mut samples = Vec::new();
    for _ in 0..packets {
        let payload = caller.payload(SOON).expect("a packet");
        assert_eq!(payload.len(), 160, "20 ms of sound");
        samples.extend(payload.iter().map(|byte| Law::Mu.decode(*byte)));
    }
    samples
}

/// Returns the share of the power at this frequency (Goertzel's filter).
fn share(samples: &[i16], frequency: f64) -> f64 {
    let factor = 2.0 * (TAU * frequency / 8_000.0).cos();
    let (mut one, mut two) = (0.0, 0.0);
    for sample in samples {
        (one, two) = (f64::from(*sample) + factor * one - two, one);
    }
    let power = one * one + two * two - factor * one * two;
    let all: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    2.0 * power / (all * samples.len() as f64)
}

/// Writes a file of a fifth of a second of a sine; returns its samples as a caller hears them by PCMU.
fn write_sine(file: &Path, frequency: f64) -> Vec<i16> {
    let sine = |place: i32| (8_000.0 * (TAU * frequency * f64::from(place) / 8_000.0).sin()) as i16;
    let samples: Vec<i16> = (0..1_600).map(sine).collect();
    let mut bytes = Vec::new();
    WaveFormat { coding: Coding::Pcm16, channels: 1, rate: 8_000 }.write_header(3_200, &mut bytes);
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    fs::write(file, bytes).expect("the folder can be written");
    samples.into_iter().map(|sample| Law::Mu.decode(Law::Mu.encode(sample))).collect()
}

#[test]
fn a_caller_hears_the_file_and_then_a_bye() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("closed.wav");
    let sound = write_sine(&file, 440.0);
    let server = start("127.0.0.57", &format!("answer = \"announcement\"\nplay = \"{}\"", file.display()));
    let mut caller = call(&server);
    let answered = Instant::now();
    let first = heard(&caller, 1);
    assert!(answered.elapsed() < Duration::from_secs(1), "{:?}\n{}", answered.elapsed(), server.log());
    assert_eq!([first, heard(&caller, 9)].concat(), sound);
    let bye = caller.hung_up(SOON).expect("the call ends with the file");
    assert!(!bye.contains("Reason:"), "{bye}");
    assert_eq!(caller.payload(Duration::from_millis(300)), None);

    // A reload reads the file again.
    let sound = write_sine(&file, 900.0);
    done(&server, &["reload"]);
    assert_eq!(heard(&call(&server), 10), sound);
    // The server refuses a file that it cannot play, and keeps the one that it has.
    fs::write(&file, "no sound").expect("the folder can be written");
    let refused = run(&server, &["reload"]);
    let said = String::from_utf8_lossy(&[&refused.stdout[..], &refused.stderr[..]].concat()).into_owned();
    assert!(!refused.status.success() && said.contains("it is no WAV file") && said.contains("sox IN.wav"), "{said}");
    assert_eq!(heard(&call(&server), 10), sound);
}

#[test]
fn a_caller_hears_the_test_tone() {
    let server = start("127.0.0.58", "answer = \"tone\"");
    let mut caller = call(&server);
    let answered = Instant::now();
    let first = heard(&caller, 1);
    assert!(answered.elapsed() < Duration::from_secs(1), "{:?}\n{}", answered.elapsed(), server.log());
    // More than the second after which the tone repeats.
    let samples = [first, heard(&caller, 59)].concat();
    assert!(share(&samples, 1_004.0) > 0.99 && share(&samples, 990.0) < 0.01, "{}", share(&samples, 1_004.0));
    // Full scale is 3.17 dBm0.
    let loudest = samples.iter().map(|sample| i32::from(*sample).abs()).max();
    assert!(loudest.is_some_and(|loudest| (6_900..=7_500).contains(&loudest)), "{loudest:?}");
    // The caller holds the call, and resumes it.
    let held = caller.change("sendonly");
    assert!(held.starts_with("SIP/2.0 200") && held.contains("a=recvonly\r\n"), "{held}");
    let is_quiet = (0..200).any(|_| caller.payload(Duration::from_millis(300)).is_none());
    assert!(is_quiet, "{}", server.log());
    let resumed = caller.change("sendrecv");
    assert!(resumed.starts_with("SIP/2.0 200"), "{resumed}");
    assert!(share(&heard(&caller, 20), 1_004.0) > 0.98);
    caller.hang_up();
}
