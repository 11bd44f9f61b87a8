//! SIPp and `strowger sipp` on a network of their own, where every port is free.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::binary;
use crate::process::Process;
use crate::program::{IP, SIPP};

/// Program that plays a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// `strowger sipp`.
    Ours,
    /// Debian's SIPp 3.6.1.
    Theirs,
}

/// Side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Makes calls.
    Calls,
    /// Answers calls.
    Answers,
}

/// Run of a case: its folder, and the programs of both sides.
#[derive(Debug)]
pub struct Bench {
    folder: tempfile::TempDir,
    /// Program that makes calls.
    pub caller: Who,
    /// Program that answers calls.
    pub callee: Who,
    names: u32,
}

impl Bench {
    /// Copies the files of these folders into a folder of its own.
    ///
    /// # Panics
    /// The files cannot be copied.
    pub fn new(caller: Who, callee: Who, folders: &[&Path]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for from in folders {
            for entry in from.read_dir().unwrap_or_else(|e| panic!("{}: {e}", from.display())) {
                let entry = entry.expect("a folder can be read");
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a file can be copied");
            }
        }
        Self { folder, caller, callee, names: 0 }
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the text of a file; empty if there is none.
    pub fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// Returns the command line of a side, without `-nostdin`.
    ///
    /// # Panics
    /// SIPp is missing.
    pub fn command(&self, side: Side, words: &str) -> Command {
        let who = if side == Side::Calls { self.caller } else { self.callee };
        let mut command = match who {
            Who::Ours => {
                let mut command = Command::new(binary::strowger());
                command.arg("sipp");
                command
            }
            Who::Theirs => Command::new(SIPP.path().expect("sipp is there")),
        };
        // Two quotes are an empty word.
        command.args(words.split_whitespace().map(|word| if word == "''" { "" } else { word }));
        command.env("TERM", "dumb").current_dir(self.folder.path());
        command
    }

    /// Starts a command in the folder.
    pub fn start(&mut self, command: &mut Command) -> Process {
        self.names += 1;
        Process::start(&format!("process{}", self.names), self.folder.path(), command)
    }

    /// Starts a side in the background and checks it after a second.
    ///
    /// # Panics
    /// The side has ended with an error by then.
    pub fn background(&mut self, side: Side, words: &str) -> Process {
        let mut command = self.command(side, words);
        let mut process = self.start(command.arg("-nostdin"));
        // SIPp prints nothing when it begins to listen, so the test waits.
        std::thread::sleep(Duration::from_secs(1));
        if let Some(status) = process.ended() {
            assert!(status.success(), "{side:?} {words}: {status}\n{}", process.tail());
        }
        process
    }

    /// Runs a side to its end; returns the exit code.
    pub fn foreground(&mut self, side: Side, words: &str) -> Option<i32> {
        let mut command = self.command(side, words);
        self.start(command.arg("-nostdin")).end(Duration::from_secs(30)).code()
    }
}

/// Moves this thread and its children to a network of their own, with the loopback interface up. Returns whether the
/// system allows this.
pub fn leave() -> bool {
    // SAFETY: unshare only changes the network namespace of this thread and its children.
    IP.path().is_some()
        && unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0
        && Command::new("ip").args(["link", "set", "lo", "up"]).status().is_ok_and(|status| status.success())
}

/// Runs `work` on a network of its own, with the loopback interface up. If the system does not allow this, callers of
/// this function use the machine's own ports one after the other.
///
/// # Errors
/// The panic message of `work`.
pub fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    static TURN: Mutex<()> = Mutex::new(());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _turn = (!leave()).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
            work()
        });
        thread.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into())).unwrap_or_else(|| "a panic".into())
        })
    })
}

/// Recorded input: the sender, and all bytes.
pub type Heard = (SocketAddr, Vec<u8>);

/// Accepts one connection and records its bytes without an answer.
///
/// # Panics
/// The port is in use.
pub fn record_stream(port: u16) -> Receiver<Heard> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    let (to, from) = channel();
    std::thread::spawn(move || {
        let Ok((mut stream, peer)) = listener.accept() else { return };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        let (mut all, mut buffer, mut quiet) = (Vec::new(), [0; 65_536], Instant::now());
        // Complete after a pause without bytes.
        while all.is_empty() || quiet.elapsed() < Duration::from_millis(400) {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    all.extend_from_slice(&buffer[..n]);
                    quiet = Instant::now();
                }
                Err(_) if quiet.elapsed() > Duration::from_secs(5) => break,
                Err(_) => (),
            }
        }
        let _ = to.send((peer, all));
        // The connection stays open until the peer closes it.
        while matches!(stream.read(&mut buffer), Ok(1..) | Err(_)) && quiet.elapsed() < Duration::from_secs(10) {}
    });
    from
}

/// Waits for one datagram.
///
/// # Panics
/// The port is in use.
pub fn record_datagram(port: u16, patience: Duration) -> Receiver<Heard> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    socket.set_read_timeout(Some(patience)).expect("a socket can be told");
    let (to, from) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        if let Ok((n, peer)) = socket.recv_from(&mut buffer) {
            let _ = to.send((peer, buffer[..n].to_vec()));
        }
    });
    from
}

/// Plays each case on a network of its own, several at a time. Returns the names of the cases that failed, with their
/// messages.
pub fn play_all<T: Sync>(
    cases: &[T],
    at_once: usize,
    name: impl Fn(&T) -> String + Sync,
    play: impl Fn(&T) + Sync,
) -> Vec<(String, String)> {
    let queue = Mutex::new(cases.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("nobody panics with it").next();
                    let Some(case) = next else { return };
                    if let Err(text) = alone(|| play(case)) {
                        wrong.lock().expect("nobody panics with it").push((name(case), text));
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().expect("the threads have ended");
    wrong.sort();
    wrong
}
