//! Keys of the terminal during a run, read without Enter and without echo. The terminal is restored at the end of the
//! run and at Ctrl-Z. A run in the background of a shell has no keys.

use crate::sipp::keys;
use crate::sipp::terminal::Terminal;
use rustix::process::{Signal, getpid, kill_process};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Terminal for [`restore`].
static TAKEN: OnceLock<Arc<Line>> = OnceLock::new();

/// Pause of the reader while it may not read.
const PAUSE: Duration = Duration::from_millis(100);

/// Terminal with its reader.
struct Line {
    terminal: Arc<Terminal>,
    /// Locked while the reader uses the terminal, because a process that is stopped within a read cannot continue in
    /// the background.
    reading: Mutex<()>,
    over: AtomicBool,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Sends the typed bytes until the end of the run.
    fn read(&self, to: &Sender<u8>) {
        let mut bytes = [0; 64];
        loop {
            let lock = self.lock();
            if self.over.load(SeqCst) {
                return;
            }
            if !Terminal::is_ours() {
                drop(lock);
                std::thread::sleep(PAUSE);
                continue;
            }
            self.terminal.set();
            let begun = Instant::now();
            let read = std::io::stdin().lock().read(&mut bytes).unwrap_or(0);
            drop(lock);
            if bytes[..read].iter().any(|&byte| to.send(byte).is_err()) {
                return;
            }
            // A read from a closed terminal returns at once. In the pause other threads can take the lock.
            let closed = read == 0 && begun.elapsed() < PAUSE / 2;
            std::thread::sleep(if closed { PAUSE } else { Duration::from_millis(1) });
        }
    }

    fn stop(&self) {
        let _lock = self.lock();
        self.terminal.give_back();
        let _ = kill_process(getpid(), Signal::STOP);
        // The stop comes during this sleep.
        std::thread::sleep(Duration::from_millis(20));
    }

    fn end(&self) {
        self.over.store(true, SeqCst);
        let _lock = self.lock();
        self.terminal.give_back();
    }
}

/// Reader of keys. Dropping it restores the terminal.
pub struct Keys {
    typed: Receiver<u8>,
    line: Arc<Line>,
}

impl Keys {
    /// Starts to read the terminal of the process. Returns `None` if standard input is no terminal, or if the process
    /// runs in the background.
    pub fn read() -> Option<Self> {
        let terminal = Terminal::of_keys()?;
        let line = Arc::new(Line { terminal, reading: Mutex::new(()), over: AtomicBool::new(false) });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let stopped = line.clone();
        keys::stops(runtime.handle(), move || {
            stopped.stop();
            true
        });
        let mut quit = {
            let _context = runtime.enter();
            signal(SignalKind::quit()).ok()?
        };
        let thread = std::thread::Builder::new().name("keys-signals".into());
        let end = async move {
            quit.recv().await;
            restore();
            // Exit code as a shell reports it: 128 plus the number of the signal.
            std::process::exit(131);
        };
        thread.spawn(move || runtime.block_on(end)).ok()?;
        let (to, typed) = channel();
        let reader = line.clone();
        std::thread::Builder::new().name("keys".into()).spawn(move || reader.read(&to)).ok()?;
        let _ = TAKEN.set(line.clone());
        Some(Self { typed, line })
    }

    /// Returns the next pressed key.
    pub fn next(&self) -> Option<u8> {
        self.typed.try_recv().ok()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.line.end();
    }
}

/// Restores the terminal before the process exits immediately.
pub fn restore() {
    if let Some(line) = TAKEN.get() {
        line.end();
    }
}
