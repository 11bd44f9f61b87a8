//! One case played with two programs, and a comparison of their messages.

pub mod bench;
pub mod books;
pub mod case;
pub mod peer;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::process::Process;
use case::Case;
use peer::Peer;

/// Addresses of a case; both programs get the same.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// Port of the peer.
    pub peer: u16,
    /// Port of the program.
    pub own: u16,
    /// Control socket of the program.
    pub control: u16,
    /// Media port of the program: SIPp takes it and some that follow.
    pub media: u16,
}

impl Ports {
    /// Ports on a separate network, where all are free.
    pub const OWN: Self = Self { peer: 4_000, own: 4_001, control: 4_002, media: 4_010 };

    /// Returns free ports: below those of [`crate::port`], so that no other test takes them, and spaced, because SIPp
    /// takes some ports after its media port.
    ///
    /// # Panics
    /// All blocks are in use.
    pub fn free() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        const BLOCKS: u32 = 250;
        for _ in 0..BLOCKS {
            let n = (std::process::id() * 7 + NEXT.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
            let first = 4_000 + 20 * n as u16;
            let unused = |port: u16| {
                UdpSocket::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok()
            };
            if (first..first + 20).all(unused) {
                return Self { peer: first, own: first + 1, control: first + 2, media: first + 10 };
            }
        }
        panic!("no port of 127.0.0.1 is free");
    }

    /// Returns all ports that a case may use.
    const fn taken(self) -> Range<u32> {
        self.peer as u32..self.peer as u32 + 20
    }
}

/// Behaviour of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played {
    /// Messages that the program sent and received, with process id and times replaced.
    pub messages: Vec<String>,
    /// Messages that the peer expected in vain.
    pub missed: Vec<String>,
    /// Exit code of the program; `None` if it had to be killed.
    pub exit: Option<i32>,
    /// Counts of the program, see [`books::of`].
    pub books: Vec<String>,
}

impl Played {
    /// Hides the process ids in two runs of the same case. The process id of one run may by chance be a number in both
    /// runs.
    pub fn hide_both(one: &mut (u32, Self), other: &mut (u32, Self)) {
        for (played, pid) in [(&mut one.1, other.0), (&mut other.1, one.0)] {
            for message in &mut played.messages {
                *message = replaced(message, &pid.to_string(), "PID");
            }
        }
    }
}

/// Plays a case with a program; `program` has the first words of its command line. Returns the process id of the
/// program, and its behaviour. Files are written to the folder.
///
/// # Panics
/// The program does not start.
pub fn play(case: &Case, program: &[&Path], ports: Ports, folder: &Path) -> (u32, Played) {
    let address = |port: u16| SocketAddr::new(case.address, port);
    for (name, text) in &case.files {
        std::fs::write(folder.join(name), text).expect("the folder can be written");
    }
    let mut command = Command::new(program[0]);
    command.args(&program[1..]);
    if let Some(document) = &case.document {
        command.arg("-sf").arg(document);
    }
    let expand = |word: &String| {
        let mut word = word.clone();
        for (name, port) in [("{peer}", ports.peer), ("{port}", ports.own), ("{media}", ports.media)] {
            word = word.replace(name, &port.to_string());
        }
        word
    };
    command.args(case.arguments.iter().map(expand));
    let ip = case.address.to_string();
    let [own, control, media] = [ports.own, ports.control, ports.media].map(|p| p.to_string());
    command.args(["-trace_stat", "-stf", books::STATISTICS, "-trace_counts"]);
    command.args(["-nostdin", "-i", &ip, "-p", &own, "-cp", &control, "-mp", &media]);
    // SIPp counts a warning when it was delayed, as happens on a busy machine.
    command.args(["-watchdog_minor_threshold", "600000", "-watchdog_major_threshold", "600000"]);
    if !case.answers {
        command.arg(address(ports.peer).to_string());
    }
    command.env("TERM", "dumb").current_dir(folder);
    let streams = case.streams();
    // A process id equal to one of the ports would be ambiguous in the messages.
    let (mut called, mut process) = loop {
        let called = (!case.answers).then(|| Peer::called(address(ports.peer), address(ports.own), streams));
        let process = Process::start("program", folder, &mut command);
        if !ports.taken().contains(&process.id()) {
            break (called, process);
        }
    };
    let pid = process.id();
    let mut peer = match called.take() {
        Some(peer) => peer,
        None => {
            let end = Instant::now() + Duration::from_secs(5);
            while !streams && !is_bound(ports.own) && Instant::now() < end {
                // Poll interval.
                std::thread::sleep(Duration::from_millis(10));
            }
            Peer::calling(address(ports.peer), address(ports.own), streams)
        }
    };
    peer.play(&case.script, || process.ended().is_some());
    let end = Instant::now() + Duration::from_secs(case.limit);
    while process.ended().is_none() && Instant::now() < end {
        peer.listen(Duration::from_millis(20));
    }
    let exit = process.ended().and_then(|status| status.code());
    process.kill();
    peer.listen(Duration::from_millis(30));
    // Sockets of calls have any port, which is replaced, too.
    let any: Vec<u16> = peer.ports().iter().copied().filter(|port| case.is_apart() && *port != ports.own).collect();
    let (record, missed) = peer.record();
    let message = |bytes: &Vec<u8>| {
        let text = normal(bytes, pid, &case.times);
        any.iter().fold(text, |text, port| replaced(&text, &port.to_string(), "PORT"))
    };
    let messages = record.iter().map(|(_, bytes)| message(bytes)).collect();
    (pid, Played { messages, missed, exit, books: books::of(folder) })
}

fn is_bound(port: u16) -> bool {
    let table = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let end = format!(":{port:04X}");
    // The table of this thread's network.
    let both = table("/proc/thread-self/net/udp") + &table("/proc/thread-self/net/udp6");
    both.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end)))
}

/// Returns the message with the process id as `PID`, and `#` for the numbers of lines with times. Line ends are shown.
fn normal(bytes: &[u8], pid: u32, times: &[String]) -> String {
    let text: String = bytes.iter().map(|&b| b as char).collect();
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        let line = line.replace('\r', "\\r");
        let timed = times.iter().any(|name| line.starts_with(&format!("{name}:")));
        if timed {
            let mut shape = String::new();
            for c in line.chars() {
                match c {
                    '0'..='9' if shape.ends_with('#') => (),
                    '0'..='9' => shape.push('#'),
                    c => shape.push(c),
                }
            }
            lines.push(shape);
        } else {
            lines.push(replaced(&line, &pid.to_string(), "PID"));
        }
    }
    lines.concat()
}

/// Replaces the number if no digit is beside it: a longer number, such as a time, may contain the process id by chance.
fn replaced(line: &str, number: &str, word: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(number) {
        let end = at + number.len();
        let digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_digit);
        let alone = !digit(rest.as_bytes()[..at].last()) && !digit(rest.as_bytes().get(end));
        text += &rest[..at];
        text += if alone { word } else { number };
        rest = &rest[end..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pid_and_times_are_replaced() {
        let message = b"A: z-12-1-0 112 12\r\nTick: 12:13\r\n";
        assert_eq!(normal(message, 12, &["Tick".into()]), "A: z-PID-1-0 112 PID\\r\nTick: #:#\\r\n");
    }

    #[test]
    fn a_pid_that_is_a_number_of_the_message_makes_no_difference() {
        let played = |pid: u32, length: u32| {
            let message = format!("A: z-{pid}-1\r\nContent-Length: {length}\r\n");
            let messages = vec![normal(message.as_bytes(), pid, &[])];
            (pid, Played { messages, missed: Vec::new(), exit: None, books: Vec::new() })
        };
        for (ours, length, same) in [(4711, 315, true), (315, 315, true), (4711, 316, false)] {
            let (mut theirs, mut ours) = (played(315, 315), played(ours, length));
            Played::hide_both(&mut theirs, &mut ours);
            assert_eq!(theirs.1 == ours.1, same);
        }
    }
}
