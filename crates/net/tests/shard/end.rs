//! Cleanup after shards have ended, and the report of the reason.

use crate::echo::settings;
use crate::shed::Slow;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Listener, Net, Service};

/// Panics at each message.
struct Fragile;

impl Service for Fragile {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, _: Now, _: &Arrival, _: &[u8], _: &mut Outbox) {
        panic!("as planted");
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn answered(&mut self, _: Now, (): (), _: &mut Outbox) {}
    fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {}
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, (): (), _: &mut Outbox) {}
}

/// The shard panics for UDP; for TCP the task of the connection, whose panic the runtime would swallow.
#[test]
fn a_panic_ends_all_shards_and_is_reported_to_the_threads_that_wait() {
    // With two shards the message may cross to the other shard, which then panics.
    for (transport, shards, what) in [(Transport::Udp, 2, "shard"), (Transport::Tcp, 1, "reads a connection")] {
        let listener = Listener::new(transport, "127.0.0.1:0".parse().unwrap());
        let node = Net::bind(settings(shards), vec![listener]).unwrap().spawn(|_, _| Fragile).unwrap();
        let handle = node.handle().clone();
        let (reporting, reports) = std::sync::mpsc::channel();
        node.handle().services().spawn(async move { reporting.send(handle.failed().await.to_string()) });
        let text = b"OPTIONS sip:a SIP/2.0\r\nCall-ID: 1\r\nContent-Length: 0\r\n\r\n";
        let address = node.handle().addresses()[0];
        if transport == Transport::Udp {
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(text, address).unwrap();
        } else {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(text).unwrap();
            // No shard continues.
            assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
        }
        let reported = reports.recv_timeout(Duration::from_secs(5)).expect("a report within five seconds");
        let failure = node.join().expect_err("they were not asked to end");
        assert!(failure.to_string().contains(what) && failure.to_string().ends_with("panicked"), "{failure}");
        assert_eq!(reported, failure.to_string());
    }
}

#[test]
fn a_panic_beside_the_shards_ends_them() {
    let listener = Listener::new(Transport::Udp, "127.0.0.1:0".parse().unwrap());
    let node = Net::bind(settings(1), vec![listener]).unwrap().spawn(|_, _| Slow::default()).unwrap();
    node.handle().spawn("a task of a test", async { panic!("as planted") });
    assert_eq!(node.join().unwrap_err().to_string(), "a task of a test panicked");
}

#[test]
fn shards_that_were_asked_to_end_have_not_failed() {
    let listener = Listener::new(Transport::Udp, "127.0.0.1:0".parse().unwrap());
    let node = Net::bind(settings(3), vec![listener]).unwrap().spawn(|_, _| Slow::default()).unwrap();
    node.handle().stop();
    node.join().unwrap();
}

#[test]
fn what_shards_are_made_from_ends_with_them() {
    let kept = Arc::new(());
    let watched = Arc::downgrade(&kept);
    let listener = Listener::new(Transport::Udp, "127.0.0.1:0".parse().unwrap());
    let factory = move |_, _| {
        let _ = &kept;
        Slow::default()
    };
    let node = Net::bind(settings(2), vec![listener]).unwrap().spawn(factory).unwrap();
    let handle = node.handle().clone();
    assert!(watched.upgrade().is_some());
    drop(node);
    assert!(watched.upgrade().is_none(), "a handle keeps it alive");
    drop(handle);
}
