//! The server under a supervisor such as systemd: notifications, watchdog, socket activation.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use strowger_tests::binary::strowger;
use strowger_tests::process::Process;
use strowger_tests::server::Setup;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, status};
use strowger_tests::wire::{Transport, Wire};

const SOON: Duration = Duration::from_secs(20);

fn supervisor(folder: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(folder.join("notify")).expect("the folder can be written");
    socket.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
    socket
}

fn next(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1_024];
    let length = socket.recv(&mut bytes).expect("the server says something");
    String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
}

#[test]
fn a_supervisor_hears_that_it_is_ready_that_it_works_and_that_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = supervisor(folder.path());
    let mut server = Setup::on(&[Transport::Udp])
        .open_registrar()
        .environment("NOTIFY_SOCKET", &folder.path().join("notify").display().to_string())
        .environment("WATCHDOG_USEC", "400000")
        .start();
    let begun = Stopwatch::start();
    let first: Vec<String> = (0..6).map(|_| next(&socket)).collect();
    assert_eq!(first.iter().filter(|said| *said == "READY=1").count(), 1, "{first:?}");
    assert_eq!(first.iter().filter(|said| *said == "WATCHDOG=1").count(), 5, "{first:?}");
    assert!(begun.took().is_below(Duration::from_secs(5)), "{:?}", begun.took());
    server.process().signal(libc::SIGTERM);
    assert!((0..20).any(|_| next(&socket) == "STOPPING=1"));
    assert_eq!(server.process().end(SOON).code(), Some(0));
}

/// Starts the server with these sockets as descriptors 3, 4 and so on.
fn start_with(folder: &Path, sockets: &[RawFd]) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"]).arg(strowger()).args(["serve", "--config"]);
    command.arg(folder.join("strowger.toml")).current_dir(folder).env("LISTEN_FDS", sockets.len().to_string());
    let sockets = sockets.to_vec();
    // SAFETY: only descriptors are copied between fork and exec, first to numbers at which they do not overwrite one another.
    unsafe {
        command.pre_exec(move || {
            let away: Vec<RawFd> = sockets.iter().map(|fd| libc::fcntl(*fd, libc::F_DUPFD, 100)).collect();
            for (place, fd) in away.iter().enumerate() {
                if libc::dup2(*fd, 3 + place as RawFd) < 0 || libc::close(*fd) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Process::start("strowger", folder, &mut command)
}

#[test]
fn sockets_that_are_handed_over_are_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let [at_udp, at_tcp] = [udp.local_addr().expect("bound"), tcp.local_addr().expect("bound")];
    let config = |udp: &str| {
        let text = format!(
            "listen = [\"udp:{udp}\", \"tcp:{at_tcp}\"]\ndomains = [\"example.org\", \"127.0.0.1\"]\nstore.database = \"memory\"\nregistrar.durability = \"none\"\n"
        );
        std::fs::write(folder.path().join("strowger.toml"), text).expect("the folder can be written");
    };
    config(&at_udp.to_string());
    let mut server = start_with(folder.path(), &[tcp.as_raw_fd(), udp.as_raw_fd()]);
    server.wait_for("\nready", 1, SOON);
    for (transport, at) in [(Transport::Udp, at_udp), (Transport::Tcp, at_tcp)] {
        let mut wire = Wire::connect(transport, at, None).expect("the server listens");
        let uri = format!("sip:{at};transport={}", transport.name());
        wire.send(&Request::new("OPTIONS", &uri, transport.name(), wire.local()).bytes()).expect("it is sent");
        assert_eq!(status(&wire.final_response(SOON).expect("an answer")), Some(200), "{}", transport.name());
    }
    server.signal(libc::SIGTERM);
    server.end(SOON);
    // A socket without a listener is an error of the unit file, and reported.
    config(&strowger_tests::port::free_address().to_string());
    let mut server = start_with(folder.path(), &[tcp.as_raw_fd(), udp.as_raw_fd()]);
    assert_eq!(server.end(SOON).code(), Some(1));
    assert!(server.log().contains(&format!("udp:{at_udp}: an open socket was given")), "{}", server.log());
}
