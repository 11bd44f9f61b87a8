//! What an operator does with a server day by day: signals, starts that fail, files in the folder.

use std::net::UdpSocket;
use std::time::Duration;

use strowger_tests::server::Setup;
use strowger_tests::wire::Transport;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn sighup_is_logged_and_ignored() {
    let mut server = Setup::on(&[Transport::Udp]).start();
    server.process().signal(libc::SIGHUP);
    server.process().wait_for("SIGHUP ignored", 1, SOON);
    server.assert_answers(Transport::Udp);
    server.stop();
}

#[test]
fn a_start_without_its_port_leaves_no_file_behind() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    let mut server = Setup::default().listen(Transport::Udp, taken.local_addr().expect("it is bound")).prepare();
    let ended = server.try_start().end(SOON);
    assert_eq!(ended.code(), Some(1), "{}", server.log());
    assert!(server.log().contains("Address already in use"), "{}", server.log());
    let mut names: Vec<_> = std::fs::read_dir(server.folder())
        .expect("it is there")
        .map(|entry| entry.expect("it can be read").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["strowger.log", "strowger.toml"]);
}
