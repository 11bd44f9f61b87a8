//! Oracle: SIPp 3.6.1's verdicts on documents.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// SIPp's reaction to a document.
#[derive(Debug)]
pub(crate) struct SippReaction {
    pub(crate) refused: bool,
    /// First line that SIPp printed.
    pub(crate) reason: String,
    /// First message that SIPp sent.
    pub(crate) first: Option<Vec<u8>>,
}

/// Runs SIPp 3.6.1 until its first message, its end, or a timeout.
fn run(path: &Path, options: &[String], number: usize) -> SippReaction {
    for attempt in 0..3 {
        let target = UdpSocket::bind("127.0.0.1:0").expect("a port");
        target.set_nonblocking(true).expect("a socket option");
        let address = format!("127.{}.{}.{}", 100 + attempt, number >> 8 & 255, number & 255);
        let control = 10_000 + attempt * 2000 + number % 2000;
        let mut sipp = Command::new("sipp")
            .arg("-sf")
            .arg(path.file_name().expect("a file"))
            .args(["-m", "1", "-timeout", "1", "-nostdin", "-i", &address, "-p", "5060", "-cp", &control.to_string()])
            .args(options)
            .arg(target.local_addr().expect("a bound socket").to_string())
            .current_dir(path.parent().expect("a folder"))
            .env("TERM", "dumb")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sipp is installed");
        let start = Instant::now();
        let mut buffer = vec![0; 65_536];
        let mut first = None;
        let ended = loop {
            first = first.or_else(|| target.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()));
            if let Some(status) = sipp.try_wait().expect("a child") {
                break Some(status);
            }
            if first.is_some() || start.elapsed() > Duration::from_secs(4) {
                sipp.kill().expect("a child of ours");
                break None;
            }
            // Between two looks.
            std::thread::sleep(Duration::from_millis(5));
        };
        let output = sipp.wait_with_output().expect("a child");
        first = first.or_else(|| target.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = ended.and_then(|status| status.code());
        if text.contains("Address already in use") {
            continue;
        }
        // 0 is the end of all calls, 97 and 99 are timeouts; other codes are errors.
        let refused = first.is_none() && !matches!(code, None | Some(0 | 97 | 99));
        let line = text.lines().find(|line| line.contains('\t')).unwrap_or_default();
        let reason = line.rsplit_once(": ").map_or(line, |(_, reason)| reason);
        let reason = line.split_once(": ").map_or(reason, |(_, reason)| reason);
        return SippReaction { refused, reason: reason.to_owned(), first };
    }
    panic!("{}: no address is free", path.display());
}

/// SIPp 3.6.1, if installed.
pub(crate) struct Oracle(());

impl Oracle {
    pub(crate) fn find() -> Option<Self> {
        match Command::new("sipp").arg("-v").output() {
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("v3.6.1") => Some(Self(())),
            other => {
                println!("SIPp 3.6.1 is not installed ({other:?}): nothing to compare with");
                None
            }
        }
    }

    /// Returns verdicts on all, in their order, eight at a time. `how` returns the document and the options.
    pub(crate) fn judge<T: Sync>(
        &self,
        list: &[T],
        how: impl Fn(&T) -> (PathBuf, Vec<String>) + Sync,
    ) -> Vec<SippReaction> {
        let next = AtomicUsize::new(0);
        let verdicts = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = list.get(number) else { return };
                        let (path, options) = how(item);
                        let verdict = run(&path, &options, number);
                        verdicts.lock().expect("no thread panics holding it").insert(number, verdict);
                    }
                });
            }
        });
        verdicts.into_inner().expect("all threads ended well").into_values().collect()
    }
}
