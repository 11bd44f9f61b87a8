//! Controllers of third party call control exchange commands.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use strowger_load::command::{Link, LinkEvent, LinkReceiver, PeerCommand, Plan};

fn start(receiver: LinkReceiver) -> Receiver<LinkEvent> {
    let (to, from) = channel();
    receiver
        .start(Arc::new(move |event| {
            let _ = to.send(event);
        }))
        .unwrap();
    from
}

fn next(from: &Receiver<LinkEvent>) -> LinkEvent {
    from.recv_timeout(Duration::from_secs(10)).expect("an event comes")
}

fn word(text: &str) -> LinkEvent {
    LinkEvent::Command(PeerCommand::from(text.as_bytes()))
}

/// Returns an address of its own each time, on which no other test listens.
fn free() -> SocketAddr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let address = std::net::Ipv4Addr::new(127, 0, 200, LAST.fetch_add(1, Ordering::Relaxed));
    std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap()
}

/// Sends until the other side has connected.
fn send(link: &Link, to: Option<&str>, text: &str) {
    for _ in 0..1_000 {
        if link.send(to, text.as_bytes()) {
            return;
        }
        // Between two tries.
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nobody connects");
}

#[test]
fn classic_words_go_both_ways_by_one_connection() {
    let (b, receiver) = Link::open(&Plan::Listen("127.0.0.1:0".parse().unwrap())).unwrap();
    assert!(b.is_classic());
    assert!(!b.send(None, b"too early"), "nobody is there yet");
    let address = receiver.address().unwrap();
    let at_b = start(receiver);
    let (a, receiver) = Link::open(&Plan::Call(address)).unwrap();
    let at_a = start(receiver);
    for n in 0..1_000 {
        send(&a, None, &format!("Call-ID: {n}\r\n\r\n"));
    }
    for n in 0..1_000 {
        assert_eq!(next(&at_b), word(&format!("Call-ID: {n}\r\n\r\n")));
    }
    send(&b, None, "answer");
    assert_eq!(next(&at_a), word("answer"));
    // Queued commands are sent before the end.
    send(&a, None, "last");
    a.close();
    assert_eq!(next(&at_b), word("last"));
    assert_eq!(next(&at_b), LinkEvent::Ended("".into()));
    assert!(!a.send(None, b"too late"));
}

#[test]
fn extended_controllers_answer_by_connections_of_their_own() {
    let (m, s1, s2) = (free(), free(), free());
    let file = format!("m;{m}\ns1;{s1}\ns2;{s2}\n");
    let open = |name: &str| Link::open(&Plan::extended(&file, name, name == "m").unwrap());
    let refused = open("m").err().expect("the others are not there yet").to_string();
    assert!(refused.contains("has to be started first"), "{refused}");
    let (first, receiver) = open("s1").unwrap();
    let at_first = start(receiver);
    let (second, receiver) = open("s2").unwrap();
    let at_second = start(receiver);
    let (master, receiver) = open("m").unwrap();
    let at_master = start(receiver);
    assert!(!master.is_classic());
    assert!(!master.send(Some("s9"), b"whom"));
    send(&master, Some("s2"), "to the second");
    send(&master, Some("s1"), "to the first");
    assert_eq!(next(&at_second), word("to the second"));
    assert_eq!(next(&at_first), word("to the first"));
    send(&first, Some("m"), "from the first");
    assert_eq!(next(&at_master), word("from the first"));
    send(&second, Some("m"), "from the second");
    assert_eq!(next(&at_master), word("from the second"));
    // A departing controller is known by name.
    second.close();
    assert_eq!(next(&at_master), LinkEvent::Ended("s2".into()));
    assert!(!master.send(Some("s2"), b"too late"));
    assert!(master.send(Some("s1"), b"still there"));
}

/// Checks that a slave answers the first command it receives, however early that is.
#[test]
fn a_word_that_is_heard_can_be_answered() {
    for round in 0..100 {
        let (m, s1) = (free(), free());
        let file = format!("m;{m}\ns1;{s1}\n");
        let (slave, receiver) = Link::open(&Plan::extended(&file, "s1", false).unwrap()).unwrap();
        let (said, answered) = channel();
        receiver
            .start(Arc::new(move |event| {
                if matches!(event, LinkEvent::Command(_)) {
                    let _ = said.send(slave.send(Some("m"), b"answer"));
                }
            }))
            .unwrap();
        let (master, receiver) = Link::open(&Plan::extended(&file, "m", true).unwrap()).unwrap();
        assert!(master.send(Some("s1"), b"question"));
        let at_master = start(receiver);
        assert_eq!(answered.recv_timeout(Duration::from_secs(10)), Ok(true), "round {round}");
        assert_eq!(next(&at_master), word("answer"));
        master.close();
    }
}

#[test]
fn words_may_come_in_pieces_and_must_end() {
    let (_link, receiver) = Link::open(&Plan::Listen("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = receiver.address().unwrap();
    let events = start(receiver);
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_nodelay(true).unwrap();
    for piece in [&b"Call-"[..], b"ID: 1\x1bCall-ID: 2\x1b", b"\x1bCall"] {
        peer.write_all(piece).unwrap();
        // So that each piece arrives by itself.
        std::thread::sleep(Duration::from_millis(20));
    }
    for text in ["Call-ID: 1", "Call-ID: 2", ""] {
        assert_eq!(next(&events), word(text));
    }
    // Two megabytes without an end: the connection is closed.
    let _ = peer.write_all(&vec![b'x'; 2 << 20]);
    assert_eq!(next(&events), LinkEvent::Ended("".into()));
}

#[test]
fn a_slow_receiver_makes_the_sender_wait_and_loses_nothing() {
    let (_link, receiver) = Link::open(&Plan::Listen("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = receiver.address().unwrap();
    let events = start(receiver.queue_limit(100));
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Far more than the buffers of a connection hold.
    let text = "x".repeat(60_000);
    let mut spoken = 0;
    let mut rest = Vec::new();
    while rest.is_empty() {
        let word = [text.as_bytes(), b"\x1b"].concat();
        let mut sent = 0;
        while sent < word.len() {
            match peer.write(&word[sent..]) {
                Ok(length) => sent += length,
                Err(_) => {
                    rest = word[sent..].to_vec();
                    break;
                }
            }
        }
        spoken += 1;
        assert!(spoken < 5_000, "nobody makes the speaker wait");
    }
    // The sender waits meanwhile.
    std::thread::sleep(Duration::from_millis(50));
    let mut kept = vec![next(&events)];
    while let Ok(word) = events.try_recv() {
        kept.push(word);
    }
    assert_eq!(kept.len(), 100, "so many are read before one is handled");
    kept.clear();
    peer.set_write_timeout(None).unwrap();
    let speaker = std::thread::spawn(move || peer.write_all(&rest));
    for _ in 100..spoken {
        assert_eq!(next(&events), word(&text));
    }
    speaker.join().unwrap().unwrap();
}
