//! The log is harmless: with any standard error and any input of peers the server keeps working, and lines stay short.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use strowger_tests::wait;

use strowger_tests::account::authorized;
use strowger_tests::binary::strowger;
use strowger_tests::limits::SmallDisk;
use strowger_tests::process::waits_for_children;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport;

const SOON: Duration = Duration::from_secs(10);

/// Maximum size of a line, in bytes.
const LONGEST: usize = 2_048;

/// Server with a given standard error.
struct Launched {
    server: Server,
    child: Child,
}

impl Launched {
    fn new(lines: &str, standard_error: Stdio) -> Self {
        Self::of(
            Setup::on(&[Transport::Udp, Transport::Tcp])
                .with(&format!("domains = [\"example.org\"]\n{lines}"))
                .prepare(),
            standard_error,
        )
    }

    fn of(server: Server, standard_error: Stdio) -> Self {
        waits_for_children();
        server.add_user("bob@example.org", "his password");
        let child = Command::new(strowger())
            .args(["serve", "--config"])
            .arg(server.config())
            .current_dir(server.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(standard_error)
            .process_group(0)
            .spawn()
            .expect("the program runs");
        let mut this = Self { server, child };
        this.assert_answers();
        this
    }

    fn address(&self) -> SocketAddr {
        self.server.address(Transport::Udp)
    }

    fn assert_answers(&mut self) {
        let socket = socket(1, self.address());
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            let uri = format!("sip:{}", self.address());
            let request = Request::new("OPTIONS", &uri, "udp", socket.local_addr().expect("it is bound"));
            let _ = socket.send(&request.bytes());
            if receive(&socket, Duration::from_millis(200)).as_deref().and_then(status) == Some(200) {
                return;
            }
            let ended = self.child.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "the server ended: {ended:?}");
        }
        panic!("the server does not answer");
    }

    /// Sends SIGTERM, and asserts that it ends by itself, with exit code 0.
    fn assert_ends(&mut self) {
        // SAFETY: the child was not waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let ended = wait::look(SOON, || self.child.try_wait().expect("a child can be asked"));
        assert_eq!(ended.expect("the server ends").code(), Some(0), "{ended:?}");
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a client at 127.0.0.HOST.
fn socket(host: u8, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)).expect("loopback has ports");
    socket.connect(server).expect("loopback leads there");
    socket
}

fn receive(socket: &UdpSocket, limit: Duration) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(limit)).expect("a socket can be set");
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

/// Registers as bob with a wrong password and a Call-ID of 40,000 quotation marks; returns the status.
fn fail(socket: &UdpSocket) -> Option<u16> {
    let here = socket.local_addr().expect("it is bound");
    let mut request = Request::register("bob", "example.org", "sip:bob@127.0.0.1", "udp", here);
    request.call_id = format!("{}{}", "\"".repeat(40_000), request.call_id);
    socket.send(&request.bytes()).expect("loopback takes it");
    let asked = receive(socket, SOON)?;
    socket.send(&authorized(&request, &asked, "bob", "a guess").bytes()).expect("loopback takes it");
    status(&receive(socket, SOON)?)
}

/// Creates a pipe that holds 4096 bytes: returns the reading and the writing end.
fn pipe() -> (File, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a descriptor is left");
    let writer = OwnedFd::from(writer);
    // SAFETY: a call about a descriptor of ours.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4_096) };
    assert_eq!(size, 4_096);
    (File::from(OwnedFd::from(reader)), writer)
}

/// Reads until the end, or until nothing comes for this time.
fn read_all(pipe: &mut File, limit: Duration) -> String {
    let mut text = Vec::new();
    let mut ready = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure of ours.
    while unsafe { libc::poll(&raw mut ready, 1, limit.as_millis() as i32) } > 0 {
        let mut buffer = [0; 65_536];
        match pipe.read(&mut buffer).expect("a pipe can be read") {
            0 => break,
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
    String::from_utf8(text).expect("lines are text")
}

fn assert_short(log: &str) {
    let longest = log.lines().map(str::len).max().unwrap_or(0);
    assert!(longest <= LONGEST, "a line of {longest} bytes");
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("every Linux has it"));
    let gone = || {
        let (reader, writer) = pipe();
        drop(reader);
        Stdio::from(writer)
    };
    for standard_error in [full(), gone()] {
        let mut launched = Launched::new("", standard_error);
        let socket = socket(1, launched.address());
        for _ in 0..3 {
            assert_eq!(fail(&socket), Some(401));
        }
        launched.assert_answers();
        launched.assert_ends();
    }
}

#[test]
fn a_log_that_is_not_read_holds_up_nothing() {
    let (mut reader, writer) = pipe();
    let mut launched = Launched::new("", Stdio::from(writer));
    let mut lines = 0;
    for host in 1..=5 {
        let socket = socket(host, launched.address());
        for _ in 0..8 {
            assert_eq!(fail(&socket), Some(401));
            lines += 1;
        }
    }
    launched.assert_answers();
    let log = read_all(&mut reader, Duration::from_millis(500));
    assert_eq!(log.lines().filter(|line| line.contains("authentication failed")).count(), lines, "{log}");
    assert_short(&log);
    // The pipe is not read any more; the server does not wait for its last lines for ever.
    launched.assert_ends();
}

#[test]
fn lines_that_find_no_room_are_counted() {
    let (mut reader, writer) = pipe();
    let mut launched = Launched::new("log.refusals_per_minute = 1000000", Stdio::from(writer));
    let socket = socket(1, launched.address());
    let sent = 12_000;
    for n in 0..sent {
        let here = socket.local_addr().expect("it is bound");
        let request = Request::new("OPTIONS", "sip:example.org", "udp", here)
            .with(format!("User-Agent: friendly-scanner {}", "x".repeat(200)));
        socket.send(&request.bytes()).expect("loopback takes it");
        if n % 50 == 0 {
            launched.assert_answers();
        }
    }
    launched.assert_answers();
    let log = read_all(&mut reader, Duration::from_millis(500));
    let written = log.lines().filter(|line| line.contains("scanner dropped")).count();
    assert!(written > 100 && written < sent, "{written}");
    let lost = sent - written;
    // A line leaves the queue while others come, so there may be several reports.
    let reports = log.lines().filter_map(|line| line.split_once("suppressed log lines count=")?.1.split(' ').next());
    let reported: usize = reports.map(|count| count.parse::<usize>().expect("a number")).sum();
    assert_eq!(reported, lost, "{written} written\n{}", log.lines().last().unwrap_or_default());
    assert_short(&log);
    // At the end the pipe is read again.
    let end = std::thread::spawn(move || read_all(&mut reader, SOON));
    launched.assert_ends();
    let log = end.join().expect("it was read");
    assert!(log.contains(&format!("log_lines_lost={lost}")), "{log}");
}

#[test]
fn what_a_full_disk_loses_is_counted_when_there_is_room_again() {
    let Some(disk) = SmallDisk::mount("64k") else { return };
    let path = disk.folder().join("strowger.log");
    let log = File::options().create(true).append(true).open(&path).expect("there is room");
    let mut launched = Launched::new("", Stdio::from(log));
    disk.fill();
    let socket = socket(1, launched.address());
    // More than the rest of the log's last page.
    for _ in 0..10 {
        assert_eq!(fail(&socket), Some(401));
    }
    for host in 2..=6 {
        let socket = self::socket(host, launched.address());
        for _ in 0..8 {
            assert_eq!(fail(&socket), Some(401));
        }
    }
    launched.assert_answers();
    // Lines that arrive close together are written together: the last page of the log is full after the attempt.
    let is_full = || std::fs::metadata(&path).expect("it is there").len() % 4_096 == 0;
    assert!(wait::until(SOON, is_full), "the disk is not full");
    disk.free();
    let mut hosts = 10..=255;
    let mut text = String::new();
    let is_told = wait::until(SOON, || {
        let socket = self::socket(hosts.next().unwrap_or(255), launched.address());
        assert_eq!(fail(&socket), Some(401));
        text = std::fs::read_to_string(&path).expect("it is there");
        text.contains("suppressed log lines count=")
    });
    assert!(is_told, "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    assert_short(&text);
    launched.assert_ends();
}

/// Wrong passwords with Call-IDs of 40 kB, unreadable credentials, and scanners from many sources.
#[test]
fn a_line_is_short_whatever_a_peer_sends() {
    for format in ["text", "json"] {
        let lines =
            format!("domains = [\"example.org\"]\nban.exempt = []\nlog.format = \"{format}\"\nlog.level = \"debug\"");
        let server = Setup::on(&[Transport::Udp, Transport::Tcp]).with(&lines).start();
        server.add_user("bob@example.org", "his password");
        let address = server.address(Transport::Udp);
        for host in 1..=3 {
            assert_eq!(fail(&socket(host, address)), Some(401));
        }
        let long = "\"".repeat(40_000);
        let socket = socket(4, address);
        for header in ["Authorization: Digest realm=\"example.org\", ", "User-Agent: ", "Subject: "] {
            let here = socket.local_addr().expect("it is bound");
            let mut request = Request::register("bob", "example.org", "sip:bob@127.0.0.1", "udp", here)
                .with(format!("{header}{long}"));
            request.from = format!("<sip:{}@example.org>;tag=1", "%22".repeat(5_000));
            socket.send(&request.bytes()).expect("loopback takes it");
            receive(&socket, SOON);
        }
        for host in 10..40 {
            let mut stream = from(host, server.address(Transport::Tcp));
            let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 5060);
            let request = Request::new("OPTIONS", "sip:example.org", "tcp", here)
                .with(format!("User-Agent: friendly-scanner \u{1}{}", "\u{7f}".repeat(50_000)));
            stream.write_all(&request.bytes()).expect("loopback takes it");
            // The wait lets the server read this request before the next one. The server sends no answer.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.read(&mut [0; 10]);
        }
        let are_told = || server.log().matches("scanner").count() >= 30;
        assert!(wait::until(SOON, are_told), "{}", server.log().len());
        assert_short(&server.log());
    }
}

/// Opens a connection from 127.0.0.HOST.
fn from(host: u8, server: SocketAddr) -> TcpStream {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a descriptor is left");
    let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0);
    socket.bind(&here.into()).expect("loopback has ports");
    socket.connect(&server.into()).expect("the server listens");
    socket.into()
}
