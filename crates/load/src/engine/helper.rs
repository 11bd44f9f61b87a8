//! Work that may block, done outside the shard: names are looked up, files are read, shells are started.
//!
//! Each kind of work has a bounded queue and its own threads, which start with the first work of that kind. So a slow
//! name delays no shell, and shells start in the order of their actions.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Maximum numbers of waiting names and files, and of waiting shells. An action above the limit fails.
const WAITING: usize = 1_024;

/// Threads that look up names and read files.
const INPUT_THREADS: usize = 4;

/// Interval between searches for ended shells.
const REAP: Duration = Duration::from_secs(1);

/// Result of work, for the shard that asked for it.
#[derive(Debug)]
pub enum HelperResult {
    /// Address of a name; `None`: the name is unknown.
    Address { place: WaitingCall, host: String, address: Option<SocketAddr> },
    /// Files that were read.
    Files { place: WaitingCall, files: Vec<File> },
    /// A shell could not be started.
    NoShell { command: String, error: io::Error },
}

/// Call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingCall {
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// Number of the work among that of the shard, from 1.
    pub(super) number: u64,
}

/// Content of a file, or the reason why it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub(super) path: String,
    pub(super) content: Result<Vec<u8>, String>,
}

type Lookup = Arc<dyn Fn(&str, u16) -> Option<SocketAddr> + Send + Sync>;
type Deliver = Arc<dyn Fn(HelperResult) + Send + Sync>;

/// Helper of one shard.
pub struct Helper {
    deliver: Deliver,
    lookup: Lookup,
    input: Option<SyncSender<(WaitingCall, Input)>>,
    shells: Option<SyncSender<Shell>>,
    /// Work that calls wait for, so far.
    asked: u64,
}

enum Input {
    Name { host: String, port: u16 },
    Files { paths: Vec<String> },
}

enum Shell {
    Start {
        command: String,
        environment: Vec<(String, OsString)>,
    },
    /// Answers once all shells before it have started.
    Flush(SyncSender<()>),
}

impl Helper {
    /// Creates a helper that looks up names as the system does. `deliver` hands an answer to the shard; helper threads
    /// call it.
    pub fn new(deliver: impl Fn(HelperResult) + Send + Sync + 'static) -> Self {
        Self::with_lookup(deliver, |host, port| (host, port).to_socket_addrs().ok()?.next())
    }

    /// Creates a helper with another look-up of names.
    pub fn with_lookup(
        deliver: impl Fn(HelperResult) + Send + Sync + 'static,
        lookup: impl Fn(&str, u16) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        Self { deliver: Arc::new(deliver), lookup: Arc::new(lookup), input: None, shells: None, asked: 0 }
    }

    /// Looks up a name on this thread: before the calls begin.
    pub(super) fn look_up_now(&self, host: &str, port: u16) -> Option<SocketAddr> {
        (self.lookup)(host, port)
    }

    /// Begins a look-up and returns its number. Returns `None` if too much work waits.
    pub(super) fn look_up(&mut self, place: WaitingCall, host: &str, port: u16) -> Option<u64> {
        self.ask(place, Input::Name { host: host.to_owned(), port })
    }

    /// Begins to read files, and returns the number of the work. Returns `None` if too much work waits.
    pub(super) fn read(&mut self, place: WaitingCall, paths: Vec<String>) -> Option<u64> {
        self.ask(place, Input::Files { paths })
    }

    fn ask(&mut self, place: WaitingCall, work: Input) -> Option<u64> {
        if self.input.is_none() {
            self.input = Some(self.start_input().ok()?);
        }
        self.asked += 1;
        let place = WaitingCall { number: self.asked, ..place };
        self.input.as_ref()?.try_send((place, work)).ok().map(|()| self.asked)
    }

    fn start_input(&self) -> io::Result<SyncSender<(WaitingCall, Input)>> {
        let (input, waiting) = sync_channel(WAITING);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..INPUT_THREADS {
            let (waiting, lookup, deliver) = (waiting.clone(), self.lookup.clone(), self.deliver.clone());
            Builder::new().name("load-input".into()).spawn(move || take_input(&waiting, &lookup, &deliver))?;
        }
        Ok(input)
    }

    /// Starts a command in a shell of its own, without waiting for it.
    ///
    /// # Errors
    /// Too many commands wait.
    pub(super) fn shell(&mut self, command: String, environment: Vec<(String, OsString)>) -> Result<(), String> {
        let shells = match self.shells.take() {
            Some(shells) => shells,
            None => {
                let (shells, waiting) = sync_channel(WAITING);
                let deliver = self.deliver.clone();
                let started = Builder::new().name("load-shell".into()).spawn(move || start_all(&waiting, &deliver));
                started.map_err(|error| error.to_string())?;
                shells
            }
        };
        let sent = shells.try_send(Shell::Start { command, environment });
        self.shells = Some(shells);
        sent.map_err(|_| format!("{WAITING} commands wait to be started"))
    }

    /// Waits until all shells have started: the process may end now.
    pub(super) fn flush(&self) {
        let (to, from) = sync_channel(1);
        if self.shells.as_ref().is_some_and(|shells| shells.send(Shell::Flush(to)).is_ok()) {
            let _ = from.recv();
        }
    }
}

fn take_input(waiting: &Mutex<Receiver<(WaitingCall, Input)>>, lookup: &Lookup, deliver: &Deliver) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((place, work)) = next else { return };
        deliver(match work {
            Input::Name { host, port } => {
                let address = lookup(&host, port);
                HelperResult::Address { place, host, address }
            }
            Input::Files { paths } => HelperResult::Files { place, files: paths.into_iter().map(read).collect() },
        });
    }
}

fn read(path: String) -> File {
    let content = std::fs::read(&path).map_err(|error| error.to_string());
    File { path, content }
}

/// Starts shells and collects their ends.
fn start_all(waiting: &Receiver<Shell>, deliver: &Deliver) {
    let mut running: Vec<Child> = Vec::new();
    let mut reaped = Instant::now();
    loop {
        let next = if running.is_empty() {
            waiting.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            waiting.recv_timeout(REAP.saturating_sub(reaped.elapsed()))
        };
        match next {
            Ok(Shell::Start { command, environment }) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(&command).stdin(Stdio::null()).envs(environment);
                match shell.spawn() {
                    Ok(child) => running.push(child),
                    Err(error) => deliver(HelperResult::NoShell { command, error }),
                }
            }
            Ok(Shell::Flush(to)) => drop(to.try_send(())),
            Err(RecvTimeoutError::Timeout) => (),
            // Shells outlive the run.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if reaped.elapsed() >= REAP {
            running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            reaped = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_slow_name_delays_no_other_and_no_shell() {
        let (to, answers) = channel();
        let (go, wait) = sync_channel::<()>(0);
        let wait = Mutex::new(wait);
        let deliver = move |answer| to.send(answer).expect("the test waits");
        let mut helper = Helper::with_lookup(deliver, move |host, port| {
            if host == "slow" {
                let _ = wait.lock().expect("one look-up of this name").recv();
            }
            (host != "none").then(|| SocketAddr::from(([127, 0, 0, 1], port)))
        });
        let slow = WaitingCall { slot: 1, generation: 1, number: 0 };
        assert_eq!(helper.look_up(slow, "slow", 5_060), Some(1));
        for (number, host) in [(2, "quick"), (3, "none")] {
            assert_eq!(helper.look_up(WaitingCall { slot: 2, ..slow }, host, 5_061), Some(number));
            let Ok(HelperResult::Address { place, address, .. }) = answers.recv() else { panic!("{host}") };
            assert_eq!((place.number, address.is_some()), (number, host == "quick"));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("out");
        let command = format!("echo $WORD > {0}.part && mv {0}.part {0}", file.display());
        helper.shell(command, vec![("WORD".into(), "right".into())]).expect("a shell");
        helper.flush();
        while !file.exists() {
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_to_string(&file).expect("the output of the shell"), "right\n");
        let paths = ["out", "none"].map(|name| folder.path().join(name).display().to_string());
        assert_eq!(helper.read(slow, paths.into()), Some(4));
        let Ok(HelperResult::Files { place, files }) = answers.recv() else { panic!("no files") };
        assert_eq!((place.number, files[0].content.as_deref()), (4, Ok(&b"right\n"[..])));
        assert!(files[1].content.is_err() && files.len() == 2, "{files:?}");
        go.send(()).expect("the look-up waits");
        let Ok(HelperResult::Address { place, .. }) = answers.recv() else { panic!("no answer") };
        assert_eq!(place, WaitingCall { number: 1, ..slow });
    }

    #[test]
    fn the_queue_is_bounded() {
        let (go, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let mut helper = Helper::with_lookup(
            |_| (),
            move |_, _| {
                let _ = wait.lock().ok()?.recv();
                None
            },
        );
        let place = WaitingCall { slot: 0, generation: 1, number: 0 };
        let taken = (0..WAITING + INPUT_THREADS + 1).filter(|_| helper.look_up(place, "slow", 1).is_some()).count();
        assert!((WAITING..=WAITING + INPUT_THREADS).contains(&taken), "{taken}");
        drop(go);
    }
}
