//! Connections in number.

use std::time::{Duration, Instant};

use strowger_tests::server::Setup;
use strowger_tests::text::{self, Request};
use strowger_tests::wire::Transport::Tcp;

/// Starts what follows with no more descriptors than this, although the system would allow more.
const FEW: &str = "ulimit -S -n 64 && exec \"$0\" \"$@\"";

/// The same, and the system allows no more.
const NONE: &str = "ulimit -n 64 && exec \"$0\" \"$@\"";

#[test]
fn the_server_takes_more_connections_than_a_shell_grants_descriptors() {
    let server = Setup::on(&[Tcp]).open_registrar().in_memory().under(&["sh", "-c", FEW]).start();
    let mut phones: Vec<_> = (0..100).map(|_| server.connect(Tcp)).collect();
    let uri = format!("sip:{}", server.address(Tcp));
    for (n, phone) in phones.iter_mut().enumerate() {
        let request = Request::new("OPTIONS", &uri, "tcp", phone.local());
        phone.send(&request.bytes()).expect("the kernel takes what it can hold");
        let answer = phone.final_response(Duration::from_secs(10));
        assert_eq!(answer.as_deref().and_then(text::status), Some(200), "connection {n}\n{}", server.log());
    }
}

/// It is tried again ten times a second.
#[test]
fn that_there_is_no_descriptor_left_is_said_now_and_then() {
    let server = Setup::on(&[Tcp]).open_registrar().in_memory().under(&["sh", "-c", NONE]).start();
    let _phones: Vec<_> = (0..100).map(|_| server.connect(Tcp)).collect();
    let said = || server.log().matches("connections cannot be accepted").count();
    let end = Instant::now() + Duration::from_secs(10);
    while said() == 0 {
        assert!(Instant::now() < end, "nobody hears of it: {}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(said(), 1, "{}", server.log());
}
