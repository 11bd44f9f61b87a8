//! Recordings: files while calls last, at their end, and where nothing can be written.

use super::*;
use std::path::Path;
use strowger_media::session::RecordedSound;
use strowger_media::wave::Wave;

/// Returns a recording of a phone into this file, after a tone of 20 ms.
fn recording(phone: &Phone, ports: PortPair, file: &Path) -> StreamOrder {
    let sound = Arc::new(Sound::new([0; 160]));
    let tone = PlayedSound { sound, payload_type: 0, law: Law::Mu, packet_time: 20, repeats: false };
    let recorded = RecordedSound { tone, laws: vec![(0, Law::Mu)], file: file.into(), limit: 60_000_000 };
    StreamOrder { kind: StreamKind::Recording(recorded), near: phone.peer(ports, 0, 0), far: None }
}

/// Returns the samples of a file, as its header counts them.
fn samples(file: &Path) -> Vec<i16> {
    let bytes = std::fs::read(file).unwrap_or_default();
    Wave::read(&bytes).map(|wave| wave.samples().collect()).unwrap_or_default()
}

/// Sends a packet of this sound each 20 ms until the file has a sample of it.
fn send_until_recorded(bench: &Bench, phone: &mut Phone, (ports, file): (PortPair, &Path), sound: u8) {
    let (begun, sample) = (Instant::now(), Law::Mu.decode(sound));
    while !samples(file).contains(&sample) {
        assert!(begun.elapsed() < SOON, "{:?}", samples(file).len());
        phone.send(bench.at(ports), &[sound; 160]);
        std::thread::sleep(Duration::from_millis(20)); // packet time of a phone
    }
}

#[test]
fn a_recording_can_be_read_during_the_call_and_is_completed_at_its_end() {
    let mut bench = Bench::start(&settings(17, 20_000..=20_003));
    let (mut phone, ports) = (Phone::new(), bench.lend(0, 0, 1)[0]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.wav");
    bench.set(0, 1, recording(&phone, ports, &file));
    assert_eq!(phone.hear().0, 0, "the tone");
    send_until_recorded(&bench, &mut phone, (ports, &*file), 0x20);
    assert!(matches!(bench.event(0), SessionEvent::Heard { .. }));
    // A change of the session continues the file.
    bench.set(0, 1, recording(&phone, ports, &file));
    send_until_recorded(&bench, &mut phone, (ports, &*file), 0x30);
    let before = samples(&file).len();
    for _ in 0..10 {
        phone.send(bench.at(ports), &[0x40; 160]);
    }
    bench.order(0, 0, SessionOrder::Close { key: SessionKey(1) });
    while !matches!(bench.event(0), SessionEvent::Closed { .. }) {}
    let begun = Instant::now();
    while samples(&file).len() <= before {
        assert!(begun.elapsed() < SOON, "the header was not completed");
        std::thread::yield_now();
    }
    let is_open = || {
        let open = std::fs::read_dir("/proc/self/fd").expect("a table of descriptors").flatten();
        open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|path| path == file)
    };
    while is_open() {
        assert!(begun.elapsed() < SOON, "the file is still open");
        std::thread::yield_now();
    }
    assert_eq!(bench.threads.total().recording_lost, 0);
}

#[test]
fn the_end_of_the_threads_completes_a_recording() {
    let mut bench = Bench::start(&settings(18, 20_000..=20_003));
    let (mut phone, ports) = (Phone::new(), bench.lend(0, 0, 1)[0]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.wav");
    bench.set(0, 1, recording(&phone, ports, &file));
    assert_eq!(phone.hear().0, 0, "the tone");
    send_until_recorded(&bench, &mut phone, (ports, &*file), 0x20);
    drop(bench);
    let bytes = std::fs::metadata(&file).expect("it is there").len();
    assert_eq!(samples(&file).len() as u64, (bytes - 44) / 2);
}

#[test]
fn a_file_that_cannot_be_written_ends_its_recording_alone() {
    let mut bench = Bench::start(&settings(19, 20_000..=20_007));
    let (phone, mut other) = (Phone::new(), Phone::new());
    let pairs = bench.lend(0, 0, 2);
    let folder = tempfile::tempdir().expect("a folder");
    bench.set(0, 1, echo(&other, pairs[1]));
    // A folder that is missing, and a disk that is full.
    for (number, file) in (1..).zip([&*folder.path().join("missing/a.wav"), Path::new("/dev/full")]) {
        let key = SessionKey(1 + number);
        let order = recording(&phone, pairs[0], file);
        bench.order(0, 0, SessionOrder::Set { key, version: 1, streams: vec![Some(order)] });
        assert_eq!(bench.event(0), SessionEvent::RecordingFailed { key });
        assert_eq!(bench.threads.total().recordings_failed, number);
        bench.order(0, 0, SessionOrder::Close { key });
        assert!(matches!(bench.event(0), SessionEvent::Closed { .. }));
    }
    other.send(bench.at(pairs[1]), b"hello");
    assert_eq!(other.hear().1, b"hello");
}
