//! No allocation per message once warm: counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Incoming, Outgoing, Transactions};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_message::{Index, Limits, Message};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more; it is not the one that is measured.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call goes on to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A message with a number written over its two placeholders.
struct Template {
    bytes: Vec<u8>,
    at: Vec<usize>,
}

impl Template {
    fn new(start: &str, cseq: &str, padding: usize) -> Self {
        let text = format!(
            "{start}\r\nVia: SIP/2.0/UDP 127.0.0.1:5070;branch=z9hG4bK########\r\nMax-Forwards: 70\r\n\
             From: <sip:a@x>;tag=f\r\nTo: <sip:b@x>;tag=t\r\nCall-ID: ########@x\r\nCSeq: {cseq}\r\n\
             X: {}\r\nContent-Length: 0\r\n\r\n",
            "x".repeat(padding)
        );
        let at = text.match_indices("########").map(|(at, _)| at).collect();
        Self { bytes: text.into_bytes(), at }
    }

    fn numbered(&mut self, number: u64) -> &[u8] {
        for &at in &self.at {
            for digit in 0..8 {
                self.bytes[at + digit] = b'a' + (number >> (4 * digit) & 15) as u8;
            }
        }
        &self.bytes
    }
}

/// One relayed call's worth: INVITE and BYE through a server and a client transaction each, 1,000 calls a second of
/// simulated time.
#[test]
fn warm_transactions_allocate_nothing() {
    let mut table = Transactions::new(TimerSettings::default(), [1, 2]);
    let (mut out, mut events, mut index) = (Outbox::new(), Vec::new(), Index::new());
    let arrival = Arrival {
        transport: Transport::Udp,
        listener: ListenerId(0),
        remote: "127.0.0.1:5070".parse().expect("an address"),
        flow: None,
    };
    let mut requests =
        [Template::new("INVITE sip:b@x SIP/2.0", "1 INVITE", 500), Template::new("BYE sip:b@x SIP/2.0", "2 BYE", 100)];
    let mut responses = [
        [Template::new("SIP/2.0 180 Ringing", "1 INVITE", 100), Template::new("SIP/2.0 200 OK", "1 INVITE", 400)],
        [Template::new("SIP/2.0 100 Trying", "2 BYE", 10), Template::new("SIP/2.0 200 OK", "2 BYE", 100)],
    ];
    let limits = Limits::default();
    let mut call = |number: u64, mono: u64| {
        let now = Now { mono, wall: 0 };
        for (which, method) in [b"INVITE".as_slice(), b"BYE"].into_iter().enumerate() {
            let bytes = requests[which].numbered(2 * number);
            index.parse(bytes, &limits).expect("well-formed");
            let message = Message::new(bytes, &index);
            let Incoming::New(server) = table.request(now, &message, &arrival, number as u32, &mut out) else {
                panic!()
            };
            let at = requests[which].at[0];
            let bytes = requests[which].numbered(2 * number + 1);
            let start = out.start();
            out.bytes.extend_from_slice(bytes);
            let branch = &bytes[at - 7..at + 8];
            let range = start..start + bytes.len();
            table.send(now, range, branch, method, arrival.reply(), number as u32, 9, &mut out);
            for (n, status) in [[180, 200], [100, 200]][which].into_iter().enumerate() {
                let bytes = responses[which][n].numbered(2 * number + 1);
                index.parse(bytes, &limits).expect("well-formed");
                let outgoing = table.response(now, &Message::new(bytes, &index), &mut out);
                assert!(matches!(outgoing, Outgoing::Deliver { owner: 9, .. }));
                let start = out.start();
                out.bytes.extend_from_slice(bytes);
                assert!(table.respond(now, server, status, start..start + bytes.len(), &mut out));
            }
        }
        out.clear();
        table.poll(now, &mut out, &mut events);
        let _ = table.deadline();
        events.clear();
        out.clear();
    };
    // Warm: past the 32 s that the longest transaction lives.
    for number in 0..45_000 {
        call(number, number);
    }
    let before = ALLOCATIONS.get();
    for number in 45_000..65_000 {
        call(number, number);
    }
    let allocations = ALLOCATIONS.get() - before;
    let counts = table.counts();
    assert_eq!(allocations, 0, "{counts:?}");
    assert!(counts.servers > 60_000 && counts.timers_waiting > 100_000, "{counts:?}");
}
