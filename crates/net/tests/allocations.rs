//! Allocations of messages: none once warm, by UDP, across shards, by plain TCP; and of packets of media.

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use strowger_allocations::{Counting, of_process};
use strowger_core::entropy::Entropy;
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_media::quality::SpeechEncoding;
use strowger_media::rtp::Numbering;
use strowger_media::session::{
    PayloadFormat, PortPair, SessionEvent, SessionKey, SessionOrder, StreamKind, StreamOrder, StreamPeer,
};
use strowger_net::media::{MediaHandle, MediaSettings, MediaThreads};
use strowger_net::{Listener, Net, NetSettings, Node, Service, Shards, UdpSettings};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Sends back each message and sets a timer for it, as transactions do.
struct Echo {
    due: Option<u64>,
}

impl Service for Echo {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let start = out.start();
        out.bytes.extend_from_slice(bytes);
        out.send(arrival.reply(), start..out.bytes.len(), 1);
        self.due.get_or_insert(now.mono + 3);
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {
        self.due = None;
    }

    fn deadline(&mut self) -> Option<u64> {
        self.due
    }

    fn answered(&mut self, _: Now, _: (), _: &mut Outbox) {}
    fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {}
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

fn start(transport: Transport, shards: usize) -> Node<Echo> {
    let settings = NetSettings {
        shards: Shards::Fixed(shards),
        ring: 64,
        udp: UdpSettings { kernel_steering: false, ..UdpSettings::default() },
        ..NetSettings::default()
    };
    let listener = Listener::new(transport, SocketAddr::from(([127, 0, 0, 1], 0)));
    Net::bind(settings, vec![listener]).unwrap().spawn(|_, _| Echo { due: None }).unwrap()
}

/// Returns the number of allocations of the whole process while `exchange` runs, once warm. The result is the least of
/// several runs: a batch that is larger than any before, which depends on the scheduler, enlarges a buffer. An
/// allocation for a message would occur in each run.
fn counted(mut exchange: impl FnMut(usize)) -> u64 {
    (0..3_000).for_each(&mut exchange);
    let mut least = u64::MAX;
    for _ in 0..5 {
        let before = of_process();
        (0..10_000).for_each(&mut exchange);
        least = least.min(of_process() - before);
        if least == 0 {
            break;
        }
    }
    least
}

/// Borrows ports of the media thread.
fn lend(handle: &mut MediaHandle, woken: &Receiver<()>, pairs: u16) -> Vec<PortPair> {
    handle.order(0, SessionOrder::Lend { shard: 0, pairs }).unwrap();
    let mut lent = None;
    while lent.is_none() {
        woken.recv_timeout(Duration::from_secs(10)).unwrap();
        handle.take_events(|_, event| {
            if let SessionEvent::Lent { ports, .. } = event {
                lent = Some(ports);
            }
        });
    }
    lent.unwrap_or_default()
}

/// Opens a session that relays the packets of a caller to a callee: an echo would drop most of so many packets. Returns its
/// thread, and its addresses towards the caller and towards the callee.
fn relay(caller: SocketAddr, callee: SocketAddr) -> (MediaThreads, SocketAddr, SocketAddr) {
    let address = IpAddr::from([127, 0, 43, 9]);
    let settings = MediaSettings {
        addresses: vec![address],
        ports: 20_000..=20_003,
        dscp: 46,
        threads: 1,
        most_threads: 1,
        most_pairs: usize::MAX,
        timeout: None,
    };
    let (waking, woken) = channel();
    let wake = move |_| {
        // After the session is open, the receiver may be gone.
        let _ = waking.send(());
    };
    let (threads, mut handles) = MediaThreads::start(&settings, 1, &Entropy::new([7; 32]), wake).unwrap();
    let ports = lend(&mut handles[0], &woken, 2);
    let peer = |ports: PortPair, phone: SocketAddr| StreamPeer {
        ports,
        rtp: Some(phone),
        rtcp: None,
        behind_nat: None,
        formats: vec![PayloadFormat {
            payload_type: 0,
            other: Some(0),
            clock_rate: 8_000,
            is_event: false,
            encoding: SpeechEncoding::G711,
        }],
        sends: true,
        receives: true,
        may_send_first: true,
        heard: None,
    };
    let (near, far) = (peer(ports[0], caller), Some(peer(ports[1], callee)));
    let streams = vec![Some(StreamOrder { kind: StreamKind::Relay, near, far })];
    handles[0].order(0, SessionOrder::Set { key: SessionKey(1), version: 1, streams }).unwrap();
    // Orders are obeyed one after another.
    lend(&mut handles[0], &woken, 0);
    (threads, SocketAddr::new(address, ports[0].rtp), SocketAddr::new(address, ports[1].rtp))
}

fn message(i: usize) -> String {
    format!("OPTIONS sip:x SIP/2.0\r\nVia: SIP/2.0/UDP x\r\nCall-ID: {i}@x\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn nothing_is_allocated_once_warm() {
    let messages: Vec<String> = (0..97).map(message).collect();
    let mut buffer = [0; 4_096];
    for shards in [1, 3] {
        let node = start(Transport::Udp, shards);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(node.handle().addresses()[0]).unwrap();
        let count = counted(|i| {
            // Several messages are sent together, so that batches have more than one message.
            for k in 0..5 {
                socket.send(messages[(i + k) % messages.len()].as_bytes()).unwrap();
            }
            for _ in 0..5 {
                socket.recv(&mut buffer).unwrap();
            }
        });
        let total = node.handle().total();
        assert_eq!(count, 0, "by UDP with {shards} shards: {total:?}");
        assert!(shards == 1 || total.crossed_in > 20_000, "{total:?}");
    }
    let node = start(Transport::Tcp, 1);
    let mut stream = TcpStream::connect(node.handle().addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    let count = counted(|i| {
        let message = messages[i % messages.len()].as_bytes();
        stream.write_all(message).unwrap();
        stream.read_exact(&mut buffer[..message.len()]).unwrap();
    });
    assert_eq!(count, 0, "by TCP");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let callee = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (threads, port, far_port) = relay(socket.local_addr().unwrap(), callee.local_addr().unwrap());
    socket.connect(port).unwrap();
    let (mut numbering, mut datagram) = (Numbering::new(7, 1, 2), Vec::with_capacity(200));
    // The callee is heard: before that it gets few packets.
    Numbering::new(8, 1, 2).next(0, 160).write(&mut datagram);
    callee.send_to(&datagram, far_port).unwrap();
    socket.recv(&mut buffer).unwrap();
    let count = counted(|_| {
        datagram.clear();
        numbering.next(0, 160).write(&mut datagram);
        datagram.extend([0xff; 160]);
        socket.send(&datagram).unwrap();
        callee.recv(&mut buffer).unwrap();
    });
    assert_eq!(count, 0, "media: {:?}", threads.figures());
}
