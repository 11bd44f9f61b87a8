//! How many messages a second one core indexes, reads through typed views, and writes back from them.
//!
//! The seven messages of PJSIP's parser benchmark, counted as that benchmark counts: bytes read / 800. Where
//! they are missing, seven of our own.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use strowger_message::{Index, Limits};

/// Bytes of one message of the count.
const NORMAL: f64 = 800.0;
/// Header lines of each of the seven messages.
const HEADERS: [usize; 7] = [16, 13, 14, 8, 9, 9, 10];

fn main() {
    let messages = corpus();
    let limits = Limits::default();
    let mut index = Index::new();
    for (n, bytes) in messages.iter().enumerate() {
        index.parse(bytes, &limits).unwrap_or_else(|e| panic!("message {}: {e}", n + 1));
        println!("{} {}", n + 1, index.lines().len());
        assert_eq!(index.lines().len(), HEADERS[n], "header lines of message {}", n + 1);
    }
    let bytes: usize = messages.iter().map(Vec::len).sum();
    for _ in 0..5 {
        let rate = rate(bytes, || {
            for bytes in &messages {
                let _ = black_box(index.parse(black_box(bytes), &limits));
                black_box(&index);
            }
        });
        println!("index {:.2} M/s", rate / 1e6);
        let rate = self::rate(bytes, || {
            for bytes in &messages {
                let _ = black_box(strowger_message::scan::call_id(black_box(bytes)));
            }
        });
        println!("call_id {:.2} M/s", rate / 1e6);
    }
}

fn rate(bytes: usize, mut round: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = 0f64;
    while start.elapsed() < Duration::from_millis(1500) {
        let before = busy();
        for _ in 0..10000 {
            round();
        }
        best = best.max(10000.0 * bytes as f64 / NORMAL / (busy() - before).as_secs_f64());
    }
    best
}

/// Time that this thread has run: what others do on the machine does not count.
fn busy() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which `time` is.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the clock of a thread's time is part of the kernel");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn corpus() -> Vec<Vec<u8>> {
    let root = std::env::var_os("STROWGER_CORPORA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora"), PathBuf::from);
    (1..=7).map(|n| std::fs::read(root.join(format!("parser-benchmark/message-{n}.sip"))).unwrap()).collect()
}
